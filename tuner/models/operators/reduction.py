"""Reductions over dimensions, positions of extremes, prefix sums, the greatest k."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from tuner.models.operators import sorting
from tuner.models.operators.elementwise import after, cast, elementwise, is_inf, is_nan, same
from tuner.models.operators.indexing import gather_elements
from tuner.models.operators.movement import along, concatenate, flip, pad, reshape, unsqueeze
from tuner.models.operators.scalars import (
    Elem,
    Number,
    cast_to,
    clamp,
    constant,
    maximum,
    minimum,
    unary,
    where,
)
from tuner.models.operators.values import Value
from tuner.workload.dtypes import FLOATS, INTEGER_RANGES, DType
from tuner.workload.expression import Reducer

_LONG_ROW = 256  # elements, above which prefixes are computed in blocks
_SORTED = 1024  # elements of a row that are compared with each other


def normalized(axes: Sequence[int] | None, rank: int) -> tuple[int, ...]:
    """Distinct axes counted from the front, in order; all of them where none are given.
    Raises ValueError for one beyond the rank."""
    if axes is None or not len(axes):
        return tuple(range(rank))
    wrong = [axis for axis in axes if not -rank <= axis < rank]
    if wrong:
        raise ValueError(f"axis {wrong[0]} of a tensor with {rank} dimensions")
    return tuple(sorted({int(axis) % rank for axis in axes}))


def neutral(reducer: Reducer, dtype: DType) -> Number:
    """What changes no reduction of this kind."""
    if reducer in ("sum", "prod"):
        return int(reducer == "prod")
    if dtype == "bool":
        return reducer == "min"
    if dtype in FLOATS:
        return -math.inf if reducer == "max" else math.inf
    return INTEGER_RANGES[dtype][reducer == "min"]


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
    `keep`. Extremes of conditions are those of zeros and ones."""
    if x.dtype == "bool":
        extreme = reduce(name, reducer, cast(x, "int32"), axes, keep=keep, function=function)
        return cast(extreme, dtype or "bool")
    kept = [axis for axis in range(x.rank) if axis not in axes]

    def body(*places: Elem) -> Elem:
        indices = dict(zip([*kept, *axes], places, strict=True))
        return function(x.number(tuple(indices[axis] for axis in range(x.rank))))

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
    missing = -1 if last else extent

    shape = [e for number, e in enumerate(x.shape) if number != axis]
    # One node, so that x is the same number in both stages: nodes round what they store.
    with x.builder.kernel("position"):
        top = reduce("extreme", "max" if greatest else "min", x, [axis], keep=True)

        def body(*places: Elem) -> Elem:
            *outer, k = places
            indices = [*outer[:axis], k, *outer[axis:]]
            edge = [*outer[:axis], constant(0, "int64"), *outer[axis:]]
            position = cast_to("int32", k)
            return where(same(x[tuple(indices)], top[tuple(edge)]), position, missing)

        places = x.builder.reduce(
            "position", "max" if last else "min", shape, [extent], body, dtype="int32"
        )
    result = cast(places, dtype)
    return reshape(result, [*shape[:axis], 1, *shape[axis:]]) if keep else result


def cumulative(
    x: Value, axis: int, reducer: Reducer, *, exclusive: bool = False, reverse: bool = False
) -> Value:
    """Prefix sums (or products, or extremes): each element reduces all up to it."""
    if reverse:
        return flip(cumulative(flip(x, axis), axis, reducer, exclusive=exclusive), axis)
    return cast(_prefixes(x, axis, reducer, exclusive=exclusive), x.dtype)


