"""Waits for a job that this machine cannot measure, until a runner elsewhere is done."""

from __future__ import annotations

import time

from tuner.db import jobs, runners, targets
from tuner.db.engine import Database
from tuner.db.jobs import FINISHED
from tuner.target.capability import called
from tuner.target.target import Target
from tuner.workers.jobs.orchestrator import Interrupt, JobReport
from tuner.workers.jobs.progress import Observer, WorkerNotice

POLL_S = 0.5  # between two reads of the job


def target_of(database: Database, job_id: str) -> Target:
    """The target of a job. Raises NotFound."""
    with database.read() as session:
        return targets.get(session, jobs.get(session, job_id).target)


def wait(database: Database, job_id: str, *, observer: Observer, interrupt: Interrupt) -> JobReport:
    """Waits until the job is finished.

    `observer` gets what the job waits for and what would end the wait. When `interrupt`
    returns a value, the job is cancelled.
    """
    last_message, cancelled = "", False
    while True:
        with database.read() as session:
            job = jobs.get(session, job_id)
            reason = runners.waiting(session, [job]).get(job_id, "")
            target = targets.get(session, job.target)
        if job.state in FINISHED:
            return JobReport(job=job)
        message = (
            f"{reason}; {way_out(target)}"
            if reason
            else f"{job.state}, at a runner of {called(target)}"
        )
        if message != last_message:
            observer(WorkerNotice(message=message))
            last_message = message
        if interrupt() is not None and not cancelled:
            with database.write("cancel") as session:
                jobs.request_cancel(session, job_id)
            cancelled = True
            continue
        time.sleep(POLL_S)


def way_out(target: Target) -> str:
    """What the user can do to end the wait."""
    return (
        f"the job stays queued until a runner of {called(target)} joins: a machine that has the "
        f"GPU, with 'tuner worker --target "
        "cuda' in the service's cluster or 'tuner serve --target cuda' on the same database. "
        "Ctrl-C cancels the job"
    )
