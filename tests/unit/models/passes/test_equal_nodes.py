"""Equal nodes and constants of a graph, and results that nothing reads."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tuner.models.graph import Graph, check_graph
from tuner.models.nodes import Scan
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import reshape
from tuner.models.operators.scans import scan
from tuner.models.operators.values import Value
from tuner.models.passes.equal_nodes import without_equal
from tuner.models.passes.fusion import fuse
from tuner.workload.dtypes import DType

X = np.arange(12, dtype=np.float32).reshape(3, 4)


def twice(value: Value) -> Value:
    return elementwise("twice", lambda a: a + a, value)


def reshaped_twice() -> Graph:
    """A reshape that two readers see, each under a name of its own."""
    builder = GraphBuilder()
    x = builder.input((3, 4), "float32")
    left, right = (twice(twice(reshape(x, [12]))) for _ in range(2))
    return builder.graph(
        [elementwise("add", lambda a, b: a + b, left, right), left], ["x", "y", "z"]
    )


def test_nodes_that_read_the_same_under_two_names_are_one() -> None:
    graph = reshaped_twice()
    merged = without_equal(graph)
    check_graph(merged)
    assert (len(graph.nodes), len(merged.nodes)) == (5, 3)
    for before, after in zip(graph_outputs(graph, [X]), graph_outputs(merged, [X]), strict=True):
        assert np.array_equal(before, after)


def test_two_equal_outputs_are_one_tensor() -> None:
    builder = GraphBuilder()
    x = builder.input((3, 4), "float32")
    graph = builder.graph([twice(reshape(x, [12])) for _ in range(2)], ["x", "y", "z"])
    merged = without_equal(graph)
    assert len(merged.nodes) == 1
    assert merged.outputs[0] == merged.outputs[1]
    first, second = graph_outputs(merged, [X])
    assert np.array_equal(first, 2 * X.reshape(12))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64"])
def test_equal_constants_are_kept_once(dtype: DType) -> None:
    """Above the size whose contents are compared while a graph is recorded."""
    builder = GraphBuilder()
    x = builder.input((4096,), dtype)
    tables = [builder.constant(np.arange(4096), dtype) for _ in range(2)]
    left, right = (elementwise("add", lambda a, b: a + b, x, table) for table in tables)
    graph = builder.graph([elementwise("mul", lambda a, b: a * b, left, right)], ["x", "y"])
    merged = without_equal(graph)
    assert (len(graph.constants), len(merged.constants)) == (2, 1)
    assert (len(graph.nodes), len(merged.nodes)) == (3, 2)


def test_constants_that_differ_in_a_bit_stay() -> None:
    builder = GraphBuilder()
    x = builder.input((2048,), "float32")
    zero, minus_zero = (builder.constant(np.full(2048, n, np.float32)) for n in (0.0, -0.0))
    results = [
        builder.compute("read", (2048,), lambda i, t=table: t[i] + x[i])
        for table in (builder.stored(zero), builder.stored(minus_zero))
    ]
    graph = builder.graph(results, ["x", "y", "z"])
    assert len(without_equal(graph).constants) == 2


def stepped(*, read_every: bool) -> Graph:
    """A running sum, of which the last state is read, and perhaps all others."""
    builder = GraphBuilder()
    x = builder.input((3, 4), "float32")
    begin = builder.constant(np.zeros(4, np.float32))

    def step(row: Value, state: Value) -> tuple[list[Value], list[Value]]:
        after = elementwise("next", lambda a, s: a + s, row, state)
        return [after], [twice(after)]

    (last,), (every,) = scan(builder, "sum", 3, [x], [begin], step)
    outputs = [last, every] if read_every else [last]
    return builder.graph(outputs, ["x", *"yz"[: len(outputs)]])


def test_a_scan_writes_only_what_is_read() -> None:
    for read_every in (False, True):
        graph = fuse(without_equal(stepped(read_every=read_every)))
        check_graph(graph)
        (node,) = graph.nodes
        assert isinstance(node, Scan)
        assert bool(node.sequences) == read_every
        assert sum(len(expression.stages) for expression in graph.expressions) == 1 + read_every
        assert np.allclose(graph_outputs(graph, [X])[0], X.sum(0))


def test_bodies_read_what_is_left() -> None:
    builder = GraphBuilder()
    x = builder.input((3, 4), "float32")
    first, second = (reshape(twice(reshape(x, [12])), [3, 4]) for _ in range(2))
    begin = builder.constant(np.zeros(4, np.float32))

    def step(row: Value, state: Value) -> tuple[list[Value], list[Value]]:
        other = second.view((4,), lambda i: (1, i))
        return [elementwise("next", lambda a, b, s: a + b * s, row, other, state)], []

    (last,), _ = scan(builder, "sum", 3, [first], [begin], step)
    graph = builder.graph([last], ["x", "y"])
    merged = without_equal(graph)
    check_graph(merged)
    assert len(merged.nodes) == len(graph.nodes) - 1
    assert np.array_equal(graph_outputs(graph, [X])[0], graph_outputs(merged, [X])[0])
