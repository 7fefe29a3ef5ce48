"""Jobs that a process of this machine held when it was killed go back to the queue at
once, not when their leases run out."""

from __future__ import annotations

import os
import socket

from tuner.db import jobs, leases
from tuner.db.engine import Database, Session
from tuner.db.jobs import Job


def take_back(database: Database, *, owner: str) -> tuple[str, ...]:
    """Ends the leases of this machine's processes that are gone, and those of `owner`,
    who is only starting; the jobs' ids.

    A process number that is in use again counts as alive: that job waits until its lease runs out.
    """
    abandoned = []
    with database.write("take-back") as session:
        for job_id, holder in leases.holders(session):
            if holder == owner or is_gone(holder):
                leases.abandon(session, job_id)
                abandoned.append(job_id)
    return tuple(abandoned)


def cancel(session: Session, job_id: str) -> Job:
    """Cancels a queued job at once, a running one as soon as its orchestrator sees it,
    or at once where that is gone.

    Raises IllegalTransition for a job that succeeded or failed, NotFound.
    """
    return settled(session, jobs.request_cancel(session, job_id))


def settled(session: Session, job: Job) -> Job:
    """The job, cancelled if it was to be and nobody is left to do it."""
    return (
        leases.abandon(session, job.id)
        if job.state == jobs.CANCELLING and is_gone(job.lease_owner)
        else job
    )


def is_gone(holder: str | None) -> bool:
    """Whether the holder of a lease, as `host:pid`, was a process of this machine that
    has ended; unknown ones count as alive."""
    host, _, pid = (holder or "").rpartition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False
