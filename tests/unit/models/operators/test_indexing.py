"""Scatters of models: each update goes to the row that it names, and costs as much as one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tuner.models.graph import Graph
from tuner.models.operators import indexing
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.movement import expand, reshape
from tuner.models.passes.fusion import fuse
from tuner.models.workloads import workload_of
from tuner.workload.expression import Expression, scattering

RNG = np.random.default_rng(0)
REDUCTIONS: dict[str, Callable[..., None]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


def scattered_nodes(graph: Graph) -> list[Expression]:
    """The nodes whose kernels take each update once."""
    nodes = [node for node in fuse(graph).nodes if isinstance(node, Expression)]
    expressions = [workload_of(node, graph).expression for node in nodes]
    return [
        expression
        for expression in expressions
        if any(scattering(stage) is not None for stage in expression.stages)
    ]


@pytest.mark.parametrize("reduction", ["none", *REDUCTIONS])
def test_elements_go_to_the_rows_that_they_name(reduction: str) -> None:
    """Negative indices count from the end; the indices have fewer columns than x."""
    x, updates = (RNG.standard_normal(shape).astype(np.float32) for shape in ((6, 5), (9, 4)))
    indices = RNG.integers(-6, 6, (9, 4))
    builder = GraphBuilder()
    arguments = (
        builder.input((6, 5), "float32"),
        builder.input((9, 4), "int64"),
        builder.input((9, 4), "float32"),
    )
    graph = builder.graph([indexing.scatter_elements(*arguments, 0, reduction)], ["x", "i", "u"])
    want, columns = x.copy(), np.broadcast_to(np.arange(4), (9, 4))
    if reduction == "none":
        for row in range(9):
            want[indices[row], columns[row]] = updates[row]
    else:
        REDUCTIONS[reduction](want, (indices, columns), updates)
    (got,) = graph_outputs(fuse(graph), [x, indices, updates])
    np.testing.assert_allclose(got, want, rtol=1e-5)
    assert len(scattered_nodes(graph)) == 1


@pytest.mark.parametrize("reduction", ["none", "add"])
def test_slices_go_to_the_places_that_they_name(reduction: str) -> None:
    x, updates = (RNG.standard_normal(shape).astype(np.float32) for shape in ((3, 4, 5), (7, 5)))
    indices = np.stack([RNG.integers(-3, 3, 7), RNG.integers(-4, 4, 7)], 1)
    builder = GraphBuilder()
    arguments = (
        builder.input((3, 4, 5), "float32"),
        builder.input((7, 2), "int64"),
        builder.input((7, 5), "float32"),
    )
    graph = builder.graph([indexing.scatter_nd(*arguments, reduction)], ["x", "i", "u"])
    want = x.copy()
    for (row, column), update in zip(indices, updates, strict=True):
        want[row, column] = update + (want[row, column] if reduction == "add" else 0)
    (got,) = graph_outputs(fuse(graph), [x, indices, updates])
    np.testing.assert_allclose(got, want, rtol=1e-5)


def test_a_scatter_takes_as_many_operations_as_it_has_updates() -> None:
    """Not as many as it has updates for each row; an index that is repeated is read once."""
    rows, count, width = 4096, 5000, 32
    builder = GraphBuilder()
    x = builder.input((rows, width), "float32")
    indices = expand(reshape(builder.input((count,), "int64"), [count, 1]), [count, width])
    updates = builder.input((count, width), "float32")
    graph = builder.graph([indexing.scatter_elements(x, indices, updates, 0, "add")], ["x"] * 3)
    (expression,) = scattered_nodes(graph)
    assert expression.flops < 8 * (count + rows) * width
    assert (count,) in [tensor.shape for tensor in expression.inputs]
