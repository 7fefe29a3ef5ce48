"""Where a model's time goes: the time of each kernel within the model and by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.export.kernel import ExportKernel
from tuner.models.executors.executor import Executor
from tuner.models.graph import Graph
from tuner.models.nodes import calls
from tuner.models.workloads import workload_of
from tuner.target.target import Target
from tuner.workload.workload import Workload

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelShare:
    """One kernel of a model. Times are medians of one call, in seconds."""

    workload: Workload
    calls: int  # in one call of the model
    inside_s: float  # within the model, the mean over its calls there
    alone_s: float  # as it was promoted: with warm inputs and nothing else between calls
    # Of the machine's multiply-add rate, within the model; None where that was not measured.
    peak_fraction: float | None

    @property
    def total_s(self) -> float:
        """Its part of the model's time."""
        return self.calls * self.inside_s

    @property
    def gflops(self) -> float:
        """Its speed within the model, in 10⁹ operations a second."""
        return self.workload.expression.flops / self.inside_s / 1e9


def profile(
    graph: Graph,
    kernels: Mapping[str, ExportKernel],
    target: Target,
    threads: int,
    inputs: Sequence[Array],
    executor: Executor,
) -> tuple[KernelShare, ...]:
    """The shares of all kernels that a call of the model reaches, the largest first.

    Raises LinkError, ModelRefused.
    """
    spent = executor.node_seconds(graph, kernels, target, threads, inputs)
    by_key: dict[str, tuple[Workload, list[float]]] = {}
    for (node, count), seconds in zip(calls(graph.nodes), spent, strict=True):
        workload = workload_of(node, graph)
        # A side of a branch that was not chosen takes no time, and is no call.
        done = [seconds / count] * count if seconds else []
        by_key.setdefault(workload.key, (workload, []))[1].extend(done)
    peak = None if target.limits is None else target.limits.fma_flops * threads
    shares = []
    for key, (workload, seconds_of) in by_key.items():
        if not seconds_of:
            continue
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
