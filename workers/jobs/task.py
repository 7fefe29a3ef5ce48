"""Searches one workload of a job, storing each trial before the searcher learns of it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tuner.db import events, leases, proposals, trials
from tuner.db.engine import Database
from tuner.db.jobs import MODEL, PREPARE, REVALIDATE, TUNE, Job, Task, spent_s
from tuner.db.leases import Lease
from tuner.measure.outcome import Failed, Outcome, Timed, Trial
from tuner.search.domain import Domain
from tuner.search.external import ExternalSearcher, Proposals
from tuner.search.searcher import Searcher
from tuner.search.strategies import EXTERNAL, LEARNING
from tuner.spaces.core.target_space import TargetSpace
from tuner.tuning import (
    BestImproved,
    Budget,
    RoundPlanned,
    Stopped,
    TrialRecorded,
    TuningResult,
    tune,
)
from tuner.workers.backends.table import backend_of
from tuner.workers.fleet.messages import Problem
from tuner.workers.fleet.notices import Notice
from tuner.workers.fleet.ray_measurer import RayMeasurer
from tuner.workers.jobs.kernel_cache import given_configs, is_estimated
from tuner.workers.jobs.plausibility import Judge
from tuner.workers.jobs.progress import Observer, WorkerNotice
from tuner.workers.jobs.search import Begin, GivenPoints, prepared_search
from tuner.workers.jobs.transfer import Start, start_of

_DEFAULT_CALLS = 4  # to check it, to warm up and to time it
# Of a search's seconds, that these calls may take. How long they take is a guess: where it is
# five times as long, half of the search is left.
_DEFAULT_SHARE = 0.1
LEAST_S = 0.1  # seconds of a search that begins late
NOTE_EVERY = 16  # trials between two updates of the elapsed times in the database


@dataclass(frozen=True, kw_only=True)
class TaskRun:
    """What a task's search needs."""

    database: Database
    lease: Lease
    job: Job
    task: Task
    problem: Problem
    space: TargetSpace[object]
    searcher: Searcher  # a new one, or one that continues an earlier search of the task
    trials: int  # at most, including those of earlier runs
    judge: Judge
    recorded: Sequence[Trial]
    measurer: RayMeasurer
    observer: Observer
    interrupted: Callable[[], bool]  # whether to stop now
    check: Callable[[], None]  # raises once the lease is lost
    default_fits: bool = True  # whether there is time for calls of the default schedule


def rest_of(job: Job, task: Task) -> Job:
    """The job's budget for a task, without the seconds that it had in earlier runs."""
    if job.seconds is None:
        return job
    return replace(job, seconds=max(job.seconds - spent_s(job)[task.position], LEAST_S))


def known_outcomes(recorded: Sequence[Trial]) -> dict[str, Outcome]:
    """Outcomes by library, so that a restarted search does not time the same code again."""
    outcomes = (trial.outcome for trial in recorded)
    return {
        outcome.artifact: outcome
        for outcome in outcomes
        if isinstance(outcome, Timed) and not outcome.conditions.reused
    }


def notice_to(observer: Observer) -> Callable[[Notice], None]:
    return lambda notice: observer(WorkerNotice(message=notice.message))


def search(run: TaskRun) -> TuningResult:
    """Tunes until the budget is spent or the run is interrupted.

    Candidates in flight are then given up. Raises StaleLease and FleetError.
    """
    loop = tune(
        space=run.space.space,
        searcher=run.searcher,
        measurer=run.measurer,
        budget=Budget(
            trials=run.trials,
            seconds=run.job.seconds,
            waits_for_one=run.job.kind == TUNE,
            # Where time is not all, nobody knows what cannot be beaten.
            target_s=None if run.job.goal.of_trials else run.judge.floor_s,
        ),
        clock=time.monotonic,
        recorded=run.recorded,
        cancelled=run.interrupted,
        with_default=run.default_fits and _measures_default(run.job),
        waiting=lambda: isinstance(run.searcher, ExternalSearcher) and run.searcher.waiting,
    )
    started = time.monotonic()
    parts = Tally(run.task, run.recorded)
    for event in loop:
        run.check()
        match event:
            case TrialRecorded(trial=trial) as recorded:
                parts.add(trial)
                _store(
                    run,
                    recorded,
                    parts.elapsed(time.monotonic() - started)
                    if parts.count % NOTE_EVERY == 0
                    else None,
                )
            case BestImproved(trial=trial, median_s=median_s, previous_s=previous_s):
                _announce(run, trial, median_s, previous_s)
            case RoundPlanned():
                pass
            case Stopped(result=result):
                run.measurer.close()
                parts.search_s += result.elapsed.search_s
                with run.database.write("elapsed") as session:
                    elapsed, why = parts.elapsed(time.monotonic() - started), result.reason.value
                    leases.note_task(
                        session, run.lease, run.task.position, elapsed_s=elapsed, stopped=why
                    )
                run.observer(event)
                return result
        run.observer(event)
    raise AssertionError("the tuning loop ended without a result")


