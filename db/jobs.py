"""Queries about jobs: create, list, cancel and resume them.

What an orchestrator does with a job under its lease is in `db/leases.py`.
Every change of state appends an event of the state's name in the same transaction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

from sqlalchemy import delete, func, insert, select

from tuner.db import events
from tuner.db.engine import Session
from tuner.db.errors import IdempotencyConflict, IllegalTransition, NotFound
from tuner.db.ids import new_id
from tuner.db.pages import Page, checked_limit, decode, page
from tuner.db.tables import IdempotencyRow, JobRow, TaskRow
from tuner.errors import UsageError
from tuner.measure.cache import WARM, Cache
from tuner.measure.objective import FASTEST, Goal, goal_of
from tuner.search.strategies import DEFAULT_STRATEGY

QUEUED, RUNNING, CANCELLING = "queued", "running", "cancelling"
CANCELLED, SUCCEEDED, FAILED = "cancelled", "succeeded", "failed"
TUNE = "tune"  # kind of a job that searches
# kind of a job that builds a kernel for a lookup: a neighbour's schedule or the estimate's
# best, unless the default is faster
PREPARE = "prepare"
NEIGHBOUR = "neighbour"  # in the settings of such a job: id of the kernel whose schedule it takes
# kind of a job that times kernels again after compiler, driver or machine changed
REVALIDATE = "revalidate"
# kind of a job that races promoted kernels against the libraries that are installed
RERACE = "rerace"
MODEL = "model"  # kind of a job whose workloads are still inside a model file
JUDGE = "judge"  # kind of a job that judges a foreign kernel
STATES = (QUEUED, RUNNING, CANCELLING, CANCELLED, SUCCEEDED, FAILED)
UNFINISHED = (QUEUED, RUNNING, CANCELLING)
FINISHED = (CANCELLED, SUCCEEDED, FAILED)
MAX_KEY = 200  # characters of an idempotency key
# in the settings of a job: seconds that each task had had when it was resumed with a new budget
HAD_S = "had_s"
LIMITS = (
    ("threads", 1, 2**31 - 1),
    ("trials", 0, 2**31 - 1),
    ("priority", -(2**31), 2**31 - 1),
    ("seed", -(2**63), 2**63 - 1),
)
# From which states each state may be entered.
ALLOWED: Mapping[str, tuple[str, ...]] = {
    QUEUED: (RUNNING, CANCELLED, FAILED),  # given back, or resumed
    RUNNING: (QUEUED, RUNNING),  # claimed, or taken over
    CANCELLING: (RUNNING,),
    CANCELLED: (QUEUED, RUNNING, CANCELLING),
    SUCCEEDED: (RUNNING, CANCELLING),  # the work was done before the request to cancel was seen
    FAILED: (RUNNING, CANCELLING),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """A request for a job, before it is queued."""

    workloads: tuple[str, ...]  # keys of stored workloads, each once
    target: str  # key of a stored target
    threads: int
    trials: int  # budget per workload
    seconds: float | None = None  # budget per workload
    strategy: str = DEFAULT_STRATEGY
    seed: int = 0
    priority: int = 0  # higher first
    owner: str | None = None  # api key id
    kind: str = TUNE
    cache: Cache = WARM  # what timed calls find in the caches
    goal: Goal = FASTEST  # what kernels are chosen by
    settings: Mapping[str, Any] = field(default_factory=dict)  # whatever else the request carried


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One workload of a job."""

    position: int  # in the job, from 0
    workload: str  # key
    state: str  # queued, succeeded or failed
    space_size: int | None
    trials_done: int
    trials_ok: int
    best_median_s: float | None
    kernel: str | None  # id of the kernel it ended with
    elapsed_s: Mapping[str, float]  # total, search, build, measure
    # why its last search ended, a value of `tuner.tuning.StopReason`; None before that
    stopped: str | None
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job with its tasks, as it is stored."""

    id: str
    kind: str
    state: str
    target: str
    threads: int
    trials: int
    seconds: float | None
    strategy: str
    seed: int
    priority: int
    owner: str | None
    cache: Cache
    goal: Goal
    settings: Mapping[str, Any]
    error: str | None
    last_event: int
    lease_owner: str | None
    lease_expires_at: datetime | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Idempotency:
    """Lets a repeated request return the job of the first one."""

    key: str  # chosen by the client
    digest: str  # of the request, hex
    owner: str = ""  # api key id, empty without authentication
    lifetime: timedelta = timedelta(hours=24)


def create(
    session: Session, new: NewJob, *, idempotency: Idempotency | None = None
) -> tuple[Job, bool]:
    """Queues a job; returns it and whether it is new.

    A request whose idempotency key was seen before gets the job of the first request. A
    job of kind MODEL has no workloads yet: whoever claims it adds them, see `db/tasks.py`.

    Raises UsageError for an empty or repeated list of workloads, IdempotencyConflict
    when the key came with another request.
    """
    _check(new, idempotency)
    now = session.now()
    job_id = new_id("j", now)
    if idempotency is not None:
        repeated = find_repeated(session, idempotency)
        if repeated is not None:
            return get(session, repeated), False
        forget_expired_keys(session, idempotency)
    row = {
        name: getattr(new, name)
        for name in (
            "threads",
            "trials",
            "seconds",
            "strategy",
            "seed",
            "priority",
            "owner",
            "kind",
            "cache",
        )
    }
    row |= {
        "id": job_id,
        "state": QUEUED,
        "target_key": new.target,
        "objective": new.goal.text,
        "settings": dict(new.settings),
        "created_at": now,
    }
    session.execute(insert(JobRow), [row | {"last_event": 0, "fence": 0}])
    tasks = [
        {
            "job_id": job_id,
            "position": place,
            "workload_key": key,
            "state": QUEUED,
            "trials_done": 0,
            "trials_ok": 0,
            "elapsed": {},
        }
        for place, key in enumerate(new.workloads)
    ]
    if tasks:
        session.execute(insert(TaskRow), tasks)
    if idempotency is not None and not _note(session, idempotency, job_id):
        # Another transaction used the key since we looked; its job is the answer and
        # ours must not stay.
        session.execute(delete(JobRow).where(JobRow.id == job_id))
        return get(session, str(find_repeated(session, idempotency))), False
    events.append(session, job_id, QUEUED)
    return get(session, job_id), True


def _check(new: NewJob, idempotency: Idempotency | None) -> None:
    """Raises UsageError for a request that no job can be made of."""
    if (not new.workloads and new.kind != MODEL) or len(set(new.workloads)) != len(new.workloads):
        raise UsageError(
            f"a job takes one workload or several different ones; {len(new.workloads)} were "
            f"given, some twice or none"
        )
    if idempotency is not None and not 1 <= len(idempotency.key) <= MAX_KEY:
        raise UsageError(
            f"an Idempotency-Key of {len(idempotency.key)} characters was given; it has 1 to "
            f"{MAX_KEY}"
        )
    for name, lowest, highest in LIMITS:
        if not lowest <= getattr(new, name) <= highest:
            raise UsageError(
                f"{name} is {getattr(new, name)}; it must be from {lowest} to {highest}"
            )


def find_repeated(session: Session, idempotency: Idempotency) -> str | None:
    """The job that an earlier request with this key made; None where there was none lately.

    Raises IdempotencyConflict when the key came with another request.
    """
    row = session.get(IdempotencyRow, (idempotency.owner, idempotency.key), populate_existing=True)
    if row is None or row.expires_at <= session.now():
        return None
    if row.digest != idempotency.digest:
        raise IdempotencyConflict(
            f"Idempotency-Key {idempotency.key!r} came before with a different request; use "
            f"a new key"
        )
    return row.job_id


def _note(session: Session, idempotency: Idempotency, job_id: str) -> bool:
    return session.insert_new(
        IdempotencyRow,
        {
            "owner": idempotency.owner,
            "key": idempotency.key,
            "digest": idempotency.digest,
            "job_id": job_id,
            "expires_at": session.now() + idempotency.lifetime,
        },
    )


def forget_expired_keys(session: Session, only: Idempotency | None = None) -> int:
    """Deletes idempotency keys whose lifetime is over, `only` this one or all; returns how many."""
    expired = delete(IdempotencyRow).where(IdempotencyRow.expires_at <= session.now())
    if only is not None:
        expired = expired.where(IdempotencyRow.owner == only.owner, IdempotencyRow.key == only.key)
    return session.count_rows(expired)


def get(session: Session, job_id: str) -> Job:
    """The job as it is now. Raises NotFound."""
    return _jobs(session, [locked_row(session, job_id, lock=False)])[0]


def unknown(job_id: str) -> NotFound:
    """The error for a job that is not there, or that the caller may not know to be there."""
    return NotFound(f"no job {job_id!r} is known; `tuner jobs` lists them")


def kind_of(session: Session, job_id: str) -> str | None:
    """The kind of a job; None where there is none."""
    return session.scalars(select(JobRow.kind).where(JobRow.id == job_id)).one_or_none()


def list_page(
    session: Session,
    *,
    state: Sequence[str] = (),
    workload: str | None = None,
    owner: str | None = None,
    oldest_first: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Job]:
    """One page of jobs, by default the newest first.

    `state` keeps those in one of these states, `owner` those of one API key.
    """
    limit = checked_limit(limit)
    listing = "jobs, oldest first" if oldest_first else "jobs"
    query = (
        select(JobRow)
        .order_by(JobRow.id.asc() if oldest_first else JobRow.id.desc())
        .limit(limit + 1)
    )
    if state:
        unknown = set(state) - set(STATES)
        if unknown:
            raise UsageError(f"unknown state {sorted(unknown)[0]!r}; jobs are {', '.join(STATES)}")
        query = query.where(JobRow.state.in_(state))
    if workload is not None:
        query = query.where(
            JobRow.id.in_(select(TaskRow.job_id).where(TaskRow.workload_key == workload))
        )
    if owner is not None:
        query = query.where(JobRow.owner == owner)
    if cursor is not None:
        last_id = decode(listing, cursor, [str])[0]
        query = query.where(JobRow.id > last_id if oldest_first else JobRow.id < last_id)
    rows = session.scalars(query).all()
    return page(_jobs(session, rows), limit, listing, [(row.id,) for row in rows])


def succeeded_since(
    session: Session, since: datetime, *, kind: str, target: str
) -> tuple[Job, ...]:
    """Jobs of a kind and a target that have succeeded since then, the newest first."""
    query = select(JobRow).where(
        JobRow.state == SUCCEEDED,
        JobRow.kind == kind,
        JobRow.target_key == target,
        JobRow.finished_at >= since,
    )
    return _jobs(session, session.scalars(query.order_by(JobRow.id.desc())).all())


def count(
    session: Session,
    *,
    owner: str | None = None,
    kind: str | None = None,
    target: str | None = None,
    state: Sequence[str] = UNFINISHED,
) -> int:
    """The number of jobs in these states, of one owner, kind and target or of all."""
    query = select(func.count()).select_from(JobRow).where(JobRow.state.in_(state))
    if owner is not None:
        query = query.where(JobRow.owner == owner)
    if target is not None:
        query = query.where(JobRow.target_key == target)
    return session.scalars(query if kind is None else query.where(JobRow.kind == kind)).one()


def request_cancel(session: Session, job_id: str) -> Job:
    """Cancels a job: a queued one at once, a running one when its orchestrator notices.

    A cancelling or cancelled job stays as it is.
    Raises IllegalTransition for a job that succeeded or failed.
    """
    row = locked_row(session, job_id)
    if row.state == QUEUED:
        enter(session, row, CANCELLED)
    elif row.state in (SUCCEEDED, FAILED):
        raise IllegalTransition(
            f"job {job_id} is {row.state}; only queued and running jobs can be cancelled"
        )
    elif row.state == RUNNING:
        enter(session, row, CANCELLING)
    return get(session, job_id)


def resume(
    session: Session, job_id: str, *, trials: int | None = None, seconds: float | None = None
) -> Job:
    """Queues a cancelled or failed job again, with its recorded trials.

    `trials` and `seconds` change its budget. Queued jobs stay as they are, but for that. Seconds
    count anew, for queued ones where they are given.
    Raises IllegalTransition for one that runs, is being cancelled, or succeeded.
    """
    row = locked_row(session, job_id)
    begins_anew = seconds is not None or row.state != QUEUED
    row.trials = row.trials if trials is None else trials
    row.seconds = row.seconds if seconds is None else seconds
    if row.state != QUEUED:
        if row.state not in (CANCELLED, FAILED):
            raise IllegalTransition(
                f"job {job_id} is {row.state}; only cancelled and failed jobs can be resumed"
            )
        enter(session, row, QUEUED, {"resumed": True})
    if begins_anew:
        had = [task.elapsed_s.get("total", 0.0) for task in get(session, job_id).tasks]
        row.settings = {**row.settings, HAD_S: had}
    session.flush()
    return get(session, job_id)


def spent_s(job: Job) -> tuple[float, ...]:
    """Seconds of its budget that each task has had, since the job was queued or resumed."""
    had = job.settings.get(HAD_S) or []
    had = [*had, *[0.0] * (len(job.tasks) - len(had))]
    return tuple(
        max(task.elapsed_s.get("total", 0.0) - before_s, 0.0)
        for task, before_s in zip(job.tasks, had, strict=True)
    )


def enter(
    session: Session,
    row: JobRow,
    state: str,
    data: Mapping[str, Any] | None = None,
    *,
    error: str | None = None,
) -> None:
    """Moves the locked `row` to `state` and appends the event of that name.

    Leaving running or cancelling ends the lease.
    """
    if row.state not in ALLOWED[state]:
        raise IllegalTransition(
            f"job {row.id} is {row.state}; only a job that is {' or '.join(ALLOWED[state])} can "
            f"become {state}"
        )
    row.state = state
    row.error = error
    if state not in (RUNNING, CANCELLING):
        row.lease_owner = row.lease_expires_at = None
        row.fence += 1
    row.finished_at = session.now() if state in FINISHED else None
    session.flush()
    events.append(
        session, row.id, state, dict(data or {}) | ({} if error is None else {"error": error})
    )
    session.refresh(row)


def locked_row(session: Session, job_id: str, *, lock: bool = True) -> JobRow:
    """The job's row, locked until the transaction ends unless `lock` is off. Raises NotFound."""
    query = select(JobRow).where(JobRow.id == job_id)
    if lock:
        query = query.with_for_update(key_share=True)
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    if row is None:
        raise unknown(job_id)
    return row


