"""Extents that are known at run time only, up to a bound that is known at import.

A dimension with a count has its bound as extent. Its first elements are there, as many as
the count says; what lies behind has no meaning until `masked` gives it one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.indexing import gather
from tuner.models.operators.movement import along
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import Elem, Number, Operand, cast_to, clamp, constant, where
from tuner.models.operators.values import Limits, Value
from tuner.workload.bounded import BoundedExtents


def scalar(value: Value) -> Elem:
    """The number of a tensor with one element, as int64."""
    return cast_to("int64", value[(0,) * value.rank])


def counted(value: Value, counts: Mapping[int, Value]) -> Value:
    """The value with run-time extents of some dimensions; those known by now are cut."""
    late: dict[int, Value] = {}
    for axis, count in counts.items():
        if count.array is not None:
            value = along(value, axis, 0, min(int(count.array), value.shape[axis]))
        else:
            late[axis] = count
    return replace(value, counts=late) if value.elements else value


def whole(value: Value) -> Value:
    """The value up to its bounds."""
    return replace(value, counts={}, limits=None) if value.counts or value.limits else value


def count_of(value: Value, axis: int) -> Value:
    """The extent of a dimension as a scalar."""
    if axis in value.counts:
        return value.counts[axis]
    return value.builder.constant(np.array(value.shape[axis], np.int64))


def same_count(left: Value, right: Value) -> bool:
    """Whether both scalars are one tensor's, or one number."""
    if left.array is not None or right.array is not None:
        return left.array is not None and right.array is not None and left.array == right.array
    first, second = (value.builder.stored(value) for value in (left, right))
    return (first.tensor, first.access) == (second.tensor, second.access)


def count(builder_of: Value, number: Elem) -> Value:
    """A scalar of the model that is computed by index arithmetic."""
    return builder_of.builder.compute("count", (), lambda: number, dtype="int64")


def masked(value: Value, fill: Number, axes: Sequence[int] | None = None) -> Value:
    """`fill` behind the counts of some dimensions (default: of all)."""
    chosen = {axis: c for axis, c in value.counts.items() if axes is None or axis in axes}
    if not chosen:
        return whole(value)
    plain = whole(value)

    def body(*i: Elem) -> Elem:
        inside = constant(True, "bool")
        for axis, number in chosen.items():
            inside = inside & (i[axis] < scalar(number))
        return where(inside, plain[i], constant(fill, plain.dtype))

    filled = value.builder.compute("cut", value.shape, body, dtype=value.dtype)
    return replace(filled, format=value.format)


def mean(x: Value, axes: Sequence[int], *, keep: bool) -> Value:
    """The mean of the floats that are there, without counts of its own."""
    late = [x.counts[axis] for axis in axes if axis in x.counts]
    others = prod(x.shape[axis] for axis in axes if axis not in x.counts)

    def divided(e: Elem) -> Elem:
        number = constant(others, "int64")
        for count in late:
            number = number * scalar(count)
        return e / cast_to(e.dtype, number)

    filled = masked(x, 0, axes)
    with x.builder.kernel("mean"):
        total = reduce("mean", "sum", filled, axes, keep=keep)
        return elementwise("mean", divided, total)


def range_of(x: Value, axis: int, start: Elem, step: Operand, bound: int) -> Value:
    """Elements `start + step * i` of a dimension for i below a bound, as far as they are
    inside; those beyond have no meaning."""

    def body(*i: Elem) -> Elem:
        places = [*i]
        places[axis] = clamp(start + i[axis] * step, 0, x.shape[axis] - 1)
        return x[tuple(places)]

    shape = [bound if number == axis else extent for number, extent in enumerate(x.shape)]
    return x.builder.compute("slice", shape, body, dtype=x.dtype)


def joined(values: Sequence[Value], axis: int) -> Value:
    """Concatenation along a dimension of which some have counts: the elements that are
    there, one after the other. Pairs are joined from the front."""
    first, *rest = values
    for second in rest:
        first = _pair(first, second, axis)
    return first


def _pair(left: Value, right: Value, axis: int) -> Value:
    begin = count_of(left, axis)
    shape = [*left.shape]
    shape[axis] += right.shape[axis]
    first, second = whole(left), whole(right)

    def body(*i: Elem) -> Elem:
        mine, theirs = [*i], [*i]
        mine[axis] = clamp(i[axis], 0, first.shape[axis] - 1)
        before = clamp(scalar(begin), 0, first.shape[axis])
        theirs[axis] = clamp(i[axis] - before, 0, second.shape[axis] - 1)
        return where(i[axis] < scalar(begin), first[tuple(mine)], second[tuple(theirs)])

    result = left.builder.compute("concatenate", shape, body, dtype=left.dtype)
    total = count(left, scalar(begin) + scalar(count_of(right, axis)))
    return counted(result, {axis: total})


