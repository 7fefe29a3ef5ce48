"""Queries about kernels: promotion, rollback and lookup.

A promotion replaces the incumbent atomically. At most one kernel of a (workload, target,
threads, cache) is promoted; a unique index of the database enforces it. Queries are for warm
caches where they are not told otherwise: what was measured cold answers only who asks for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import Any, cast

from sqlalchemy import insert, literal, select, update

from tuner.db import events
from tuner.db.engine import Session
from tuner.db.errors import IllegalTransition, IncumbentChanged, NotFound
from tuner.db.ids import new_id
from tuner.db.leases import Lease, held
from tuner.db.pages import Page, checked_limit, decode, page
from tuner.db.tables import KernelRow, RegressionRow, TaskRow, WorkloadRow
from tuner.db.values import config_from_json
from tuner.errors import UsageError
from tuner.measure.cache import WARM, Cache
from tuner.measure.objective import Figures
from tuner.measure.regression import State
from tuner.measure.statistics import disturbed
from tuner.spaces.core.space import Config

PROMOTED, SUPERSEDED, ROLLED_BACK = "promoted", "superseded", "rolled back"
CANARY = "canary"  # won its race, and is to win again beside the champion, which is promoted
TRADEOFF = "tradeoff"  # beside the promoted one, with less workspace or code
STATES = (PROMOTED, SUPERSEDED, ROLLED_BACK, CANARY, TRADEOFF)
RUNNERS_UP = "runners_up"  # in a schedule: others of the race, to be tried within a model
# Written into the statement, not bound: SQLite uses the partial index only where it
# sees the constant.
IS_PROMOTED = KernelRow.state == literal(PROMOTED, literal_execute=True)

FIGURES = tuple(each.name for each in fields(Figures))


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKernel:
    workload: str  # key
    target: str  # key
    threads: int
    schedule: Mapping[str, Any]  # module, trace and versions: what outlives the space
    config: Config
    artifact: str  # SHA-256 of a remembered artifact
    median_s: float
    ci95_s: tuple[float, float]
    gflops: float
    roofline_fraction: float | None
    max_rel_error: float
    verified: bool
    default_median_s: float | None
    versions: Mapping[str, str]  # of TVM, runtime, driver
    # rivals timed in the same race, e.g. {"default": {"median_s", "ci95_s"}}
    race: Mapping[str, Any] = field(default_factory=dict)
    trial: int | None = None  # number of the trial it won with
    cache: Cache = WARM  # what the race's calls found in the caches
    workspace_bytes: int | None = None  # memory for temporaries, over all threads
    code_bytes: int | None = None  # machine code
    previous: str | None = None  # id of the incumbent that it was raced against


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """All of a kernel but its schedule, which is large: see `schedule`."""

    id: str
    workload: str
    target: str
    threads: int
    cache: Cache
    state: str
    config: Config
    artifact: str
    median_s: float
    ci95_s: tuple[float, float]
    gflops: float
    roofline_fraction: float | None
    max_rel_error: float
    verified: bool
    default_median_s: float | None
    versions: Mapping[str, str]
    race: Mapping[str, Any]
    job: str | None
    trial: int | None
    previous: str | None
    stale: str | None  # why it must be timed again before it is trusted
    validated_at: datetime
    created_at: datetime
    workspace_bytes: int | None = None  # memory for temporaries, over all threads
    code_bytes: int | None = None  # machine code
    instances: int | None = None  # side by side on all cores, as `calls_per_s` is of
    calls_per_s: float | None = None
    energy_j: float | None = None  # of a call

    @property
    def figures(self) -> Figures:
        return Figures(**{each: getattr(self, each) for each in FIGURES})

    @property
    def disturbed(self) -> bool:
        """Whether its race had so wide an interval that the median is in doubt."""
        return disturbed(self.median_s, self.ci95_s)


def promote(
    session: Session,
    new: NewKernel,
    *,
    lease: Lease | None = None,
    position: int = 0,
    canary: bool = False,
) -> Kernel:
    """Promotes `new` in place of the incumbent of its (workload, target, threads, cache).

    With a lease, the promotion is also noted in the lease's job. As a `canary`, `new` takes
    the place of the canary before it, and the incumbent stays promoted; where there is
    none, or it is stale, `new` is promoted all the same.
    Raises IncumbentChanged unless the promoted kernel is `new.previous`, StaleLease,
    NotFound for an unknown workload.
    """
    if lease is not None:
        held(session, lease)
    op = lock_workload(session, new.workload)
    place = (new.workload, new.target, new.threads)
    incumbent = find_promoted(session, *place, cache=new.cache)
    if (None if incumbent is None else incumbent.id) != new.previous:
        current = "none" if incumbent is None else incumbent.id
        raise IncumbentChanged(
            f"the promoted kernel is {current}, the candidate was raced against "
            f"{new.previous or 'none'}; race again"
        )
    waits = canary and incumbent is not None and incumbent.stale is None
    before = find_canary(session, *place, cache=new.cache) if waits else incumbent
    if before is not None:
        _supersede(session, before.id)
    now = session.now()
    kernel_id = new_id("k", now)
    job_id = None if lease is None else lease.job_id
    row = columns_of(new) | {
        "id": kernel_id,
        "op": op,
        "state": CANARY if waits else PROMOTED,
        "job_id": job_id,
        "created_at": now,
        "validated_at": now,
    }
    session.execute(insert(KernelRow), [row])
    if lease is not None:
        here = (TaskRow.job_id == lease.job_id, TaskRow.position == position)
        session.execute(update(TaskRow).where(*here).values(kernel_id=kernel_id))
        data = {
            "kernel": kernel_id,
            "task": position,
            "median_s": new.median_s,
            "previous": new.previous,
        }
        events.append(session, lease.job_id, "kernel", data)
    return get(session, kernel_id)


def columns_of(new: NewKernel) -> dict[str, Any]:
    names = (
        "threads",
        "cache",
        "artifact",
        "median_s",
        "gflops",
        "roofline_fraction",
        "max_rel_error",
        "verified",
        "default_median_s",
        "workspace_bytes",
        "code_bytes",
    )
    row = {name: getattr(new, name) for name in names}
    row |= {name: dict(getattr(new, name)) for name in ("schedule", "config", "versions", "race")}
    row |= {
        "workload_key": new.workload,
        "target_key": new.target,
        "trial_number": new.trial,
        "previous_id": new.previous,
    }
    return row | {"ci95_low_s": new.ci95_s[0], "ci95_high_s": new.ci95_s[1]}


def promote_canary(session: Session, kernel_id: str) -> Kernel:
    """Promotes a canary in place of the champion. Raises IllegalTransition for what is none."""
    lock_workload(session, get(session, kernel_id).workload)
    kernel = get(session, kernel_id)
    if kernel.state != CANARY:
        raise IllegalTransition(
            f"kernel {kernel_id} is {kernel.state}; only a canary can be promoted"
        )
    champion = _champion(session, kernel)
    if champion is not None:
        _supersede(session, champion.id)
    previous = kernel.previous if champion is None else champion.id
    session.execute(
        update(KernelRow)
        .where(KernelRow.id == kernel_id)
        .values(state=PROMOTED, previous_id=previous, validated_at=session.now())
    )
    return get(session, kernel_id)


def _supersede(session: Session, kernel_id: str) -> None:
    session.execute(update(KernelRow).where(KernelRow.id == kernel_id).values(state=SUPERSEDED))
    _end_regressions(session, kernel_id)


def rollback(session: Session, kernel_id: str) -> Kernel | None:
    """Withdraws a promoted kernel and promotes its predecessor, or withdraws a canary.

    Returns the kernel that is promoted then, or None if there is none.
    Raises IllegalTransition for a kernel that is neither.
    """
    lock_workload(session, get(session, kernel_id).workload)
    kernel = get(session, kernel_id)
    if kernel.state not in (PROMOTED, CANARY):
        raise IllegalTransition(
            f"kernel {kernel_id} is {kernel.state}; only a promoted kernel or a canary can be "
            f"rolled back"
        )
    session.execute(update(KernelRow).where(KernelRow.id == kernel_id).values(state=ROLLED_BACK))
    _end_regressions(session, kernel_id)
    if kernel.state == CANARY:
        return _champion(session, kernel)
    if kernel.previous is None:
        return None
    session.execute(update(KernelRow).where(KernelRow.id == kernel.previous).values(state=PROMOTED))
    return get(session, kernel.previous)


def _champion(session: Session, kernel: Kernel) -> Kernel | None:
    """The promoted kernel in a kernel's place."""
    place = (kernel.workload, kernel.target, kernel.threads)
    return find_promoted(session, *place, cache=kernel.cache)


