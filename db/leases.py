"""Leases on jobs: an orchestrator claims, renews, finishes or releases a job.

Each claim gets a higher fencing token. A write carries the lease and is refused with
StaleLease once the token is no longer the job's, whatever any clock says. The time of
expiry only decides from when on others may claim the job.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, and_, or_, select, update
from sqlalchemy.orm import InstrumentedAttribute

from tuner.db.engine import Session
from tuner.db.errors import IllegalTransition, LeaseHeld, NotFound, StaleLease
from tuner.db.jobs import (
    CANCELLED,
    CANCELLING,
    FAILED,
    FINISHED,
    QUEUED,
    RUNNING,
    Job,
    enter,
    get,
    locked_row,
)
from tuner.db.tables import JobRow, TaskRow

DEFAULT_LEASE = timedelta(seconds=30)
# A lease that ends later than this was given before the clock was set back; its holder,
# if it lives, renews it by the new time.
LONGEST_LEASE = timedelta(minutes=10)
GONE = "its orchestrator is gone"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """The right to work on a job until it expires or another takes it."""

    job_id: str
    fence: int  # the token that writes carry
    owner: str  # who holds it, e.g. "host:pid:start"
    expires_at: datetime


def claim_next(
    session: Session,
    *,
    owner: str,
    lifetime: timedelta = DEFAULT_LEASE,
    targets: Collection[str] | None = None,
) -> tuple[Job, Lease] | None:
    """Claims the most urgent job for one of `targets`; None if there is none.

    Candidates are queued jobs and those whose lease ran out: the highest priority, then
    the oldest. Two callers never get the same job. Jobs that a dead owner left in
    cancelling are cancelled first.
    """
    settle_abandoned(session)
    query = select(JobRow).where(*_claimable(session))
    if targets is not None:
        query = query.where(JobRow.target_key.in_(targets))
    query = (
        query.order_by(JobRow.priority.desc(), JobRow.id)
        .limit(1)
        .with_for_update(skip_locked=True, key_share=True)
    )
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    return None if row is None else _take(session, row, owner, lifetime)


def waiting(session: Session, *, targets: Collection[str], limit: int = 100) -> tuple[Job, ...]:
    """Jobs for one of `targets` that could be claimed now, the most urgent first."""
    query = select(JobRow.id).where(*_claimable(session), JobRow.target_key.in_(targets))
    job_ids = session.scalars(query.order_by(JobRow.priority.desc(), JobRow.id).limit(limit)).all()
    return tuple(get(session, job_id) for job_id in job_ids)


def _claimable(session: Session) -> tuple[ColumnElement[bool], ...]:
    """Conditions on jobs that are queued or whose lease ran out."""
    over = and_(JobRow.state == RUNNING, is_over(JobRow.lease_expires_at, session.now()))
    # The first condition is implied by the second, and lets the index be used.
    return JobRow.state.in_((QUEUED, RUNNING)), or_(JobRow.state == QUEUED, over)


def claim(
    session: Session,
    job_id: str,
    *,
    owner: str,
    lifetime: timedelta = DEFAULT_LEASE,
    take_over: bool = False,
) -> tuple[Job, Lease]:
    """Claims this queued or running job.

    `take_over` also ends a lease that has not run out, for a holder known to be dead.
    Raises LeaseHeld naming holder and expiry, IllegalTransition for a job that is
    finished or being cancelled.
    """
    row = locked_row(session, job_id)
    expires = row.lease_expires_at
    over = expires is None or expires <= session.now() or expires > session.now() + LONGEST_LEASE
    if row.state == RUNNING and expires is not None and not over and not take_over:
        until = expires.isoformat(timespec="seconds")
        raise LeaseHeld(
            f"job {job_id} is being tuned by {row.lease_owner} until {until}; stop that one first"
        )
    return _take(session, row, owner, lifetime)


def abandon(session: Session, job_id: str) -> Job:
    """Ends the lease of a holder known to be dead.

    A running job is queued again, a cancelling one cancelled; others stay as they are.
    """
    row = locked_row(session, job_id)
    if row.state in (RUNNING, CANCELLING):
        enter(session, row, QUEUED if row.state == RUNNING else CANCELLED, {"reason": GONE})
    return get(session, row.id)


def holders(session: Session) -> tuple[tuple[str, str], ...]:
    """Id and lease owner of each running or cancelling job."""
    query = select(JobRow.id, JobRow.lease_owner).where(
        JobRow.state.in_((RUNNING, CANCELLING)), JobRow.lease_owner.is_not(None)
    )
    return tuple(
        (row.id, row.lease_owner or "") for row in session.execute(query.order_by(JobRow.id))
    )


def _take(session: Session, row: JobRow, owner: str, lifetime: timedelta) -> tuple[Job, Lease]:
    previous = row.lease_owner
    spent = sum(task.elapsed_s.get("total", 0.0) for task in get(session, row.id).tasks)
    takeover = {} if previous is None else {"taken_over_from": previous}
    enter(session, row, RUNNING, {"owner": owner, "elapsed_s": spent, **takeover})
    row.fence += 1
    row.lease_owner = owner
    row.lease_expires_at = session.now() + lifetime
    row.started_at = row.started_at or session.now()
    session.flush()
    return get(session, row.id), Lease(
        job_id=row.id, fence=row.fence, owner=owner, expires_at=row.lease_expires_at
    )


def is_over(
    expires_at: InstrumentedAttribute[datetime | None], now: datetime
) -> ColumnElement[bool]:
    """Whether a lease has run out, or ends later than any lease given by the current clock."""
    return or_(expires_at <= now, expires_at > now + LONGEST_LEASE)


def settle_abandoned(session: Session) -> int:
    """Cancels jobs in cancelling whose lease ran out; returns how many."""
    query = select(JobRow).where(
        JobRow.state == CANCELLING, is_over(JobRow.lease_expires_at, session.now())
    )
    rows = session.scalars(query.with_for_update(skip_locked=True, key_share=True)).all()
    for row in rows:
        enter(session, row, CANCELLED, {"reason": GONE})
    return len(rows)


def held(session: Session, lease: Lease) -> JobRow:
    """The job's row, locked until the transaction ends.

    Raises StaleLease unless `lease` is still the job's.
    """
    row = locked_row(session, lease.job_id)
    if row.fence != lease.fence:
        holder = "nobody" if row.lease_owner is None else row.lease_owner
        raise StaleLease(
            f"the lease {lease.fence} on job {lease.job_id} is over: the job is {row.state}, "
            f"held by {holder}; stop working on it"
        )
    return row


def renew(
    session: Session, lease: Lease, *, lifetime: timedelta = DEFAULT_LEASE
) -> tuple[Lease, bool]:
    """Prolongs the lease; returns it and whether the job is to be cancelled.

    Raises StaleLease.
    """
    row = held(session, lease)
    row.lease_expires_at = session.now() + lifetime
    session.flush()
    renewed = Lease(
        job_id=lease.job_id, fence=lease.fence, owner=lease.owner, expires_at=row.lease_expires_at
    )
    return renewed, row.state == CANCELLING


def release(session: Session, lease: Lease) -> Job:
    """Returns the job to the queue, or cancels it if that was requested. Raises StaleLease."""
    row = held(session, lease)
    enter(
        session, row, CANCELLED if row.state == CANCELLING else QUEUED, {"released_by": lease.owner}
    )
    return get(session, row.id)


def finish(session: Session, lease: Lease, state: str, *, error: str | None = None) -> Job:
    """Ends the job as succeeded, failed or cancelled, and the lease with it.

    Raises StaleLease or IllegalTransition.
    """
    if state not in FINISHED:
        raise IllegalTransition(
            f"a job cannot finish as {state!r}; it finishes as {', '.join(FINISHED)}"
        )
    if (error is None) == (state == FAILED):
        raise IllegalTransition(
            f"a job that finishes as {state} {'needs' if state == FAILED else 'has no'} error text"
        )
    row = held(session, lease)
    enter(session, row, state, error=error)
    return get(session, row.id)


def note_task(
    session: Session,
    lease: Lease,
    position: int,
    *,
    state: str | None = None,
    space_size: int | None = None,
    kernel: str | None = None,
    elapsed_s: Mapping[str, float] | None = None,
    stopped: str | None = None,
    error: str | None = None,
) -> None:
    """Stores new facts about a task; arguments that are None change nothing.

    Raises StaleLease.
    """
    held(session, lease)
    given = {
        "state": state,
        "space_size": None if space_size is None else str(space_size),
        "kernel_id": kernel,
        "elapsed": None if elapsed_s is None else dict(elapsed_s),
        "stopped": stopped,
        "error": error,
    }
    values = {name: value for name, value in given.items() if value is not None}
    here = (TaskRow.job_id == lease.job_id, TaskRow.position == position)
    if values and session.count_rows(update(TaskRow).where(*here).values(**values)) != 1:
        raise NotFound(f"job {lease.job_id} has no task {position}")
