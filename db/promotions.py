"""Which kernel is served: promotions, of canaries too, and rollbacks.

A promotion replaces the incumbent atomically. At most one kernel of a (workload, target,
threads, cache) is promoted; a unique index of the database enforces it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import insert, select, update

from tuner.db import events
from tuner.db.engine import Session
from tuner.db.errors import IllegalTransition, IncumbentChanged, NotFound
from tuner.db.ids import new_id
from tuner.db.kernels import (
    CANARY,
    PROMOTED,
    ROLLED_BACK,
    SUPERSEDED,
    Kernel,
    find_canary,
    find_promoted,
    get,
)
from tuner.db.leases import Lease, held
from tuner.db.tables import KernelRow, RegressionRow, TaskRow, WorkloadRow
from tuner.measure.cache import WARM, Cache
from tuner.measure.regression import State
from tuner.spaces.core.space import Config


@dataclass(frozen=True, slots=True, kw_only=True)
class NewKernel:
    """A kernel that won its race, before it is promoted."""

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