def _end_regressions(session: Session, kernel_id: str) -> None:
    """What a kernel lost matters no more once it is not served."""
    session.execute(
        update(RegressionRow)
        .where(RegressionRow.kernel_id == kernel_id, RegressionRow.ended_at.is_(None))
        .values(state=State.RESOLVED, ended_at=session.now())
    )


def lock_workload(session: Session, workload: str) -> str | None:
    """Locks a workload, so that promotions and rollbacks take place one at a time.

    Returns the name of its operator.
    """
    row = session.scalars(
        select(WorkloadRow).where(WorkloadRow.key == workload).with_for_update()
    ).one_or_none()
    if row is None:
        raise NotFound(f"no workload {workload!r} is known")
    return row.op


def find_promoted(
    session: Session, workload: str, target: str, threads: int, *, cache: Cache = WARM
) -> Kernel | None:
    """The kernel of (workload, target, threads, cache), if there is one."""
    query = select(KernelRow).where(
        KernelRow.workload_key == workload,
        KernelRow.target_key == target,
        KernelRow.threads == threads,
        KernelRow.cache == cache,
        IS_PROMOTED,
    )
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    return None if row is None else record_of(row)


def fastest_threads(
    session: Session, workload: str, target: str, *, cache: Cache = WARM
) -> int | None:
    """The thread count of the fastest promoted kernel; None where there is none."""
    query = (
        select(KernelRow.threads)
        .where(
            KernelRow.workload_key == workload,
            KernelRow.target_key == target,
            KernelRow.cache == cache,
            IS_PROMOTED,
        )
        .order_by(KernelRow.median_s, KernelRow.threads)
        .limit(1)
    )
    return session.scalars(query).one_or_none()