def _prefixes(x: Value, axis: int, reducer: Reducer, *, exclusive: bool) -> Value:
    """In the dtype that x is computed in. Of a long row in blocks: each block by itself,
    then all with what comes before their block, which takes n^1.5 operations and not n^2.
    """
    extent = x.shape[axis]
    start = neutral(reducer, x.computed_in)
    if extent <= _LONG_ROW:

        def body(*places: Elem) -> Elem:
            *outer, k = places
            indices = [*outer]
            indices[axis] = k
            here = outer[axis]
            return where(k < here if exclusive else k <= here, x[tuple(indices)], start)

        return x.builder.reduce("cumulative", reducer, x.shape, [extent], body, dtype=x.computed_in)
    block = math.isqrt(extent - 1) + 1
    blocks = _in_blocks(x, axis, block, start)
    inner = _prefixes(blocks, axis + 1, reducer, exclusive=exclusive)
    totals = reduce("totals", reducer, blocks, [axis + 1], keep=False, dtype=x.computed_in)
    before = unsqueeze(_prefixes(totals, axis, reducer, exclusive=True), [axis + 1])
    joined = elementwise("cumulative", _JOINED[reducer], inner, before)
    rows = reshape(joined, [*x.shape[:axis], -(-extent // block) * block, *x.shape[axis + 1 :]])
    return along(rows, axis, 0, extent)


_JOINED: Mapping[Reducer, Callable[[Elem, Elem], Elem]] = {
    "sum": lambda a, b: a + b,
    "prod": lambda a, b: a * b,
    "max": maximum,
    "min": minimum,
}


def running_extreme(x: Value, axis: int, *, greatest: bool) -> tuple[Value, Value]:
    """The greatest (or least) element up to each, and where the last of these stands; NaN
    behind one."""
    reducer: Reducer = "max" if greatest else "min"

    def before(*places: Elem) -> Elem:
        *outer, k = places
        inside = [*outer]
        inside[axis] = k
        return where(k <= outer[axis], x[tuple(inside)], neutral(reducer, x.computed_in))

    def body(*places: Elem) -> Elem:
        *outer, k = places
        inside = [*outer]
        inside[axis] = k
        is_extreme = (k <= outer[axis]) & same(x[tuple(inside)], extremes[tuple(outer)])
        return where(is_extreme, cast_to("int32", k), 0)

    over = [x.shape[axis]]
    with x.builder.kernel("position"):  # one node, as `arg_extreme` is
        extremes = x.builder.reduce("extreme", reducer, x.shape, over, before, dtype=x.dtype)
        last = x.builder.reduce("position", "max", x.shape, over, body, dtype="int32")
    return cumulative(x, axis, reducer), cast(last, "int64")


def cumulative_log_sum_exp(x: Value, axis: int) -> Value:
    """Of the elements up to each, shifted by the greatest of them."""
    tops = cumulative(x, axis, "max")

    def body(*places: Elem) -> Elem:
        *outer, k = places
        inside = [*outer]
        inside[axis] = k
        shifted = unary("exp", x[tuple(inside)] - _finite(tops[tuple(outer)]))
        return where(k <= outer[axis], shifted, 0)

    total = x.builder.reduce("sum", "sum", x.shape, [x.shape[axis]], body, dtype=x.computed_in)
    return elementwise("log", lambda e, m: unary("log", e) + _finite(m), total, tops, dtype=x.dtype)


def _in_blocks(x: Value, axis: int, block: int, pad_value: float) -> Value:
    """A dimension as blocks and places in them, the last block filled up with a value."""
    count = -(-x.shape[axis] // block)
    none = [0] * x.rank
    missing = [*none]
    missing[axis] = count * block - x.shape[axis]
    filled = pad(x, none, missing, "constant", pad_value)
    return reshape(filled, [*x.shape[:axis], count, block, *x.shape[axis + 1 :]])


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


def kth_least(x: Value, k: int, axis: int) -> tuple[Value, Value]:
    """The element with k before it in sorted order, of each row, and its position; the
    dimension stays as a unit."""
    if x.shape[axis] > 2 * _SORTED:
        values, positions = sorting.in_order(x, axis, greatest=False)
        return along(values, axis, k, 1), along(positions, axis, k, 1)
    position = ranks(x, axis, greatest=False)

    def body(*places: Elem) -> Elem:
        *outer, n = places
        inside = [*outer]
        inside[axis] = n
        return where(position[tuple(inside)].equals(k), cast_to("int32", n), 0)

    shape = [1 if number == axis else e for number, e in enumerate(x.shape)]
    row = x.builder.reduce("kth", "sum", shape, [x.shape[axis]], body, dtype="int32")
    indices = cast(row, "int64")
    return gather_elements(x, indices, axis), indices


def median(x: Value, axis: int) -> tuple[Value, Value]:
    """The lower one of the middle of each row, or a NaN of the row, and its position; the
    dimension stays as a unit."""
    _, middle = kth_least(x, (x.shape[axis] - 1) // 2, axis)
    last = arg_extreme(x, axis, greatest=True, last=False, keep=True)  # of a NaN, if any
    greatest = gather_elements(x, last, axis)
    places = elementwise("position", lambda m, n, e: where(is_nan(e), n, m), middle, last, greatest)
    return gather_elements(x, places, axis), places


def sorted_places(rows: Value, x: Value, dtype: DType, *, right: bool) -> Value:
    """Where each element belongs in an ascending row: before equal numbers, or behind them
    where `right`. NaN belongs at the end.

    `rows` is (..., n) with the leading dimensions of `x`, or one row for all.
    """

    def body(*places: Elem) -> Elem:
        *outer, k = places
        number, here = rows[(*outer[: rows.rank - 1], k)], x[tuple(outer)]
        is_before = ~(number > here) if right else ~(number >= here)
        return where(is_before, constant(1, dtype), 0)

    return x.builder.reduce("places", "sum", x.shape, [rows.shape[-1]], body, dtype=dtype)


def top_k(x: Value, k: int, axis: int, *, greatest: bool) -> tuple[Value, Value]:
    """The k greatest (or least) elements of each row in order, and their positions."""
    if x.shape[axis] > 2 * _SORTED and k <= _SORTED // 2:
        return _top_of_tops(x, k, axis, greatest=greatest)
    if x.shape[axis] > 2 * _SORTED:
        ordered = sorting.in_order(x, axis, greatest=greatest)
        values, positions = (along(value, axis, 0, k) for value in ordered)
        return values, positions
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


def _top_of_tops(x: Value, k: int, axis: int, *, greatest: bool) -> tuple[Value, Value]:
    """Of a long row: the greatest k of each block first. Equal elements keep their order,
    because blocks do."""
    count = x.shape[axis] // _SORTED
    whole = along(x, axis, 0, count * _SORTED)
    shape = [*x.shape[:axis], count, _SORTED, *x.shape[axis + 1 :]]
    tops = top_k(reshape(whole, shape), k, axis + 1, greatest=greatest)
    shape[axis : axis + 2] = [count * k]
    values = [reshape(tops[0], shape)]
    positions = [reshape(_moved(tops[1], axis, step=_SORTED), shape)]
    rest = x.shape[axis] - count * _SORTED
    if rest:
        tail = along(x, axis, count * _SORTED, rest)
        last, places = top_k(tail, min(k, rest), axis, greatest=greatest)
        values.append(last)
        positions.append(_moved(places, axis, begin=count * _SORTED))
    best, chosen = top_k(concatenate(values, axis), k, axis, greatest=greatest)
    return best, gather_elements(concatenate(positions, axis), chosen, axis)


def _moved(places: Value, axis: int, begin: int = 0, step: int = 0) -> Value:
    """Positions in the whole row of places in blocks that begin every `step` elements."""
    return places.builder.compute(
        "positions", places.shape, lambda *i: i[axis] * step + begin + places[i], dtype="int64"
    )
