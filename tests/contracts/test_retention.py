"""What retention lets go and what it never touches, the same on both databases."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from db import artifacts, events, jobs, kernels, leases, targets, trials, workloads
from db.engine import Database
from db.jobs import NewJob
from tests.database_samples import sample_kernel, sample_target
from tuner.app.retention import BATCH, Keep, prune
from tuner.measure.outcome import Conditions, Timed, Trial
from tuner.workload.spec import to_document, workload_from_params

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
CONDITIONS = Conditions(lane="cpu:1", isolation="none")
DIGEST = "ab" * 32


class Clock:
    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def job(database: Database, count: int, *, state: str | None = "succeeded", kernel: int | None = None, extent: int = 16) -> str:
    """A job with `count` trials and as many events beside those of its states; `kernel` is the number of the trial that won."""
    workload = workload_from_params("matmul", {"M": extent, "N": 8, "K": 4})
    with database.write() as session:
        target = targets.remember(session, sample_target())
        key = workloads.remember(session, workload, to_document(workload))
        made, _ = jobs.create(session, NewJob(workloads=(key,), target=target, threads=1, trials=count))
        _, lease = leases.claim(session, made.id, owner="test")
        for number in range(count):
            outcome = Timed(samples_s=(1e-3,), max_rel_error=0.0, conditions=CONDITIONS, artifact=f"{number:064x}")
            trials.record(session, lease, Trial(number=number, config={}, outcome=outcome))
            events.append(session, made.id, "trial", {"number": number})
        if kernel is not None:
            artifacts.remember(session, sha256=DIGEST, size_bytes=1, kind="library")
            sample = sample_kernel(session)
            names = ("config", "median_s", "ci95_s", "gflops", "roofline_fraction", "max_rel_error", "verified")
            new = kernels.NewKernel(
                workload=key, target=target, threads=1, artifact=DIGEST, schedule={}, default_median_s=None, versions={},
                trial=kernel, **{name: getattr(sample, name) for name in names},
            )  # fmt: skip
            kernels.promote(session, new, lease=lease)
        if state is not None:
            leases.finish(session, lease, state, error="it broke" if state == "failed" else None)
    return made.id


def left(database: Database, job_id: str) -> tuple[list[int], int]:
    """Numbers of the trials and count of the events that are still there."""
    with database.read() as session:
        return sorted(trials.numbers(session, job_id)), len(events.after(session, job_id, 0, limit=100_000))


def test_what_ended_long_ago_goes_and_the_job_and_its_kernel_stay(database: Database, clock: Clock) -> None:
    old = job(database, 5, kernel=3)
    clock.now += timedelta(days=10)
    fresh = job(database, 2, extent=17)
    with database.read() as session:
        before = jobs.get(session, old)
    pruned = prune(database, Keep(days=7))
    assert (pruned.jobs, pruned.trials, pruned.events) == (1, 4, 9)  # queued, running, five trials, kernel, succeeded
    assert left(database, old) == ([3], 0) and left(database, fresh) == ([0, 1], 5)
    with database.read() as session:
        assert jobs.get(session, old) == before
        (kernel,) = kernels.list_page(session).items
        assert trials.get(session, old, kernel.trial or 0).trial.number == 3
    assert prune(database, Keep(days=7)).jobs == 0


def test_a_job_that_goes_on_loses_nothing(database: Database, clock: Clock) -> None:
    running = job(database, 3, state=None)
    clock.now += timedelta(days=100)
    assert prune(database, Keep(days=1, trials=1, events=1)).jobs == 0
    assert left(database, running)[0] == [0, 1, 2]


@pytest.mark.parametrize("state", ["cancelled", "failed"])
def test_a_job_that_may_be_resumed_keeps_all_or_nothing(database: Database, clock: Clock, state: str) -> None:
    plain, winner = job(database, 3, state=state), job(database, 3, state=state, kernel=1, extent=17)
    clock.now += timedelta(days=2)
    assert prune(database, Keep(days=1)).trials == 3
    assert left(database, plain)[0] == [] and left(database, winner)[0] == [0, 1, 2]
    with database.write() as session:
        assert jobs.resume(session, plain).state == "queued"
        _, lease = leases.claim(session, plain, owner="test")
        outcome = Timed(samples_s=(1e-3,), max_rel_error=0.0, conditions=CONDITIONS, artifact="0" * 64)
        trials.record(session, lease, Trial(number=0, config={}, outcome=outcome))


def test_by_number_the_newest_jobs_keep_theirs(database: Database, clock: Clock) -> None:
    found = []
    for place in range(3):
        found.append(job(database, 4, extent=16 + place))
        clock.now += timedelta(seconds=1)
    first, second, third = found
    pruned = prune(database, Keep(trials=9))
    assert (pruned.jobs, pruned.trials, pruned.events) == (1, 4, 0)
    assert [len(left(database, one)[0]) for one in (first, second, third)] == [0, 4, 4]
    assert prune(database, Keep(events=7)).events == 14
    assert [left(database, one)[1] for one in (first, second, third)] == [0, 0, 7]


@pytest.mark.slow
def test_many_go_in_small_transactions(database: Database, clock: Clock) -> None:
    large = job(database, 2 * BATCH + 5, kernel=7)
    clock.now += timedelta(days=2)
    pruned = prune(database, Keep(days=1))
    assert (pruned.trials, pruned.events) == (2 * BATCH + 4, 2 * BATCH + 9)
    assert left(database, large) == ([7], 0)
