"""What a graph computes, by the float64 reference of its nodes: no compiler takes part."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.models.graph import Array, Graph
from tuner.workload.reference import evaluate


def graph_outputs(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    values: dict[str, Any] = {
        tensor.name: array for tensor, array in zip(graph.inputs, inputs, strict=True)
    }
    values |= graph.constants

    def value(name: str) -> Array:
        if name not in values:
            values[name] = values[graph.root(name)].reshape(graph.tensor(name).shape)
        value: Array = np.asarray(values[name])
        return value

    for node in graph.nodes:
        values |= evaluate(node, {tensor.name: value(tensor.name) for tensor in node.inputs})
    return [value(name) for name in graph.outputs]
