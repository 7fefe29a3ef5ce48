"""Who shares a workload's loops, a CPU's threads or a GPU's multiprocessors, and how
much work is worth sharing."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Who shares the work, and when it is worth it."""

    units: int
    tasks: int  # of a reduction that each unit should have
    tile: int  # points that one task computes where they are computed in tiles; else it is a row
    terms: int  # of a reduction for each unit, below which nothing is divided
    # operations, a function as several, of which one unit may do all: of fewer starting
    # others may take longer
    alone: int = 0


ONE_THREAD = Sharing(units=1, tasks=0, tile=1, terms=0)


def among_threads(count: int) -> Sharing:
    """A microsecond or more goes by until threads have started."""
    return (
        ONE_THREAD
        if count == 1
        else Sharing(units=count, tasks=8, tile=256, terms=1 << 14, alone=1 << 22)
    )


def among_multiprocessors(count: int) -> Sharing:
    """A block of many threads keeps one busy, and what is left to be combined goes
    through memory."""
    return Sharing(units=count, tasks=1, tile=4096, terms=1 << 12)
