"""Prefix sums and the greatest k of rows, short and long, against NumPy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

from tests.support.graph_values import graph_outputs
from tuner.models.nodes import Scan, calls
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.reduction import cumulative, median, running_extreme, top_k
from tuner.models.operators.values import Value
from tuner.workload.dtypes import DType

Array = np.ndarray[Any, np.dtype[Any]]
LONG = 2300


def computed(array: Array, function: Callable[[Value], tuple[Value, ...]]) -> list[Array]:
    builder = GraphBuilder()
    x = builder.input(array.shape, cast(DType, array.dtype.name))
    results = function(x)
    graph = builder.graph(results, ["x", *map(str, range(len(results)))])
    return graph_outputs(graph, [array])


def row(shape: tuple[int, ...], seed: int) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("extent", [5, 257, LONG])
def test_prefix_sums(extent: int, exclusive: bool, reverse: bool) -> None:
    x = row((2, extent, 3), extent)
    (sums,) = computed(
        x, lambda v: (cumulative(v, 1, "sum", exclusive=exclusive, reverse=reverse),)
    )
    expected = x.astype(np.float64)
    expected = np.flip(expected, 1) if reverse else expected
    expected = np.cumsum(expected, 1) - (expected if exclusive else 0)
    expected = np.flip(expected, 1) if reverse else expected
    np.testing.assert_allclose(sums, expected, rtol=1e-5, atol=1e-4)


def test_prefixes_end_before_what_is_no_number() -> None:
    x = row((LONG,), 1)
    x[1500] = np.nan
    (sums,) = computed(x, lambda v: (cumulative(v, 0, "sum"),))
    assert np.isfinite(sums[:1500]).all() and np.isnan(sums[1500:]).all()


def test_long_prefixes_take_fewer_operations_than_pairs() -> None:
    builder = GraphBuilder()
    x = builder.input((1, 16_384), "float32")
    graph = builder.graph([cumulative(x, 1, "sum")], ["x", "y"])
    points = sum(stage.points for node in graph.expressions for stage in node.stages)
    assert points < 3 * 16_384 * 128


@pytest.mark.parametrize("greatest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
@pytest.mark.parametrize("extent", [40, LONG])
def test_the_first_k_in_order(extent: int, dtype: str, greatest: bool) -> None:
    """Of few distinct values, so that most are equal to another."""
    x = np.random.default_rng(extent).integers(-9, 9, extent).astype(dtype)
    values, places = computed(x, lambda v: top_k(v, 7, 0, greatest=greatest))
    order = np.argsort(-x if greatest else x, axis=0, kind="stable")[:7]
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 0))


@pytest.mark.parametrize("greatest", [True, False])
@pytest.mark.parametrize("dtype", ["float32", "int32"])
def test_long_rows_are_sorted_whole(dtype: str, greatest: bool) -> None:
    x = np.random.default_rng(1).integers(-999, 999, (2, LONG, 2)).astype(dtype)
    if dtype == "float32":
        x[0, [5, 900, 2000], 1] = [np.nan, -np.inf, np.inf]
    values, places = computed(x, lambda v: top_k(v, LONG, 1, greatest=greatest))
    order = np.argsort(np.where(np.isnan(x), -np.inf, -x) if greatest else x, 1, kind="stable")
    np.testing.assert_array_equal(places, order)
    np.testing.assert_array_equal(values, np.take_along_axis(x, order, 1))


def test_sorting_long_rows_takes_fewer_operations_than_pairs() -> None:
    builder = GraphBuilder()
    x = builder.input((1, 32_000), "float32")
    graph = builder.graph([top_k(x, 32_000, 1, greatest=True)[1]], ["x", "y"])
    (loop,) = [node for node in graph.nodes if isinstance(node, Scan)]
    points = sum(count * stage.points for node, count in calls([loop]) for stage in node.stages)
    assert points < 200 * 32_768


def test_the_middle_of_a_long_row() -> None:
    x = row((LONG,), 4)
    (value,) = computed(x, lambda v: (median(v, 0)[0],))
    assert value.item() == np.sort(x)[(LONG - 1) // 2]


@pytest.mark.parametrize("greatest", [True, False])
@pytest.mark.parametrize("extent", [5, LONG])
def test_extremes_of_what_comes_before(extent: int, greatest: bool) -> None:
    x = row((2, extent), extent)
    extremes, places = computed(x, lambda v: running_extreme(v, 1, greatest=greatest))
    right = (np.maximum if greatest else np.minimum).accumulate(x, 1)
    np.testing.assert_array_equal(extremes, right)
    np.testing.assert_array_equal(np.take_along_axis(x, places, 1), right)


@pytest.mark.parametrize("greatest", [True, False])
@pytest.mark.parametrize("extent", [40, LONG])
def test_nan_is_greater_than_every_number(extent: int, greatest: bool) -> None:
    x = row((extent,), extent)
    x[[3, 30, 5]] = [np.nan, np.nan, np.inf if greatest else -np.inf]
    _, places = computed(x, lambda v: top_k(v, 4, 0, greatest=greatest))
    if greatest:
        assert places[:3].tolist() == [3, 30, 5]
    else:
        assert places[0] == 5 and not {3, 30} & set(places.tolist())


def test_rows_without_numbers_keep_their_order() -> None:
    x = np.full(LONG, np.nan, np.float32)
    _, places = computed(x, lambda v: top_k(v, 4, 0, greatest=False))
    assert places.tolist() == [0, 1, 2, 3]
