"""Queries about workers: their machines, states and heartbeats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, not_, select, update

from tuner.db.engine import Session
from tuner.db.errors import NotFound
from tuner.db.tables import WorkerRow
from tuner.errors import UsageError

ACTIVE, DRAINING, QUARANTINED, LOST = "active", "draining", "quarantined", "lost"
STATES = (ACTIVE, DRAINING, QUARANTINED, LOST)
# Workers send a heartbeat every few seconds; one that is silent for so long is gone.
SILENT = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewWorker:
    id: str  # chosen by the worker, the same after a restart
    host: str
    target: str | None  # key of a stored target; None for one that only builds
    isolation: str | None  # level its children run under
    lanes: Sequence[Mapping[str, Any]]  # name and cores, or name and GPU
    versions: Mapping[str, str]  # of TVM, runtime, protocol
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """A machine that builds or measures, as it was last heard of."""

    id: str
    host: str
    state: str
    reason: str | None  # of the state, for people
    target: str | None
    isolation: str | None
    lanes: Sequence[Mapping[str, Any]]
    labels: Mapping[str, str]
    versions: Mapping[str, str]
    joined_at: datetime
    heartbeat_at: datetime


def join(session: Session, new: NewWorker) -> Worker:
    """Adds a worker, or readmits one that was lost or restarted.

    A quarantined one stays so until it is set active.
    """
    now = session.now()
    reported: dict[str, Any] = {
        "host": new.host,
        "target_key": new.target,
        "isolation": new.isolation,
        "lanes": list(new.lanes),
    }
    reported |= {
        "versions": dict(new.versions),
        "labels": dict(new.labels),
        "joined_at": now,
        "heartbeat_at": now,
    }
    fresh = reported | {"id": new.id, "state": ACTIVE, "reason": None}
    if not session.insert_new(WorkerRow, fresh):
        session.execute(update(WorkerRow).where(WorkerRow.id == new.id).values(**reported))
        again = update(WorkerRow).where(WorkerRow.id == new.id, WorkerRow.state != QUARANTINED)
        session.execute(again.values(state=ACTIVE, reason=None))
    return get(session, new.id)


def heartbeat(session: Session, worker_id: str) -> str:
    """Records a sign of life and returns the worker's state, which it acts on.

    A lost worker becomes active again.
    """
    row = _row(session, worker_id)
    row.heartbeat_at = session.now()
    if row.state == LOST:
        row.state, row.reason = ACTIVE, None
    session.flush()
    return row.state


def set_state(session: Session, worker_id: str, state: str, reason: str | None = None) -> Worker:
    if state not in STATES:
        raise UsageError(f"unknown state {state!r}; workers are {', '.join(STATES)}")
    row = _row(session, worker_id)
    row.state, row.reason = state, reason
    session.flush()
    return get(session, worker_id)


def is_silent(worker: Worker, now: datetime, silent_for: timedelta = SILENT) -> bool:
    """Whether no sign of life is as young as `silent_for`.

    One from later than `now` was given before the clock was set back.
    """
    return abs(now - worker.heartbeat_at) > silent_for


def is_alive(session: Session, silent_for: timedelta = SILENT) -> ColumnElement[bool]:
    """The condition of not being `is_silent` now."""
    now = session.now()
    return WorkerRow.heartbeat_at.between(now - silent_for, now + silent_for)


def mark_lost(session: Session, silent_for: timedelta) -> tuple[str, ...]:
    """Marks active and draining workers lost that were silent for so long.

    Returns their ids.
    """
    where = (WorkerRow.state.in_((ACTIVE, DRAINING)), not_(is_alive(session, silent_for)))
    reason = f"silent for more than {silent_for.total_seconds():g} s"
    lost = session.scalars(
        update(WorkerRow).where(*where).values(state=LOST, reason=reason).returning(WorkerRow.id)
    )
    return tuple(sorted(lost))


def get(session: Session, worker_id: str) -> Worker:
    return _worker(_row(session, worker_id))


def list_all(session: Session, *, state: Sequence[str] = STATES) -> tuple[Worker, ...]:
    """Workers by host and id."""
    query = (
        select(WorkerRow).where(WorkerRow.state.in_(state)).order_by(WorkerRow.host, WorkerRow.id)
    )
    return tuple(
        _worker(row) for row in session.scalars(query.execution_options(populate_existing=True))
    )


def _row(session: Session, worker_id: str) -> WorkerRow:
    row = session.get(WorkerRow, worker_id, populate_existing=True)
    if row is None:
        raise NotFound(f"no worker {worker_id!r} is known; `tuner workers` lists them")
    return row


def _worker(row: WorkerRow) -> Worker:
    same = (
        "id",
        "host",
        "state",
        "reason",
        "isolation",
        "lanes",
        "labels",
        "versions",
        "joined_at",
        "heartbeat_at",
    )
    return Worker(target=row.target_key, **{name: getattr(row, name) for name in same})
