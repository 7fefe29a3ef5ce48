"""A model's budget spent in rounds, with kernels whose best times are given instead of measured."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.database_samples import sample_target, timed
from tests.support.databases import new_database
from tuner.db import jobs, leases, targets, trials, workloads
from tuner.db.engine import Database
from tuner.db.jobs import Job, Task
from tuner.measure.outcome import Conditions, Timed, Trial
from tuner.models.tuning.task_scheduler import FIRST_ROUND, ROUND
from tuner.models.tuning.time_plan import TimePlan
from tuner.models.workloads import ModelWorkload
from tuner.tuning import Elapsed, StopReason, TuningResult
from tuner.workers.jobs.model_jobs import ModelCalls, model_calls
from tuner.workers.jobs.model_rounds import needless_tasks, tune_in_rounds
from tuner.workers.jobs.model_time import plan_of
from tuner.workers.jobs.progress import ModelGain, ModelLate, ModelRound, Progress
from tuner.workload.spec import parse_spec, to_document

SPECS = ("matmul:M=64,N=64,K=64", "matmul:M=128,N=128,K=128", "softmax:M=8,N=64")
Best = Callable[[int, int], float]
"""Seconds that a task has come to after so many trials."""


@pytest.fixture
def database(tmp_path: Path) -> Iterator[Database]:
    opened = new_database(tmp_path / "jobs.db")
    yield opened
    opened.close()


def model_job(
    database: Database, trials: int, seconds: float | None = None, specs: Sequence[str] = SPECS
) -> Job:
    with database.write() as session:
        target = targets.remember(session, sample_target())
        keys = []
        for spec in specs:
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
    )


def rounds_of(
    database: Database, job: Job, calls: tuple[int, ...], best: Best
) -> tuple[list[int], list[int]]:
    """The tasks in the order of their rounds, and the trials each has in the end."""
    order: list[int] = []
    done = [0] * len(job.tasks)

    def search_round(
        task: Task, trials: int, seconds: float | None, following: Task | None
    ) -> TuningResult:
        assert trials > done[task.position]
        order.append(task.position)
        done[task.position] = trials
        return result(trials, best(task.position, trials), StopReason.TRIALS)

    counts = {task.workload: count for task, count in zip(job.tasks, calls, strict=True)}
    assert tune_in_rounds(
        database, job, job.tasks, ModelCalls(counts=counts), search_round, plan(None)
    )
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


def test_a_restarted_job_plans_with_what_it_had(database: Database) -> None:
    job = model_job(database, trials=10, seconds=60.0)
    searched = replace(job.tasks[0], trials_done=4, elapsed_s={"total": 20.0})
    job = replace(job, tasks=(searched, *job.tasks[1:]))
    made = plan_of(job, job.tasks, (), (), begin_s=time.monotonic())
    assert made.tried(0) and not made.tried(1)
    assert made.left_s == pytest.approx(40.0, abs=1.0)
    # Promotions of two finalists at the pace of the one, and of the others at the usual pace.
    assert made.search_s() == pytest.approx(40.0 - 2 * 5.6 - 2 * 1.6, abs=1.0)


def test_a_restarted_job_has_no_more_trials_than_it_was_given(database: Database) -> None:
    """One of its kernels is promoted, and had most of the trials."""
    job = model_job(database, trials=10)
    promoted = replace(job.tasks[0], state="succeeded", trials_done=24)
    job = replace(job, tasks=(promoted, *job.tasks[1:]))
    done = {1: 0, 2: 0}

    def search_round(
        task: Task, trials: int, seconds: float | None, following: Task | None
    ) -> TuningResult:
        done[task.position] = trials
        return result(trials, 1e-3, StopReason.TRIALS)

    calls = ModelCalls(counts={})
    assert tune_in_rounds(database, job, job.tasks[1:], calls, search_round, plan(None))
    assert sum(done.values()) == 6


class Clock:
    def __init__(self) -> None:
        self.now_s = 10.0

    def __call__(self) -> float:
        return self.now_s


def plan(
    seconds: float | None, clock: Clock | None = None, stored: frozenset[int] = frozenset()
) -> TimePlan:
    clock = clock or Clock()
    return TimePlan(
        seconds=seconds, kernels=len(SPECS), clock=clock, begin_s=clock(), stored=stored
    )


def timed_rounds(
    database: Database,
    seconds: float,
    trial_s: float,
    late_s: float = 0.0,
    stored: frozenset[int] = frozenset(),
) -> tuple[list[tuple[int, int]], list[Progress], float]:
    """Rounds by task and trials in all, what an observer saw, and the time they took."""
    clock, seen, events = Clock(), list[tuple[int, int]](), list[Progress]()
    job, done = model_job(database, trials=1000, seconds=seconds), [0] * len(SPECS)

    def search_round(
        task: Task, trials: int, left_s: float | None, following: Task | None
    ) -> TuningResult:
        assert left_s is not None and left_s > 0
        took = min(trials - done[task.position], max(int(left_s / trial_s), 1))
        clock.now_s += took * trial_s
        done[task.position] += took
        seen.append((task.position, done[task.position]))
        return result(done[task.position], 1e-3 / done[task.position], StopReason.SECONDS)

    given = plan(seconds, clock, stored)
    clock.now_s += late_s
    assert tune_in_rounds(
        database, job, job.tasks, ModelCalls(counts={}), search_round, given, events.append
    )
    return seen, events, clock.now_s - 10.0


def test_rounds_leave_time_for_promotions(database: Database) -> None:
    seen, events, took = timed_rounds(database, 200.0, 1.0)
    assert {position for position, _ in seen} == {0, 1, 2}
    assert 120 < took < 190  # three kernels with five contestants each
    gain = events[-1]
    assert isinstance(gain, ModelGain)
    assert gain.after_s < gain.before_s and 0 < gain.seconds <= took


def test_an_observer_sees_how_far_the_model_is(database: Database) -> None:
    _, events, _ = timed_rounds(database, 200.0, 1.0)
    rounds = [event for event in events if isinstance(event, ModelRound)]
    assert [event.searched for event in rounds[:4]] == [0, 1, 2, 3]
    assert {(event.budget, event.kernels) for event in rounds} == {(3000, 3)}
    assert [event.trials for event in rounds] == sorted(event.trials for event in rounds)


def test_without_time_there_are_no_rounds(database: Database) -> None:
    assert timed_rounds(database, 2.0, 1.0, late_s=3.0)[0] == []


def test_too_little_time_is_said(database: Database) -> None:
    _, events, _ = timed_rounds(database, 5.0, 1.5)
    (late,) = [event for event in events if isinstance(event, ModelLate)]
    assert (late.unsearched, late.kernels) == (2, 3) and late.seconds > 1
    _, events, _ = timed_rounds(database, 200.0, 1.0)
    assert not any(isinstance(event, ModelLate) for event in events)


def test_kernels_that_stay_as_they_are_stored_are_named(database: Database) -> None:
    seen, events, _ = timed_rounds(database, 4.0, 1.5, stored=frozenset({0, 1, 2}))
    (late,) = [event for event in events if isinstance(event, ModelLate)]
    assert len({position for position, _ in seen}) + late.kept == 3 and late.kept > 0
    assert late.unsearched == 0 and f"{late.kept} of 3 stay as the database has them" in late.text


def test_time_for_a_few_first_rounds_goes_to_the_heaviest(database: Database) -> None:
    seen, _, _ = timed_rounds(database, 7.0, 1.5)
    assert seen[0][0] == 1 and len({position for position, _ in seen}) < 3


def test_rounds_go_where_the_time_is(database: Database) -> None:
    job = model_job(database, trials=200)
    _, done = rounds_of(database, job, (1, 12, 1), lambda position, trials: 1e-3 / trials**0.5)
    assert done[1] > 2 * max(done[0], done[2])


def test_the_next_first_round_is_known_while_one_is_searched(database: Database) -> None:
    """So that it can be prepared: even where a kernel turns out to have no schedule."""
    job = model_job(database, trials=100)
    rounds: list[tuple[int, int | None]] = []

    def search_round(
        task: Task, trials: int, seconds: float | None, following: Task | None
    ) -> TuningResult:
        rounds.append((task.position, None if following is None else following.position))
        found = result(trials, 1e-3 / trials, StopReason.TRIALS)
        return replace(found, best=()) if len(rounds) == 1 else found

    assert tune_in_rounds(database, job, job.tasks, ModelCalls(counts={}), search_round, plan(None))
    positions = [position for position, _ in rounds]
    assert sorted(positions[:3]) == [0, 1, 2] and len(rounds) > 3
    assert [following for _, following in rounds] == [*positions[1:3], *[None] * (len(rounds) - 2)]


def test_a_chain_comes_last_and_needs_no_kernel_where_it_is_slower(database: Database) -> None:
    job = model_job(database, trials=100)
    keys = [task.workload for task in job.tasks]
    calls = ModelCalls(counts=dict.fromkeys(keys, 1), chains={keys[1]: (keys[0], keys[2])})
    order: list[int] = []

    def search_round(
        task: Task, trials: int, seconds: float | None, following: Task | None
    ) -> TuningResult:
        order.append(task.position)
        return result(trials, 1e-3, StopReason.TRIALS)

    assert tune_in_rounds(database, job, job.tasks, calls, search_round, plan(None))
    assert sorted(order[:2]) == [0, 2] and order[2] == 1  # though it is the heaviest
    with database.write() as session:
        _, lease = leases.claim(session, job.id, owner="test")
    assert needless_tasks(database, lease, job.tasks, calls) == {1}
    with database.read() as session:
        states = [task.state for task in jobs.get(session, job.id).tasks]
    assert states[1] == "succeeded" and states[0] != "succeeded"


def test_after_a_restart_a_chain_is_compared_with_kernels_that_are_promoted(
    database: Database,
) -> None:
    job = model_job(database, trials=100)
    keys = [task.workload for task in job.tasks]
    calls = ModelCalls(counts=dict.fromkeys(keys, 1), chains={keys[1]: (keys[0], keys[2])})
    with database.write() as session:
        _, lease = leases.claim(session, job.id, owner="test")
        for position, median_s in enumerate((1e-3, 5e-3, 1e-3)):
            trials.record(session, lease, timed(0, median_s), position=position)
        for position in (0, 2):
            leases.note_task(session, lease, position, state="succeeded")
    assert needless_tasks(database, lease, job.tasks[1:2], calls) == {0}


def test_siblings_come_last_with_who_reads_them(database: Database) -> None:
    job = model_job(database, trials=100)
    apart, joint, reader = (
        ModelWorkload(workload=parse_spec(spec), calls=count)
        for spec, count in zip(SPECS, (2, 1, 1), strict=True)
    )
    key, *keys = (part.workload.key for part in (apart, joint, reader))
    both = [
        replace(part, instead_of=(key, key), beside=(other,))
        for part, other in zip((joint, reader), reversed(keys), strict=True)
    ]
    calls = model_calls([apart, *both])
    assert calls.chains == dict.fromkeys(keys, (key, key))
    assert calls.beside == {keys[0]: (keys[1],), keys[1]: (keys[0],)}
    order: list[int] = []

    def search_round(
        task: Task, trials: int, seconds: float | None, following: Task | None
    ) -> TuningResult:
        order.append(task.position)
        return result(trials, 1e-3, StopReason.TRIALS)

    assert tune_in_rounds(database, job, job.tasks, calls, search_round, plan(None))
    assert order[0] == 0 and sorted(order[1:3]) == [1, 2]


def probed_rounds(database: Database, promotes: bool) -> tuple[int, list[int]]:
    """Trials of sixteen kernels, and what was promoted between their rounds, in 0.2 s each."""
    specs = tuple(f"softmax:M=8,N={16 * n}" for n in range(1, 17))
    job, clock = model_job(database, trials=1000, seconds=45.0, specs=specs), Clock()
    made = TimePlan(seconds=45.0, kernels=len(specs), clock=clock, begin_s=clock())
    done, promoted = [0] * len(specs), list[int]()

    def search_round(
        task: Task, trials: int, seconds: float | None, following: Task | None
    ) -> TuningResult:
        clock.now_s += 1.0
        done[task.position] += 1
        return result(done[task.position], 1e-3 / done[task.position], StopReason.SECONDS)

    def promote(place: int) -> bool:
        promoted.append(place)
        clock.now_s += 0.2
        made.promoted(place, 1, 0.2)
        return True

    given = promote if promotes else None
    calls = ModelCalls(counts={})
    assert tune_in_rounds(database, job, job.tasks, calls, search_round, made, promote=given)
    return sum(done), promoted


def test_a_promotion_between_rounds_tells_what_the_others_take(database: Database) -> None:
    """It is cheap: the rounds go on for longer than they would, and need no other."""
    before, none = probed_rounds(database, promotes=False)
    trials, promoted = probed_rounds(database, promotes=True)
    assert none == [] and len(promoted) == 1
    assert trials > before + 5


def test_an_interrupted_turn_ends_it(database: Database) -> None:
    job = model_job(database, trials=100)
    assert not tune_in_rounds(
        database,
        job,
        job.tasks,
        ModelCalls(counts={}),
        lambda task, trials, seconds, following: None,
        plan(None),
    )
    cancelled = result(FIRST_ROUND, 1e-3, StopReason.CANCELLED)
    assert not tune_in_rounds(
        database,
        job,
        job.tasks,
        ModelCalls(counts={}),
        lambda task, trials, seconds, following: cancelled,
        plan(None),
    )


def test_what_is_exhausted_has_no_more_turns(database: Database) -> None:
    job = model_job(database, trials=1000)
    seen: list[int] = []

    def search_round(
        task: Task, trials: int, seconds: float | None, following: Task | None
    ) -> TuningResult:
        seen.append(task.position)
        return result(trials, 1e-3, StopReason.EXHAUSTED)

    assert tune_in_rounds(database, job, job.tasks, ModelCalls(counts={}), search_round, plan(None))
    assert sorted(seen) == [0, 1, 2]
    assert ROUND > 0
