"""The kernel served for a workload: the most frequent query, in one statement.

It runs outside any transaction. Its record holds everything by which an answer about the
promoted kernel can change. A cache that compares two records therefore never serves a
kernel that was replaced, rolled back or marked stale.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, func, literal_column, select

from tuner.db.engine import Database
from tuner.db.tables import KernelRow, TargetRow
from tuner.measure.cache import WARM, Cache


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is promoted for one (workload, target, threads, cache) at one moment. The rest of a
    kernel's row never changes."""

    kernel: str  # id
    stale: str | None  # why it must be timed again
    job: str | None  # that promoted it; None once that job was deleted
    # number of stored targets, which only grows: a target's name may mean another one
    # once there are more
    targets: int


STATEMENT = select(
    KernelRow.id,
    KernelRow.stale,
    KernelRow.job_id,
    select(func.count()).select_from(TargetRow).scalar_subquery().label("targets"),
).where(
    KernelRow.workload_key == bindparam("workload"),
    KernelRow.target_key == bindparam("target"),
    KernelRow.threads == bindparam("threads"),
    KernelRow.cache == bindparam("cache"),
    # a literal, so that SQLite recognizes the partial index
    KernelRow.state == literal_column("'promoted'"),
)


def served(
    database: Database, *, workload: str, target: str, threads: int, cache: Cache = WARM
) -> Served | None:
    """The kernel promoted now for the keys of a workload and a target; None if there is none."""
    place = {"workload": workload, "target": target, "threads": threads, "cache": cache}
    row = database.glance(STATEMENT, place)
    if row is None:
        return None
    return Served(kernel=row.id, stale=row.stale, job=row.job_id, targets=row.targets)
