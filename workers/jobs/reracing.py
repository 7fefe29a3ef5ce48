"""Races served kernels again, against the libraries that are installed now.

A job of kind RERACE runs when nothing else waits. For each of its workloads the promoted
kernel runs in turn with the default schedule and the libraries, in fresh processes. What
that says is kept with the kernel; the service decides from all races whether anything
was lost (`tuner/measure/regression.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from datetime import timedelta

from tuner.db import canaries, jobs, leases, promotions, races
from tuner.db.engine import Database, Session
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.measure.outcome import FailureKind
from tuner.measure.regression import CANARY, Contest, RaceRecord
from tuner.measure.rivals.rivals import installed_versions
from tuner.workers.fleet.handle import FleetError
from tuner.workers.fleet.messages import Contestant, Disqualified, RaceOutcome, Ranked, RunRace
from tuner.workers.jobs.contest import ANSWER_S, ATTEMPTS, DEFAULT, INCUMBENT, RACE_S
from tuner.workers.jobs.contestants import (
    canary_contestant,
    default_contestant,
    promoted_contestant,
)
from tuner.workers.jobs.revalidation import IDLE_PRIORITY, TASKS
from tuner.workers.jobs.task import TaskRun
from tuner.workers.jobs.timeline import versions


class NotRaced(TunerError):
    """The kernel is gone, or the machine failed: the next job races it."""

    code = "not_raced"


def libraries() -> Mapping[str, str]:
    """Versions of what kernels are raced against here, by contender."""
    return {**installed_versions(), DEFAULT: versions()["apache-tvm"]}


def queue(session: Session, target: str, every: timedelta) -> str | None:
    """Queues a job for the most urgent kernels that are due; returns its id.

    None where nothing is due, or such a job of the target is not finished.
    """
    if jobs.count(session, kind=jobs.RERACE, target=target):
        return None
    due = races.due(session, target, every=every, libraries=libraries())
    if not due:
        return None
    threads = due[0].threads
    some = [each.workload for each in due if each.threads == threads][:TASKS]
    new = jobs.NewJob(
        workloads=tuple(some),
        target=target,
        threads=threads,
        trials=1,
        priority=IDLE_PRIORITY,
        kind=jobs.RERACE,
    )
    return jobs.create(session, new)[0].id


def rerace_kernel(
    run: TaskRun,
    store: ArtifactStore,
    check: Callable[[], None],
    *,
    canary_races: int,
    note: Callable[[Session, str], None],
) -> str:
    """Races the promoted kernel of a task and records the race; returns the kernel's id.

    Its canary takes part, and is promoted once it has won `canary_races`, or withdrawn.
    `note` says in the transaction of the race that the task of this kernel is done, so that a
    task is never raced twice.

    `check` raises when the work is to stop. Raises NotRaced, FleetError, and what `note` does.
    """
    promoted = promoted_contestant(run, store)
    if promoted is None:
        raise NotRaced(f"{run.problem.workload.spec} has no kernel whose library is there")
    kernel, incumbent = promoted
    with ExitStack() as made:
        default = default_contestant(run, check, made)
        canary = canary_contestant(run, store)
        contestants = [incumbent]
        if isinstance(default, Contestant):
            contestants.append(default)
        if canary is not None:
            contestants.append(canary[1])
        outcome = _raced(run, tuple(contestants), check)
    canary_id = None if canary is None else canary[0].id
    keep(run.database, kernel.id, outcome, canary_id, canary_races, note)
    return kernel.id


def rerace_task(
    run: TaskRun, store: ArtifactStore, check: Callable[[], None], *, canary_races: int
) -> tuple[str | None, str | None]:
    """Does as `rerace_kernel` and ends the task; the kernel's id, or the reason if it failed."""

    def note(session: Session, raced: str) -> None:
        position = run.task.position
        leases.note_task(session, run.lease, position, state=jobs.SUCCEEDED, kernel=raced)

    try:
        return rerace_kernel(run, store, check, canary_races=canary_races, note=note), None
    except NotRaced as failure:
        with run.database.write("task") as session:
            position, error = run.task.position, str(failure)
            leases.note_task(session, run.lease, position, state=jobs.FAILED, error=error)
        return None, error


def keep(
    database: Database,
    kernel: str,
    outcome: RaceOutcome,
    canary: str | None,
    canary_races: int,
    note: Callable[[Session, str], None],
) -> None:
    """Records a race of a kernel, and what follows from it. Raises NotRaced."""
    record = read_outcome(outcome, canary)
    with database.write("race") as session:
        races.record(session, kernel, record, _versions_of(outcome))
        note(session, kernel)
        if canary is None:
            return
        if _failed(outcome, CANARY):
            promotions.rollback(session, canary)
        else:
            canaries.settle(session, kernel, max(1, canary_races))


def _failed(outcome: RaceOutcome, name: str) -> bool:
    """Whether a finalist failed by its own fault."""
    return any(
        isinstance(finalist, Disqualified)
        and finalist.name == name
        and finalist.failure.kind is not FailureKind.INFRASTRUCTURE
        for finalist in outcome.finalists
    )


def _raced(
    run: TaskRun, contestants: tuple[Contestant, ...], check: Callable[[], None]
) -> RaceOutcome:
    control = RunRace(
        contestants=contestants,
        default=None,
        incumbent=INCUMBENT,
        rivals=tuple(installed_versions()),
        limit_s=RACE_S,
    )
    error: str | None = None
    for _ in range(ATTEMPTS):
        answer = run.measurer.request_control(control, timeout_s=ANSWER_S, check=check)
        error = answer.error
        for outcome in answer.value:
            if isinstance(outcome, RaceOutcome):
                return outcome
    raise FleetError(f"the race could not be run: {error}")


def read_outcome(outcome: RaceOutcome, canary: str | None) -> RaceRecord | str:
    """The race as it is kept, or why the kernel failed in it.

    `canary` is the id of the kernel that raced under that name.

    A library that failed, or has no way to the workload, did not take part. Raises
    NotRaced where only the machine failed.
    """
    finalists = {finalist.name: finalist for finalist in outcome.finalists}
    kernel = finalists[INCUMBENT]
    if isinstance(kernel, Disqualified):
        if kernel.failure.kind is FailureKind.INFRASTRUCTURE:
            raise NotRaced(kernel.failure.message)
        return f"{kernel.failure.kind}: {kernel.failure.message}"
    installed = {**_versions_of(outcome), CANARY: canary or ""}
    return RaceRecord(
        median_s=kernel.median_s,
        ci95_s=kernel.ci95_s,
        contests=tuple(
            Contest(
                contender=name,
                version=installed[name],
                median_s=finalist.median_s,
                ci95_s=finalist.ci95_s,
                ratio=outcome.ratios[name],
            )
            for name, finalist in finalists.items()
            if isinstance(finalist, Ranked) and name in outcome.ratios
        ),
    )


def _versions_of(outcome: RaceOutcome) -> Mapping[str, str]:
    """Of the libraries on the machine that raced, and of what built the default schedule."""
    return {**outcome.versions, DEFAULT: versions()["apache-tvm"]}
