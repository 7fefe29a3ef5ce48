"""Inputs that become constants, and what is computed from constants alone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tuner.models.graph import Graph, check_graph
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import reshape
from tuner.models.passes import constants
from tuner.models.passes.constants import with_constant_inputs
from tuner.workload.expression import Within

X = np.arange(12, dtype=np.float32).reshape(3, 4)
SCALE = np.array([1, -2, 0.5, 4], np.float32)


def scaled_graph(*, shows_square: bool = False) -> Graph:
    """Twice the square of a scale, under another shape, times an input."""
    builder = GraphBuilder()
    x, scale = builder.input((3, 4), "float32"), builder.input((4,), "float32")
    square = elementwise("square", lambda a: a * a, scale)
    double = elementwise("double", lambda a: a + a, reshape(square, [1, 4]))
    product = elementwise("product", lambda a, b: a * b, x, double)
    outputs = {"product": product, **({"square": square} if shows_square else {})}
    return builder.graph([*outputs.values()], ["x", "scale", *outputs])


def test_constant_inputs_are_no_inputs_and_give_the_same() -> None:
    graph = scaled_graph(shows_square=True)
    constant = with_constant_inputs(graph, {1: SCALE})
    check_graph(constant)
    assert [tensor.name for tensor in constant.inputs] == [graph.inputs[0].name]
    assert constant.labels == ("x", "product", "square")
    right = graph_outputs(graph, [X, SCALE])
    for got, expected in zip(graph_outputs(constant, [X]), right, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_what_reads_constants_alone_is_computed_ahead() -> None:
    graph = with_constant_inputs(scaled_graph(), {1: SCALE})
    assert len(graph.nodes) == 1 and len(graph.constants) == 1
    (got,) = graph_outputs(graph, [X])
    np.testing.assert_array_equal(got, X * 2 * SCALE**2)


def test_ranges_are_of_inputs_alone() -> None:
    """As places in a table of positions, which modules have as a buffer."""
    graph = scaled_graph()
    x, scale = (tensor.name for tensor in graph.inputs)
    graph = replace(graph, ranges={name: Within(start=0, stop=4) for name in (x, scale)})
    assert with_constant_inputs(graph, {1: SCALE}).ranges.keys() == {x}


def test_large_tensors_are_computed_in_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "_MOST_ELEMENTS", 3)
    assert len(with_constant_inputs(scaled_graph(), {1: SCALE}).nodes) == 3
