"""Operators of ATen over whole axes: sums, extremes, orders and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

import numpy as np

from tuner.models.from_torch.call import Call, Convert, Results
from tuner.models.operators import elementwise as maps
from tuner.models.operators import movement
from tuner.models.operators import reduction as reductions
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.scalars import Elem, cast_to, unary
from tuner.models.operators.values import Value
from tuner.workload.expression import Reducer


def reduced(
    reducer: Reducer,
    before: Callable[[Elem], Elem] = lambda e: e,
) -> Convert:
    def convert(call: Call) -> Value:
        x = maps.cast(call.value("self"), call.dtype)
        return reductions.reduce(
            call.op,
            reducer,
            x,
            _axes(call, x),
            keep=bool(call.get("keepdim")),
            function=before,
            dtype=call.dtype,
        )

    return convert


def _axes(call: Call, x: Value) -> tuple[int, ...]:
    given = call.get("dim")
    if isinstance(given, int):
        given = [given]
    return reductions.normalized(given, x.rank) if x.rank else ()


def mean(call: Call) -> Value:
    x = call.value("self", call.dtype)
    return reductions.mean(x, _axes(call, x), keep=bool(call.get("keepdim")))


def anywhere(any_is_enough: bool) -> Convert:
    """Whether any element (or every one) is true."""

    def convert(call: Call) -> Value:
        x = maps.cast(call.value("self", "bool"), "int32")
        axes = _axes(call, x)
        extreme = reductions.reduce(
            call.op, "max" if any_is_enough else "min", x, axes, keep=bool(call.get("keepdim"))
        )
        return maps.cast(extreme, "bool")

    return convert


def norm(call: Call) -> Value:
    x, order = call.value("self", call.dtype), float(call.get("ord", 2))
    axes, keep = _axes(call, x), bool(call.get("keepdim"))

    def power(e: Elem) -> Elem:
        if order == 0:
            return cast_to(e.dtype, e.differs(0))
        if order == 2:
            return e * e
        size = unary("abs", e)
        return size if order in (1, math.inf, -math.inf) else size**order

    reducer: Reducer = "max" if order == math.inf else "min" if order == -math.inf else "sum"
    total = reductions.reduce("norm", reducer, x, axes, keep=keep, function=power)
    if order in (0, 1, math.inf, -math.inf):
        return total
    if order == 2:
        return elementwise("norm", partial(unary, "sqrt"), total)
    return elementwise("norm", lambda e: e ** (1 / order), total)


def arg_extreme(greatest: bool) -> Convert:
    def convert(call: Call) -> Value:
        x = call.value("self")
        axis = call.get("dim")
        if axis is None:
            x, axis = movement.reshape(x, [x.elements]), 0
        keep = bool(call.get("keepdim"))
        return reductions.arg_extreme(x, axis % x.rank, greatest=greatest, last=False, keep=keep)

    return convert


def extreme_with_place(greatest: bool) -> Convert:
    def convert(call: Call) -> Results:
        x, keep = call.value("self"), bool(call.get("keepdim"))
        axis = call["dim"] % x.rank
        reducer: Reducer = "max" if greatest else "min"
        return (
            reductions.reduce(call.op, reducer, x, [axis], keep=keep),
            reductions.arg_extreme(x, axis, greatest=greatest, last=False, keep=keep),
        )

    return convert


def variance_and_mean(call: Call) -> Results:
    x = call.value("self", call.dtype)
    centre = reductions.mean(x, _axes(call, x), keep=True)
    # A mean that is stored as a narrow float is rounded: no difference is taken to that one.
    spread = _variance(call, x, centre) if x.dtype == x.computed_in else variance(call)
    return (spread, movement.reshape(centre, call.shapes[1]))


def variance(call: Call) -> Value:
    x = call.value("self", call.dtype)
    with call.builder.kernel("variance"):
        return _variance(call, x, reductions.mean(x, _axes(call, x), keep=True))


def _variance(call: Call, x: Value, centre: Value) -> Value:
    """The variance of x, whose mean along the axes of the call is the centre."""
    axes, keep = _axes(call, x), bool(call.get("keepdim"))
    correction = call.get("correction")
    count = math.prod(x.shape[axis] for axis in axes) - (1 if correction is None else correction)
    with call.builder.kernel("variance"):
        squares = elementwise("squares", lambda e, m: (e - m) * (e - m), x, centre)
        total = reductions.reduce("variance", "sum", squares, axes, keep=keep)
        return elementwise("variance", lambda e: e * (1 / count), total)


def running_extreme(greatest: bool) -> Convert:
    return lambda call: reductions.running_extreme(
        call.value("self"), call["dim"] % len(call.shape), greatest=greatest
    )


def cumulative_log_sum_exp(call: Call) -> Value:
    x = call.value("self", call.dtype)
    return reductions.cumulative_log_sum_exp(x, call["dim"] % x.rank)


def kth_value(call: Call) -> Results:
    x = call.value("self")
    return _as_traced(call, reductions.kth_least(x, call["k"] - 1, call.get("dim", -1) % x.rank))


def median(call: Call) -> Results:
    """Of all elements together where no dimension is named: then without a position."""
    x = call.value("self")
    if "dim" not in call.arguments:
        flat = movement.reshape(x, [x.elements])
        return movement.reshape(reductions.median(flat, 0)[0], ())
    return _as_traced(call, reductions.median(x, call["dim"] % x.rank))


def _as_traced(call: Call, results: Sequence[Value]) -> Sequence[Value]:
    """The results in the call's shapes, which may leave out what was reduced."""
    return [movement.reshape(e, shape) for e, shape in zip(results, call.shapes, strict=True)]


def repeated_places(call: Call) -> Value:
    """Of each number its place, as often as it says: what `repeat_interleave` gathers by."""
    repeats = call.value("repeats", "int64")
    ends = reductions.cumulative(repeats, 0, "sum")
    numbers = call.builder.constant(np.arange(call.shape[0]), "int64")
    return reductions.sorted_places(ends, numbers, call.dtype, right=True)


def top_k(call: Call) -> Results:
    x = call.value("self")
    axis = call.get("dim", -1) % x.rank
    # Of a tensor without dimensions PyTorch gives the element, also where k is 0.
    return reductions.top_k(x, call.shape[axis], axis, greatest=call.get("largest", True))


def sort(call: Call) -> Results:
    x = call.value("self")
    axis = call.get("dim", -1) % x.rank
    return reductions.top_k(x, x.shape[axis], axis, greatest=call.get("descending", False))


def bucketize(call: Call) -> Value:
    rows = call.value("boundaries")
    x = call.value("self", rows.dtype)
    return reductions.sorted_places(rows, x, call.dtype, right=bool(call.get("right")))


def search_sorted(call: Call) -> Value:
    rows = call.value("sorted_sequence")
    if call.get("sorter") is not None:
        raise call.refusal("has a sorter; give it a sequence that is sorted")
    right = bool(call.get("right")) or call.get("side") == "right"
    return reductions.sorted_places(rows, call.value("self", rows.dtype), call.dtype, right=right)


def cumulative(reducer: Reducer) -> Convert:
    def convert(call: Call) -> Value:
        x = call.value("self", call.dtype)
        return reductions.cumulative(x, call["dim"] % x.rank, reducer)

    return convert
