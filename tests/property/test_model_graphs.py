"""Random graphs of models: what makes them smaller keeps what they compute."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings

from tests.support.random_graphs import graphs, inputs_of
from tuner.models.graph import Graph, check_graph
from tuner.models.nodes import Scan, every_node, reads_of
from tuner.models.passes.equal_nodes import without_equal
from tuner.models.passes.fusion import fuse
from tuner.models.reference.evaluation import evaluate_graph


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_equal_nodes_are_computed_once_and_the_rest_stays(graph: Graph) -> None:
    merged = without_equal(graph)
    check_graph(merged)
    assert_same_outputs(graph, merged)
    assert len(without_equal(merged).nodes) == len(merged.nodes) <= len(graph.nodes)
    fused = fuse(merged)
    check_graph(fused)
    assert_same_outputs(graph, fused)


@settings(max_examples=50, deadline=None)
@given(graphs())
def test_everything_that_is_left_is_read(graph: Graph) -> None:
    left = fuse(without_equal(graph))
    read = {left.root(name) for node in every_node(left.nodes) for name in reads_of(node)}
    read |= {left.root(name) for name in left.outputs}
    for node in left.nodes:
        assert {*node.outputs} & read
        if isinstance(node, Scan):
            assert {tensor.name for tensor in node.sequences} <= read
    assert {*left.constants} <= read


def assert_same_outputs(graph: Graph, other: Graph) -> None:
    inputs = inputs_of(graph)
    right, got = evaluate_graph(graph, inputs), evaluate_graph(other, inputs)
    for name, after in zip(graph.outputs, other.outputs, strict=True):
        np.testing.assert_allclose(got[after], right[name], rtol=1e-5, atol=1e-6)
