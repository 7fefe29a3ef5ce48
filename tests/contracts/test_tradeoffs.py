"""Tradeoffs and cold caches, the same on both databases: who is kept, who is chosen, and
that nothing warm answers for something cold."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.database_samples import add_claimed, sample_kernel, sample_target, timed
from tuner.db import (
    history,
    jobs,
    kernels,
    leases,
    promoted_kernels,
    promotions,
    races,
    tradeoffs,
    trials,
)
from tuner.db.engine import Database, Session
from tuner.db.kernels import PROMOTED, SUPERSEDED, TRADEOFF, Kernel
from tuner.db.promotions import NewKernel
from tuner.db.revalidation import due
from tuner.db.served import served
from tuner.measure.cache import Cache
from tuner.measure.objective import FASTEST, NotMeasured, goal_of

TARGET = sample_target().key
CACHES: tuple[Cache, ...] = ("warm", "cold")


def sized(session: Session, median_s: float, workspace: int, code: int) -> NewKernel:
    new = sample_kernel(session, median_s=median_s)
    return replace(new, workspace_bytes=workspace, code_bytes=code)


def kept(database: Database, *sizes: tuple[float, int, int]) -> list[Kernel]:
    """What stays of a race whose first finalist is promoted; as choices list it."""
    lease = add_claimed(database)
    with database.write() as session:
        first, *others = [sized(session, *each) for each in sizes]
        before = kernels.find_promoted(session, first.workload, TARGET, 1)
        first = replace(first, previous=None if before is None else before.id)
        promotions.promote(session, first, lease=lease)
        tradeoffs.keep(session, others, lease)
        return list(tradeoffs.settle(session, first.workload, TARGET, 1))


def shown(items: list[Kernel]) -> list[tuple[str, float, int | None, int | None]]:
    return [(each.state, each.median_s, each.workspace_bytes, each.code_bytes) for each in items]


def test_a_race_keeps_who_needs_less_of_something(database: Database) -> None:
    items = kept(
        database,
        (1e-3, 4096, 900),
        (2e-3, 0, 900),  # less workspace
        (3e-3, 4096, 300),  # less code
        (4e-3, 4096, 300),  # slower with the same
        (5e-3, 0, 950),  # beaten in everything by the second
    )
    assert shown(items) == [
        (PROMOTED, 1e-3, 4096, 900),
        (TRADEOFF, 2e-3, 0, 900),
        (TRADEOFF, 3e-3, 4096, 300),
    ]
    with database.read() as session:
        ended = kernels.list_page(session, state=(SUPERSEDED,)).items
        assert {each.median_s for each in ended} == {5e-3, 4e-3}
        assert {each.job for each in items} == {items[0].job}


def test_a_better_kernel_ends_tradeoffs_that_it_beats(database: Database) -> None:
    kept(database, (2e-3, 4096, 900), (3e-3, 0, 900), (4e-3, 4096, 100))
    assert shown(kept(database, (1e-3, 0, 500))) == [
        (PROMOTED, 1e-3, 0, 500),
        (TRADEOFF, 4e-3, 4096, 100),
    ]


def test_a_replaced_kernel_may_stay_for_what_it_needs_less_of(database: Database) -> None:
    (first,) = kept(database, (2e-3, 0, 300))
    (second, *_) = kept(database, (1e-3, 0, 900))
    with database.write() as session:
        tradeoffs.keep_replaced(session, first.id)
        tradeoffs.keep_replaced(session, second.id)
        items = tradeoffs.settle(session, first.workload, TARGET, 1)
    assert [(each.id, each.state) for each in items] == [
        (second.id, PROMOTED),
        (first.id, TRADEOFF),
    ]


def test_an_objective_chooses_among_them_within_a_bound(database: Database) -> None:
    items = kept(database, (1e-3, 4096, 900), (2e-3, 0, 800), (3e-3, 0, 300))

    def medians(text: str, within: float | None = None) -> list[float]:
        best = tradeoffs.best_by(items, goal_of(text), within, what="copy")
        return [each.median_s for each in best]

    assert medians("time") == [1e-3] and medians("memory") == [2e-3]
    assert medians("code_size") == [3e-3] and medians("code_size", 1.5) == [2e-3]
    assert medians("code_size", 0.0) == [1e-3]
    assert medians("time,code_size") == [1e-3, 2e-3, 3e-3]
    assert medians("code_size,memory") == [3e-3]
    with pytest.raises(NotMeasured, match=r"of copy no kernel's calls a second was measured"):
        medians("throughput")


def test_figures_that_are_measured_later_are_kept_with_the_kernel(database: Database) -> None:
    (kernel,) = kept(database, (1e-3, 0, 900))
    with database.write() as session:
        tradeoffs.note_throughput(session, kernel.id, instances=2, calls_per_s=1800.0)
        tradeoffs.note_energy(session, kernel.id, 0.02)
        stored = kernels.get(session, kernel.id)
    assert (stored.instances, stored.calls_per_s, stored.energy_j) == (2, 1800.0, 0.02)
    assert stored.figures.calls_per_s == 1800.0 and kernel.figures.calls_per_s is None


def test_thread_counts_are_compared_only_where_none_is_asked_for(database: Database) -> None:
    with database.write() as session:
        for threads, median_s in ((1, 2e-3), (2, 1e-3)):
            promotions.promote(
                session, replace(sample_kernel(session, median_s=median_s), threads=threads)
            )
        key = sample_kernel(session).workload
        every = tradeoffs.choices(session, key, TARGET, None)
        two = tradeoffs.choices(session, key, TARGET, 2)
    assert [each.threads for each in every] == [1, 2] and [each.threads for each in two] == [2]


def test_tradeoffs_are_not_chosen_once_the_compiler_changed(database: Database) -> None:
    items = kept(database, (1e-3, 4096, 900), (2e-3, 0, 800))
    with database.write() as session:
        assert kernels.mark_stale(session, TARGET, "the compiler is another one") == 2
        left = tradeoffs.choices(session, items[0].workload, TARGET, 1)
        assert [each.id for each in left] == [items[0].id]


def test_warm_and_cold_kernels_stand_side_by_side(database: Database) -> None:
    with database.write() as session:
        warm = promotions.promote(session, sample_kernel(session, median_s=1e-3))
        cold = promotions.promote(
            session, replace(sample_kernel(session, median_s=5e-4), cache="cold")
        )
        again = replace(sample_kernel(session, median_s=4e-4), cache="cold", previous=cold.id)
        second = promotions.promote(session, again)
        place = (warm.workload, TARGET, 1)
        assert kernels.find_promoted(session, *place) == warm
        assert kernels.find_promoted(session, *place, cache="cold") == second
        assert kernels.neighbours(session, "copy", TARGET, 1) == (warm,)
        assert kernels.neighbours(session, "copy", TARGET, 1, cache="cold") == (second,)
        assert promoted_kernels.promoted_of(session, [warm.workload], TARGET, 1) == {
            warm.workload: warm
        }
        assert promoted_kernels.stamp_of(session, TARGET, 1).promoted == 1
        assert [each.id for each in kernels.list_page(session, cache="cold").items] == [second.id]
        assert tradeoffs.choices(session, *place, cache="cold") == (second,)
        every = races.CONFIRM_AFTER
        listed = races.due(session, TARGET, every=every, libraries={})
        assert [each.kernel for each in listed] == [warm.id]
        restored = promotions.rollback(session, second.id)
        assert restored is not None and restored.id == cold.id
        assert kernels.find_promoted(session, *place) == warm
        kernels.mark_stale(session, TARGET, "the compiler is another one")
        assert {each.cache for each in due(session, TARGET, TARGET)} == set(CACHES)
    for cache, kernel in zip(CACHES, (warm, cold), strict=True):
        now = served(database, workload=warm.workload, target=TARGET, threads=1, cache=cache)
        assert now is not None and now.kernel == kernel.id


def test_a_search_learns_from_trials_with_its_own_caches(database: Database) -> None:
    with database.write() as session:
        sample = sample_kernel(session)
        for cache in CACHES:
            new = jobs.NewJob(
                workloads=(sample.workload,),
                target=TARGET,
                threads=1,
                trials=4,
                cache=cache,
                goal=goal_of("time,memory") if cache == "cold" else FASTEST,
            )
            job, lease = leases.claim(session, jobs.create(session, new)[0].id, owner="test")
            assert (job.cache, job.goal) == (new.cache, new.goal)
            trials.record(session, lease, timed(1))
        later = session.now().replace(year=2100)
        for cache in CACHES:
            (task,) = history.recent_tasks(
                session, target=TARGET, threads=1, before=later, job="", position=0, cache=cache
            )
            assert jobs.get(session, task.job).cache == cache
        assert history.candidates_tried(session, sample.workload, TARGET, 1) == 1
