"""Operators that select elements by their values: results with run-time extents."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

import numpy as np

from tuner.models.operators.elementwise import after, cast, same
from tuner.models.operators.extents import count, counted
from tuner.models.operators.indexing import gather, moving
from tuner.models.operators.movement import along, reshape
from tuner.models.operators.reduction import cumulative
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, where
from tuner.models.operators.scans import scan
from tuner.models.operators.values import Value

_COMPARED = 2048  # rows that are compared with each other


def positions(flags: Value) -> Value:
    """Where a row of bools is true, in order: int64, with a count.

    The r-th place is the number of those up to which at most r are true, found by bisection
    in the prefix sums.
    """
    builder, (extent,) = flags.builder, flags.shape
    if flags.array is not None:
        return builder.constant(np.flatnonzero(flags.array))
    before = cumulative(cast(flags, "int32"), 0, "sum")
    total = count(flags, cast_to("int64", before[extent - 1]))
    bits = range(extent.bit_length() - 1, -1, -1)
    steps = builder.constant(np.array([1 << bit for bit in bits], np.int32))
    begin = builder.constant(np.zeros(extent, np.int32))

    def further(step: Value, places: Value) -> tuple[list[Value], list[Value]]:
        def body(r: Elem) -> Elem:
            place = cast_to("int64", places[r]) + cast_to("int64", step[()])
            seen = cast_to("int64", before[clamp(place - 1, 0, extent - 1)])
            is_inside = (place <= extent) & (seen <= r)
            return cast_to("int32", where(is_inside, place, cast_to("int64", places[r])))

        return [builder.compute("bisection", (extent,), body, dtype="int32")], []

    (last,), _ = scan(builder, "positions", steps.elements, [steps], [begin], further)
    inside = builder.compute(
        "positions", (extent,), lambda r: clamp(cast_to("int64", last[r]), 0, extent - 1)
    )
    return counted(inside, {0: total})


def masked_scatter(x: Value, mask: Value, source: Value) -> Value:
    """x with the elements of `source`, in their order, where the mask of its shape is true.

    The mask is counted without the last dimensions along which it repeats itself. Where it is
    true more often than there are elements, the last one is taken again.
    """
    kept = moving(mask)
    depth = kept[-1] + 1 if kept else 0
    rows, inner = prod(x.shape[:depth]), prod(x.shape[depth:])
    for axis in range(depth, mask.rank):
        mask = along(mask, axis, 0, 1)
    flags, given = reshape(mask, [rows]), reshape(source, [source.elements])
    data, before = reshape(x, [rows, inner]), cumulative(cast(flags, "int32"), 0, "sum")

    def body(r: Elem, j: Elem) -> Elem:
        place = (cast_to("int64", before[r]) - 1) * inner + j
        element = given[clamp(place, 0, source.elements - 1)]
        return where(flags[r], element, data[r, j])

    return reshape(x.builder.compute("masked_scatter", [rows, inner], body, dtype=x.dtype), x.shape)


def nonzero(x: Value) -> Value:
    """The indices of the elements that are not 0, one column each."""
    places = positions(cast(reshape(x, [x.elements]), "bool"))
    strides = [prod(x.shape[axis + 1 :]) for axis in range(x.rank)]

    def body(axis: Elem, r: Elem) -> Elem:
        index = constant(0, "int64")
        for number, (stride, extent) in enumerate(zip(strides, x.shape, strict=True)):
            index = where(axis.equals(number), places[r] // stride % extent, index)
        return index

    indices = x.builder.compute("indices", (x.rank, x.elements), body, dtype="int64")
    return counted(indices, {1: places.counts[0]})


def compress(x: Value, condition: Value, axis: int) -> Value:
    """Slices along a dimension where a row of bools, which may end early, is true."""
    places = positions(condition)
    result = gather(x, replace(places, counts={}), axis)
    return counted(result, {axis: places.counts[0]} if places.counts else {})


@dataclass(frozen=True, kw_only=True)
class Distinct:
    """The distinct rows of a matrix, with the number of them as count of the first dimension."""

    rows: Value  # [n, m]
    places: Value  # [n], int64: of the first row of each kind
    inverse: Value  # [n], int64: which of them each row of the matrix is
    repeats: Value  # [n], int64: how often each occurs


def distinct(x: Value, *, ascending: bool) -> Distinct:
    """Of the rows of x [n, m]; in the order of their first occurrences unless `ascending`,
    which compares them element by element, NaN as the greatest.

    Raises ValueError for more rows than are compared with each other.
    """
    builder, (n, m) = x.builder, x.shape
    if n > _COMPARED:
        raise ValueError(f"{n} elements or slices are compared, the limit is {_COMPARED}")

    def column(i: Elem, j: Elem, c: Elem) -> Elem:
        return where(same(x[i, c], x[j, c]), m, cast_to("int32", c))

    # Of each pair of rows the first column in which they differ.
    apart = builder.reduce("apart", "min", (n, n), (m,), column, dtype="int32")

    def equal(i: Elem, j: Elem) -> Elem:
        return apart[i, j] >= m

    firsts = builder.reduce(
        "firsts", "min", (n,), (n,), lambda i, j: where(equal(i, j), cast_to("int32", j), n - 1)
    )

    def is_first(j: Elem) -> Elem:
        return firsts[j].equals(cast_to("int32", j))

    def before(j: Elem, i: Elem) -> Elem:
        """Whether the kind of row j, a first one, comes before that of row i."""
        if not ascending:
            return j < cast_to("int64", firsts[i])
        place = clamp(cast_to("int64", apart[i, j]), 0, m - 1)
        return ~equal(i, j) & after(x[i, place], x[j, place])

    inverse = builder.reduce(
        "inverse",
        "sum",
        (n,),
        (n,),
        lambda i, j: where(is_first(j) & before(j, i), constant(1, "int32"), 0),
    )

    def place(r: Elem, j: Elem) -> Elem:
        is_own = is_first(j) & inverse[j].equals(cast_to("int32", r))
        return where(is_own, cast_to("int32", j), 0)

    places = cast(builder.reduce("places", "max", (n,), (n,), place), "int64")
    repeats = builder.reduce(
        "repeats",
        "sum",
        (n,),
        (n,),
        lambda r, j: where(inverse[j].equals(cast_to("int32", r)), constant(1, "int32"), 0),
    )
    last = builder.reduce("last", "max", (), (n,), lambda j: inverse[j])
    number = {0: count(x, cast_to("int64", last[()]) + 1)}
    return Distinct(
        rows=counted(gather(x, places, 0), number),
        places=counted(places, number),
        inverse=cast(inverse, "int64"),
        repeats=counted(cast(repeats, "int64"), number),
    )
