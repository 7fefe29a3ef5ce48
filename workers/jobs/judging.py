"""Judges the foreign kernel of a job of kind JUDGE, on a lane of the fleet."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from tuner.db import leases, tasks
from tuner.db.jobs import FAILED, SUCCEEDED
from tuner.errors import TunerError
from tuner.export.artifacts import ArtifactStore
from tuner.export.naming import symbol_of
from tuner.measure.foreign.dimensions import dimensions_from_document
from tuner.measure.foreign.verdict import Verdict, VerdictName
from tuner.workers.fleet.handle import FleetError
from tuner.workers.fleet.messages import Contestant, ExaminationOutcome, RunExamination
from tuner.workers.jobs.contest import ANSWER_S, ATTEMPTS, RACE_S
from tuner.workers.jobs.contestants import default_contestant, promoted_contestant
from tuner.workers.jobs.task import TaskRun
from tuner.workers.jobs.verdicts import verdict_document, within_limits


class NotJudged(TunerError):
    """The machine failed, not the kernel: a job that is resumed judges it again."""

    code = "not_judged"


def judge_candidate(run: TaskRun, store: ArtifactStore, check: Callable[[], None]) -> None:
    """Records the verdict on the job's source, which ends the task.

    `check` raises when the work is to stop. Raises NotJudged, FleetError, StaleLease.
    """
    source = store.get(str(run.job.settings[tasks.SOURCE])).decode("utf-8", errors="replace")
    with ExitStack() as made:
        examined = _examine(run, source, _rival(run, store, check, made), check)
    verdict = within_limits(examined, run.problem)
    if verdict.name is VerdictName.INFRASTRUCTURE:
        raise NotJudged(f"{verdict.message}; resume the job to judge it again")
    with run.database.write("verdict") as session:
        tasks.note_verdict(session, run.lease, verdict_document(verdict))
        # At once: whoever continues the job would judge again, and give a second verdict.
        leases.note_task(session, run.lease, run.task.position, state=SUCCEEDED)


def judge_task(run: TaskRun, store: ArtifactStore, check: Callable[[], None]) -> str | None:
    """Does as `judge_candidate` and ends the task; the reason if the machine failed."""
    try:
        judge_candidate(run, store, check)
    except NotJudged as failure:
        with run.database.write("task") as session:
            position, error = run.task.position, str(failure)
            leases.note_task(session, run.lease, position, state=FAILED, error=error)
        return error
    return None


def _examine(run: TaskRun, source: str, rival: Contestant, check: Callable[[], None]) -> Verdict:
    launch = run.job.settings.get(tasks.LAUNCH)
    control = RunExamination(
        source=source,
        launch=None if launch is None else dimensions_from_document(launch),
        symbol=symbol_of(run.problem.workload),
        contestants=(rival,),
        limit_s=RACE_S,
    )
    error: str | None = None
    for _ in range(ATTEMPTS):
        answer = run.measurer.request_control(control, timeout_s=ANSWER_S, check=check)
        error = answer.error
        for outcome in answer.value:
            if isinstance(outcome, ExaminationOutcome):
                return outcome.verdict
    raise FleetError(f"the foreign kernel could not be judged: {error}")


def _rival(
    run: TaskRun, store: ArtifactStore, check: Callable[[], None], made: ExitStack
) -> Contestant:
    """The incumbent kernel, else the default schedule, built now and deleted with `made`."""
    promoted = promoted_contestant(run, store)
    if promoted is not None:
        return promoted[1]
    default = default_contestant(run, check, made)
    if isinstance(default, str):
        raise NotJudged(f"the default schedule could not be built: {default}")
    return default
