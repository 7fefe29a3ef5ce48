"""Queries about what earlier searches tried on a target: where a new search starts from.

What they answer depends on a moment and not on what was recorded since, so that a
restarted search starts from the same again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, or_, select

from tuner.db.engine import Session
from tuner.db.models import JobRow, TaskRow, TrialRow, WorkloadRow
from tuner.db.trials import stored
from tuner.measure.outcome import FailureKind, Trial

# the newest, among which workloads are found: one that is tuned again and again must
# not hide the others
TASKS_READ = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTask:
    """One workload that was searched before."""

    job: str
    position: int
    workload: str  # key
    op: str | None
    document: Mapping[str, Any]  # what the workload is rebuilt from


def recent_tasks(
    session: Session, *, target: str, threads: int, before: datetime, job: str, position: int
) -> tuple[PastTask, ...]:
    """Searched workloads of (target, threads), the latest task of each, newest first:
    of jobs that had started before the moment `before`, and the tasks of `job` in front
    of `position`."""
    own = and_(TaskRow.job_id == job, TaskRow.position < position)
    earlier = and_(TaskRow.job_id != job, JobRow.started_at < before)
    query = (
        select(
            TaskRow.job_id, TaskRow.position, WorkloadRow.key, WorkloadRow.op, WorkloadRow.document
        )
        .join(JobRow, JobRow.id == TaskRow.job_id)
        .join(WorkloadRow, WorkloadRow.key == TaskRow.workload_key)
        .where(JobRow.target_key == target, JobRow.threads == threads, TaskRow.trials_ok > 0)
        .where(or_(own, earlier))
        .order_by(JobRow.started_at.desc(), TaskRow.job_id.desc(), TaskRow.position.desc())
        .limit(TASKS_READ)
    )
    found: dict[str, PastTask] = {}
    for job_id, place, key, op, document in session.execute(query):
        found.setdefault(
            key, PastTask(job=job_id, position=place, workload=key, op=op, document=document)
        )
    return tuple(found.values())


def trials_before(
    session: Session, task: PastTask, before: datetime | None, *, limit: int
) -> tuple[Trial, ...]:
    """The task's trials by number that say something about their config:
    infrastructure's losses and suspect timings are left out. `before` leaves out what
    was recorded later; None: nothing."""
    where = [
        TrialRow.job_id == task.job,
        TrialRow.position == task.position,
        TrialRow.suspect.is_(None),
        TrialRow.outcome != FailureKind.INFRASTRUCTURE.value,
    ]
    if before is not None:
        where.append(TrialRow.created_at < before)
    query = select(TrialRow).where(*where).order_by(TrialRow.number).limit(limit)
    return tuple(stored(row).trial for row in session.scalars(query))
