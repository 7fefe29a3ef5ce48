"""Operators that move elements and compute nothing: most are views, and make no node."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from tuner.models.operators.scalars import Elem, Operand, clamp, constant, maximum, minimum, where
from tuner.models.operators.values import Value, Written

_JOINED = 12  # tensors that one node concatenates


def order_like(values: Sequence[Value], shape: Sequence[int]) -> tuple[int, ...]:
    """The order in which the operands of this shape are stored, the first that only
    permutes its tensor deciding."""
    for value in values:
        if value.shape == tuple(shape) and value.array is None and value.order is not None:
            units = [number for number in range(value.rank) if number not in value.order]
            return (*units, *value.order)
    return tuple(range(len(shape)))


def broadcast_shape(*shapes: Sequence[int]) -> tuple[int, ...]:
    """Raises ValueError where they do not broadcast, as NumPy does."""
    return np.broadcast_shapes(*(tuple(shape) for shape in shapes))


def expand(x: Value, shape: Sequence[int]) -> Value:
    """The value broadcast to a shape."""
    shape = broadcast_shape(x.shape, shape)
    if shape == x.shape:
        return x
    if x.array is not None:
        if x.array.size == 1:
            return x.builder.constant(np.broadcast_to(x.array, shape), x.dtype)
        x = x.builder.stored(x)
    added = len(shape) - x.rank
    return x.view(
        shape,
        lambda *i: [
            0 if extent == 1 else place for extent, place in zip(x.shape, i[added:], strict=True)
        ],
    )


def transpose(x: Value, order: Sequence[int]) -> Value:
    """Dimension k of the result is dimension `order[k]` of x."""
    if x.array is not None:
        return _with_integers(x, x.builder.constant(np.transpose(x.array, order), x.dtype), order)
    places = np.argsort(order)
    return x.view([x.shape[axis] for axis in order], lambda *i: [i[place] for place in places])


def _with_integers(x: Value, moved: Value, order: Sequence[int]) -> Value:
    """A transposed constant with the integers that x was made of in the same order."""
    if x.integers is None:
        return moved
    axis = x.integers.axis
    integers = replace(
        x.integers,
        value=transpose(x.integers.value, order),
        axis=None if axis is None else list(order).index(axis),
    )
    return replace(moved, made=integers)


def reshape(x: Value, shape: Sequence[int]) -> Value:
    """The elements counted in order, in another shape. A copy is made only where dimensions
    are joined that do not lie beside each other."""
    reshaped = _reshaped(x, tuple(shape))
    if isinstance(x.made, Written):  # slices are counted in the order of the elements
        return replace(reshaped, made=x.made)
    if x.integers is None or x.integers.axis is not None:
        return reshaped
    integers = replace(x.integers, value=_reshaped(x.integers.value, tuple(shape)))
    return replace(reshaped, made=integers)


def _reshaped(x: Value, shape: tuple[int, ...]) -> Value:
    if prod(shape) != x.elements:
        raise ValueError(f"{x.elements} elements do not fill the shape {list(shape)}")
    if shape == x.shape:
        return x
    if x.array is not None:
        return x.builder.constant(x.array.reshape(shape), x.dtype)
    grouped = list(groups(x.shape, shape))
    joined = [old for old, _ in grouped if len(old) > 1]
    if not joined:
        return _split(x, shape, grouped)
    order = x.order
    if order is None or not all(_adjacent(old, x.shape, order) for old in joined):
        return x.builder.alias(x.builder.stored(x.materialized()), shape or (1,)).view(
            shape, lambda *i: i or (0,)
        )
    return _split_joined(x, shape, grouped, order)


def groups(old: Sequence[int], new: Sequence[int]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Dimensions of the two shapes that hold the same elements between them, units aside."""
    first = [number for number, extent in enumerate(old) if extent != 1]
    second = [number for number, extent in enumerate(new) if extent != 1]
    groups = []
    while first:
        mine, theirs = [first.pop(0)], [second.pop(0)]
        while (a := prod(old[n] for n in mine)) != (b := prod(new[n] for n in theirs)):
            if a < b:
                mine.append(first.pop(0))
            else:
                theirs.append(second.pop(0))
        groups.append((tuple(mine), tuple(theirs)))
    return groups


