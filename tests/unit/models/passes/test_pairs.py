"""Elementwise nodes of small results as one node."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tuner.models.graph import Graph, check_graph
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import reshape
from tuner.models.operators.values import Value
from tuner.models.passes.fusion import fuse
from tuner.models.passes.pairs import SMALL, with_small_pairs


def statistics(channels: int) -> Graph:
    """A batch normalisation's: a reciprocal deviation, and running ones of two shapes."""
    builder = GraphBuilder()
    mean, spread = (builder.input((1, channels, 1, 1), "float32") for _ in range(2))
    old = [builder.input((channels,), "float32") for _ in range(2)]
    deviation = elementwise("deviation", lambda e: 1 / (e + 1), spread)
    running = [
        elementwise("running", lambda a, b: a * 0.9 + b * 0.1, before, reshape(now, [channels]))
        for before, now in zip(old, (mean, spread), strict=True)
    ]
    return builder.graph([deviation, *running], [f"x{number}" for number in range(7)])


@pytest.mark.parametrize(("channels", "count"), [(6, 2), (SMALL + 1, 3)])
def test_small_results_of_the_same_tensors_are_one_node(channels: int, count: int) -> None:
    """Those of the mean have no tensor in common with the others."""
    graph = fuse(statistics(channels))
    paired = with_small_pairs(graph)
    check_graph(paired)
    assert (len(graph.nodes), len(paired.nodes)) == (3, count)
    given = [
        np.random.default_rng(number).uniform(size=tensor.shape).astype(np.float32)
        for number, tensor in enumerate(graph.inputs)
    ]
    for got, right in zip(graph_outputs(paired, given), graph_outputs(graph, given), strict=True):
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize(("early", "count"), [(True, 3), (False, 2)])
def test_a_node_that_reads_what_comes_between_stays_behind_it(early: bool, count: int) -> None:
    builder = GraphBuilder()
    x = builder.input((4, 6), "float32")

    def doubled() -> Value:
        return elementwise("doubled", lambda e: e * 2, x)

    first = doubled() if early else None
    rows = builder.reduce("sum", "sum", [4], [6], lambda i, r: x[i, r])
    first = first or doubled()
    spread = builder.compute("spread", (4, 6), lambda i, j: x[i, j] + rows[i])
    outputs = [rows, first, spread]
    graph = fuse(builder.graph(outputs, ["x", "s", "y", "z"]))
    assert len(with_small_pairs(graph).nodes) == count
