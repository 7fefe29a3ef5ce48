"""ATen operators that read or write at places: by strides, slices, indices or between
elements."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from tuner.models.from_torch.call import Call, Convert, Results
from tuner.models.operators import (
    contraction,
    extents,
    indexing,
    movement,
    reduction,
    sampling,
    selection,
)
from tuner.models.operators.elementwise import cast, elementwise
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, unary, where
from tuner.models.operators.values import Value
from tuner.workload.dtypes import FLOATS
from tuner.workload.expression import Reducer

_INTERPOLATIONS: tuple[sampling.Interpolation, ...] = ("linear", "nearest", "cubic")
_PADDINGS: tuple[sampling.Padding, ...] = ("zeros", "border", "reflection")
_REDUCTIONS = {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "mean": "add"}


def as_strided(call: Call) -> Value:
    """Of a tensor whose elements lie in order."""
    x = call.value("self")
    flat = movement.reshape(x, [x.elements])
    offset, strides = call.get("storage_offset") or 0, call["stride"]
    if flat.array is not None:
        places = np.full(call.shape, offset)
        for axis, stride in enumerate(strides):
            shape = [-1 if number == axis else 1 for number in range(len(call.shape))]
            places = places + (stride * np.arange(call.shape[axis])).reshape(shape)
        return call.builder.constant(flat.array[places], x.dtype)

    def access(*i: Elem) -> list[Elem]:
        place = constant(offset, "int64")
        for number, stride in zip(i, strides, strict=True):
            place = place + number * stride
        return [place]

    return flat.view(call.shape, access)


def diagonal(call: Call) -> Value:
    """The last dimension of the result runs along a diagonal of two others."""
    x, offset = call.value("self"), call.get("offset", 0)
    first, second = call.get("dim1", 0) % x.rank, call.get("dim2", 1) % x.rank
    rest = [axis for axis in range(x.rank) if axis not in (first, second)]
    x = movement.transpose(x, [*rest, first, second])
    down, right = max(-offset, 0), max(offset, 0)
    if x.array is not None:
        return call.builder.constant(np.diagonal(x.array, offset, -2, -1), x.dtype)
    return x.view(call.shape, lambda *i: [*i[:-1], i[-1] + down, i[-1] + right])


def unfold(call: Call) -> Value:
    """Windows along a dimension, which overlap where they step by less than their size; the
    last dimension of the result runs within a window."""
    x, size, step = call.value("self"), call["size"], call["step"]
    if x.rank == 0:
        return movement.reshape(x, call.shape)
    axis = call["dimension"] % x.rank
    if x.array is not None:
        windows = np.lib.stride_tricks.sliding_window_view(x.array, size, axis)
        chosen = [slice(None, None, step if place == axis else None) for place in range(x.rank)]
        return call.builder.constant(windows[tuple(chosen)], x.dtype)

    def access(*i: Elem) -> list[Elem]:
        return [e * step + i[-1] if place == axis else e for place, e in enumerate(i[:-1])]

    return x.view(call.shape, access)


def slice_scatter(call: Call) -> Value:
    """The tensor with a slice of it replaced."""
    x, updates = call.value("self"), call.value("src", call.dtype)
    axis, step = call.get("dim", 0) % x.rank, call.get("step", 1)
    start = slice(call.get("start"), call.get("end"), step).indices(x.shape[axis])[0]
    return _replaced(x, updates, axis, start, step)


def select_scatter(call: Call) -> Value:
    """The tensor with what has one index of a dimension replaced."""
    x = call.value("self")
    axis = call["dim"] % x.rank
    updates = movement.unsqueeze(call.value("src", call.dtype), [axis])
    return _replaced(x, updates, axis, call["index"] % x.shape[axis], 1)


def _replaced(x: Value, updates: Value, axis: int, start: int, step: int) -> Value:
    count = updates.shape[axis]

    def body(*i: Elem) -> Elem:
        distance = i[axis] - start
        source = [*i]
        source[axis] = clamp(distance // step, 0, count - 1)
        is_new = (distance >= 0) & (distance < count * step) & (distance % step).equals(0)
        return where(is_new, updates[tuple(source)], x[i])

    return x.builder.compute("replaced", x.shape, body, dtype=x.dtype)


def as_strided_scatter(call: Call) -> Value:
    """The tensor, whose elements lie in order, with those that a view by strides has replaced."""
    x, updates = call.value("self"), call.value("src", call["self"].dtype)
    number = np.arange(updates.elements).reshape(updates.shape)
    sources = np.full(x.elements, -1)
    places = np.full(updates.shape, call.get("storage_offset") or 0)
    for axis, stride in enumerate(call["stride"]):
        shape = [-1 if place == axis else 1 for place in range(updates.rank)]
        places = places + stride * np.arange(updates.shape[axis]).reshape(shape)
    sources[places] = number
    return _replaced_by(x, updates, sources.reshape(x.shape))


def diagonal_scatter(call: Call) -> Value:
    """The tensor with a diagonal of two dimensions replaced."""
    x, updates = call.value("self"), call.value("src", call["self"].dtype)
    axes = call.get("dim1", 0) % x.rank, call.get("dim2", 1) % x.rank
    sources = np.full(x.shape, -1)
    places = np.diagonal(np.arange(x.elements).reshape(x.shape), call.get("offset", 0), *axes)
    sources.reshape(-1)[places] = np.arange(updates.elements).reshape(updates.shape)
    return _replaced_by(x, updates, sources)


def _replaced_by(x: Value, updates: Value, sources: np.ndarray[Any, Any]) -> Value:
    """The tensor with the updates, counted in order, that each place names; -1 for none."""
    flat = movement.reshape(updates, [updates.elements])
    chosen = x.builder.constant(sources.astype(np.int32))

    def body(e: Elem, number: Elem) -> Elem:
        return where(number >= 0, flat[clamp(cast_to("int64", number), 0, flat.elements - 1)], e)

    return elementwise("replaced", body, x, chosen)


def index_put(call: Call) -> Value:
    """The tensor with values where integers say, or where a mask is true.

    Of places whose first dimension has a count those that are there.
    """
    x, tensors = call.value("self"), call["indices"]
    values = call.value("values", x.dtype)
    given = [axis for axis, tensor in enumerate(tensors) if tensor is not None]
    if any(tensors[axis].dtype == "bool" for axis in given):
        return _masked(call, x, tensors[given[0]], given, values)
    places = movement.broadcast_shape(*(tensors[axis].shape for axis in given))
    late = [tensors[axis].counts[0] for axis in given if tensors[axis].counts]
    each = math.prod(places[1:])
    there = extents.count(x, extents.scalar(late[0]) * each) if late else None
    values, tensors = extents.whole(values), [t and extents.whole(t) for t in tensors]
    count = math.prod(places)
    flat = [movement.reshape(movement.expand(tensors[axis], places), [count]) for axis in given]
    rest = [axis for axis in range(x.rank) if axis not in given]
    kept = [x.shape[axis] for axis in rest]
    front = given[0] if given == list(range(given[0], given[-1] + 1)) else 0
    spread = movement.expand(values, [*kept[:front], *places, *kept[front:]])
    inner = range(front, front + len(places))
    outer = [axis for axis in range(spread.rank) if axis not in inner]
    updates = movement.reshape(movement.transpose(spread, [*inner, *outer]), [count, *kept])
    order = [*given, *rest]
    how = "add" if call.get("accumulate") else "none"
    result = indexing.scatter_slices(movement.transpose(x, order), flat, updates, how, there)
    return movement.transpose(result, [order.index(axis) for axis in range(x.rank)])


def _masked(call: Call, x: Value, mask: Value, given: list[int], values: Value) -> Value:
    """One value, or several in the order of the places where the mask is true."""
    if len(given) > 1:
        raise call.refusal("puts values by a mask and other indices")
    axis, is_added = given[0], bool(call.get("accumulate"))
    outer, rest = x.shape[:axis], x.shape[axis + mask.rank :]
    shape = [*(1,) * (axis + 1 + len(rest) - values.rank), *values.shape]
    values = movement.reshape(extents.whole(values), shape)
    count = shape[axis]
    if not values.elements:
        return x

    def put_in(e: Elem, flag: Elem, value: Elem) -> Elem:
        return where(flag, e + value if is_added else value, e)

    if count == 1:
        spread = movement.reshape(mask, [*mask.shape, *(1,) * len(rest)])
        values = movement.reshape(values, [*shape[:axis], *(1,) * mask.rank, *shape[axis + 1 :]])
        return elementwise("masked", put_in, x, spread, values)
    flags = movement.reshape(mask, [mask.elements])
    rows = movement.reshape(x, [*outer, mask.elements, *rest])
    values = movement.expand(values, [*outer, count, *rest])
    before = reduction.cumulative(cast(flags, "int32"), 0, "sum")

    def body(*i: Elem) -> Elem:
        source = [*i]
        source[axis] = clamp(cast_to("int64", before[i[axis]]) - 1, 0, count - 1)
        return put_in(rows[i], flags[i[axis]], values[tuple(source)])

    put = x.builder.compute("masked", rows.shape, body, dtype=x.dtype)
    return movement.reshape(put, x.shape)


def masked_scatter(call: Call) -> Value:
    x = movement.expand(call.value("self"), call.shape)
    mask, source = call.value("mask", "bool"), call.value("source")
    return selection.masked_scatter(x, movement.expand(mask, call.shape), source)


def index_reduce(call: Call) -> Value:
    """Slices combined with those that a row of integers names."""
    x, source = call.value("self"), call.value("source")
    axis = call["dim"] % x.rank
    shape = [source.shape[axis] if place == axis else 1 for place in range(x.rank)]
    indices = movement.expand(movement.reshape(call.value("index"), shape), source.shape)
    return scatter_reduce(
        replace(call, arguments={**call.arguments, "index": indices, "src": source})
    )


def scatter_reduce(call: Call) -> Value:
    x, indices, updates = call.value("self"), call.value("index"), call.value("src")
    axis, name = call["dim"] % x.rank, call["reduce"]
    hits = indexing.scatter_elements(
        movement.expand(call.builder.constant(0, "int32"), x.shape),
        indices,
        movement.expand(call.builder.constant(1, "int32"), indices.shape),
        axis,
        "add",
    )
    if not call.get("include_self", True):
        neutral = {"sum": 0, "mean": 0, "prod": 1, "amax": -math.inf, "amin": math.inf}[name]
        x = elementwise("own", lambda e, h: where(h > 0, neutral, e), x, hits)
    result = indexing.scatter_elements(x, indices, updates, axis, _REDUCTIONS[name])
    if name != "mean":
        return result
    own = 1 if call.get("include_self", True) else 0

    def averaged(e: Elem, h: Elem) -> Elem:
        count = cast_to(e.dtype, where(h > 0, h + own, 1))
        return e / count if e.dtype in FLOATS else e // count

    return elementwise("mean", averaged, result, hits)


def embedding_bag(call: Call) -> Results:
    """Sums, means or the greatest of rows, from each offset to the next, without those of the
    padding's index. Bags without rows are 0."""
    table, indices, offsets = call.value("weight"), call.value("indices"), call.value("offsets")
    mode, weights = call.get("mode", 0), call.get("per_sample_weights")
    padding, is_greatest = call.get("padding_idx", -1), mode == 2
    bags, count = call.shape[0], indices.elements
    builder, shape = call.builder, [bags, table.shape[1]]

    def pointer(bag: Elem) -> Elem:
        own = cast_to("int64", offsets[clamp(bag, 0, offsets.elements - 1)])
        return where(bag < offsets.elements, own, count)

    pointers = builder.compute("pointers", [bags + 1], pointer, dtype="int64")

    def counts(bag: Elem, k: Elem) -> Elem:
        is_own = (pointers[bag] <= k) & (k < pointers[bag + 1])
        return is_own if padding == -1 else is_own & indices[k].differs(padding)

    def body(bag: Elem, d: Elem, k: Elem) -> Elem:
        element = table[indexing.position(indices[k], table.shape[0]), d]
        if weights is not None:
            element = element * weights[k]
        return where(counts(bag, k), element, -math.inf if is_greatest else 0)

    reducer: Reducer = "max" if is_greatest else "sum"
    total = builder.reduce("embedding_bag", reducer, shape, [count], body, dtype=table.dtype)
    if mode == 0:
        return (total, None, None, None)
    lengths = builder.reduce(
        "bag_size", "sum", [bags], [count], lambda bag, k: cast_to("int32", counts(bag, k))
    )
    sizes = movement.reshape(cast(lengths, table.computed_in), [bags, 1])
    if is_greatest:
        result = elementwise("greatest", lambda e, n: where(n > 0, e, 0), total, sizes)
    else:
        result = elementwise("mean", lambda e, n: e / where(n > 1, n, 1), total, sizes)
    return (result, None, None, None)


