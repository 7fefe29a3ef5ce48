"""Operators that read or write where integer tensors say."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from tuner.models.operators.movement import along, pad, reshape
from tuner.models.operators.scalars import (
    Elem,
    Operand,
    cast_to,
    clamp,
    constant,
    maximum,
    minimum,
    where,
)
from tuner.models.operators.values import Value
from tuner.workload.dtypes import INTEGER_RANGES, DType
from tuner.workload.expression import Reducer, Var, walk
from tuner.workload.scalar_operators import identity


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
            first = int(flat[0]) if flat.size else 0
            return reshape(along(x, axis, first, flat.size, step), shape)
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
    row = _rows(indices, x.shape[axis])
    shorter = [
        number
        for number, (extent, whole) in enumerate(zip(indices.shape, x.shape, strict=True))
        if number != axis and extent < whole
    ]

    def places(i: Sequence[Elem], k: Elem) -> tuple[Elem, ...]:
        inside = [*i]
        inside[axis] = k
        for number in shorter:
            inside[number] = clamp(i[number], 0, indices.shape[number] - 1)
        return tuple(inside)

    def exists(i: Sequence[Elem]) -> Elem:
        has_updates = constant(True, "bool")
        for number in shorter:
            has_updates = has_updates & (i[number] < indices.shape[number])
        return has_updates

    return combined(
        x,
        Updates(
            count=indices.shape[axis],
            axis=axis,
            row=lambda i, k: row(places(i, k)),
            value=lambda i, k: updates[places(i, k)],
            exists=exists,
        ),
        reduction,
    )


def scatter_nd(
    x: Value,
    indices: Value,
    updates: Value,
    reduction: str = "none",
    there: Value | None = None,
) -> Value:
    """The last dimension of the indices is a place in x, where a slice of updates goes. Of
    these only the first are there, as many as the scalar `there` says (default: all)."""
    depth = indices.shape[-1]
    count = prod(indices.shape[:-1])
    places = reshape(indices, [count, depth])
    slices = reshape(updates, [count, *x.shape[depth:]])
    numbers = [along(places, 1, number, 1, 1) for number in range(depth)]
    flat = [reshape(number, [count]) for number in numbers]
    return scatter_slices(x, flat, slices, reduction, there)


def scatter_slices(
    x: Value,
    places: Sequence[Value],
    updates: Value,
    reduction: str = "none",
    there: Value | None = None,
) -> Value:
    """x with slice k of the updates where the k-th elements of `places` say, an index for
    each of the first dimensions of x; `there` as `scatter_nd` has it."""
    depth, count = len(places), updates.shape[0]
    leading, rest = x.shape[:depth], x.shape[depth:]
    total = prod(leading)

    def number(k: Elem) -> Elem:
        row = constant(0, "int64")
        for extent, place in zip(leading, places, strict=True):
            row = row * extent + position(place[k], extent)
        if there is None:
            return row
        return where(k < cast_to("int64", there[(0,) * there.rank]), row, total)

    rows = x.builder.compute("rows", [count], number, dtype=_dtype_of_rows(total + 1))
    flat = reshape(x, [total, *rest])
    if there is not None:  # one more row takes the updates that are not there
        flat = pad(flat, [0] * flat.rank, [1, *(0 for _ in rest)], "constant")
    result = combined(
        flat,
        Updates(
            count=count,
            axis=0,
            row=lambda _, k: cast_to("int64", rows[k]),
            value=lambda i, k: updates[(k, *i[1:])],
        ),
        reduction,
    )
    return reshape(result if there is None else along(result, 0, 0, total), x.shape)


def moving(x: Value) -> list[int]:
    """The dimensions of a view or an array along which it does not repeat what it reads."""
    if x.array is not None:
        return [number for number, step in enumerate(x.array.strides) if step]
    names = {node.name for place in x.access for node in walk(place) if isinstance(node, Var)}
    return [number for number in range(x.rank) if str(number) in names]


def _rows(indices: Value, extent: int) -> Callable[[Sequence[Elem]], Elem]:
    """The row of the index at some places, stored: then terms that name their row are known
    as such. Dimensions along which indices are repeated are left out."""
    kept = moving(indices)

    def stored(*i: Elem) -> Elem:
        places: list[Operand] = [0] * indices.rank
        for number, place in zip(kept, i, strict=True):
            places[number] = place
        return position(indices[tuple(places)], extent)

    shape = [indices.shape[number] for number in kept]
    rows = indices.builder.compute("rows", shape, stored, dtype=_dtype_of_rows(extent))
    return lambda places: cast_to("int64", rows[tuple(places[number] for number in kept)])


def _dtype_of_rows(count: int) -> DType:
    return "int32" if count <= INTEGER_RANGES["int32"][1] else "int64"


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


@dataclass(frozen=True, kw_only=True)
class Updates:
    """So many updates of a tensor, of which each names its row along one axis."""

    count: int
    axis: int
    row: Callable[[Sequence[Elem], Elem], Elem]  # of update k, at the other indices of i
    value: Callable[[Sequence[Elem], Elem], Elem]  # likewise
    # whether there are any at the other indices of i
    exists: Callable[[Sequence[Elem]], Elem] = lambda i: constant(True, "bool")

    def reduced(
        self, name: str, reducer: Reducer, x: Value, dtype: DType, term: Callable[..., Elem]
    ) -> Value:
        """The terms at (i, k) reduced into the rows that they name, in the shape of x."""
        neutral = constant(identity(reducer, dtype).value, dtype)

        def body(*places: Elem) -> Elem:
            *i, k = places
            own = where(self.exists(i), term(i, k), neutral)
            return where(self.row(i, k).equals(i[self.axis]), own, neutral)

        return x.builder.reduce(name, reducer, x.shape, [self.count], body, dtype=dtype)


def combined(x: Value, updates: Updates, reduction: str) -> Value:
    """Each element of x with those of the updates that name it."""
    builder = x.builder
    if reduction == "none":
        last = updates.reduced("last_update", "max", x, "int32", lambda i, k: cast_to("int32", k))

        def chosen(*i: Elem) -> Elem:
            k = cast_to("int64", last[i])
            update = updates.value(i, clamp(k, 0, updates.count - 1))
            return where(k >= 0, update, x[i])

        return builder.compute("scatter", x.shape, chosen, dtype=x.dtype)
    reducer, combine = _COMBINED[reduction]
    # Narrow dtypes are combined in what they are computed in.
    summed = updates.reduced("updates", reducer, x, x.computed_in, updates.value)
    return builder.compute("scatter", x.shape, lambda *i: combine(x[i], summed[i]), dtype=x.dtype)


_COMBINED: Mapping[str, tuple[Reducer, Callable[[Elem, Elem], Elem]]] = {
    "add": ("sum", lambda a, b: a + b),
    "mul": ("prod", lambda a, b: a * b),
    "max": ("max", maximum),
    "min": ("min", minimum),
}
