"""Earlier searches of a target, on both databases, and the losses that are answered from
them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.database_samples import (
    ManualClock,
    add_job,
    failed,
    queue_job,
    sample_kernel,
    sample_target,
    timed,
)
from tuner.api.losses import Losses
from tuner.db import history, jobs, leases, promotions, targets, trials
from tuner.db.engine import Database
from tuner.search.regret import HORIZON, LEAST, TAUGHT_BY
from tuner.search.strategies import DEFAULT_STRATEGY

TARGET = sample_target().key


def searched(
    database: Database, extent: int, seconds: list[float | None], *, elapsed_s: float = 0.0
) -> leases.Lease:
    """The lease of a job that tried a default of 1 s, then these candidates. It is newer than
    those before."""
    assert isinstance(database.clock, ManualClock)
    database.clock.advance(1.0)
    job = add_job(database, extent)
    with database.write() as session:
        lease = leases.claim(session, job, owner="first")[1]
        for number, median_s in enumerate([1.0, *seconds]):
            trial = failed(number) if median_s is None else timed(number, median_s)
            trials.record(session, lease, trial)
        leases.note_task(session, lease, 0, elapsed_s={"total": elapsed_s})
    return lease


def long(*first: float | None, then: float) -> list[float | None]:
    return [*first, *[then] * (TAUGHT_BY - len(first))]


def test_a_search_is_remembered_candidate_by_candidate(database: Database) -> None:
    searched(database, 8, long(3e-3, None, 2e-3, then=2.5e-3), elapsed_s=130.0)
    searched(database, 9, [1e-3] * (TAUGHT_BY - 2))
    with database.read() as session:
        (search,) = history.searches_on(session, TARGET, 1, least=TAUGHT_BY, first=4)
        assert history.searches_on(session, TARGET, 2, least=TAUGHT_BY, first=4) == ()
        assert history.searches_on(session, "other", 1, least=TAUGHT_BY, first=4) == ()
    assert search.seconds == (3e-3, None, 2e-3, 2.5e-3) and search.best_s == 2e-3
    assert search.s_per_trial == pytest.approx(130.0 / (TAUGHT_BY + 1))


def test_the_best_known_is_that_of_all_searches_of_a_workload(database: Database) -> None:
    searched(database, 8, long(then=3e-3))
    searched(database, 8, long(then=2e-3))
    searched(database, 8, [1e-3])
    with database.read() as session:
        (search,) = history.searches_on(session, TARGET, 1, least=TAUGHT_BY, first=2)
    assert (search.seconds, search.best_s) == ((2e-3, 2e-3), 1e-3)


def test_only_searches_that_learn_count(database: Database) -> None:
    with database.write() as session:
        sample = queue_job(session, 8)
        for strategy, kind in (("random", jobs.TUNE), (DEFAULT_STRATEGY, jobs.PREPARE)):
            job, _ = jobs.create(
                session,
                jobs.NewJob(
                    workloads=(sample.tasks[0].workload,),
                    target=sample.target,
                    threads=1,
                    trials=100,
                    strategy=strategy,
                    kind=kind,
                ),
            )
            lease = leases.claim(session, job.id, owner="first")[1]
            for number in range(TAUGHT_BY + 1):
                trials.record(session, lease, timed(number))
    with database.read() as session:
        assert history.searches_on(session, TARGET, 1, least=TAUGHT_BY, first=2) == ()
        assert history.candidates_tried(session, sample.tasks[0].workload, TARGET, 1) == 0


@pytest.mark.parametrize(("candidates", "expected"), [(0, 1), (1, 1), (5, 5)])
def test_candidates_are_trials_without_the_default(
    database: Database, candidates: int, expected: int
) -> None:
    """A single trial is that of a candidate: the default is not measured then."""
    searched(database, 8, [1e-3] * candidates)
    with database.read() as session:
        key = jobs.list_page(session, limit=1).items[0].tasks[0].workload
        assert history.candidates_tried(session, key, TARGET, 1) == expected
        assert history.candidates_tried(session, key, TARGET, 2) == 0


@pytest.mark.slow
def test_losses_are_recorded_ones_until_the_target_has_searches(database: Database) -> None:
    losses = Losses()
    with database.write() as session:
        targets.remember(session, sample_target())
        before = losses.after(session, TARGET, 1, candidates=1)
    assert before is not None and before.recorded and before.searches == 26
    assert before.more is not None and before.more.seconds is None
    for extent in range(LEAST):
        searched(
            database, 8 + extent, long(1.2e-3, 1.1e-3, then=1e-3), elapsed_s=2.0 * (TAUGHT_BY + 1)
        )
    with database.write() as session:
        assert losses.after(session, TARGET, 1, candidates=1) == before, "kept meanwhile"
        promotions.promote(session, sample_kernel(session))
        after = losses.after(session, TARGET, 1, candidates=1)
    assert after is not None and not after.recorded and after.searches == LEAST
    assert after.median == after.within == pytest.approx(0.2)
    assert after.more is not None
    assert (after.more.trials, after.more.seconds, after.more.within) == (2, 4.0, 0.0)


def test_a_kernel_is_answered_by_what_was_tried_for_it(database: Database) -> None:
    losses = Losses()
    lease = searched(database, 8, [1e-3] * 4)
    with database.write() as session:
        kernel = promotions.promote(session, sample_kernel(session), lease=lease)
        answer = losses.of_kernel(session, kernel)
        assert answer is not None and answer.candidates == 4
        orphan = replace(kernel, job=None, workload="f" * 64)
        assert losses.of_kernel(session, orphan) is None
    searched(database, 8, [1e-3] * (HORIZON + 1))
    with database.read() as session:
        assert losses.of_kernel(session, kernel) is None, "after a long search nothing is said"


@pytest.mark.parametrize(("settings", "candidates"), [({}, 1), ({jobs.NEIGHBOUR: "k"}, None)])
def test_a_prepared_kernel_is_one_candidate_unless_it_is_a_neighbours(
    database: Database, settings: dict[str, str], candidates: int | None
) -> None:
    with database.write() as session:
        sample = queue_job(session, 8)
        job, _ = jobs.create(
            session,
            jobs.NewJob(
                workloads=(sample.tasks[0].workload,),
                target=sample.target,
                threads=1,
                trials=1,
                kind=jobs.PREPARE,
                settings=settings,
            ),
        )
        lease = leases.claim(session, job.id, owner="first")[1]
        kernel = promotions.promote(session, sample_kernel(session), lease=lease)
        answer = Losses().of_kernel(session, kernel)
    assert (None if answer is None else answer.candidates) == candidates
