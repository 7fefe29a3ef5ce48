"""Graphs read from ONNX files beside ONNX's own evaluator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from tuner.models.graph import Array, Graph
from tuner.models.reference.bounded_outputs import cut
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.reference.onnx_evaluation import evaluate


def assert_computes(graph: Graph, made: Any, feeds: Iterable[Mapping[str, Array]]) -> None:
    """The graph of a model gives what ONNX's evaluator does, of each of the inputs by name."""
    for feed in feeds:
        tensors = evaluate_graph(graph, list(feed.values()))
        results = cut(graph, [tensors[name] for name in graph.outputs])
        for got, right in zip(results, evaluate(made, list(feed.values())), strict=True):
            np.testing.assert_allclose(got.reshape(np.shape(right)), right, rtol=1e-5, atol=1e-6)
