"""A model's budget spent in rounds, with kernels whose best times are given instead of measured."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.database_samples import sample_target
from tuner.db import jobs, targets, workloads
from tuner.db.engine import Database, open_database
from tuner.db.jobs import Job, Task
from tuner.measure.outcome import Conditions, Timed, Trial
from tuner.models.task_scheduler import FIRST_ROUND, ROUND
from tuner.tuning import Elapsed, StopReason, TuningResult
from tuner.workers.jobs.model_jobs import tune_in_rounds
from tuner.workload.spec import parse_spec, to_document

SPECS = ("matmul:M=64,N=64,K=64", "matmul:M=128,N=128,K=128", "softmax:M=8,N=64")
Best = Callable[[int, int], float]
"""Seconds that a task has come to after so many trials."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = open_database(tmp_path / "jobs.db")
    yield opened
    opened.close()


def model_job(database: Database, trials: int, seconds: float | None = None) -> Job:
    with database.write() as session:
        target = targets.remember(session, sample_target())
        keys = []
        for spec in SPECS:
            workload = parse_spec(spec)
            keys.append(workloads.remember(session, workload, to_document(workload)))
        new = jobs.NewJob(
            workloads=tuple(keys),
            target=target,
            threads=1,
            trials=trials,
            seconds=seconds,
            kind=jobs.MODEL,
        )
        return jobs.create(session, new)[0]


def result(trials: int, seconds: float, reason: StopReason) -> TuningResult:
    conditions = Conditions(lane="cpu:1", isolation="none")
    outcome = Timed(
        samples_s=(seconds,), max_rel_error=0.0, conditions=conditions, artifact="ab" * 32
    )
    best = Trial(number=0, config={}, outcome=outcome)
    return TuningResult(
        reason=reason,
        best=(best,),
        trials=trials,
        elapsed=Elapsed(total_s=1.0, search_s=0.0, build_s=0.0, measure_s=0.0),
        expectation=None,
    )


def rounds_of(
    database: Database, job: Job, calls: tuple[int, ...], best: Best
) -> tuple[list[int], list[int]]:
    """The tasks in the order of their rounds, and the trials each has in the end."""
    order: list[int] = []
    done = [0] * len(job.tasks)

    def search_round(task: Task, trials: int, seconds: float | None) -> TuningResult:
        assert trials > done[task.position]
        order.append(task.position)
        done[task.position] = trials
        return result(trials, best(task.position, trials), StopReason.TRIALS)

    counts = {task.workload: count for task, count in zip(job.tasks, calls, strict=True)}
    assert tune_in_rounds(database, job, job.tasks, counts, search_round)
    return order, done


def test_the_budget_is_for_all_together(database: Database) -> None:
    job = model_job(database, trials=100)
    order, done = rounds_of(database, job, (1, 1, 1), lambda position, trials: 1e-3 / trials)
    assert sorted(order[:3]) == [0, 1, 2]
    assert sum(done) == 300
    assert min(done) >= FIRST_ROUND


def test_a_small_budget_is_not_exceeded(database: Database) -> None:
    job = model_job(database, trials=10)
    _, done = rounds_of(database, job, (1, 1, 1), lambda position, trials: 1e-3)
    assert sum(done) == 30 and min(done) >= FIRST_ROUND


def test_however_few_the_seconds_each_kernel_has_a_first_round(database: Database) -> None:
    job = model_job(database, trials=1000, seconds=1e-9)
    seen: list[tuple[int, int, float | None]] = []

    def search_round(task: Task, trials: int, seconds: float | None) -> TuningResult:
        seen.append((task.position, trials, seconds))
        return result(trials, 1e-3, StopReason.TRIALS)

    assert tune_in_rounds(database, job, job.tasks, {}, search_round)
    assert sorted(seen) == [(position, FIRST_ROUND, None) for position in range(3)]


def test_rounds_go_where_the_time_is(database: Database) -> None:
    job = model_job(database, trials=200)
    _, done = rounds_of(database, job, (1, 12, 1), lambda position, trials: 1e-3 / trials**0.5)
    assert done[1] > 2 * max(done[0], done[2])


def test_an_interrupted_turn_ends_it(database: Database) -> None:
    job = model_job(database, trials=100)
    assert not tune_in_rounds(database, job, job.tasks, {}, lambda task, trials, seconds: None)
    cancelled = result(FIRST_ROUND, 1e-3, StopReason.CANCELLED)
    assert not tune_in_rounds(database, job, job.tasks, {}, lambda task, trials, seconds: cancelled)


def test_what_is_exhausted_has_no_more_turns(database: Database) -> None:
    job = model_job(database, trials=1000)
    seen: list[int] = []

    def search_round(task: Task, trials: int, seconds: float | None) -> TuningResult:
        seen.append(task.position)
        return result(trials, 1e-3, StopReason.EXHAUSTED)

    assert tune_in_rounds(database, job, job.tasks, {}, search_round)
    assert sorted(seen) == [0, 1, 2]
    assert ROUND > 0