def find_canary(
    session: Session, workload: str, target: str, threads: int, *, cache: Cache = WARM
) -> Kernel | None:
    """The canary of (workload, target, threads, cache), if there is one."""
    query = select(KernelRow).where(
        KernelRow.workload_key == workload,
        KernelRow.target_key == target,
        KernelRow.threads == threads,
        KernelRow.cache == cache,
        KernelRow.state == CANARY,
    )
    row = session.scalars(query.execution_options(populate_existing=True)).one_or_none()
    return None if row is None else record_of(row)


def get(session: Session, kernel_id: str) -> Kernel:
    query = (
        select(KernelRow).where(KernelRow.id == kernel_id).execution_options(populate_existing=True)
    )
    row = session.scalars(query).one_or_none()
    if row is None:
        raise NotFound(f"no kernel {kernel_id!r} is known; `tuner best` lists them")
    return record_of(row)


def schedule(session: Session, kernel_id: str) -> Mapping[str, Any]:
    """The schedule a kernel was built from: module, trace and versions."""
    document: Mapping[str, Any] | None = session.scalars(
        select(KernelRow.schedule).where(KernelRow.id == kernel_id)
    ).one_or_none()
    if document is None:
        raise NotFound(f"no kernel {kernel_id!r} is known; `tuner best` lists them")
    return document


def lineage(session: Session, kernel_id: str) -> tuple[Kernel, ...]:
    """The kernel and those it replaced, the newest first."""
    chain = [get(session, kernel_id)]
    while chain[-1].previous is not None:
        chain.append(get(session, chain[-1].previous))
    return tuple(chain)


