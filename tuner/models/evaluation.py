"""A graph evaluated node by node in float64, without a compiler: what its kernels are held
against, and what holds an import against the file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.models.graph import Array, Graph
from tuner.workload.inputs import numpy_dtype
from tuner.workload.reference import evaluate


def evaluate_graph(graph: Graph, inputs: Sequence[Array]) -> dict[str, Array]:
    """Every tensor of the graph by name, in its dtype, for inputs in the graph's order."""
    tensors: dict[str, Array] = {
        tensor.name: np.asarray(array).reshape(tensor.shape)
        for tensor, array in zip(graph.inputs, inputs, strict=True)
    }
    tensors |= graph.constants

    def tensor(name: str) -> Array:
        root = graph.root(name)
        return tensors[root].reshape(graph.tensor(name).shape)

    for node in graph.nodes:
        results = evaluate(node, {t.name: tensor(t.name) for t in node.inputs})
        for name in node.outputs:
            tensors[name] = results[name].astype(numpy_dtype(node.tensor(name).dtype))
    return {name: tensor(name) for name in [*tensors, *graph.aliases]}
