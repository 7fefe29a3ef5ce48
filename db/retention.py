"""Deletes old trials and events of finished jobs, old runs with their arrays, old sources.

Jobs are selected by age and by number: those finished before a moment, and those beyond
the newest that together have a given number of rows. A trial that a kernel refers to
stays, as do a job, its totals and its kernels. A job that may be resumed keeps all of
its trials or none: a search resumed with some of them would be misled.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import ColumnElement, Select, and_, delete, exists, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute

from tuner.db import artifacts
from tuner.db.engine import Session
from tuner.db.jobs import FINISHED, JUDGE, SUCCEEDED, locked_row
from tuner.db.tables import ArtifactRow, EventRow, JobRow, KernelRow, RunRow, TrialRow
from tuner.db.tasks import SOURCE

REFERRED = exists().where(
    KernelRow.job_id == TrialRow.job_id, KernelRow.trial_number == TrialRow.number
)


def jobs_with_trials(
    session: Session, *, before: datetime | None, most: int | None
) -> tuple[str, ...]:
    """Finished jobs whose trials are to be deleted, the oldest first.

    Those finished `before`, and the older ones beyond `most` trials in total.
    """
    return _beyond(
        session, TrialRow.job_id, before, most, and_(TrialRow.job_id == JobRow.id, ~REFERRED)
    )


def jobs_with_events(
    session: Session, *, before: datetime | None, most: int | None
) -> tuple[str, ...]:
    """Finished jobs whose events are to be deleted, selected likewise."""
    return _beyond(session, EventRow.job_id, before, most, EventRow.job_id == JobRow.id)


def drop_trials(session: Session, job_id: str, limit: int) -> int:
    """Deletes trials of a finished job that no kernel refers to; returns how many.

    At most `limit`, but all at once if the job may be resumed.
    """
    row = locked_row(session, job_id)
    if row.state not in FINISHED:
        return 0  # it was resumed since it was chosen
    unreferred: Select[int] = select(TrialRow.id).where(TrialRow.job_id == job_id, ~REFERRED)
    if row.state == SUCCEEDED:
        return session.count_rows(
            delete(TrialRow).where(TrialRow.id.in_(unreferred.order_by(TrialRow.id).limit(limit)))
        )
    if (
        session.scalars(select(KernelRow.id).where(KernelRow.job_id == job_id).limit(1)).first()
        is not None
    ):
        return 0
    return session.count_rows(delete(TrialRow).where(TrialRow.job_id == job_id))


def drop_events(session: Session, job_id: str, limit: int) -> int:
    """Deletes at most `limit` events of a finished job, the oldest first.

    Returns how many. Numbers are never used again.
    """
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
    """Deletes at most `limit` runs that finished before `before`, the oldest first.

    Their arrays are forgotten if no other run has them. Returns the number of runs and
    the forgotten digests, whose files may be deleted once this is committed, not earlier.
    """
    oldest = (
        select(RunRow.id)
        .where(RunRow.finished_at < before)
        .order_by(RunRow.finished_at)
        .limit(limit)
    )
    # Another service's retention may be deleting some of them.
    oldest = oldest.with_for_update(skip_locked=True)
    query = (
        delete(RunRow)
        .where(RunRow.id.in_(oldest))
        .returning(RunRow.input_artifact, RunRow.output_artifact)
    )
    gone = session.execute(query, execution_options={"synchronize_session": False}).all()
    arrays = {digest for row in gone for digest in row if digest is not None}
    return len(gone), artifacts.forget_unused(session, arrays)


def drop_sources(session: Session, before: datetime, limit: int) -> tuple[str, ...]:
    """Forgets at most `limit` sources of foreign kernels whose jobs ended before `before`.

    The verdicts stay. Returns the digests, whose files may be deleted once this is
    committed, not earlier. A source that another job still needs stays.
    """
    needed = select(JobRow.settings[SOURCE].as_string()).where(
        JobRow.kind == JUDGE, or_(JobRow.finished_at.is_(None), JobRow.finished_at >= before)
    )
    oldest = (
        select(ArtifactRow.sha256)
        .where(
            ArtifactRow.kind == "source",
            ArtifactRow.created_at < before,
            ArtifactRow.sha256.not_in(needed),
        )
        .order_by(ArtifactRow.created_at)
        .limit(limit)
        .with_for_update(skip_locked=True)
    )
    query = delete(ArtifactRow).where(ArtifactRow.sha256.in_(oldest)).returning(ArtifactRow.sha256)
    return tuple(session.scalars(query, execution_options={"synchronize_session": False}))


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
