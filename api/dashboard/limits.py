"""Roofline limits of a workload, from the measured limits of a target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from tuner.api.dashboard.charts.plots import Roof
from tuner.errors import WorkloadError
from tuner.spaces.rewrite.algorithm import fewest_flops
from tuner.target.roofline import Work, bandwidth_at, least_seconds, relative_rate
from tuner.target.target import Limits, Target
from tuner.workload.compulsory import least_bytes
from tuner.workload.spec import from_document
from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class _Judged:
    """A workload on a target, equal to another by what its fewest operations depend on."""

    key: str  # of the workload
    isa: tuple[str, ...]
    limits: Limits | None
    workload: Workload = field(compare=False)
    target: Target = field(compare=False)

    @staticmethod
    def of(workload: Workload, target: Target) -> _Judged:
        return _Judged(
            key=workload.key,
            isa=tuple(target.isa),
            limits=target.limits,
            workload=workload,
            target=target,
        )


@lru_cache(maxsize=4096)
def _fewest_flops(judged: _Judged) -> int:
    """Kept, since a list of jobs asks for each row, and rewriting takes tens of ms."""
    return fewest_flops(judged.workload, judged.target)


def workload_of(document: Mapping[str, Any]) -> Workload | None:
    """The stored workload; None for a document of another version."""
    try:
        return from_document(document)
    except WorkloadError:
        return None


def work_of(workload: Workload, threads: int) -> Work:
    expression = workload.expression
    dtype = expression.inputs[0].dtype if expression.inputs else "float32"
    return Work(flops=expression.flops, nbytes=least_bytes(workload), dtype=dtype, threads=threads)


def least_s(workload: Workload | None, target: Target, threads: int) -> float | None:
    """Seconds at the roofline; None if the workload or the limits are unknown."""
    if workload is None or target.limits is None:
        return None
    work = replace(work_of(workload, threads), flops=_fewest_flops(_Judged.of(workload, target)))
    seconds = least_seconds(work, target)
    return seconds if seconds > 0 else None


def roofs(workload: Workload, target: Target, threads: int) -> tuple[Roof, ...]:
    """Limits of the roofline plot: the bandwidth of each level of memory, and arithmetic.

    The arithmetic limit counts the operations of the expression, even if an algorithm
    needs fewer. Empty if the target's limits are unknown.
    """
    limits = target.limits
    if limits is None:
        return ()
    cores = min(threads, target.cores)
    work = work_of(workload, threads)
    # by an algorithm that does fewer
    spared = work.flops / max(_fewest_flops(_Judged.of(workload, target)), 1)
    flat = limits.fma_flops * relative_rate(work.dtype, target) * cores * spared
    slopes = [
        Roof(name=name, bytes_per_s=bandwidth_at(limits, size) * cores, flops=flat)
        for name, size in _levels(target)
    ]
    if limits.shared_bytes_per_s is not None:
        slopes.insert(
            0, Roof(name="shared memory", bytes_per_s=limits.shared_bytes_per_s, flops=flat)
        )
    distinct = {roof.bytes_per_s: roof for roof in slopes}
    return (*distinct.values(), Roof(name="arithmetic", bytes_per_s=None, flops=flat))


def _levels(target: Target) -> tuple[tuple[str, float], ...]:
    """The levels of a target's memory, each with a working set that it serves."""
    if target.on_device:
        return (("L2", target.l2_bytes / 8), ("memory", target.l2_bytes * 32.0))
    return (
        ("L1", target.l1d_bytes / 2),
        ("L2", target.l2_bytes / 2),
        ("memory", target.l3_bytes * 4.0),
    )
