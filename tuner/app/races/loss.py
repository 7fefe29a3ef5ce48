"""Promoted kernels raced again against what the database recorded of them: `tuner ci`.

A race on a shared machine is sometimes disturbed for as long as it lasts. So a kernel has
lost only if a second race, later, says so too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from tuner.app.races.race import Entry, RaceError
from tuner.db import kernels, workloads
from tuner.db.engine import Database
from tuner.db.kernels import Kernel
from tuner.db.workloads import StoredWorkload
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactCorrupt, ArtifactMissing
from tuner.measure.cache import WARM
from tuner.target.target import Target
from tuner.workload.spec import from_document
from tuner.workload.workload import Workload

PAGE = 500
Verdict = Literal["kept", "lost", "failed"]

Racing = Callable[[Workload, Kernel], Entry]
"""Races a kernel by itself. Raises RaceError where it crashes or computes something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A kernel beside its record."""

    workload: Workload
    kernel: Kernel
    verdict: Verdict
    entry: Entry | None  # the race that decided; None where the kernel failed
    error: str | None = None  # of one that failed

    @property
    def slower_percent(self) -> float | None:
        """By how many percent it takes longer than recorded; negative where it is faster."""
        if self.entry is None:
            return None
        return 100.0 * (self.entry.median_s / self.kernel.median_s - 1.0)


def recorded_kernels(
    database: Database, target: Target, threads: int, asked: Sequence[Workload]
) -> list[tuple[Workload, Kernel]]:
    """The promoted kernels of the target and thread count with warm caches: those of the
    workloads asked for, or all, the oldest first.

    Raises UsageError where there is none, or none of a workload asked for: a check of
    nothing must not pass.
    """
    listed: list[Kernel] = []
    cursor: str | None = None
    with database.read() as session:
        while True:
            page = kernels.list_page(
                session,
                target=target.key,
                cache=WARM,
                oldest_first=True,
                cursor=cursor,
                limit=PAGE,
            )
            listed += [kernel for kernel in page.items if kernel.threads == threads]
            cursor = page.next
            if cursor is None:
                break
        by_key = {kernel.workload: kernel for kernel in listed}
        for workload in asked:
            if workload.key not in by_key:
                raise UsageError(
                    f"{database.url} has no kernel of {workload.spec} for {target.name} with "
                    f"{threads} thread(s), so there is nothing to hold it against; tune it first"
                )
        chosen = [by_key[workload.key] for workload in asked] or listed
        if not chosen:
            raise UsageError(
                f"{database.url} has no kernel for {target.name} with {threads} thread(s), so "
                f"there is nothing to check; name the database of the machine with --db"
            )
        stored: dict[str, StoredWorkload] = {}
        for start in range(0, len(chosen), PAGE):
            keys = [kernel.workload for kernel in chosen[start : start + PAGE]]
            stored |= workloads.get_many(session, keys)
    return [(from_document(stored[kernel.workload].document), kernel) for kernel in chosen]


def check(workload: Workload, kernel: Kernel, race: Racing, tolerance: float = 0.0) -> Checked:
    """Whether the kernel still takes what was recorded.

    It has lost where the whole 95% interval of its time lies above the recorded one, whose
    upper end `tolerance` (a share of it, 0.05 for 5%) moves up, in two races.
    """
    limit_s = kernel.ci95_s[1] * (1.0 + tolerance)
    try:
        entry = race(workload, kernel)
        if entry.ci95_s[0] > limit_s:
            again = race(workload, kernel)
            entry = min(entry, again, key=lambda each: each.ci95_s[0])
    except (RaceError, ArtifactMissing, ArtifactCorrupt) as error:
        return Checked(
            workload=workload, kernel=kernel, verdict="failed", entry=None, error=str(error)
        )
    verdict: Verdict = "lost" if entry.ci95_s[0] > limit_s else "kept"
    return Checked(workload=workload, kernel=kernel, verdict=verdict, entry=entry)
