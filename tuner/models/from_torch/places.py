"""ATen operators that read or write at places: by strides, slices, indices or between
elements."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tuner.models.from_torch.call import Call, Convert, Results
from tuner.models.operators import contraction, indexing, movement, sampling, selection
from tuner.models.operators.elementwise import cast, elementwise
from tuner.models.operators.scalars import Elem, cast_to, clamp, constant, unary, where
from tuner.models.operators.values import Value
from tuner.workload.expression import (
    FLOATS,
    Reducer,
)

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


def index_put(call: Call) -> Value:
    """The tensor with values where integers say, or where a mask is true."""
    x, tensors = call.value("self"), call["indices"]
    values = call.value("values", x.dtype)
    given = [axis for axis, tensor in enumerate(tensors) if tensor is not None]
    if any(tensors[axis].dtype == "bool" for axis in given):
        return _masked(call, x, tensors[given[0]], given, values)
    places = movement.broadcast_shape(*(tensors[axis].shape for axis in given))
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
    result = indexing.scatter_slices(
        movement.transpose(x, order), flat, updates, "add" if call.get("accumulate") else "none"
    )
    return movement.transpose(result, [order.index(axis) for axis in range(x.rank)])


def _masked(call: Call, x: Value, mask: Value, given: list[int], values: Value) -> Value:
    if len(given) > 1 or values.elements != 1 or call.get("accumulate"):
        raise call.refusal("puts several values by a mask")
    behind = x.rank - given[0] - mask.rank
    spread = movement.reshape(mask, [*mask.shape, *(1,) * behind])
    value = movement.reshape(values, ())
    return elementwise("masked", lambda e, m, v: where(m, v, e), x, spread, value)


def masked_scatter(call: Call) -> Value:
    x = movement.expand(call.value("self"), call.shape)
    mask, source = call.value("mask", "bool"), call.value("source")
    return selection.masked_scatter(x, movement.expand(mask, call.shape), source)


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
    """Sums or means of rows, from each offset to the next."""
    table, indices, offsets = call.value("weight"), call.value("indices"), call.value("offsets")
    mode, weights = call.get("mode", 0), call.get("per_sample_weights")
    if mode > 1:
        raise call.refusal("takes the greatest of its rows; sums and means are taken")
    if call.get("padding_idx", -1) != -1:
        raise call.refusal("leaves out a row")
    bags, count = call.shape[0], indices.elements
    builder, shape = call.builder, [bags, table.shape[1]]

    def pointer(bag: Elem) -> Elem:
        own = cast_to("int64", offsets[clamp(bag, 0, offsets.elements - 1)])
        return where(bag < offsets.elements, own, count)

    pointers = builder.compute("pointers", [bags + 1], pointer, dtype="int64")

    def body(bag: Elem, d: Elem, k: Elem) -> Elem:
        element = table[indexing.position(indices[k], table.shape[0]), d]
        if weights is not None:
            element = element * weights[k]
        return where((pointers[bag] <= k) & (k < pointers[bag + 1]), element, 0)

    total = builder.reduce("embedding_bag", "sum", shape, [count], body, dtype=table.dtype)
    if mode == 1:
        lengths = builder.compute("bag_size", [bags], lambda bag: pointers[bag + 1] - pointers[bag])
        sizes = movement.reshape(cast(lengths, table.computed_in), [bags, 1])
        total = elementwise("mean", lambda e, n: e / where(n > 1, n, 1), total, sizes)
    return (total, None, None, None)


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
    p = float(call["p"])
    lead = movement.broadcast_shape(call["x1"].shape[:-2], call["x2"].shape[:-2])
    a, b = (
        movement.expand(call.value(name), [*lead, *call[name].shape[-2:]]) for name in ("x1", "x2")
    )

    def power(e: Elem) -> Elem:
        size = unary("abs", e)
        if p in (1.0, math.inf):
            return size
        return size * size if p == 2 else size**p

    def body(*places: Elem) -> Elem:
        *outer, i, j, d = places
        return power(a[(*outer, i, d)] - b[(*outer, j, d)])

    if p == 0:
        raise call.refusal("counts what differs")
    reducer: Reducer = "max" if p == math.inf else "sum"
    total = call.builder.reduce(
        "distances", reducer, call.shape, [a.shape[-1]], body, dtype=a.dtype
    )
    if p in (1.0, math.inf):
        return total
    return elementwise("root", lambda e: unary("sqrt", e) if p == 2 else e ** (1 / p), total)


TABLE: Mapping[str, Convert] = {
    "aten._cdist_forward.default": distances,
    "aten._embedding_bag.default": embedding_bag,
    "aten._embedding_bag_forward_only.default": embedding_bag,
    "aten.as_strided.default": as_strided,
    "aten.col2im.default": columns_to_image,
    "aten.diagonal.default": diagonal,
    "aten.grid_sampler_2d.default": grid_sample,
    "aten.grid_sampler_3d.default": grid_sample,
    "aten.index_put.default": index_put,
    "aten.masked_scatter.default": masked_scatter,
    "aten.scatter_reduce.two": scatter_reduce,
    "aten.select_scatter.default": select_scatter,
    "aten.slice_scatter.default": slice_scatter,
    "aten.unfold.default": unfold,
}
