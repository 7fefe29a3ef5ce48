"""Operators that read or write where integer tensors say."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from math import prod

import numpy as np

from tuner.models.operators.movement import along, reshape
from tuner.models.operators.scalars import (
    Elem,
    cast_to,
    clamp,
    constant,
    maximum,
    minimum,
    where,
)
from tuner.models.operators.values import Value
from tuner.workload.expression import (
    FLOATS,
    Reducer,
)


def position(value: Elem, extent: int) -> Elem:
    """An index as stored in a tensor: a negative one counts from the end; one beyond either
    end is taken as the nearest."""
    place = clamp(cast_to("int64", value), -extent, extent - 1)
    return clamp(where(place < 0, place + extent, place), 0, extent - 1)


def gather(x: Value, indices: Value, axis: int) -> Value:
    """Slices of x along one axis, in the shape of the indices."""
    axis %= x.rank
    shape = [*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]]
    if indices.array is not None:
        places = np.asarray(indices.array, np.int64)
        extent = x.shape[axis]
        places = np.where(places < 0, places + extent, places).clip(0, max(extent - 1, 0))
        if x.array is not None:
            return x.builder.constant(np.take(x.array, places, axis), x.dtype)
        flat = places.reshape(-1)
        steps = set(np.diff(flat).tolist())
        if len(steps) <= 1:  # an index, or a slice
            step = steps.pop() if steps else 1
            return reshape(along(x, axis, int(flat[0]), flat.size, step), shape)
        indices = x.builder.constant(places, "int64")

    def body(*i: Elem) -> Elem:
        inner = i[axis : axis + indices.rank]
        place = position(indices[inner], x.shape[axis])
        return x[(*i[:axis], place, *i[axis + indices.rank :])]

    return x.builder.compute("gather", shape, body, dtype=x.dtype)


def gather_elements(x: Value, indices: Value, axis: int) -> Value:
    axis %= x.rank

    def body(*i: Elem) -> Elem:
        places = [*i]
        places[axis] = position(indices[i], x.shape[axis])
        return x[tuple(places)]

    return x.builder.compute("gather_elements", indices.shape, body, dtype=x.dtype)


def gather_nd(x: Value, indices: Value, batch: int) -> Value:
    """The last dimension of the indices is a place in x behind `batch` dimensions that both
    have."""
    depth = indices.shape[-1]
    shape = [*indices.shape[:-1], *x.shape[batch + depth :]]
    outer = indices.rank - 1

    def body(*i: Elem) -> Elem:
        places = [
            position(indices[(*i[:outer], number)], x.shape[batch + number])
            for number in range(depth)
        ]
        return x[(*i[:batch], *places, *i[outer:])]

    return x.builder.compute("gather_nd", shape, body, dtype=x.dtype)


def one_hot(indices: Value, depth: int, off_on: Value, axis: int) -> Value:
    axis %= indices.rank + 1
    shape = [*indices.shape[:axis], depth, *indices.shape[axis:]]

    def body(*i: Elem) -> Elem:
        value = cast_to("int64", indices[(*i[:axis], *i[axis + 1 :])])
        place = where(value < 0, value + depth, value)
        return where(place.equals(i[axis]), off_on[1], off_on[0])

    return indices.builder.compute("one_hot", shape, body, dtype=off_on.dtype)


def scatter_elements(
    x: Value, indices: Value, updates: Value, axis: int, reduction: str = "none"
) -> Value:
    """x with elements replaced (the last one given to a place stays) or combined; the
    other dimensions of the indices may be shorter than x's."""
    axis %= x.rank

    def places(i: Sequence[Elem], k: Elem) -> tuple[Elem, ...]:
        return tuple(
            k if number == axis else clamp(place, 0, extent - 1) if extent < whole else place
            for number, (place, extent, whole) in enumerate(
                zip(i, indices.shape, x.shape, strict=True)
            )
        )

    def hit(i: Sequence[Elem], k: Elem) -> Elem:
        is_hit = position(indices[places(i, k)], x.shape[axis]).equals(i[axis])
        for number, (place, extent) in enumerate(zip(i, indices.shape, strict=True)):
            if number != axis and extent < x.shape[number]:
                is_hit = is_hit & (place < extent)
        return is_hit

    return combined(x, indices.shape[axis], hit, lambda i, k: updates[places(i, k)], reduction)


def scatter_nd(x: Value, indices: Value, updates: Value, reduction: str = "none") -> Value:
    """The last dimension of the indices is a place in x, where a slice of updates goes."""
    depth = indices.shape[-1]
    count = prod(indices.shape[:-1])
    rows = reshape(indices, [count, depth])
    slices = reshape(updates, [count, *x.shape[depth:]])

    def hit(i: Sequence[Elem], k: Elem) -> Elem:
        is_hit = constant(True, "bool")
        for number in range(depth):
            is_hit = is_hit & position(rows[k, number], x.shape[number]).equals(i[number])
        return is_hit

    return combined(x, count, hit, lambda i, k: slices[(k, *i[depth:])], reduction)


def write_slices(
    x: Value, updates: Value, starts: Value | None, axis: int, *, circular: bool
) -> Value:
    """x with the updates along one axis, from a start for each of the first dimension
    (default: 0) on; those beyond the end begin again at 0 if `circular`, else are dropped."""
    extent, count = x.shape[axis], updates.shape[axis]

    def body(*i: Elem) -> Elem:
        place = i[axis]
        if starts is not None:
            place = place - clamp(cast_to("int64", starts[i[0]]), -extent, extent)
        if circular:
            place = (place + extent) % extent
        source = [*i]
        source[axis] = clamp(place, 0, count - 1)
        is_new = (place >= 0) & (place < count)
        return where(is_new, updates[tuple(source)], x[i])

    return x.builder.compute("write_slices", x.shape, body, dtype=x.dtype)


def combined(
    x: Value,
    count: int,
    hit: Callable[[Sequence[Elem], Elem], Elem],
    update: Callable[[Sequence[Elem], Elem], Elem],
    reduction: str,
) -> Value:
    """Each element of x with those of `count` updates that hit it."""
    builder = x.builder
    if reduction == "none":
        last = builder.reduce(
            "last_update",
            "max",
            x.shape,
            [count],
            lambda *p: where(hit(p[:-1], p[-1]), cast_to("int32", p[-1]), -1),
            dtype="int32",
        )

        def chosen(*i: Elem) -> Elem:
            k = cast_to("int64", last[i])
            return where(k >= 0, update(i, clamp(k, 0, count - 1)), x[i])

        return builder.compute("scatter", x.shape, chosen, dtype=x.dtype)
    reducer, combine = _COMBINED[reduction]
    # Narrow dtypes are combined in what they are computed in.
    neutral = {"sum": 0, "prod": 1, "max": -math.inf, "min": math.inf}[reducer]
    if x.dtype not in FLOATS:
        neutral = {"sum": 0, "prod": 1, "max": -(2**63), "min": 2**63 - 1}[reducer]
    summed = builder.reduce(
        "updates",
        reducer,
        x.shape,
        [count],
        lambda *p: where(hit(p[:-1], p[-1]), update(p[:-1], p[-1]), neutral),
        dtype=x.computed_in,
    )
    return builder.compute("scatter", x.shape, lambda *i: combine(x[i], summed[i]), dtype=x.dtype)


_COMBINED: Mapping[str, tuple[Reducer, Callable[[Elem, Elem], Elem]]] = {
    "add": ("sum", lambda a, b: a + b),
    "mul": ("prod", lambda a, b: a * b),
    "max": ("max", maximum),
    "min": ("min", minimum),
}
