"""Graphs that compute nothing: their outputs are inputs in other shapes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tuner.models.graph import Graph
from tuner.workload.expression import (
    COMPUTED_IN,
    Axis,
    Cast,
    Const,
    Expression,
    Read,
    Scalar,
    Stage,
    Var,
)


def with_a_kernel(graph: Graph) -> Graph:
    """The graph with a node that copies an input to an output, where it has no nodes.

    Jobs tune kernels, and libraries consist of some. Where nothing is copied but what is known,
    the graph stays as it is.
    """
    given = {tensor.name for tensor in graph.inputs}
    moved = (name for name in graph.outputs if graph.root(name) in given)
    copied = next((name for name in moved if prod(graph.tensor(name).shape)), None)
    if graph.nodes or copied is None:
        return graph
    tensor = graph.tensor(copied)
    axes = tuple(Axis(name=f"i{n}", extent=extent) for n, extent in enumerate(tensor.shape))
    places: tuple[Scalar, ...] = tuple(Var(axis.name) for axis in axes)
    if not axes:  # a number: libraries have no tensors without dimensions
        tensor = graph.tensor(graph.root(copied))
        axes, places = (Axis(name="u", extent=1),), (Const(0, "int64"),) * len(tensor.shape)
    body: Scalar = Read(tensor.name, places)
    if tensor.dtype in COMPUTED_IN:
        body = Cast(COMPUTED_IN[tensor.dtype], body)
    stage = Stage(name="copy", axes=axes, body=body, dtype=tensor.dtype)
    node = Expression(name="copy", inputs=(tensor,), stages=(stage,), outputs=(stage.name,))
    outputs = tuple(stage.name if name == copied else name for name in graph.outputs)
    return replace(graph, nodes=(node,), outputs=outputs)
