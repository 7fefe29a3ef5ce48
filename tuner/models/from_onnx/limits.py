"""What the arithmetic of shapes gives where some extents are only bounded: operators on small
integer tensors, computed on the least and the greatest numbers that these may have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tuner.models.from_onnx.node import Node
from tuner.models.graph import Array
from tuner.models.operators.values import Limits, Value

# Operators that only move the elements of their inputs, all of them or the first one.
_MOVED = ("Concat",)
_FIRST_MOVED = (
    "Cast", "Expand", "Flatten", "Gather", "Identity", "Reshape", "Slice", "Squeeze", "Transpose",
    "Unsqueeze",
)  # fmt: skip
# Operators whose result never falls where an input rises, on numbers of at least 0 those of
# the second line.
_RISING = ("Add", "Ceil", "Floor", "Max", "Min", "ReduceMax", "ReduceMin", "ReduceSum", "Sum")
_RISING_FROM_ZERO = ("Mul", "ReduceProd")

Evaluate = Callable[[Sequence[Array | None]], Array]


def with_limits(node: Node, result: Value, evaluate: Evaluate) -> Value:
    """The result of an operator with what its numbers may be, as far as that of the inputs
    says; a constant where they are known after all.

    `evaluate` gives the operator's result for arrays in the place of its inputs.
    """
    values = [value for value in node.inputs if value is not None]
    if result.array is not None or not any(value.limits for value in values):
        return result
    if any(value.array is None and value.limits is None for value in values):
        return result
    low, high = (
        [None if value is None else _end(value, greatest=end) for value in node.inputs]
        for end in (False, True)
    )
    is_placed = all(value is None or value.array is not None for value in node.inputs[1:])
    if node.op in _MOVED or (node.op in _FIRST_MOVED and is_placed):
        return _limited(result, *_moved(node, evaluate))
    least = min(int(array.min(initial=0)) for array in low if array is not None)
    if node.op in _RISING or (node.op in _RISING_FROM_ZERO and least >= 0):
        return _limited(result, evaluate(low), evaluate(high))
    if node.op == "Sub":
        return _limited(result, evaluate([low[0], high[1]]), evaluate([high[0], low[1]]))
    if node.op == "Div" and least >= 0 and low[1] is not None and low[1].min(initial=1) > 0:
        return _limited(result, evaluate([low[0], high[1]]), evaluate([high[0], low[1]]))
    if node.op == "Equal":
        return _limited(result, *_equal(low, high))
    if node.op == "Where":
        return _limited(result, *_selected(low, high))
    return result


def _end(value: Value, *, greatest: bool) -> Array:
    if value.limits is not None:
        return value.limits.high if greatest else value.limits.low
    assert value.array is not None
    return value.array


def _limited(
    result: Value, low: Array, high: Array, numbers: Sequence[Value] | None = None
) -> Value:
    low, high = np.asarray(low), np.asarray(high)
    if (low == high).all():
        return result.builder.constant(low, result.dtype)
    scalars = _scalars(result) if numbers is None else numbers
    return replace(result, limits=Limits(low, high, tuple(scalars)))


def _scalars(result: Value) -> list[Value]:
    def scalar(place: tuple[int, ...]) -> Value:
        return result.view((), lambda: place)

    return [scalar(place) for place in np.ndindex(*result.shape)]


def _moved(node: Node, evaluate: Evaluate) -> tuple[Array, Array, list[Value]]:
    """By the places that elements have among those of all inputs."""
    moving = node.inputs if node.op in _MOVED else node.inputs[:1]
    values = [value for value in moving if value is not None]
    begins = np.cumsum([0, *(value.elements for value in values)]).tolist()
    places = [
        np.arange(begin, begin + value.elements).reshape(value.shape)
        for begin, value in zip(begins, values, strict=False)
    ]
    rest = [None if value is None else value.array for value in node.inputs[len(places) :]]
    chosen = np.asarray(evaluate([*places, *rest])).astype(np.int64)
    low, high = (
        np.concatenate([_end(value, greatest=end).reshape(-1) for value in values])[chosen]
        for end in (False, True)
    )
    numbers = [number for value in values for number in _numbers(value)]
    return low, high, [numbers[place] for place in chosen.reshape(-1).tolist()]


def _numbers(value: Value) -> Sequence[Value]:
    if value.limits is not None:
        return value.limits.numbers
    assert value.array is not None
    return [value.builder.constant(np.array(number)) for number in value.array.reshape(-1)]


def _equal(low: Sequence[Array | None], high: Sequence[Array | None]) -> tuple[Array, Array]:
    """Whether numbers are certainly equal, and whether they may be."""
    a, b, c, d = low[0], high[0], low[1], high[1]
    assert a is not None and b is not None and c is not None and d is not None
    return (a == b) & (c == d) & (a == c), (a <= d) & (c <= b)


def _selected(low: Sequence[Array | None], high: Sequence[Array | None]) -> tuple[Array, Array]:
    """What a condition selects that is certain, or may be either."""
    certain, possible = low[0], high[0]
    ends = (low[1], low[2], high[1], high[2])
    assert certain is not None and possible is not None and all(e is not None for e in ends)
    both = (np.minimum(low[1], low[2]), np.maximum(high[1], high[2]))  # type: ignore[arg-type]
    return (
        np.where(certain, low[1], np.where(possible, both[0], low[2])),  # type: ignore[arg-type]
        np.where(certain, high[1], np.where(possible, both[1], high[2])),  # type: ignore[arg-type]
    )
