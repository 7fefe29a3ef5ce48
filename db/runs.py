"""Queries about runs of a kernel or a model on a caller's arrays, stored as artifacts.

The API submits runs, workers execute them. A run is claimed by lease with a fencing
token, as a job is.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from sqlalchemy import Select, and_, insert, or_, select

from tuner.db.engine import Session
from tuner.db.errors import NotFound, StaleLease
from tuner.db.ids import new_id
from tuner.db.tables import JobRow, KernelRow, RunRow

QUEUED, RUNNING, SUCCEEDED, FAILED = "queued", "running", "succeeded", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Runnable:
    """What is run: a kernel, or the library of a model's job."""

    kind: Literal["kernel", "model"]
    id: str  # of the kernel, or of the job


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    id: str
    of: Runnable
    owner: str | None  # api key id
    state: str
    input: str  # SHA-256 of an artifact
    output: str | None  # SHA-256 of an artifact
    error: str | None
    fence: int
    created_at: datetime
    finished_at: datetime | None


def submit(session: Session, *, of: Runnable, input_artifact: str, owner: str | None = None) -> Run:
    """Queues a run of a known kernel or model on a remembered artifact."""
    now = session.now()
    row = {
        "id": new_id("r", now),
        "kernel_id": of.id if of.kind == "kernel" else None,
        "job_id": of.id if of.kind == "model" else None,
        "owner": owner,
        "state": QUEUED,
        "input_artifact": input_artifact,
    }
    session.execute(insert(RunRow), [row | {"fence": 0, "created_at": now}])
    return get(session, str(row["id"]))


def claim_next(
    session: Session, *, owner: str, lifetime: timedelta, targets: Collection[str] | None = None
) -> Run | None:
    """Claims the oldest run of what was made for one of `targets`; None if there is none.

    Candidates are queued runs and those whose lease ran out. The run's `fence` is the
    token to finish it with.
    """
    now = session.now()
    query = _free(now, targets, lifetime).order_by(RunRow.id).limit(1)
    row = session.scalars(query.with_for_update(skip_locked=True, of=RunRow)).one_or_none()
    if row is None:
        return None
    row.state, row.fence = RUNNING, row.fence + 1
    row.lease_owner, row.lease_expires_at = owner, now + lifetime
    session.flush()
    return _run(row)


def waiting(
    session: Session, *, lifetime: timedelta, targets: Collection[str] | None = None
) -> bool:
    """Whether `claim_next` would find a run.

    Cheaper than claiming, because it takes no write lock.
    """
    return session.scalars(_free(session.now(), targets, lifetime).limit(1)).first() is not None


def _free(now: datetime, targets: Collection[str] | None, lifetime: timedelta) -> Select[RunRow]:
    # A lease that ends much later than one given now was given before the clock was set back.
    over = or_(RunRow.lease_expires_at <= now, RunRow.lease_expires_at > now + 2 * lifetime)
    free = or_(RunRow.state == QUEUED, and_(RunRow.state == RUNNING, over))
    query = select(RunRow).where(RunRow.state.in_((QUEUED, RUNNING)), free)
    if targets is None:
        return query
    of_target = or_(KernelRow.target_key.in_(targets), JobRow.target_key.in_(targets))
    return (
        query.outerjoin(KernelRow, KernelRow.id == RunRow.kernel_id)
        .outerjoin(JobRow, JobRow.id == RunRow.job_id)
        .where(of_target)
    )


def finish(
    session: Session,
    run_id: str,
    fence: int,
    *,
    output: str | None = None,
    error: str | None = None,
) -> Run:
    """Ends a claimed run with its output, or with an error.

    Raises StaleLease when another worker holds it by now.
    """
    row = session.scalars(select(RunRow).where(RunRow.id == run_id).with_for_update()).one_or_none()
    if row is None:
        raise NotFound(f"no run {run_id!r} is known")
    if row.state != RUNNING or row.fence != fence:
        raise StaleLease(
            f"the lease {fence} on run {run_id} is over: it is {row.state}; drop the result"
        )
    row.state = SUCCEEDED if error is None else FAILED
    row.output_artifact, row.error, row.finished_at = output, error, session.now()
    row.lease_owner = row.lease_expires_at = None
    session.flush()
    return _run(row)


def get(session: Session, run_id: str) -> Run:
    row = session.get(RunRow, run_id, populate_existing=True)
    if row is None:
        raise NotFound(f"no run {run_id!r} is known")
    return _run(row)


def _run(row: RunRow) -> Run:
    same = ("id", "owner", "state", "error", "fence", "created_at", "finished_at")
    values = {name: getattr(row, name) for name in same}
    return Run(of=_runnable(row), input=row.input_artifact, output=row.output_artifact, **values)


def _runnable(row: RunRow) -> Runnable:
    if row.kernel_id is not None:
        return Runnable(kind="kernel", id=row.kernel_id)
    return Runnable(kind="model", id=str(row.job_id))
