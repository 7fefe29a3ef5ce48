"""Views and copies of tensors mean what they mean in NumPy, however they follow each other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tuner.models.operators import movement
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.values import Value
from tuner.models.reference.evaluation import evaluate_graph

Array = np.ndarray[Any, np.dtype[Any]]
Step = tuple[Callable[[Value], Value], Callable[[Array], Array]]


def steps(rng: np.random.Generator, shape: tuple[int, ...]) -> Step:
    """One random movement of a tensor of this shape, on values and on arrays."""
    axis = int(rng.integers(len(shape)))
    kind = rng.choice(
        ["transpose", "split", "join", "slice", "flip", "roll", "pad", "twice", "add"]
    )
    if kind == "transpose":
        order = rng.permutation(len(shape)).tolist()
        return lambda x: movement.transpose(x, order), lambda a: np.transpose(a, order)
    if kind == "split" and len(shape) < 5:
        extent = shape[axis]
        first = int(rng.choice([d for d in range(1, extent + 1) if extent % d == 0]))
        new = (*shape[:axis], first, extent // first, *shape[axis + 1 :])
        return lambda x: movement.reshape(x, new), lambda a: a.reshape(new)
    if kind == "join" and axis:
        joined = (*shape[: axis - 1], shape[axis - 1] * shape[axis], *shape[axis + 1 :])
        return lambda x: movement.reshape(x, joined), lambda a: a.reshape(joined)
    if kind == "slice":
        start = int(rng.integers(shape[axis]))
        step = int(rng.integers(1, 3))
        count = -(-(shape[axis] - start) // step)
        index = (*(slice(None),) * axis, slice(start, None, step))
        return lambda x: movement.along(x, axis, start, count, step), lambda a: a[index]
    if kind == "flip":
        return lambda x: movement.flip(x, axis), lambda a: np.flip(a, axis)
    if kind == "roll":
        shift = int(rng.integers(-3, 4))
        return lambda x: movement.roll(x, shift, axis), lambda a: np.roll(a, shift, axis)
    if kind == "pad":
        widths = [[int(w) for w in rng.integers(0, 3, 2)] for _ in shape]
        before, after = ([pair[side] for pair in widths] for side in (0, 1))
        return (
            lambda x: movement.pad(x, before, after, "constant", 7.0),
            lambda a: np.pad(a, widths, constant_values=7.0),
        )
    if kind == "twice" and np.prod(shape) < 2000:
        return (
            lambda x: movement.concatenate([x, movement.flip(x, axis)], axis),
            lambda a: np.concatenate([a, np.flip(a, axis)], axis),
        )
    return lambda x: elementwise("add", lambda e: e + 1.0, x), lambda a: a + 1


@pytest.mark.parametrize("seed", range(60))
def test_movements_one_after_the_other_are_numpys(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(int(extent) for extent in rng.integers(1, 7, rng.integers(1, 5)))
    builder = GraphBuilder()
    value, array = builder.input(shape, "float32"), rng.standard_normal(shape).astype(np.float32)
    source = array
    for _ in range(8):
        of_value, of_array = steps(rng, value.shape)
        value, array = of_value(value), of_array(array)
        assert value.shape == array.shape
    graph = builder.graph([value], ["x", "y"])
    np.testing.assert_array_equal(evaluate_graph(graph, [source])[graph.outputs[0]], array)


def test_views_make_no_nodes() -> None:
    builder = GraphBuilder()
    x = builder.input((2, 12, 4), "float32")
    heads = movement.transpose(movement.reshape(x, (2, 12, 2, 2)), (0, 2, 1, 3))
    last = movement.along(heads, 2, 3, 4, 2)
    spread = movement.expand(movement.unsqueeze(last, [0]), (3, *last.shape))
    builder.graph([elementwise("add", lambda e: e + 1.0, spread)], ["x", "y"])
    assert [node.name for node in builder.graph([], []).nodes] == ["add"]


def test_equal_nodes_are_one() -> None:
    builder = GraphBuilder()
    x = builder.input((4, 4), "float32")
    first, second = (elementwise("double", lambda e: e * 2.0, x) for _ in range(2))
    assert first.tensor == second.tensor


def test_what_depends_on_constants_alone_is_computed_at_once() -> None:
    builder = GraphBuilder()
    scaled = elementwise("scale", lambda e: e * 2.0, builder.constant(np.arange(3.0), "float32"))
    assert scaled.array is not None and scaled.array.tolist() == [0.0, 2.0, 4.0]


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_padding_takes_numpys_elements(mode: str) -> None:
    builder = GraphBuilder()
    x = builder.input((5, 4), "float32")
    array = np.arange(20, dtype=np.float32).reshape(5, 4)
    graph = builder.graph([movement.pad(x, [2, 1], [3, 3], mode)], ["x", "y"])
    got = evaluate_graph(graph, [array])[graph.outputs[0]]
    np.testing.assert_array_equal(got, np.pad(array, [(2, 3), (1, 3)], mode))  # type: ignore[call-overload]


def test_shapes_that_do_not_fit_are_refused() -> None:
    x = GraphBuilder().input((2, 3), "float32")
    with pytest.raises(ValueError, match="6 elements do not fill"):
        movement.reshape(x, (4, 2))
