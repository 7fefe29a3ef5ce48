"""Queries about kernels that must be timed again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from tuner.db.engine import Session
from tuner.db.jobs import PREPARE, UNFINISHED
from tuner.db.kernels import IS_PROMOTED
from tuner.db.tables import JobRow, KernelRow, TaskRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A kernel's workload that is to be timed again."""

    workload: str  # key
    threads: int
    prepared: bool  # no search stands behind the kernel


def due(session: Session, target: str, source: str) -> tuple[Due, ...]:
    """Workloads whose kernels are to be timed on `target`.

    If `source` is `target`, these are its kernels marked stale; otherwise the kernels of
    `source` that `target` lacks. Those of unfinished jobs are left out.
    """
    query = select(KernelRow.workload_key, KernelRow.threads, JobRow.kind).outerjoin(
        JobRow, JobRow.id == KernelRow.job_id
    )
    query = query.where(KernelRow.target_key == source, IS_PROMOTED).order_by(KernelRow.id)
    if source == target:
        query = query.where(KernelRow.stale.is_not(None))
        left_out = set()
    else:
        here = select(KernelRow.workload_key, KernelRow.threads).where(
            KernelRow.target_key == target, IS_PROMOTED
        )
        left_out = {(row.workload_key, row.threads) for row in session.execute(here)}
    left_out |= _under_way(session, target)
    candidates = (
        Due(workload=row[0], threads=row[1], prepared=row[2] == PREPARE)
        for row in session.execute(query)
    )
    return tuple(
        candidate
        for candidate in candidates
        if (candidate.workload, candidate.threads) not in left_out
    )


def _under_way(session: Session, target: str) -> set[tuple[str, int]]:
    """Workload and threads of every task of an unfinished job, searches included.

    A search also races the existing kernel.
    """
    query = select(TaskRow.workload_key, JobRow.threads).join(JobRow, JobRow.id == TaskRow.job_id)
    rows: Sequence[tuple[str, int]] = [
        (row[0], row[1])
        for row in session.execute(
            query.where(JobRow.state.in_(UNFINISHED), JobRow.target_key == target)
        )
    ]
    return set(rows)