def grid_sample(call: Call) -> Value:
    return sampling.grid_sample(
        call.value("input"),
        call.value("grid"),
        _INTERPOLATIONS[call["interpolation_mode"]],
        _PADDINGS[call["padding_mode"]],
        align_corners=bool(call["align_corners"]),
        cubic_inside=False,
    )


def columns_to_image(call: Call) -> Value:
    return contraction.columns_to_image(
        call.value("self"),
        sizes=call["output_size"],
        kernel=call["kernel_size"],
        strides=call["stride"],
        pads=list(call["padding"]) * 2,
        dilations=call["dilation"],
    )


def distances(call: Call) -> Value:
    """Between all rows of two tensors [..., rows, width], by a p-norm."""
    lead = movement.broadcast_shape(call["x1"].shape[:-2], call["x2"].shape[:-2])
    a, b = (
        movement.expand(call.value(name), [*lead, *call[name].shape[-2:]]) for name in ("x1", "x2")
    )

    def difference(*places: Elem) -> Elem:
        *outer, i, j, d = places
        return a[(*outer, i, d)] - b[(*outer, j, d)]

    return _norms(call, a.shape[-1], difference)


def distances_of_pairs(call: Call) -> Value:
    """Between each row of a matrix and those behind it, pair by pair, by a p-norm."""
    x = call.value("self")
    first, second = (call.builder.constant(side) for side in np.triu_indices(x.shape[0], 1))

    def difference(pair: Elem, d: Elem) -> Elem:
        rows = (indexing.position(side[pair], x.shape[0]) for side in (first, second))
        a, b = (x[row, d] for row in rows)
        return a - b

    return _norms(call, x.shape[1], difference)


