"""Queries that let go of what nobody needs any more: trials and events of jobs that
ended, never a trial that a kernel refers to, and runs with their arrays.

Which jobs is decided by age and by number: those finished before a moment, those beyond
the newest that together have so many. A job's totals, its kernels and the job itself
stay. One that may be resumed keeps all of its trials or none, in one transaction: a
resumed search is told what was recorded, and half of that would mislead it.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, and_, delete, exists, func, select
from sqlalchemy.orm import InstrumentedAttribute

from tuner.db import artifacts
from tuner.db.engine import Session
from tuner.db.jobs import FINISHED, SUCCEEDED, locked_row
from tuner.db.models import EventRow, JobRow, KernelRow, RunRow, TrialRow

REFERRED = exists().where(
    KernelRow.job_id == TrialRow.job_id, KernelRow.trial_number == TrialRow.number
)


def jobs_with_trials(
    session: Session, *, before: datetime | None, most: int | None
) -> tuple[str, ...]:
    """Finished jobs whose trials are to go, the oldest first: those finished `before`,
    the older ones beyond `most` trials."""
    return _beyond(
        session, TrialRow.job_id, before, most, and_(TrialRow.job_id == JobRow.id, ~REFERRED)
    )


def jobs_with_events(
    session: Session, *, before: datetime | None, most: int | None
) -> tuple[str, ...]:
    """The same of events."""
    return _beyond(session, EventRow.job_id, before, most, EventRow.job_id == JobRow.id)


def drop_trials(session: Session, job_id: str, limit: int) -> int:
    """Deletes at most `limit` trials of a finished job that no kernel refers to, or all
    of one that may be resumed; how many."""
    row = locked_row(session, job_id)
    if row.state not in FINISHED:
        return 0  # it was resumed since it was chosen
    found: Select[int] = select(TrialRow.id).where(TrialRow.job_id == job_id, ~REFERRED)
    if row.state == SUCCEEDED:
        return session.count_rows(
            delete(TrialRow).where(TrialRow.id.in_(found.order_by(TrialRow.id).limit(limit)))
        )
    if (
        session.scalars(select(KernelRow.id).where(KernelRow.job_id == job_id).limit(1)).first()
        is not None
    ):
        return 0
    return session.count_rows(delete(TrialRow).where(TrialRow.job_id == job_id))


def drop_events(session: Session, job_id: str, limit: int) -> int:
    """Deletes at most `limit` events of a finished job, the oldest first; how many.
    Numbers are never used again."""
    row = locked_row(session, job_id)
    if row.state not in FINISHED:
        return 0
    numbers = (
        select(EventRow.sequence)
        .where(EventRow.job_id == job_id)
        .order_by(EventRow.sequence)
        .limit(limit)
    )
    return session.count_rows(
        delete(EventRow).where(EventRow.job_id == job_id, EventRow.sequence.in_(numbers))
    )


def drop_runs(session: Session, before: datetime, limit: int) -> tuple[int, tuple[str, ...]]:
    """Deletes at most `limit` runs that finished before `before`, the oldest first, and
    forgets the arrays that no other run has.

    How many, and the digests forgotten: their files may go once this is committed, not earlier.
    """
    oldest = (
        select(RunRow.id)
        .where(RunRow.finished_at < before)
        .order_by(RunRow.finished_at)
        .limit(limit)
    )
    oldest = oldest.with_for_update(
        skip_locked=True
    )  # another service's retention may be at work on some
    query = (
        delete(RunRow)
        .where(RunRow.id.in_(oldest))
        .returning(RunRow.input_artifact, RunRow.output_artifact)
    )
    gone = session.execute(query, execution_options={"synchronize_session": False}).all()
    arrays = {digest for row in gone for digest in row if digest is not None}
    return len(gone), artifacts.forget_unused(session, arrays)


def _beyond(
    session: Session,
    of_job: InstrumentedAttribute[str],
    before: datetime | None,
    most: int | None,
    has_some: ColumnElement[bool],
) -> tuple[str, ...]:
    finished = (
        select(JobRow.id)
        .where(JobRow.state.in_(FINISHED), exists().where(has_some))
        .order_by(JobRow.id)
    )
    chosen: set[str] = set()
    if before is not None:
        chosen.update(session.scalars(finished.where(JobRow.finished_at < before)))
    if most is not None:
        chosen.update(_surplus(session, of_job, session.scalars(finished).all(), most))
    return tuple(sorted(chosen))


def _surplus(
    session: Session, of_job: InstrumentedAttribute[str], finished: Sequence[str], most: int
) -> list[str]:
    """The jobs beyond the newest that together have at most `most` rows."""
    counted = select(of_job, func.count()).group_by(of_job)
    counts: dict[str, int] = {row[0]: row[1] for row in session.execute(counted)}
    kept, surplus = 0, []
    for job in sorted(finished, reverse=True):
        kept += counts.get(job, 0)
        if kept > most:
            surplus.append(job)
    return surplus
