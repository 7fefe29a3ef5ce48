"""Jobs whose process on this machine was killed: back to the queue, or cancelled, at once.

Without this they would wait until their leases run out.
"""

from __future__ import annotations

import os
import socket

from tuner.db import jobs, leases
from tuner.db.engine import Database, Session
from tuner.db.jobs import Job


def take_back(database: Database, *, owner: str) -> tuple[str, ...]:
    """Ends the leases of dead processes of this machine and returns the jobs' ids.

    Leases of `owner`, which is only starting, end too. A process number that is in use
    again counts as alive: that job waits until its lease runs out.
    """
    abandoned = []
    with database.write("take-back") as session:
        for job_id, holder in leases.holders(session):
            if holder == owner or is_gone(holder):
                leases.abandon(session, job_id)
                abandoned.append(job_id)
    return tuple(abandoned)


def cancel(session: Session, job_id: str) -> Job:
    """Cancels a job: at once if it is queued or its orchestrator is dead.

    Otherwise it is cancelled as soon as its orchestrator sees it. Raises
    IllegalTransition for a job that succeeded or failed, NotFound.
    """
    return settled(session, jobs.request_cancel(session, job_id))


def settled(session: Session, job: Job) -> Job:
    """The job; a cancelling one whose process is dead is cancelled now."""
    return (
        leases.abandon(session, job.id)
        if job.state == jobs.CANCELLING and is_gone(job.lease_owner)
        else job
    )


def is_gone(holder: str | None) -> bool:
    """Whether the holder of a lease, as `host:pid`, is a dead process of this machine.

    Processes of other machines count as alive.
    """
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
