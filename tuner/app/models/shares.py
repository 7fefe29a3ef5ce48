"""What each kernel of a model takes within it, beside what it took alone and what the
machine could do."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tuner.export.kernel import ExportKernel
from tuner.export.library import function_of
from tuner.models.graph import Graph
from tuner.models.library import ModelNumbers, model_kernel
from tuner.models.profile import step_seconds
from tuner.models.workloads import workload_of
from tuner.runtime.link import link
from tuner.target.target import Target
from tuner.workload.workload import Workload

Array = np.ndarray[Any, np.dtype[Any]]
_SYMBOL = "profiled"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShare:
    """One kernel of a model; times are of one call, medians, in seconds."""

    workload: Workload
    calls: int  # in one call of the model
    inside_s: float  # within the model, the mean over its calls there
    alone_s: float  # as it was promoted: its inputs warm, nothing else between two calls
    peak_fraction: (
        float | None
    )  # of the machine's multiply-add rate, within the model; None where that was never measured

    @property
    def total_s(self) -> float:
        """Its part of the model's time."""
        return self.calls * self.inside_s

    @property
    def gflops(self) -> float:
        """Within the model, 10⁹ operations a second."""
        return self.workload.expression.flops / self.inside_s / 1e9


def profile(
    graph: Graph,
    kernels: Mapping[str, ExportKernel],
    target: Target,
    threads: int,
    inputs: Sequence[Array],
    cores: Sequence[int],
) -> tuple[KernelShare, ...]:
    """Every kernel of the model, the one with the largest part of its time first.
    Raises LinkError, ModelRefused."""
    built = model_kernel(graph, kernels, target, threads, _SYMBOL, ModelNumbers(), profiled=True)
    with tempfile.TemporaryDirectory(prefix="tuner-model-") as folder:
        path = Path(folder, "profiled.so")
        path.write_bytes(link("profiled", [function_of(built)]))
        spent = step_seconds(path, _SYMBOL, inputs, cores)
    by_key: dict[str, tuple[Workload, list[float]]] = {}
    for node, seconds in zip(graph.nodes, spent, strict=True):
        workload = workload_of(node, graph)
        by_key.setdefault(workload.key, (workload, []))[1].append(seconds)
    peak = None if target.limits is None else target.limits.fma_flops * threads
    shares = []
    for key, (workload, seconds_of) in by_key.items():
        inside_s = max(sum(seconds_of) / len(seconds_of), 1e-9)  # the clock's step
        fraction = None if peak is None else workload.expression.flops / inside_s / peak
        share = KernelShare(
            workload=workload,
            calls=len(seconds_of),
            inside_s=inside_s,
            alone_s=kernels[key].median_s,
            peak_fraction=fraction,
        )
        shares.append(share)
    return tuple(sorted(shares, key=lambda share: -share.total_s))
