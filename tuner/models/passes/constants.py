"""Inputs of a graph that become constants, and what is computed from constants alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tuner.models.graph import Array, Graph, without_unused
from tuner.models.nodes import Node
from tuner.workload.arrays import numpy_dtype
from tuner.workload.expression import Expression
from tuner.workload.reference import evaluate

_MOST_ELEMENTS = 1 << 16  # of what is computed ahead: scales of a normalisation, but no weights


def with_constant_inputs(graph: Graph, values: Mapping[int, Array]) -> Graph:
    """The graph without the inputs of these numbers, which have these values from now on.

    The arrays have the inputs' shapes and dtypes. Nodes that read constants alone are constants
    too, unless they are large.
    """
    left = [number for number in range(len(graph.inputs)) if number not in values]
    labels = graph.labels
    if labels:
        labels = (*(labels[number] for number in left), *labels[len(graph.inputs) :])
    constants = {graph.inputs[number].name: array for number, array in values.items()}
    return _folded(
        replace(
            graph,
            inputs=tuple(graph.inputs[number] for number in left),
            constants={**graph.constants, **constants},
            labels=labels,
            ranges={name: each for name, each in graph.ranges.items() if name not in constants},
        )
    )


def _folded(graph: Graph) -> Graph:
    constants = dict(graph.constants)
    shown = {graph.root(name) for name in graph.outputs}
    nodes: list[Node] = []
    for node in graph.nodes:
        if isinstance(node, Expression) and _is_small(node) and shown.isdisjoint(node.outputs):
            sources = {tensor: graph.root(tensor.name) for tensor in node.inputs}
            if node.inputs and constants.keys() >= {*sources.values()}:
                arrays = {t.name: constants[root].reshape(t.shape) for t, root in sources.items()}
                for name, array in evaluate(node, arrays).items():
                    constants[name] = array.astype(numpy_dtype(node.tensor(name).dtype))
                continue
        nodes.append(node)
    return without_unused(replace(graph, constants=constants, nodes=tuple(nodes)))


def _is_small(node: Expression) -> bool:
    shapes = [tensor.shape for tensor in (*node.inputs, *map(node.tensor, node.outputs))]
    return all(prod(shape) <= _MOST_ELEMENTS for shape in shapes)