def list_page(
    session: Session,
    *,
    state: Sequence[str] = (PROMOTED,),
    workload: str | None = None,
    target: str | None = None,
    op: str | None = None,
    job: str | None = None,
    cache: Cache | None = None,
    text: str = "",
    oldest_first: bool = False,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Kernel]:
    """One page of kernels: by default the promoted ones, the newest first.

    With a `text`, only those whose workload's spec contains it.
    """
    limit = checked_limit(limit)
    listing = "kernels, oldest first" if oldest_first else "kernels"
    unknown = set(state) - set(STATES)
    if unknown:
        raise UsageError(f"unknown state {sorted(unknown)[0]!r}; kernels are {', '.join(STATES)}")
    query = (
        select(KernelRow)
        .order_by(KernelRow.id.asc() if oldest_first else KernelRow.id.desc())
        .limit(limit + 1)
    )
    if state:
        query = query.where(KernelRow.state.in_(state))
    columns = {
        KernelRow.workload_key: workload,
        KernelRow.target_key: target,
        KernelRow.job_id: job,
        KernelRow.op: op,
        KernelRow.cache: cache,
    }
    query = query.where(
        *(column == value for column, value in columns.items() if value is not None)
    )
    if text:
        query = query.join(WorkloadRow, WorkloadRow.key == KernelRow.workload_key).where(
            WorkloadRow.spec.icontains(text, autoescape=True)
        )
    if cursor is not None:
        last_id = decode(listing, cursor, [str])[0]
        query = query.where(KernelRow.id > last_id if oldest_first else KernelRow.id < last_id)
    rows = session.scalars(query).all()
    return page([record_of(row) for row in rows], limit, listing, [(row.id,) for row in rows])


def neighbours(
    session: Session,
    op: str,
    target: str,
    threads: int,
    *,
    cache: Cache = WARM,
    limit: int = 100,
) -> tuple[Kernel, ...]:
    """Promoted kernels of one operator, the newest first: candidates for a neighbour."""
    query = (
        select(KernelRow)
        .where(
            KernelRow.op == op,
            KernelRow.target_key == target,
            KernelRow.threads == threads,
            KernelRow.cache == cache,
            IS_PROMOTED,
        )
        .order_by(KernelRow.id.desc())
        .limit(limit)
    )
    return tuple(record_of(row) for row in session.scalars(query))


def mark_stale(session: Session, target: str, reason: str) -> int:
    """Marks all promoted kernels of a target, and tradeoffs; returns how many.

    The promoted ones are timed again, the others are no longer chosen.

    Needed after TVM, the driver or the machine changed.
    """
    served = KernelRow.state.in_((PROMOTED, TRADEOFF))
    where = (KernelRow.target_key == target, served, KernelRow.stale.is_(None))
    return session.count_rows(update(KernelRow).where(*where).values(stale=reason))


def mark_validated(session: Session, kernel_id: str) -> None:
    """Notes that a kernel was timed again and stands."""
    session.execute(
        update(KernelRow)
        .where(KernelRow.id == kernel_id)
        .values(stale=None, validated_at=session.now())
    )


def settle_disturbed(
    session: Session,
    kernel_id: str,
    median_s: float,
    ci95_s: tuple[float, float],
    default_median_s: float | None,
) -> None:
    """Puts the time of an undisturbed race in the place of a disturbed one.

    A time that was not disturbed stays: what a kernel has lost since is told by its races.
    """
    before = get(session, kernel_id)
    if not before.disturbed:
        return
    if default_median_s is None:  # the race that was disturbed says no more of it
        default_median_s = before.default_median_s
    ratio = before.median_s / median_s
    share = before.roofline_fraction
    session.execute(
        update(KernelRow)
        .where(KernelRow.id == kernel_id)
        .values(
            median_s=median_s,
            ci95_low_s=ci95_s[0],
            ci95_high_s=ci95_s[1],
            gflops=before.gflops * ratio,
            roofline_fraction=None if share is None else share * ratio,
            default_median_s=default_median_s,
        )
    )


def record_of(row: KernelRow) -> Kernel:
    same = (
        "id", "threads", "state", "artifact", "median_s", "gflops", "roofline_fraction",
        "max_rel_error", "verified",
        "default_median_s", "workspace_bytes", "code_bytes", "instances", "calls_per_s", "energy_j",
        "versions", "race", "stale", "validated_at", "created_at",
    )  # fmt: skip
    return Kernel(
        workload=row.workload_key,
        target=row.target_key,
        cache=cast(Cache, row.cache),
        config=config_from_json(row.config),
        ci95_s=(row.ci95_low_s, row.ci95_high_s),
        job=row.job_id,
        trial=row.trial_number,
        previous=row.previous_id,
        **{name: getattr(row, name) for name in same},
    )
