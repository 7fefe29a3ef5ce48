"""Counts of values and products by groups of rows, against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.experts import grouped_matmul, histogram

Array = np.ndarray[Any, np.dtype[Any]]


@pytest.mark.parametrize(("bins", "low", "high"), [(8, 0, 7), (5, -1.0, 2.5), (1, 0, 1)])
def test_values_are_counted_as_numpy_does(bins: int, low: float, high: float) -> None:
    draw = np.random.default_rng(bins)
    x = np.concatenate([draw.integers(-2, 9, 60), draw.normal(0, 2, 60), [low, high]])
    values = np.append(x, [np.nan, np.inf, -np.inf]).astype(np.float32).reshape(5, -1)
    builder = GraphBuilder()
    counts = histogram(builder.input(values.shape, "float32"), bins, low, high)
    (computed,) = graph_outputs(builder.graph([counts], ["x", "y"]), [values])
    expected, _ = np.histogram(x.astype(np.float32), bins, (low, high))
    np.testing.assert_array_equal(computed, expected)


def grouped(rows: Array, matrices: Array, ends: Array) -> Array:
    builder = GraphBuilder()
    values = [
        builder.input(rows.shape, "float32"),
        builder.input(matrices.shape, "float32"),
        builder.input(ends.shape, "int32"),
    ]
    result = grouped_matmul(values[0], values[1], values[2], "float32")
    (computed,) = graph_outputs(
        builder.graph([result], ["rows", "matrices", "ends", "y"]), [rows, matrices, ends]
    )
    return computed


@pytest.mark.parametrize(
    "sizes",
    [(3, 0, 4, 2), (0, 0, 9, 0), (0, 0, 0, 0), (1, 1, 1, 1)],
    ids=["an empty group", "one group", "no rows", "rows behind the last"],
)
def test_rows_meet_the_matrix_of_their_group(sizes: tuple[int, ...]) -> None:
    draw = np.random.default_rng(0)
    rows = draw.standard_normal((9, 5)).astype(np.float32)
    matrices = draw.standard_normal((4, 5, 3)).astype(np.float32)
    ends = np.cumsum(sizes).astype(np.int32)
    expected = np.zeros((9, 3))
    for group, end in enumerate(ends):
        start = end - sizes[group]
        expected[start:end] = rows[start:end].astype(np.float64) @ matrices[group]
    np.testing.assert_allclose(grouped(rows, matrices, ends), expected, rtol=1e-5, atol=1e-5)
