"""Reductions over dimensions, positions of extremes, prefix sums, the greatest k."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from tuner.models.operators.builder import Value
from tuner.models.operators.elementwise import after, cast, elementwise, is_inf, same
from tuner.models.operators.movement import reshape
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, unary, where
from tuner.workload.expression import DType, Reducer
from tuner.workload.terms import FLOATS


def normalized(axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Distinct axes counted from the front, in order; all of them where none are given.
    Raises ValueError for one beyond the rank."""
    if axes is None or not len(axes):
        return tuple(range(rank))
    wrong = [axis for axis in axes if not -rank <= axis < rank]
    if wrong:
        raise ValueError(f"axis {wrong[0]} of a tensor with {rank} dimensions")
    return tuple(sorted({int(axis) % rank for axis in axes}))


def reduce(
    name: str,
    reducer: Reducer,
    x: Value,
    axes: Sequence[int],
    *,
    keep: bool,
    function: Callable[[Elem], Elem] = lambda e: e,
    dtype: DType | None = None,
) -> Value:
    """The reduction of `function` of the elements over the axes, which stay as units if
    `keep`."""
    kept = [axis for axis in range(x.rank) if axis not in axes]

    def body(*places: Elem) -> Elem:
        indices = dict(zip([*kept, *axes], places, strict=True))
        return function(x[tuple(indices[axis] for axis in range(x.rank))])

    if not axes:
        result = elementwise(name, function, x, dtype=dtype)
    else:
        stored = [axis for axis in _stored_order(x) if axis in kept]
        result = x.builder.reduce(
            name,
            reducer,
            [x.shape[axis] for axis in kept],
            [x.shape[axis] for axis in axes],
            body,
            dtype=dtype or x.dtype,
            order=[kept.index(axis) for axis in stored],
        )
    if not keep:
        return result
    return reshape(result, [1 if axis in axes else e for axis, e in enumerate(x.shape)])


def _stored_order(x: Value) -> Sequence[int]:
    order = x.order if x.array is None else None
    if order is None:
        return range(x.rank)
    return [*(axis for axis in range(x.rank) if axis not in order), *order]


def mean(x: Value, axes: Sequence[int], *, keep: bool) -> Value:
    count = math.prod(x.shape[axis] for axis in axes)
    with x.builder.kernel("mean"):
        total = reduce("mean", "sum", x, axes, keep=keep)
        return elementwise("mean", lambda e: _scaled(e, count), total)


def _scaled(e: Elem, count: int) -> Elem:
    return e * (1 / count) if e.dtype in FLOATS else e // count


def log_sum_exp(x: Value, axes: Sequence[int], *, keep: bool) -> Value:
    """Shifted by the greatest element, which keeps exponentials finite."""
    with x.builder.kernel("log_sum_exp"):
        top = reduce("max", "max", x, axes, keep=True)
        summed = elementwise("shift", lambda e, m: unary("exp", e - _finite(m)), x, top)
        total = reduce("sum", "sum", summed, axes, keep=True)
        result = elementwise("log", lambda e, m: unary("log", e) + _finite(m), total, top)
        if keep:
            return result
        kept = [e for axis, e in enumerate(x.shape) if axis not in axes]
        return reshape(result, kept)


def _finite(e: Elem) -> Elem:
    """0 in the place of an infinity, which nothing can be shifted by."""
    return where(is_inf(e), 0, e)


def arg_extreme(
    x: Value, axis: int, *, greatest: bool, last: bool, keep: bool, dtype: DType = "int64"
) -> Value:
    """The first (or last) position of the greatest (or least) element of a dimension.

    That of a NaN where there is one.
    """
    extent = x.shape[axis]
    top = reduce("extreme", "max" if greatest else "min", x, [axis], keep=True)
    missing = -1 if last else extent

    def body(*places: Elem) -> Elem:
        *outer, k = places
        indices = [*outer[:axis], k, *outer[axis:]]
        edge = [*outer[:axis], constant(0, "int64"), *outer[axis:]]
        position = cast_to("int32", k)
        return where(same(x[tuple(indices)], top[tuple(edge)]), position, missing)

    shape = [e for number, e in enumerate(x.shape) if number != axis]
    places = x.builder.reduce(
        "position", "max" if last else "min", shape, [extent], body, dtype="int32"
    )
    result = cast(places, dtype)
    return reshape(result, [*shape[:axis], 1, *shape[axis:]]) if keep else result


def cumulative(
    x: Value, axis: int, reducer: Reducer, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """Prefix sums (or products): each element reduces all up to it."""
    neutral = 1 if reducer == "prod" else 0

    def body(*places: Elem) -> Elem:
        *outer, k = places
        indices = [*outer]
        indices[axis] = k
        here = outer[axis]
        if reverse:
            included = k > here if exclusive else k >= here
        else:
            included = k < here if exclusive else k <= here
        return where(included, x[tuple(indices)], neutral)

    return x.builder.reduce("cumulative", reducer, x.shape, [x.shape[axis]], body, dtype=x.dtype)


def ranks(x: Value, axis: int, *, greatest: bool) -> Value:
    """How many elements of its row come before each in sorted order; equal ones in the
    order of their positions. NaN is the greatest."""

    def body(*places: Elem) -> Elem:
        *outer, k = places
        other, here = [*outer], outer[axis]
        other[axis] = k
        a, b = x[tuple(other)], x[tuple(outer)]
        before = (after(a, b) if greatest else after(b, a)) | (same(a, b) & (k < here))
        return where(before, constant(1, "int32"), 0)

    return x.builder.reduce("rank", "sum", x.shape, [x.shape[axis]], body, dtype="int32")


def top_k(x: Value, k: int, axis: int, *, greatest: bool) -> tuple[Value, Value]:
    """The k greatest (or least) elements of each row in order, and their positions."""
    position = ranks(x, axis, greatest=greatest)
    shape = [k if number == axis else e for number, e in enumerate(x.shape)]

    def selected(*places: Elem) -> Elem:
        *outer, n = places
        inside = [*outer]
        inside[axis] = n
        chosen = position[tuple(inside)].equals(cast_to("int32", outer[axis]))
        return where(chosen, cast_to("int32", n), 0)

    places = x.builder.reduce("top", "sum", shape, [x.shape[axis]], selected, dtype="int32")
    indices = cast(places, "int64")

    def gathered(*outer: Elem) -> Elem:
        inside = [*outer]
        place = cast_to("int64", places[outer])
        inside[axis] = clamp(place, 0, x.shape[axis] - 1)
        return x[tuple(inside)]

    return x.builder.compute("top_values", shape, gathered, dtype=x.dtype), indices