def _jobs(session: Session, rows: Sequence[JobRow]) -> tuple[Job, ...]:
    query = (
        select(TaskRow)
        .where(TaskRow.job_id.in_([row.id for row in rows]))
        .order_by(TaskRow.job_id, TaskRow.position)
    )
    tasks: dict[str, list[Task]] = {row.id: [] for row in rows}
    for task in session.scalars(query.execution_options(populate_existing=True)):
        tasks[task.job_id].append(_task(task))
    return tuple(_job(row, tuple(tasks[row.id])) for row in rows)


def _task(row: TaskRow) -> Task:
    return Task(
        position=row.position,
        workload=row.workload_key,
        state=row.state,
        space_size=None if row.space_size is None else int(row.space_size),
        trials_done=row.trials_done,
        trials_ok=row.trials_ok,
        best_median_s=row.best_median_s,
        kernel=row.kernel_id,
        elapsed_s={name: float(value) for name, value in row.elapsed.items()},
        stopped=row.stopped,
        error=row.error,
    )


def _job(row: JobRow, tasks: tuple[Task, ...]) -> Job:
    return Job(
        id=row.id,
        kind=row.kind,
        state=row.state,
        target=row.target_key,
        threads=row.threads,
        trials=row.trials,
        seconds=row.seconds,
        strategy=row.strategy,
        seed=row.seed,
        priority=row.priority,
        owner=row.owner,
        cache=cast(Cache, row.cache),
        goal=goal_of(row.objective),
        settings=row.settings,
        error=row.error,
        last_event=row.last_event,
        lease_owner=row.lease_owner,
        lease_expires_at=row.lease_expires_at,
        created_at=row.created_at,
        started_at=row.started_at,
        finished_at=row.finished_at,
        tasks=tasks,
    )
