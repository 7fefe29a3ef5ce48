"""How long a job has been worked on, by the clock of its database.

The events of a job have that clock's times. The service's own clock is another one where the
database is on another machine, and a browser's always is.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.db import events
from tuner.db.engine import Session
from tuner.db.jobs import CANCELLING, RUNNING, Job


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkTime:
    """Seconds of work on a job."""

    run_s: float  # of the present run so far; 0 where there is none
    total_s: float | None  # of all runs, without the pauses between; None before the first


def work_time(session: Session, job: Job) -> WorkTime:
    """The work on a job until the time of this transaction."""
    run = events.last(session, job.id, RUNNING) if job.state in (RUNNING, CANCELLING) else None
    if run is None:
        total_s = sum(task.elapsed_s.get("total", 0.0) for task in job.tasks)
        return WorkTime(run_s=0.0, total_s=total_s or None)
    run_s = max(0.0, (session.now() - run.recorded_at).total_seconds())
    return WorkTime(run_s=run_s, total_s=float(run.data.get("elapsed_s", 0.0)) + run_s)
