"""Libraries of regions without a search: all kernels by their default schedules."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tests.support.model_kernels import compiled
from tests.support.targets import host_target
from tuner.export.library import function_of
from tuner.models.graph import Graph
from tuner.models.library.library import ModelNumbers, model_kernel, with_replaced_inputs
from tuner.models.library.region_cache import SYMBOL
from tuner.models.passes.fusion import fuse
from tuner.models.passes.pairs import with_small_pairs
from tuner.models.passes.parts import in_parts
from tuner.models.workloads import workloads_of
from tuner.runtime.interfaces import DLPACK_EXCHANGE
from tuner.runtime.link import link
from tuner.runtime.loader import Library
from tuner.torch.layouts import layouts_of
from tuner.torch.native import native
from tuner.torch.packed_graph import PackedGraph
from tuner.torch.partition import Region, partition
from tuner.torch.rebuilding import Function


def region_library(traced: Graph, cache_bytes: int | None = None) -> bytes:
    """The shared library of a region's graph, in parts for a cache of so many bytes."""
    graph = with_small_pairs(fuse(traced))
    graph = graph if cache_bytes is None else in_parts(graph, cache_bytes)
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    built = model_kernel(graph, kernels, host_target(), 1, SYMBOL, ModelNumbers())
    function = with_replaced_inputs(function_of(built), graph)
    return link("region", [function], interfaces=(DLPACK_EXCHANGE,))


def library_outputs(graph: Graph, inputs: Sequence[Any], folder: Path) -> list[Any]:
    """What a graph's library gives for arrays."""
    path = folder / "graph.so"
    path.write_bytes(region_library(graph))
    results = Library(path).function(SYMBOL)(*inputs)
    return list(results) if isinstance(results, tuple) else [results]


def by_library(region: Region, eager: Function) -> Function:
    """A region as its library computes it. Raises RuntimeError where a call fails."""

    def failed(message: str) -> Function:
        raise RuntimeError(message)

    with tempfile.TemporaryDirectory(prefix="tuner-region-") as folder:
        path = Path(folder, "region.so")
        path.write_bytes(region_library(region.graph))
        return native(path, region.packed, layouts_of(region), failed)


def double_graph() -> PackedGraph:
    """The graph of a region that doubles a vector of four numbers."""
    module = make_fx(lambda x: x * 2, tracing_mode="fake")(torch.ones(4))
    (region,) = partition(module.graph).regions
    return region.packed
