"""A region's graph of expressions in bytes, and what a call of its library has to know of it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256

from tuner.models.graph import Graph
from tuner.models.graph_archive import packed
from tuner.models.reference.accuracy import tolerance_of
from tuner.workload.dtypes import DType


@dataclass(frozen=True, kw_only=True)
class PackedGraph:
    """A region's graph of expressions for a process that only calls: to read a network's graph
    takes longer there than all else, and only who makes a library needs it."""

    content: bytes  # as `tuner.models.graph_archive` packs a graph
    arguments: tuple[tuple[DType, tuple[int, ...]], ...]  # dtypes and shapes, inputs then outputs
    # The error that the graph's dtypes account for, relative to an output's greatest value.
    tolerance: float

    @cached_property
    def digest(self) -> str:
        """What tells it from other graphs."""
        return sha256(self.content).hexdigest()

    @classmethod
    def of(cls, graph: Graph) -> PackedGraph:
        tensors = (*graph.inputs, *(graph.tensor(name) for name in graph.outputs))
        return cls(
            content=packed(graph),
            arguments=tuple((tensor.dtype, tensor.shape) for tensor in tensors),
            tolerance=tolerance_of(graph),
        )
