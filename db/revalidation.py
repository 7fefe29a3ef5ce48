"""Queries about kernels that must be timed again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from sqlalchemy import select

from tuner.db.engine import Session
from tuner.db.jobs import PREPARE, UNFINISHED
from tuner.db.kernels import IS_PROMOTED
from tuner.db.tables import JobRow, KernelRow, TaskRow
from tuner.measure.cache import Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A kernel's workload that is to be timed again."""

    workload: str  # key
    threads: int
    cache: Cache
    prepared: bool  # no search stands behind the kernel


def due(session: Session, target: str, source: str) -> tuple[Due, ...]:
    """Workloads whose kernels are to be timed on `target`.

    If `source` is `target`, these are its kernels marked stale; otherwise the kernels of
    `source` that `target` lacks. Those of unfinished jobs are left out.
    """
    query = select(
        KernelRow.workload_key, KernelRow.threads, KernelRow.cache, JobRow.kind
    ).outerjoin(JobRow, JobRow.id == KernelRow.job_id)
    query = query.where(KernelRow.target_key == source, IS_PROMOTED).order_by(KernelRow.id)
    if source == target:
        query = query.where(KernelRow.stale.is_not(None))
        left_out = set()
    else:
        here = select(KernelRow.workload_key, KernelRow.threads, KernelRow.cache).where(
            KernelRow.target_key == target, IS_PROMOTED
        )
        left_out = {(row[0], row[1], row[2]) for row in session.execute(here)}
    left_out |= _under_way(session, target)
    candidates = (
        Due(
            workload=row[0],
            threads=row[1],
            cache=cast(Cache, row[2]),
            prepared=row[3] == PREPARE,
        )
        for row in session.execute(query)
    )
    return tuple(
        candidate
        for candidate in candidates
        if (candidate.workload, candidate.threads, candidate.cache) not in left_out
    )


def _under_way(session: Session, target: str) -> set[tuple[str, int, str]]:
    """Workload, threads and caches of every task of an unfinished job, searches included.

    A search also races the existing kernel.
    """
    query = select(TaskRow.workload_key, JobRow.threads, JobRow.cache).join(
        JobRow, JobRow.id == TaskRow.job_id
    )
    rows = session.execute(query.where(JobRow.state.in_(UNFINISHED), JobRow.target_key == target))
    return {(row[0], row[1], row[2]) for row in rows}
