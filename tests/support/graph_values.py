"""What a graph computes, by the float64 reference of its nodes: no compiler takes part."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.models.graph import Array, Graph
from tuner.models.reference.evaluation import evaluate_graph


def graph_outputs(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    tensors = evaluate_graph(graph, inputs)
    return [tensors[name] for name in graph.outputs]
