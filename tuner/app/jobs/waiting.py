"""Waits for a job that others work on: runners elsewhere, or a service that was quicker."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from tuner.db import jobs, leases, runners, targets
from tuner.db.engine import Database
from tuner.db.errors import IllegalTransition, LeaseHeld
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
            _cancel(database, job_id)
            cancelled = True
            continue
        time.sleep(POLL_S)


def run_or_wait(
    attempt: Callable[[], JobReport],
    database: Database,
    job_id: str,
    *,
    observer: Observer,
    interrupt: Interrupt,
) -> JobReport:
    """What `attempt`, which claims and runs the job, gives.

    A service on the same database may have claimed it first: then waits until the job has
    ended, or its lease, after which it is tried again. When `interrupt` returns a value
    meanwhile, the job is cancelled.
    """
    holder, cancelled = None, False
    while True:
        try:
            return attempt()
        except (LeaseHeld, IllegalTransition):
            with database.write("requeue") as session:
                leases.settle_abandoned(session)
                job = jobs.get(session, job_id)
        if job.state in FINISHED:
            return JobReport(job=job)
        if job.lease_owner not in (None, holder):
            holder = job.lease_owner
            text = f"job {job_id} is worked on by the service {holder} of this database; it waits"
            observer(WorkerNotice(message=text))
        if interrupt() is not None and not cancelled:
            _cancel(database, job_id)
            cancelled = True
        time.sleep(POLL_S)


def _cancel(database: Database, job_id: str) -> None:
    with suppress(IllegalTransition), database.write("cancel") as session:  # it has ended just now
        jobs.request_cancel(session, job_id)


def way_out(target: Target) -> str:
    """What the user can do to end the wait."""
    return (
        f"the job stays queued until a runner of {called(target)} joins: a machine that has the "
        f"GPU, with 'tuner worker --target "
        "cuda' in the service's cluster or 'tuner serve --target cuda' on the same database. "
        "Ctrl-C cancels the job"
    )