def _adjacent(dimensions: Sequence[int], shape: Sequence[int], order: Sequence[int]) -> bool:
    """Whether the dimensions are stored one after the other, in this order."""
    longer = [number for number in order if shape[number] > 1]
    begin = longer.index(dimensions[0])
    return tuple(longer[begin : begin + len(dimensions)]) == tuple(dimensions)


def _split(
    x: Value,
    shape: tuple[int, ...],
    groups: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
) -> Value:
    """A view with each dimension of x divided into those of its group."""

    def access(*i: Elem) -> list[Operand]:
        places: list[Operand] = [0] * x.rank
        for (old,), new in groups:
            place = constant(0, "int64")
            for number in new:
                place = place * shape[number] + i[number]
            places[old] = place
        return places

    return x.view(shape, access)


def _split_joined(
    x: Value,
    shape: tuple[int, ...],
    groups: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    order: Sequence[int],
) -> Value:
    """The same where dimensions that lie beside each other are one dimension first."""
    of = {old[0]: (prod(x.shape[n] for n in old), new) for old, new in groups}
    leading = [number for number in order if number in of]
    flat = x.builder.alias(x.builder.stored(x), [of[number][0] for number in leading] or [1])
    flat_groups = [((place,), of[number][1]) for place, number in enumerate(leading)]
    return _split(flat, shape, flat_groups)


def take_slice(
    x: Value, starts: Sequence[int], steps: Sequence[int], shape: Sequence[int]
) -> Value:
    """Elements `starts + steps * i` of each dimension, all of them inside."""
    if x.array is not None:
        places = [
            start + step * np.arange(extent)
            for start, step, extent in zip(starts, steps, shape, strict=True)
        ]
        return x.builder.constant(x.array[np.ix_(*places)] if places else x.array, x.dtype)
    return x.view(
        shape,
        lambda *i: [
            place * step + start for place, start, step in zip(i, starts, steps, strict=True)
        ],
    )


def along(x: Value, axis: int, start: int, count: int, step: int = 1) -> Value:
    """`count` elements of one dimension from `start` on."""
    starts, steps, shape = [0] * x.rank, [1] * x.rank, list(x.shape)
    starts[axis], steps[axis], shape[axis] = start, step, count
    return take_slice(x, starts, steps, shape)


def flip(x: Value, axis: int) -> Value:
    return along(x, axis, x.shape[axis] - 1, x.shape[axis], -1)


def concatenate(values: Sequence[Value], axis: int) -> Value:
    values = [value for value in values if value.shape[axis]] or values[:1]
    if len(values) == 1:
        return values[0]
    if len(values) > _JOINED:  # one expression reads only so many tensors
        first = concatenate(values[:_JOINED], axis)
        return concatenate([first, *values[_JOINED:]], axis)
    builder = values[0].builder
    if all(value.array is not None for value in values):
        arrays = [value.array for value in values if value.array is not None]
        return builder.constant(np.concatenate(arrays, axis), values[0].dtype)
    shape = list(values[0].shape)
    shape[axis] = sum(value.shape[axis] for value in values)
    ends = np.cumsum([value.shape[axis] for value in values]).tolist()
    begins = [0, *ends[:-1]]

    def body(*i: Elem) -> Elem:
        parts = []
        for value, begin in zip(values, begins, strict=True):
            places = [*i]
            places[axis] = i[axis] - begin
            parts.append(value.number(tuple(places), guarded=True))
        chosen = parts[-1]
        for part, end in zip(reversed(parts[:-1]), reversed(ends[:-1]), strict=True):
            chosen = where(i[axis] < end, part, chosen)
        return chosen

    order = _common_order(values)
    return builder.compute("concatenate", shape, body, dtype=values[0].dtype, order=order)


