"""Queries about a job's events, numbered from 1 without gaps.

Each is appended in the transaction of the change that it reports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import insert, select, update

from tuner.db.engine import Session
from tuner.db.errors import NotFound
from tuner.db.tables import EventRow, JobRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    job_id: str
    sequence: int  # from 1
    kind: str  # a job's new state, or trial, best, kernel, note
    data: Mapping[str, Any]
    recorded_at: datetime


def append(session: Session, job_id: str, kind: str, data: Mapping[str, Any] | None = None) -> int:
    """Adds an event to the job and returns its sequence number.

    The job's row stays locked until the transaction ends, so that numbers have no gaps.
    """
    number = session.scalars(
        update(JobRow)
        .where(JobRow.id == job_id)
        .values(last_event=JobRow.last_event + 1)
        .returning(JobRow.last_event)
    ).one_or_none()
    if number is None:
        raise NotFound(f"no job {job_id!r} is known")
    row = {
        "job_id": job_id,
        "sequence": number,
        "kind": kind,
        "data": dict(data or {}),
        "recorded_at": session.now(),
    }
    session.execute(insert(EventRow), [row])
    return number


def after(session: Session, job_id: str, sequence: int, *, limit: int = 500) -> tuple[Event, ...]:
    """The job's events numbered above `sequence`, in order, at most `limit`."""
    rows = session.scalars(
        select(EventRow)
        .where(EventRow.job_id == job_id, EventRow.sequence > sequence)
        .order_by(EventRow.sequence)
        .limit(limit)
    )
    return tuple(map(_event, rows))


def last(session: Session, job_id: str, kind: str) -> Event | None:
    """The job's last event of a kind."""
    query = (
        select(EventRow)
        .where(EventRow.job_id == job_id, EventRow.kind == kind)
        .order_by(EventRow.sequence.desc())
        .limit(1)
    )
    row = session.scalars(query).one_or_none()
    return None if row is None else _event(row)


def latest(session: Session, job_ids: Sequence[str]) -> dict[str, int]:
    """The number of each job's last event, in one query for many jobs."""
    return {
        row.id: row.last_event
        for row in session.execute(
            select(JobRow.id, JobRow.last_event).where(JobRow.id.in_(job_ids))
        )
    }


def _event(row: EventRow) -> Event:
    return Event(
        job_id=row.job_id,
        sequence=row.sequence,
        kind=row.kind,
        data=row.data,
        recorded_at=row.recorded_at,
    )
