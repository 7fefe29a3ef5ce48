"""The units that share a workload's loops: threads of a CPU or multiprocessors of a GPU."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelUnits:
    """How many units there are, and how much work makes another one worth its start."""

    count: int
    tasks_per_unit: int  # tasks of a reduction that each unit should have
    points_per_tile: int  # points of a task that computes a tile; a task of rows computes one
    min_terms_per_unit: int  # terms of a reduction below which it is not divided
    # Operations (a function counts as several) that one unit may do without the others,
    # because starting them may take longer.
    max_serial_operations: int = 0


ONE_THREAD = ParallelUnits(count=1, tasks_per_unit=0, points_per_tile=1, min_terms_per_unit=0)


def cpu_threads(count: int) -> ParallelUnits:
    """The threads of a CPU, which take a microsecond or more to start."""
    if count == 1:
        return ONE_THREAD
    return ParallelUnits(
        count=count,
        tasks_per_unit=8,
        points_per_tile=256,
        min_terms_per_unit=1 << 14,
        max_serial_operations=1 << 22,
    )


def gpu_multiprocessors(count: int) -> ParallelUnits:
    """The multiprocessors of a GPU.

    One block of many threads keeps one busy, and partial results go through memory.
    """
    return ParallelUnits(
        count=count, tasks_per_unit=1, points_per_tile=4096, min_terms_per_unit=1 << 12
    )