def default_fits(problem: Problem, *, run_timeout_s: float, seconds: float | None) -> bool:
    """Whether a trial, and a search of so many seconds, have time for a few calls of the
    default schedule.

    Where it has not, neither a trial nor the promotion's race waits for it; only a job
    without another verified kernel falls back on it.
    """
    rate = backend_of(problem.target).default_flops_per_s
    calls_s = _DEFAULT_CALLS * problem.workload.expression.flops / rate
    limit_s = run_timeout_s if seconds is None else min(run_timeout_s, _DEFAULT_SHARE * seconds)
    return calls_s <= limit_s


def _measures_default(job: Job) -> bool:
    """Whether the default schedule is the first trial. It races in the promotion besides.

    Of a model, the favourites of the estimate are mostly near the best, while a call of a
    default may take seconds: it races where nothing else is verified. A single trial is
    better spent on the favourite of the estimate.
    """
    single = job.kind == TUNE and job.trials == 1 and job.strategy in LEARNING
    return job.kind != MODEL and not single


def search_of(
    database: Database,
    job: Job,
    task: Task,
    problem: Problem,
    space: TargetSpace[object],
    *,
    single: bool = False,
) -> tuple[Begin, int | None]:
    """The searcher of a task, for which only winners are missing, and the most trials it may
    have in all; None for as many as its budget has.

    Winners are configs of kernels of the same operator, to be tried first. A `single` trial is
    the favourite of the estimate, for which no history is read.
    """
    if is_estimated(job):
        estimated = guided(database, job, task, problem, space)
        return lambda winners: estimated(()), 2  # the default schedule first
    if job.kind in (PREPARE, REVALIDATE):
        given = GivenPoints(space.space, given_configs(database, job, task))
        return lambda winners: given, 1 + given.count
    if job.strategy == EXTERNAL:
        proposed = proposals_of(database, job, task)
        return lambda winners: ExternalSearcher(Domain(space.space), proposed), None
    return guided(database, job, task, problem, space, single=single), None


def guided(
    database: Database,
    job: Job,
    task: Task,
    problem: Problem,
    space: TargetSpace[object],
    *,
    single: bool = False,
) -> Begin:
    """A searcher of the job's strategy, which starts from what the target's history taught."""
    start = Start()
    if job.strategy in LEARNING and not single:
        start = start_of(
            database, job=job, task=task, op=problem.workload.op, target=problem.target
        )
    begin = prepared_search(
        space,
        strategy=job.strategy,
        seed=job.seed,
        prior=start.prior,
        goal=job.goal,
        single=single,
    )
    return lambda winners: begin((*winners, *start.best))


def proposals_of(database: Database, job: Job, task: Task) -> Callable[[int], Proposals]:
    """Reads what follows the first so many proposals of a task."""

    def after(count: int) -> Proposals:
        with database.read() as session:
            proposed = proposals.read(session, job.id, task.position)
        return Proposals(configs=proposed.configs[count:], closed=proposed.closed)

    return after


class Tally:
    """Seconds by part over all runs of the task.

    Building and measuring are summed over its trials, the rest over its runs.
    """

    def __init__(self, task: Task, recorded: Sequence[Trial]) -> None:
        self._before_s = task.elapsed_s.get("total", 0.0)
        self.search_s = task.elapsed_s.get("search", 0.0)
        self._build_s = sum(trial.build_s for trial in recorded)
        self._measure_s = sum(trial.measure_s for trial in recorded)
        self.count = 0

    def add(self, trial: Trial) -> None:
        self.count += 1
        self._build_s += trial.build_s
        self._measure_s += trial.measure_s

    def elapsed(self, run_s: float) -> dict[str, float]:
        return {
            "total": self._before_s + run_s,
            "search": self.search_s,
            "build": self._build_s,
            "measure": self._measure_s,
        }


def _store(run: TaskRun, recorded: TrialRecorded, elapsed: dict[str, float] | None) -> None:
    """Stores the trial, its event and, if given, the elapsed times, in one transaction."""
    trial = recorded.trial
    report = run.measurer.report(trial.number)
    outcome = trial.outcome
    data = {"task": run.task.position, "number": trial.number, "outcome": "ok", "median_s": None}
    if isinstance(outcome, Failed):
        data["outcome"] = outcome.kind.value
    else:
        data["median_s"] = outcome.median_s
    with run.database.write("trial") as session:
        trials.record(
            session,
            run.lease,
            trial,
            position=run.task.position,
            round=recorded.round,
            predicted=recorded.predicted,
            worker=report.worker or None,
            attempts=report.attempts,
            quarantined=report.quarantined,
        )
        events.append(session, run.lease.job_id, "trial", data)
        if elapsed is not None:
            leases.note_task(session, run.lease, run.task.position, elapsed_s=elapsed)


def _announce(run: TaskRun, trial: Trial, median_s: float, previous_s: float | None) -> None:
    data = {
        "task": run.task.position,
        "number": trial.number,
        "median_s": median_s,
        "previous_s": previous_s,
    }
    with run.database.write("best") as session:
        events.append(session, run.lease.job_id, "best", data)
