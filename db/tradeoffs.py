"""Queries about tradeoffs: kept beside the promoted kernel for less workspace or code."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import insert, select, update

from tuner.db.engine import Session
from tuner.db.ids import new_id
from tuner.db.kernels import PROMOTED, SUPERSEDED, TRADEOFF, Kernel, record_of
from tuner.db.leases import Lease, held
from tuner.db.promotions import NewKernel, columns_of, lock_workload
from tuner.db.tables import KernelRow
from tuner.measure.cache import WARM, Cache
from tuner.measure.objective import CODE_SIZE, MEMORY, TIME, Goal, NotMeasured, chosen, front

JUDGED_BY = (TIME, MEMORY, CODE_SIZE)


def choices(
    session: Session, workload: str, target: str, threads: int | None, *, cache: Cache = WARM
) -> tuple[Kernel, ...]:
    """What an objective chooses among: the promoted kernel and its tradeoffs.

    Without `threads` those of every thread count. The promoted ones come first, then the
    fastest.
    """
    where = [
        KernelRow.workload_key == workload,
        KernelRow.target_key == target,
        KernelRow.cache == cache,
        (KernelRow.state == PROMOTED) | ((KernelRow.state == TRADEOFF) & KernelRow.stale.is_(None)),
    ]
    if threads is not None:
        where.append(KernelRow.threads == threads)
    rows = session.scalars(
        select(KernelRow)
        .where(*where)
        .order_by(KernelRow.state != PROMOTED, KernelRow.threads, KernelRow.median_s, KernelRow.id)
        .execution_options(populate_existing=True)
    )
    return tuple(record_of(row) for row in rows)


def best_by(
    items: Sequence[Kernel], goal: Goal, within: float | None, *, what: str
) -> list[Kernel]:
    """The best of a workload's kernels by one objective, or the front of two.

    `within`: the share by which they may take longer than the fastest. `what` names the
    workload. Raises NotMeasured.
    """
    best = chosen(items, goal, lambda kernel: kernel.figures, within=within)
    if not best:
        titles = " and ".join(each.title for each in goal.objectives)
        raise NotMeasured(
            f"of {what} no kernel's {titles} was measured; tuner tune with --objective {goal.text} "
            f"on that machine measures it"
        )
    return best


def keep(session: Session, new: Sequence[NewKernel], lease: Lease) -> None:
    """Stores kernels of one workload's race as tradeoffs; those that are none end at once.

    Raises StaleLease, NotFound for an unknown workload.
    """
    held(session, lease)
    for each in new:
        now, op = session.now(), lock_workload(session, each.workload)
        row = columns_of(each) | {
            "id": new_id("k", now),
            "op": op,
            "state": TRADEOFF,
            "job_id": lease.job_id,
            "created_at": now,
            "validated_at": now,
        }
        session.execute(insert(KernelRow), [row])


def keep_replaced(session: Session, kernel_id: str) -> None:
    """Makes a tradeoff of a kernel that another one has just superseded."""
    session.execute(
        update(KernelRow)
        .where(KernelRow.id == kernel_id, KernelRow.state == SUPERSEDED)
        .values(state=TRADEOFF)
    )


def settle(
    session: Session, workload: str, target: str, threads: int, *, cache: Cache = WARM
) -> tuple[Kernel, ...]:
    """Ends tradeoffs that another kernel is at least as good as; returns what stays.

    Good is less time, workspace and code. The promoted kernel stays in any case.
    """
    kept = choices(session, workload, target, threads, cache=cache)
    best = {kernel.id for kernel in front(kept, JUDGED_BY, lambda kernel: kernel.figures)}
    ended = [each.id for each in kept if each.state == TRADEOFF and each.id not in best]
    if ended:
        session.execute(update(KernelRow).where(KernelRow.id.in_(ended)).values(state=SUPERSEDED))
    return tuple(kernel for kernel in kept if kernel.id not in ended)


def note_throughput(
    session: Session, kernel_id: str, *, instances: int, calls_per_s: float
) -> None:
    """Notes what so many instances of a kernel did side by side."""
    session.execute(
        update(KernelRow)
        .where(KernelRow.id == kernel_id)
        .values(instances=instances, calls_per_s=calls_per_s)
    )


def note_energy(session: Session, kernel_id: str, energy_j: float) -> None:
    """Notes what a call of a kernel takes."""
    session.execute(update(KernelRow).where(KernelRow.id == kernel_id).values(energy_j=energy_j))