def _common_order(values: Sequence[Value]) -> tuple[int, ...]:
    """The order in which the largest value is stored."""
    largest = max(values, key=lambda value: value.elements)
    return order_like([largest], largest.shape)


def split(x: Value, axis: int, sizes: Sequence[int]) -> tuple[Value, ...]:
    begins = [0, *np.cumsum(sizes).tolist()]
    return tuple(along(x, axis, begin, size) for begin, size in zip(begins, sizes, strict=False))


def pad(
    x: Value, before: Sequence[int], after: Sequence[int], mode: str, value: float = 0
) -> Value:
    """Of mode `constant`, `edge`, `reflect` or `wrap`; negative widths cut off."""
    cut_front = [max(-width, 0) for width in before]
    cut_back = [max(-width, 0) for width in after]
    if any(cut_front) or any(cut_back):
        shape = [e - a - b for e, a, b in zip(x.shape, cut_front, cut_back, strict=True)]
        x = take_slice(x, cut_front, [1] * x.rank, shape)
    before, after = [max(width, 0) for width in before], [max(width, 0) for width in after]
    shape = [e + a + b for e, a, b in zip(x.shape, before, after, strict=True)]
    if tuple(shape) == x.shape:
        return x

    def body(*i: Elem) -> Elem:
        places = [place - width for place, width in zip(i, before, strict=True)]
        if mode == "constant":
            return x.padded(*places, pad=value)
        inside = [
            _inside(place, extent, mode) if extent != total else place
            for place, extent, total in zip(places, x.shape, shape, strict=True)
        ]
        return x[tuple(inside)]

    order = order_like([x], x.shape)
    return x.builder.compute("pad", shape, body, dtype=x.dtype, order=order)


def _inside(place: Elem, extent: int, mode: str) -> Elem:
    if mode == "edge":
        return clamp(place, 0, extent - 1)
    if mode == "wrap":
        return place % extent
    if mode == "reflect":  # without repeating the edge
        mirrored = maximum(place, -place)
        last = constant(extent - 1, "int64")
        return clamp(minimum(mirrored, last * 2 - mirrored), 0, extent - 1)
    raise ValueError(f"padding of mode {mode!r}; known are constant, edge, reflect, wrap")


def tile(x: Value, repeats: Sequence[int]) -> Value:
    shape = [extent * count for extent, count in zip(x.shape, repeats, strict=True)]
    if x.array is not None:
        return x.builder.constant(np.tile(x.array, repeats), x.dtype)
    return x.view(
        shape,
        lambda *i: [
            0 if extent == 1 else place if count == 1 else place % extent
            for place, extent, count in zip(i, x.shape, repeats, strict=True)
        ],
    )


def roll(x: Value, shift: int, axis: int) -> Value:
    extent = x.shape[axis]
    shift %= extent
    if shift == 0:
        return x
    return concatenate(
        [along(x, axis, extent - shift, shift), along(x, axis, 0, extent - shift)], axis
    )


def triangle(x: Value, diagonal: int | Elem, *, upper: bool) -> Value:
    """The matrices' elements on and above (or below) a diagonal, zeros elsewhere."""

    def body(*i: Elem) -> Elem:
        distance = i[-1] - i[-2]
        kept = distance >= diagonal if upper else distance <= diagonal
        return where(kept, x[i], 0)

    return x.builder.compute(
        "triangle", x.shape, body, dtype=x.dtype, order=order_like([x], x.shape)
    )


def unsqueeze(x: Value, axes: Sequence[int]) -> Value:
    rank = x.rank + len(axes)
    added = {axis % rank for axis in axes}
    if len(added) < len(axes):
        raise ValueError(f"{list(axes)} name an axis of {rank} dimensions twice")
    extents = iter(x.shape)
    return reshape(x, [1 if number in added else next(extents) for number in range(rank)])


def squeeze(x: Value, axes: Sequence[int]) -> Value:
    dropped = {axis % x.rank for axis in axes} if x.rank else set()
    return reshape(x, [e for number, e in enumerate(x.shape) if number not in dropped])
