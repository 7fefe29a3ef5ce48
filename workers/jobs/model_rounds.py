"""A model's budget spent in rounds, each on the kernel that promises most."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tuner.db import jobs, leases, workloads
from tuner.db.engine import Database
from tuner.db.jobs import Job, Task
from tuner.db.leases import Lease
from tuner.measure.outcome import Timed
from tuner.models.tuning.task_scheduler import (
    KernelProgress,
    kind_of,
    model_s,
    needless,
    next_kernel,
    round_trials,
)
from tuner.models.tuning.time_plan import TimePlan
from tuner.models.workloads import strict_key
from tuner.tuning import StopReason, TuningResult
from tuner.workers.jobs.model_jobs import ModelCalls
from tuner.workers.jobs.model_time import say_late
from tuner.workers.jobs.progress import ModelGain, ModelRound, Observer, unobserved
from tuner.workload.spec import from_document

SearchRound = Callable[[Task, int, float | None, Task | None], TuningResult | None]
"""Searches one task up to a number of trials within so many seconds; None if interrupted.

The last argument is the task whose first round is next whatever this one finds, None where
that is not known."""


def tune_in_rounds(
    database: Database,
    job: Job,
    left: Sequence[Task],
    calls: ModelCalls,
    search_round: SearchRound,
    plan: TimePlan,
    observer: Observer = unobserved,
    promote: Callable[[int], bool] | None = None,
) -> bool:
    """Spends the job's budget on the tasks `left`, each round on the most promising one.

    Returns whether it came to an end. The budget is `job.trials` for each of all tasks on average,
    of which those that are over have had theirs.
    Rounds end where `plan`, whose kernels are numbered as the tasks in `left`, has no
    more time for them: kernels without a round are left to their default schedules.
    `promote` promotes the kernel of a place, by which the plan learns what promotions take, and
    returns whether it came to an end.
    """
    subjects = [_subject(database, task, calls) for task in left]
    over = {task.position for task in job.tasks} - {task.position for task in left}
    total = job.trials * len(job.tasks) - sum(job.tasks[place].trials_done for place in over)
    gains, searches = _Gains(plan.clock), 0  # of this run
    while True:
        position = next_kernel(subjects)
        spent = sum(subject.trials for subject in subjects)
        seconds = plan.search_s()
        searched = sum(bool(subject.best_s) for subject in subjects)
        observer(ModelRound(trials=spent, budget=total, searched=searched, kernels=len(subjects)))
        probe = None if promote is None else plan.probe()
        if promote is not None and probe is not None:
            if not promote(probe):
                return False
            continue
        if position is None or spent >= total or (seconds is not None and seconds <= 0):
            gain = gains.recent()
            if gain is not None:
                observer(gain)
            say_late(database, job, subjects, plan, observer)
            return True
        subject = subjects[position]
        first = not subject.best_s and not subject.optional
        trials = subject.trials + min(
            min(plan.first_trials(_fresh(subjects)), job.trials)
            if first
            else round_trials(subject),
            total - spent,
        )
        begun_s = plan.clock()
        following = _following(subjects, position)
        result = search_round(
            left[position], trials, seconds, None if following is None else left[following]
        )
        if result is None or result.reason is StopReason.CANCELLED:
            return False
        # The first round has waited for workers to start, which says nothing of a trial.
        took_s = plan.clock() - begun_s if searches else result.elapsed.total_s
        searches += 1
        plan.searched(position, result.trials - subject.trials, took_s)
        best_s = min(
            (trial.outcome.median_s for trial in result.best if isinstance(trial.outcome, Timed)),
            default=None,
        )
        finished = result.reason in (StopReason.EXHAUSTED, StopReason.TARGET)
        subjects[position] = subject.after(result.trials, best_s, finished=finished)
        gains.note(subjects)


def _following(subjects: Sequence[KernelProgress], position: int) -> int | None:
    """The kernel whose first round comes after the round at `position`, whatever that finds.

    None where it decides what is next.
    """
    others = [
        replace(subject, finished=True) if place == position else subject
        for place, subject in enumerate(subjects)
    ]
    following = next_kernel(others)
    return None if following is None or subjects[following].best_s else following


def _fresh(subjects: Sequence[KernelProgress]) -> int:
    """Kernels that the model needs whose first round is to come."""
    return sum(subject.is_fresh for subject in subjects)


class _Gains:
    """The model's time after each round, once all its kernels have one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._times: list[tuple[float, float]] = []  # when, and seconds of a call

    def note(self, subjects: Sequence[KernelProgress]) -> None:
        if all(subject.best_s or subject.finished for subject in subjects):
            self._times.append((self._clock(), model_s(subjects)))

    def recent(self) -> ModelGain | None:
        """Of the later half of the time; None with fewer than two rounds."""
        if len(self._times) < 2:
            return None
        (first_s, _), (last_s, after) = self._times[0], self._times[-1]
        middle_s = (first_s + last_s) / 2
        begin_s, before = next(entry for entry in reversed(self._times) if entry[0] <= middle_s)
        return ModelGain(seconds=last_s - begin_s, before_s=before, after_s=after)


def needless_tasks(
    database: Database, lease: Lease, left: Sequence[Task], calls: ModelCalls
) -> frozenset[int]:
    """The places in `left`, as `tune_in_rounds` had it, of tasks that need no kernel.

    Those are fast variants, chains and siblings that are no faster than what does the same.
    They are marked as done.
    """
    with database.read() as session:
        current = jobs.get(session, lease.job_id).tasks
    # Of all tasks: after a restart, what a chain is compared with may be over already.
    positions = needless([_subject(database, task, calls) for task in current])
    places = frozenset(place for place, task in enumerate(left) if task.position in positions)
    for place in sorted(places):
        with database.write("task") as session:
            leases.note_task(session, lease, left[place].position, state="succeeded")
    return places


def _subject(database: Database, task: Task, calls: ModelCalls) -> KernelProgress:
    with database.read() as session:
        workload = from_document(workloads.get(session, task.workload).document)
    expression = workload.expression
    medians = () if task.best_median_s is None else (task.best_median_s,)
    return KernelProgress(
        calls=calls.counts.get(task.workload, 1),
        flops=expression.flops,
        kind=f"{kind_of(expression)}:{workload.numerics}",
        key=task.workload,
        instead_of=(strict_key(workload),)
        if workload.numerics == "fast"
        else calls.chains.get(task.workload, ()),
        beside=calls.beside.get(task.workload, ()),
        trials=task.trials_done,
        best_s=medians,
        trials_at=(task.trials_done,) if medians else (),
    )
