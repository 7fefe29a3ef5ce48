"""Queries about measurement lanes: their timelines and calibrations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, delete, extract, func, insert, select

from tuner.db.engine import Session
from tuner.db.tables import CalibrationRow, LaneSpanRow
from tuner.errors import UsageError

KINDS = ("build", "wait", "check", "time", "idle")


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneSpan:
    """A time in which a lane or builder did one thing."""

    worker: str
    lane: str
    kind: str  # build, wait, check, time or idle
    started_at: datetime
    ended_at: datetime
    job: str | None = None
    trial: int | None = None  # number


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What a lane or builder spent its time on, in sum."""

    worker: str
    lane: str  # or the builder's name
    kind: str
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """How fast a lane ran the calibration kernel, beside what is expected of it."""

    worker: str
    lane: str
    measured_at: datetime
    median_s: float
    expected_s: float
    in_band: bool


def add_spans(session: Session, spans: Sequence[LaneSpan]) -> None:
    """Adds spans to the timelines, in one statement."""
    rows = []
    for span in spans:
        if span.kind not in KINDS:
            raise UsageError(f"unknown kind of span {span.kind!r}; lanes {', '.join(KINDS)}")
        row = {
            "worker_id": span.worker,
            "lane": span.lane,
            "kind": span.kind,
            "started_at": span.started_at,
        }
        rows.append(
            row | {"ended_at": span.ended_at, "job_id": span.job, "trial_number": span.trial}
        )
    if rows:
        session.execute(insert(LaneSpanRow), rows)


def timeline(
    session: Session,
    *,
    worker: str | None = None,
    lane: str | None = None,
    since: datetime,
    until: datetime,
    limit: int = 10_000,
) -> tuple[LaneSpan, ...]:
    """Spans that began within [since, until), in order of time.

    Of one worker or lane where given, otherwise of all.
    """
    query = select(LaneSpanRow).where(
        LaneSpanRow.started_at >= since, LaneSpanRow.started_at < until
    )
    if worker is not None:
        query = query.where(LaneSpanRow.worker_id == worker)
    if lane is not None:
        query = query.where(LaneSpanRow.lane == lane)
    rows = session.scalars(query.order_by(LaneSpanRow.started_at, LaneSpanRow.id).limit(limit))
    return tuple(
        LaneSpan(
            worker=row.worker_id,
            lane=row.lane,
            kind=row.kind,
            started_at=row.started_at,
            ended_at=row.ended_at,
            job=row.job_id,
            trial=row.trial_number,
        )
        for row in rows
    )


def activity(session: Session, *, since: datetime, until: datetime) -> tuple[Activity, ...]:
    """Seconds that each lane and builder spent on each kind of activity.

    Counts the spans that began within [since, until).
    """
    began, ended = LaneSpanRow.started_at, LaneSpanRow.ended_at
    seconds: ColumnElement[Any]
    if session.on_postgresql:
        seconds = func.sum(extract("epoch", ended) - extract("epoch", began))
    else:  # text, which SQLite reads to the millisecond
        seconds = func.sum(func.julianday(ended) - func.julianday(began)) * 86400.0
    columns = (LaneSpanRow.worker_id, LaneSpanRow.lane, LaneSpanRow.kind)
    query = (
        select(*columns, seconds)
        .where(began >= since, began < until)
        .group_by(*columns)
        .order_by(*columns)
    )
    return tuple(
        Activity(worker=worker, lane=lane, kind=kind, seconds=float(total))
        for worker, lane, kind, total in session.execute(query)
    )


def delete_spans_before(session: Session, moment: datetime, limit: int) -> int:
    """Deletes at most `limit` spans that began before `moment`, the oldest first.

    Returns how many.
    """
    oldest = (
        select(LaneSpanRow.id)
        .where(LaneSpanRow.started_at < moment)
        .order_by(LaneSpanRow.started_at)
        .limit(limit)
    )
    # Another service's retention may be deleting some of them.
    oldest = oldest.with_for_update(skip_locked=True)
    return session.count_rows(delete(LaneSpanRow).where(LaneSpanRow.id.in_(oldest)))


def add_calibration(session: Session, calibration: Calibration) -> None:
    row = {
        "worker_id": calibration.worker,
        "lane": calibration.lane,
        "measured_at": calibration.measured_at,
        "median_s": calibration.median_s,
    }
    session.execute(
        insert(CalibrationRow),
        [row | {"expected_s": calibration.expected_s, "in_band": calibration.in_band}],
    )


def calibrations(
    session: Session, worker: str, lane: str, *, limit: int = 100
) -> tuple[Calibration, ...]:
    """The last calibrations of a lane, the newest first."""
    here = (CalibrationRow.worker_id == worker, CalibrationRow.lane == lane)
    rows = session.scalars(
        select(CalibrationRow).where(*here).order_by(CalibrationRow.measured_at.desc()).limit(limit)
    )
    return tuple(
        Calibration(
            worker=row.worker_id,
            lane=row.lane,
            measured_at=row.measured_at,
            median_s=row.median_s,
            expected_s=row.expected_s,
            in_band=row.in_band,
        )
        for row in rows
    )