def _norms(call: Call, width: int, difference: Callable[..., Elem]) -> Value:
    """The p-norms of differences along their last dimension."""
    p = float(call.get("p", 2))

    def power(*places: Elem) -> Elem:
        size = unary("abs", difference(*places))
        if p == 0:
            return cast_to(size.dtype, size.differs(0))
        if p in (1.0, math.inf):
            return size
        return size * size if p == 2 else size**p

    reducer: Reducer = "max" if p == math.inf else "sum"
    total = call.builder.reduce("distances", reducer, call.shape, [width], power, dtype=call.dtype)
    if p in (0.0, 1.0, math.inf):
        return total
    return elementwise("root", lambda e: unary("sqrt", e) if p == 2 else e ** (1 / p), total)


TABLE: Mapping[str, Convert] = {
    "aten._cdist_forward.default": distances,
    "aten._embedding_bag.default": embedding_bag,
    "aten._embedding_bag_forward_only.default": embedding_bag,
    "aten._pdist_forward.default": distances_of_pairs,
    "aten.as_strided.default": as_strided,
    "aten.as_strided_scatter.default": as_strided_scatter,
    "aten.col2im.default": columns_to_image,
    "aten.diagonal.default": diagonal,
    "aten.diagonal_scatter.default": diagonal_scatter,
    "aten.grid_sampler_2d.default": grid_sample,
    "aten.grid_sampler_3d.default": grid_sample,
    "aten.index_put.default": index_put,
    "aten.index_reduce.default": index_reduce,
    "aten.masked_scatter.default": masked_scatter,
    "aten.scatter_reduce.two": scatter_reduce,
    "aten.select_scatter.default": select_scatter,
    "aten.slice_scatter.default": slice_scatter,
    "aten.unfold.default": unfold,
}
