"""Queries about earlier searches on a target, from which a new search starts.

The answers depend on a moment, not on what was recorded since, so that a restarted
search starts from the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import and_, or_, select

from tuner.db.engine import Session
from tuner.db.tables import JobRow, TaskRow, TrialRow, WorkloadRow
from tuner.db.trials import stored
from tuner.measure.outcome import FailureKind, Trial

# The newest tasks, among which workloads are chosen: enough for a workload that is tuned
# again and again not to hide the others.
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
    """The latest task of each workload searched for (target, threads), the newest first.

    Considers jobs that started before `before`, and the tasks of `job` before `position`.
    """
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
    tasks: dict[str, PastTask] = {}
    for job_id, place, key, op, document in session.execute(query):
        tasks.setdefault(
            key, PastTask(job=job_id, position=place, workload=key, op=op, document=document)
        )
    return tuple(tasks.values())


def trials_before(
    session: Session, task: PastTask, before: datetime | None, *, limit: int
) -> tuple[Trial, ...]:
    """The task's trials by number, without infrastructure failures and suspect timings.

    Trials recorded at `before` or later are left out; None keeps all.
    """
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
