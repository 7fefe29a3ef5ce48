"""Queries about kernels that must be timed again: which are marked, which a machine's
earlier target left, what is under way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import select

from tuner.db.engine import Session
from tuner.db.jobs import PREPARE, UNFINISHED
from tuner.db.kernels import IS_PROMOTED
from tuner.db.models import JobRow, KernelRow, TaskRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A kernel's workload that is to be timed again."""

    workload: str  # key
    threads: int
    prepared: bool  # no search stands behind the kernel


def due(session: Session, target: str, source: str) -> tuple[Due, ...]:
    """What is to be timed on `target`: its marked kernels, or, where `source` is
    another target, that one's which it lacks.

    Left out is what an unfinished job times already.
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
    found = (
        Due(workload=row[0], threads=row[1], prepared=row[2] == PREPARE)
        for row in session.execute(query)
    )
    return tuple(one for one in found if (one.workload, one.threads) not in left_out)


def _under_way(session: Session, target: str) -> set[tuple[str, int]]:
    """Workload and threads of every task of an unfinished job: a search races the
    kernel that is there, too."""
    query = select(TaskRow.workload_key, JobRow.threads).join(JobRow, JobRow.id == TaskRow.job_id)
    rows: Sequence[tuple[str, int]] = [
        (row[0], row[1])
        for row in session.execute(
            query.where(JobRow.state.in_(UNFINISHED), JobRow.target_key == target)
        )
    ]
    return set(rows)
