"""Graphs that compute nothing: their outputs are inputs in other shapes."""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tuner.models.graph import Graph
from tuner.workload.dtypes import COMPUTED_IN
from tuner.workload.expression import Axis, Cast, Expression, Read, Scalar, Stage, Var


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
    whole = replace(graph.tensor(copied), name="copied")
    flat = replace(whole, name="flat", shape=(prod(whole.shape),))
    body: Scalar = Read(flat.name, (Var("i"),))
    if flat.dtype in COMPUTED_IN:
        body = Cast(COMPUTED_IN[flat.dtype], body)
    axis = Axis(name="i", extent=prod(whole.shape))
    stage = Stage(name="copy", axes=(axis,), body=body, dtype=flat.dtype)
    return replace(
        graph,
        nodes=(Expression(name="copy", inputs=(flat,), stages=(stage,), outputs=(stage.name,)),),
        outputs=tuple(whole.name if name == copied else name for name in graph.outputs),
        aliases={**graph.aliases, flat.name: graph.root(copied), whole.name: stage.name},
        shapes={**graph.shapes, flat.name: flat, whole.name: whole},
    )
