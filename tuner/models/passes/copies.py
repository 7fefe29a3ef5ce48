"""Graphs that compute nothing: their outputs are inputs in other shapes, or known."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tuner.models.graph import Graph
from tuner.workload.expression import COMPUTED_IN, Axis, Cast, Expression, Read, Scalar, Stage, Var


def with_a_kernel(graph: Graph) -> Graph:
    """The graph with a node that copies an output, where it has no nodes.

    Jobs tune kernels, and libraries consist of some. A graph without elements stays as it is.
    """
    copied = next((name for name in graph.outputs if prod(graph.tensor(name).shape)), None)
    if graph.nodes or copied is None:
        return graph
    tensor = graph.tensor(copied)
    axes = tuple(Axis(name=f"i{n}", extent=extent) for n, extent in enumerate(tensor.shape))
    body: Scalar = Read(tensor.name, tuple(Var(axis.name) for axis in axes))
    if tensor.dtype in COMPUTED_IN:
        body = Cast(COMPUTED_IN[tensor.dtype], body)
    stage = Stage(name="copy", axes=axes, body=body, dtype=tensor.dtype)
    node = Expression(name="copy", inputs=(tensor,), stages=(stage,), outputs=(stage.name,))
    outputs = tuple(stage.name if name == copied else name for name in graph.outputs)
    return replace(graph, nodes=(node,), outputs=outputs)
