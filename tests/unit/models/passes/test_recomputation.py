"""Maps that are computed by those who read them, and sums of rows in one node with what reads
them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tuner.models.graph import Graph, check_graph
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.contraction import convolution_transpose, matmul
from tuner.models.operators.elementwise import compare, elementwise
from tuner.models.operators.indexing import gather
from tuner.models.operators.movement import reshape, transpose, unsqueeze
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import unary, where
from tuner.models.operators.values import Value
from tuner.models.passes.fusion import LEAST_ROWS, fuse

ROWS, COLUMNS = LEAST_ROWS, 24


def inputs(count: int) -> tuple[GraphBuilder, list[Value]]:
    builder = GraphBuilder()
    return builder, [builder.input((ROWS, COLUMNS), "float32") for _ in range(count)]


def summed(x: Value, axis: int) -> Value:
    return reduce("sum", "sum", x, [axis], keep=False)


def product(x: Value, y: Value) -> Value:
    return elementwise("product", lambda a, b: a * b, x, y)


def fused(builder: GraphBuilder, outputs: list[Value], count: int) -> Graph:
    """The fused graph, which computes what the graph before does."""
    labels = [f"x{number}" for number in range(count + len(outputs))]
    graph = builder.graph(outputs, labels)
    made = fuse(graph)
    check_graph(made)
    rng = np.random.default_rng(0)
    given = [
        rng.integers(0, 9, tensor.shape).astype(tensor.dtype)
        if "int" in tensor.dtype
        else rng.standard_normal(tensor.shape).astype(tensor.dtype)
        for tensor in graph.inputs
    ]
    for got, right in zip(graph_outputs(made, given), graph_outputs(graph, given), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-5, atol=1e-5)
    return made


def test_what_is_compared_with_its_greatest_is_stored() -> None:
    """The greatest is rounded where it is stored, and would equal no product that is not."""
    builder, (x, y) = inputs(2)
    z = product(x, y)
    top = reduce("max", "max", z, [1], keep=True)
    made = fused(builder, [compare("equal", lambda a, b: a.equals(b), z, top)], 2)
    given = [np.random.default_rng(1).random((ROWS, COLUMNS), np.float32) for _ in range(2)]
    (equal,) = graph_outputs(made, given)
    assert (equal.sum(1) == 1).all()


@pytest.mark.parametrize("axis", [0, 1])
def test_a_sum_computes_its_terms(axis: int) -> None:
    builder, (x, y) = inputs(2)
    assert len(fused(builder, [summed(product(x, y), axis)], 2).nodes) == 1


def test_a_map_goes_into_the_end_of_a_sum_whose_own_reads_are_strided() -> None:
    """As the mask of an activation into the gradient of a convolution with a stride."""
    builder = GraphBuilder()
    gradient, x = (builder.input((2, size, size, 8), "float32") for size in (4, 8))
    weight = builder.input((8, 8, 3, 3), "float32")
    by_input = convolution_transpose(
        transpose(gradient, [0, 3, 1, 2]),
        weight,
        strides=[2, 2],
        pads=[1] * 4,
        dilations=[1, 1],
        groups=1,
        sizes=[8, 8],
    )
    hidden = compare("hidden", lambda e: e <= 0, transpose(x, [0, 3, 1, 2]))
    masked = elementwise("masked", lambda h, e: where(h, 0, e), hidden, by_input)
    assert len(fused(builder, [masked], 3).nodes) == 1


def test_a_map_that_is_an_output_is_stored() -> None:
    builder, (x, y) = inputs(2)
    terms = product(x, y)
    assert len(fused(builder, [terms, summed(terms, 0)], 2).nodes) == 2


def test_a_map_is_computed_again_where_that_moves_less() -> None:
    """Of three operands, each of which two readers would read, it is stored."""
    builder, (x, y) = inputs(2)
    centred = elementwise("centred", lambda a: a * 2 - 1, x)
    sums = [summed(centred, 0), summed(product(centred, y), 0)]
    assert len(fused(builder, sums, 2).nodes) == 2
    builder, (x, y, z) = inputs(3)
    terms = product(product(x, y), z)
    doubled = elementwise("doubled", lambda a: a + a, terms)
    assert len(fused(builder, [summed(terms, 0), doubled], 3).nodes) == 3


def test_what_takes_long_is_computed_once() -> None:
    builder, (x, y) = inputs(2)
    bent = elementwise("bent", lambda a: unary("exp", a), x)
    assert len(fused(builder, [summed(bent, 0), summed(product(bent, y), 0)], 2).nodes) == 3
    builder, (x,) = inputs(1)
    bent = elementwise("bent", lambda a: unary("exp", a), x)
    assert len(fused(builder, [summed(bent, 0)], 1).nodes) == 1


def test_operands_of_a_product_are_stored() -> None:
    """It reads each element many times."""
    builder, (x, y) = inputs(2)
    scaled = elementwise("scaled", lambda a: a * 2, x)
    assert len(fused(builder, [matmul(scaled, transpose(y, [1, 0]))], 2).nodes) == 2


def test_rows_found_by_indices_are_stored() -> None:
    builder = GraphBuilder()
    table, indices = builder.input((9, COLUMNS), "float32"), builder.input((ROWS,), "int32")
    rows = gather(table, indices, 0)
    assert len(fused(builder, [summed(rows, 1), summed(rows, 0)], 2).nodes) == 3


def test_a_map_is_read_under_another_shape() -> None:
    builder, (x, y) = inputs(2)
    terms = reshape(product(x, y), [4, ROWS // 4, COLUMNS])
    assert len(fused(builder, [reduce("sum", "sum", terms, [0, 1], keep=False)], 2).nodes) == 1


def test_a_softmaxs_derivative_is_computed_row_by_row() -> None:
    """p (g - sum(p g)), and two sums whose reader is the same."""
    builder, (p, g) = inputs(2)
    inner = unsqueeze(summed(product(p, g), 1), [1])
    result = elementwise("result", lambda a, b, c: a * (b - c), p, g, inner)
    assert len(fused(builder, [result], 2).nodes) == 1
    builder, (p, g) = inputs(2)
    inner, outer = (unsqueeze(summed(x, 1), [1]) for x in (product(p, g), p))
    result = elementwise("result", lambda a, b, c, d: a * (b - c) - d, p, g, inner, outer)
    assert len(fused(builder, [result], 2).nodes) == 1


def test_sums_across_rows_stay_apart() -> None:
    """A column is not in memory at one place, and few rows are too few for threads."""
    builder, (p, g) = inputs(2)
    inner = unsqueeze(summed(product(p, g), 0), [0])
    result = elementwise("result", lambda a, b, c: a * (b - c), p, g, inner)
    assert len(fused(builder, [result], 2).nodes) == 2
    builder = GraphBuilder()
    x = builder.input((LEAST_ROWS // 2, COLUMNS), "float32")
    centred = elementwise("centred", lambda a, b: a - b, x, unsqueeze(summed(x, 1), [1]))
    assert len(fused(builder, [centred], 1).nodes) == 2
