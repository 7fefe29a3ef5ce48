"""Queries about promoted kernels in bulk: those of many workloads, and what estimates learn from.

All are of warm caches.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import func, select

from tuner.db.engine import Session
from tuner.db.kernels import IS_PROMOTED, Kernel, record_of
from tuner.db.tables import KernelRow
from tuner.measure.cache import WARM


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamp:
    """Changes with each promotion and rollback of a (target, threads) with warm caches."""

    promoted: int  # how many are
    newest: str  # id of the newest of them
    seconds: float  # of all together


def stamp_of(session: Session, target: str, threads: int) -> Stamp:
    query = select(func.count(), func.max(KernelRow.id), func.sum(KernelRow.median_s)).where(
        KernelRow.target_key == target,
        KernelRow.threads == threads,
        KernelRow.cache == WARM,
        IS_PROMOTED,
    )
    count, newest, seconds = session.execute(query).one()
    return Stamp(promoted=count, newest=newest or "", seconds=seconds or 0.0)


def searched_on(
    session: Session, target: str, threads: int, *, limit: int = 500
) -> tuple[Kernel, ...]:
    """The newest promoted kernels whose config a search has found.

    Default schedules are left out: they say little of what a search would find.
    """
    query = (
        select(KernelRow)
        .where(
            KernelRow.target_key == target,
            KernelRow.threads == threads,
            KernelRow.cache == WARM,
            IS_PROMOTED,
            KernelRow.trial_number > 0,
        )
        .order_by(KernelRow.id.desc())
        .limit(limit)
    )
    return tuple(record_of(row) for row in session.scalars(query))


def promoted_of(
    session: Session, workloads: Sequence[str], target: str, threads: int
) -> dict[str, Kernel]:
    """The promoted kernels of these workloads, by key; in queries of a thousand keys."""
    promoted: dict[str, Kernel] = {}
    for start in range(0, len(workloads), 1000):
        query = select(KernelRow).where(
            KernelRow.workload_key.in_(workloads[start : start + 1000]),
            KernelRow.target_key == target,
            KernelRow.threads == threads,
            KernelRow.cache == WARM,
            IS_PROMOTED,
        )
        promoted |= {row.workload_key: record_of(row) for row in session.scalars(query)}
    return promoted
