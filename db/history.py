"""Queries about earlier searches on a target, from which a new search starts.

The answers depend on a moment, not on what was recorded since, so that a restarted
search starts from the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, and_, func, or_, select

from tuner.db.engine import Session
from tuner.db.jobs import TUNE
from tuner.db.tables import JobRow, TargetRow, TaskRow, TrialRow, WorkloadRow
from tuner.db.trials import stored
from tuner.measure.cache import WARM, Cache
from tuner.measure.outcome import FailureKind, Trial
from tuner.search.strategies import LEARNING

# The newest tasks, among which workloads are chosen: enough for a workload that is tuned
# again and again not to hide the others.
TASKS_READ = 64
SEARCHES_READ = 200  # the newest, of which bounds on a search's regret are learned


@dataclass(frozen=True, slots=True, kw_only=True)
class PastSearch:
    """How a search that learned went, candidate by candidate."""

    spec: str  # of its workload
    seconds: tuple[float | None, ...]  # of its first candidates, None for a failure
    best_s: float  # best known of the workload, over all its searches
    s_per_trial: float  # wall time


@dataclass(frozen=True, slots=True, kw_only=True)
class PastTask:
    """One workload that was searched before."""

    target: str  # key
    job: str
    position: int
    workload: str  # key
    op: str | None
    document: Mapping[str, Any]  # what the workload is rebuilt from


def recent_tasks(
    session: Session,
    *,
    target: str,
    threads: int,
    before: datetime,
    job: str,
    position: int,
    least: int = 1,
    cache: Cache = WARM,
) -> tuple[PastTask, ...]:
    """The latest task of each workload searched for (target, threads, cache), the newest first.

    Considers jobs that started before `before`, and the tasks of `job` before `position`,
    with at least so many timed trials.
    """
    here = (JobRow.target_key == target, JobRow.cache == cache)
    return _recent(session, here, threads, before, job, position, least)


def tasks_elsewhere(
    session: Session,
    *,
    target: str,
    kind: str,
    threads: int,
    before: datetime,
    least: int = 1,
    cache: Cache = WARM,
) -> tuple[PastTask, ...]:
    """As `recent_tasks`, of all other targets of a kind."""
    others = (JobRow.target_key != target, JobRow.cache == cache, TargetRow.kind == kind)
    return _recent(session, others, threads, before, "", 0, least)


def _recent(
    session: Session,
    targets: Sequence[ColumnElement[bool]],
    threads: int,
    before: datetime,
    job: str,
    position: int,
    least: int,
) -> tuple[PastTask, ...]:
    own = and_(TaskRow.job_id == job, TaskRow.position < position)
    earlier = and_(TaskRow.job_id != job, JobRow.started_at < before)
    query = (
        select(
            JobRow.target_key,
            TaskRow.job_id,
            TaskRow.position,
            WorkloadRow.key,
            WorkloadRow.op,
            WorkloadRow.document,
        )
        .join(JobRow, JobRow.id == TaskRow.job_id)
        .join(TargetRow, TargetRow.key == JobRow.target_key)
        .join(WorkloadRow, WorkloadRow.key == TaskRow.workload_key)
        .where(*targets, JobRow.threads == threads, TaskRow.trials_ok >= least)
        .where(or_(own, earlier))
        .order_by(JobRow.started_at.desc(), TaskRow.job_id.desc(), TaskRow.position.desc())
        .limit(TASKS_READ)
    )
    tasks: dict[str, PastTask] = {}
    for target, job_id, place, key, op, document in session.execute(query):
        task = PastTask(
            target=target, job=job_id, position=place, workload=key, op=op, document=document
        )
        tasks.setdefault(key, task)
    return tuple(tasks.values())


def searches_on(
    session: Session, target: str, threads: int, *, least: int, first: int
) -> tuple[PastSearch, ...]:
    """The newest search of each workload that had `least` trials or more, the newest first.

    Of each, the `first` candidates; the default schedule is none. Searches of strategies
    without a model, and with cold caches, are left out.
    """
    here = (
        JobRow.target_key == target,
        JobRow.threads == threads,
        JobRow.cache == WARM,
        JobRow.kind == TUNE,
        JobRow.strategy.in_(sorted(LEARNING)),
    )
    query = (
        select(TaskRow, WorkloadRow.spec)
        .join(JobRow, JobRow.id == TaskRow.job_id)
        .join(WorkloadRow, WorkloadRow.key == TaskRow.workload_key)
        .where(*here, TaskRow.trials_done >= least, TaskRow.best_median_s.is_not(None))
        .order_by(TaskRow.job_id.desc(), TaskRow.position.desc())
        .limit(SEARCHES_READ)
    )
    newest: dict[str, tuple[TaskRow, str]] = {}
    for task, spec in session.execute(query):
        newest.setdefault(task.workload_key, (task, spec))
    rows = session.execute(
        select(TaskRow.workload_key, func.min(TaskRow.best_median_s))
        .join(JobRow, JobRow.id == TaskRow.job_id)
        .where(JobRow.target_key == target, JobRow.threads == threads, JobRow.cache == WARM)
        .where(TaskRow.workload_key.in_(newest))
        .group_by(TaskRow.workload_key)
    )
    best = {key: best_s for key, best_s in rows if best_s is not None}
    searches = []
    for key, (task, spec) in newest.items():
        seconds = session.scalars(
            select(TrialRow.median_s)
            .where(
                TrialRow.job_id == task.job_id,
                TrialRow.position == task.position,
                TrialRow.number.between(1, first),
                TrialRow.outcome != FailureKind.INFRASTRUCTURE.value,
                TrialRow.suspect.is_(None),
            )
            .order_by(TrialRow.number)
        ).all()
        if seconds:  # the trials of an old job may be gone
            searches.append(
                PastSearch(
                    spec=spec,
                    seconds=tuple(seconds),
                    best_s=best[key],
                    s_per_trial=float(task.elapsed.get("total", 0.0)) / task.trials_done,
                )
            )
    return tuple(searches)


def candidates_tried(session: Session, workload: str, target: str, threads: int) -> int:
    """Candidates of the longest search of a workload by a strategy that learns; 0 without one.

    The default schedule is none: of a search with one trial it is not measured.
    """
    query = (
        select(func.max(TaskRow.trials_done))
        .join(JobRow, JobRow.id == TaskRow.job_id)
        .where(
            TaskRow.workload_key == workload,
            JobRow.target_key == target,
            JobRow.threads == threads,
            JobRow.cache == WARM,
            JobRow.kind == TUNE,
            JobRow.strategy.in_(sorted(LEARNING)),
        )
    )
    trials = session.scalars(query).one() or 0
    return max(trials - 1, min(trials, 1))


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
