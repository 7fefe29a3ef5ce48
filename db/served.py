"""The question asked most, answered as cheaply as it can be: which kernel is served for
a workload, and has anything changed?

One statement outside any transaction. Its record names all that an answer about the
promoted kernel can change by, so that who keeps an answer compares two records and
never serves a kernel that was replaced, rolled back or marked stale.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import bindparam, func, literal_column, select

from tuner.db.engine import Database
from tuner.db.models import KernelRow, TargetRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is promoted for one (workload, target, threads) at one moment. The rest of a
    kernel's row never changes."""

    kernel: str  # id
    stale: str | None  # why it must be timed again
    job: str | None  # that promoted it; None once that job was deleted
    # how many are known: a name may mean another one once there are more; none is ever
    # forgotten
    targets: int


STATEMENT = select(
    KernelRow.id,
    KernelRow.stale,
    KernelRow.job_id,
    select(func.count()).select_from(TargetRow).scalar_subquery().label("known"),
).where(
    KernelRow.workload_key == bindparam("workload"),
    KernelRow.target_key == bindparam("target"),
    KernelRow.threads == bindparam("threads"),
    KernelRow.state
    == literal_column("'promoted'"),  # in the text, so that SQLite sees the partial index fits
)


def served(database: Database, *, workload: str, target: str, threads: int) -> Served | None:
    """What is promoted now for the keys of a workload and a target; None where nothing is."""
    row = database.glance(STATEMENT, {"workload": workload, "target": target, "threads": threads})
    return (
        None
        if row is None
        else Served(kernel=row.id, stale=row.stale, job=row.job_id, targets=row.known)
    )