def gathered(x: Value, indices: Value, axis: int) -> Value:
    """Slices along a dimension with a count, from whose end negative indices count."""
    number = x.counts[axis]

    def place(*i: Elem) -> Elem:
        position = cast_to("int64", indices[i])
        return where(position < 0, position + scalar(number), position)

    inside = x.builder.compute("places", indices.shape, place, dtype="int64")
    return gather(whole(x), inside, axis)


def extents_of(value: Value, axes: Sequence[int]) -> Value:
    """The extents of some dimensions as a tensor, with the limits of its elements."""
    numbers = tuple(count_of(value, axis) for axis in axes)

    def body(place: Elem) -> Elem:
        number = constant(0, "int64")
        for axis, own in enumerate(numbers):
            number = where(place.equals(axis), scalar(own), number)
        return number

    vector = value.builder.compute("shape", (len(numbers),), body, dtype="int64")
    high = np.array([value.shape[axis] for axis in axes], np.int64)
    low = np.where([axis in value.counts for axis in axes], 0, high)
    return replace(vector, limits=Limits(low, high, numbers))


def slice_of(
    x: Value, axis: int, start: Number | Elem, end: Number | Elem, step: int | Elem
) -> Value:
    """Elements of a dimension as Python's slices have them; the arguments and the extent may
    be computed at run time."""
    extent, whole_x = x.shape[axis], whole(x)
    others = {place: number for place, number in x.counts.items() if place != axis}
    numbers = [n for n in (start, end, step) if not isinstance(n, Elem)]
    if len(numbers) == 3 and axis not in x.counts:
        places = range(*slice(*map(int, numbers)).indices(extent))
        return counted(along(whole_x, axis, places.start, len(places), places.step), others)
    size = clamp(scalar(count_of(x, axis)), 0, extent)
    bound = _most(extent, start, end, step)
    if not bound:
        return along(whole_x, axis, 0, 0)
    stride = (
        clamp(step, -extent, extent)
        if isinstance(step, Elem)
        else constant(max(min(step, extent), -extent), "int64")
    )
    forward = stride > 0

    def edge(number: Number | Elem) -> Elem:
        place = number if isinstance(number, Elem) else constant(number, "int64")
        place = clamp(place, -extent - 1, extent + 1)  # beyond which all are alike
        inside = where(place < 0, place + size, place)
        return where(forward, clamp(inside, 0, size), clamp(inside, -1, size - 1))

    begin, stop = edge(start), edge(end)
    apart = where(forward, stop - begin + stride - 1, begin - stop - stride - 1)
    length = apart // where(forward, stride, where(stride.equals(0), 1, -stride))
    total = count(x, clamp(length, 0, bound))
    if not isinstance(start, Elem) and not isinstance(step, Elem) and start >= 0 and step > 0:
        return counted(along(whole_x, axis, int(start), bound, step), {axis: total, **others})
    first = clamp(begin, -1, extent)
    return counted(range_of(whole_x, axis, first, stride, bound), {axis: total, **others})


def _most(extent: int, start: Number | Elem, end: Number | Elem, step: int | Elem) -> int:
    """The greatest number of elements that a slice has of at most `extent`."""
    if isinstance(step, Elem):
        return extent
    length = extent
    if not isinstance(start, Elem) and not isinstance(end, Elem) and step > 0:
        if (start < 0) == (end < 0):
            length = min(extent, max(int(end - start), 0))
        elif start < 0:
            length = min(extent, int(-start))
        if start >= 0:
            length = min(length, max(extent - int(start), 0))
    return -(-length // abs(step)) if step else extent


def as_written(
    labels: Sequence[str], values: Sequence[Value]
) -> tuple[list[str], list[Value], dict[str, BoundedExtents]]:
    """The outputs as a library writes them, with their labels: those with counts up to their
    bounds, zeros behind the counts, and their extents as further outputs `LABEL.extent`."""
    names, filled, bounded = [*labels], [masked(value, 0) for value in values], {}
    for label, value in zip(labels, values, strict=True):
        if value.counts and label not in bounded:
            axes, name = tuple(sorted(value.counts)), f"{label}.extent"
            while name in names:
                name += "_"
            names.append(name)
            filled.append(whole(extents_of(value, axes)))
            bounded[label] = BoundedExtents(axes=axes, extents=name)
    return names, filled, bounded
