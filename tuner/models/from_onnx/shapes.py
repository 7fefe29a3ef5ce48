"""Operators of ONNX that move elements or make tensors of shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from tuner.models.from_onnx.node import Convert, Late, Node, dtype_of
from tuner.models.graph import Array
from tuner.models.operators import indexing, movement
from tuner.models.operators.elementwise import cast
from tuner.models.operators.extents import (
    count,
    count_of,
    counted,
    extents_of,
    range_of,
    same_count,
    scalar,
    slice_of,
    whole,
)
from tuner.models.operators.foreseen import in_each, rows_of, written
from tuner.models.operators.scalars import Elem, clamp, constant, where
from tuner.models.operators.values import PerIteration, Value


def reshape(node: Node) -> Value:
    x, asked = node[0], node.attribute("shape", None)
    asked = node.numbers(1) if asked is None else list(asked)
    if not node.attribute("allowzero", 0):
        asked = [_copied(x, place) if extent == 0 else extent for place, extent in enumerate(asked)]
    if x.counts:
        return _bounded_reshape(node, asked)
    late = [place for place, extent in enumerate(asked) if isinstance(extent, Late)]
    if late and (len(late) > 1 or -1 in asked):
        raise node.late_number(1)
    # The number of elements is known, and with it the only extent that is not.
    shape = [-1 if isinstance(extent, Late) else extent for extent in asked]
    if -1 in shape:
        rest = math.prod(extent for extent in shape if extent != -1)
        shape[shape.index(-1)] = x.elements // rest if rest else 0
    if math.prod(shape) != x.elements:
        raise node.refusal(f"turns the shape {list(x.shape)} into {shape}")
    return movement.reshape(x, shape)


def _copied(x: Value, axis: int) -> int | Late:
    """An extent that stays."""
    return Late(x.shape[axis], x.counts[axis]) if axis in x.counts else x.shape[axis]


def _bounded_reshape(node: Node, asked: Sequence[int | Late]) -> Value:
    """Where the dimension with a count stays, is joined with ones behind it, or is divided:
    the first elements stay the first."""
    x = node[0]
    if len(x.counts) > 1:
        raise node.late_extent()
    ((axis, number),) = x.counts.items()
    own = [
        place
        for place, extent in enumerate(asked)
        if isinstance(extent, Late) and same_count(extent.number, number)
    ]
    open_places = [
        place for place, extent in enumerate(asked) if isinstance(extent, Late) or extent == -1
    ]
    shape = [-1 if place in open_places else int(e) for place, e in enumerate(asked)]  # type: ignore[arg-type]
    if len(own) == 1 and len(open_places) <= 2:
        shape[own[0]] = x.shape[axis]
        open_places.remove(own[0])
    if len(open_places) > 1:
        raise node.late_extent()
    rest = math.prod(extent for extent in shape if extent != -1)
    if open_places:
        shape[open_places[0]] = x.elements // max(rest, 1)
    place = own[0] if len(own) == 1 else open_places[0] if open_places else -1
    behind = math.prod(shape[place + 1 :])
    before, inner = math.prod(x.shape[:axis]), math.prod(x.shape[axis + 1 :])
    if place < 0 or math.prod(shape) != x.elements or math.prod(shape[:place]) != before:
        raise node.late_extent()
    if behind == inner:
        return counted(movement.reshape(whole(x), shape), {place: number})
    total = count(x, scalar(number) * inner // behind)
    return counted(movement.reshape(whole(x), shape), {place: total})


def flatten(node: Node) -> Value:
    x, axis = node[0], node.attribute("axis", 1)
    axis = axis + x.rank if axis < 0 else axis
    return movement.reshape(x, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])


def transpose(node: Node) -> Value:
    order = node.attribute("perm", None)
    return movement.transpose(node[0], order or list(reversed(range(node[0].rank))))


def squeeze(node: Node) -> Value:
    axes = node.axes(1)
    if axes is None:
        axes = [axis for axis, extent in enumerate(node[0].shape) if extent == 1]
    return movement.squeeze(node[0], axes)


def unsqueeze(node: Node) -> Value:
    return movement.unsqueeze(node[0], node.axes(1) or [])


def concat(node: Node) -> Value:
    values = [node[place] for place in range(len(node.inputs))]
    return movement.concatenate(values, node.attribute("axis", 0) % values[0].rank)


def split(node: Node) -> list[Value]:
    x = node[0]
    axis = node.attribute("axis", 0) % x.rank
    sizes = node.attribute("split", None) or node.ints(1)
    if sizes is None:
        count = node.attribute("num_outputs", len(node.outputs))
        each = -(-x.shape[axis] // count)
        sizes = [min(each, x.shape[axis] - each * place) for place in range(count)]
    if sum(sizes) != x.shape[axis] or min(sizes) < 0:
        raise node.refusal(f"splits {x.shape[axis]} elements into {sizes}")
    return list(movement.split(x, axis, sizes))


def take_slice(node: Node) -> Value:
    x = node[0]
    moving = None if x.counts else _moving_slice(node)
    if moving is not None:
        return moving
    starts = node.attribute("starts", None) or node.elements(1)
    ends = node.attribute("ends", None) or node.elements(2)
    axes = node.attribute("axes", None) or node.ints(3) or list(range(len(starts)))
    steps = node.elements(4) or [1] * len(starts)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0 or not -x.rank <= axis < x.rank:
            raise node.refusal(f"has step {step} along axis {axis} of {x.rank} dimensions")
        x = slice_of(x, axis % x.rank, start, end, step)
    return x


def _moving_slice(node: Node) -> Value | None:
    """A slice whose places are known in each iteration of a loop; None where its shape changes
    from one to the next."""
    x = node[0]

    def places(arrays: Sequence[Array | None]) -> list[Array]:
        """First elements, numbers of elements, and steps, by axis."""
        starts, ends, axes, steps = [*arrays, None, None][:4]
        assert starts is not None and ends is not None
        chosen = [slice(None)] * x.rank
        for place, start in enumerate(starts):
            axis = place if axes is None else int(axes[place])
            chosen[axis] = slice(start, ends[place], None if steps is None else steps[place])
        cut = [range(extent)[part] for extent, part in zip(x.shape, chosen, strict=True)]
        return [*np.array([(part.start, len(part), part.step) for part in cut]).T]

    in_iterations = in_each(node.inputs[1:], places)
    if in_iterations is None:
        return None
    first, counts, strides = in_iterations
    if counts.array is None or strides.array is None:
        return None
    lengths, steps = counts.array.tolist(), strides.array.tolist()
    for axis, begins in enumerate(rows_of(first, 1).T):
        if (begins == begins[0]).all():
            x = movement.along(x, axis, int(begins[0]), lengths[axis], steps[axis])
        else:
            begin = clamp(scalar(movement.along(first, 0, axis, 1)), 0, x.shape[axis] - 1)
            x = range_of(x, axis, begin, steps[axis], lengths[axis])
    return x


def expand(node: Node) -> Value:
    x, asked = node[0], node.numbers(1)
    rank = max(x.rank, len(asked))
    sizes: list[int | Late] = [*(1 for _ in range(rank - len(asked))), *asked]
    counts, shape = {}, []
    for place, size in enumerate(sizes):
        axis = place - rank + x.rank
        extent = x.shape[axis] if axis >= 0 else 1
        own = x.counts.get(axis) if axis >= 0 else None
        if own is not None:
            if size != 1 and not (isinstance(size, Late) and same_count(size.number, own)):
                raise node.late_extent()
            counts[place], size = own, 1
        elif isinstance(size, Late):
            if extent == 1:
                counts[place] = size.number
            size = size.bound if extent == 1 else 1
        shape.append(size)
    return counted(movement.expand(whole(x), shape), counts)


def constant_of_shape(node: Node) -> Value:
    value = node.attribute("value", np.zeros(1, np.float32)).reshape(())
    sizes = node.numbers(0)
    shape = [size.bound if isinstance(size, Late) else size for size in sizes]
    counts = {place: size.number for place, size in enumerate(sizes) if isinstance(size, Late)}
    return counted(node.builder.constant(np.broadcast_to(value, shape)), counts)


def number_range(node: Node) -> Value:
    """Whose limit alone may be computed at run time."""
    (limit,) = node.numbers(1)
    if not isinstance(limit, Late):
        return of_known_inputs(node)
    start, step = node.known(0), node.known(2)
    if start is None or step is None:
        raise node.refusal("has no start or no step")
    begin, stride = int(start.reshape(-1)[0]), int(step.reshape(-1)[0])
    if stride <= 0:
        raise node.late_number(1)
    numbers = node.builder.constant(np.arange(begin, limit.bound, stride, dtype=start.dtype))
    if not numbers.elements:
        return numbers
    if (begin, stride) == (0, 1):
        return counted(numbers, {0: limit.number})
    length = (scalar(limit.number) - begin + stride - 1) // stride
    return counted(numbers, {0: count(numbers, clamp(length, 0, numbers.elements))})


def tile(node: Node) -> Value:
    return movement.tile(node[0], node.ints(1) or [])


def pad(node: Node) -> Value:
    x = node[0]
    widths = node.attribute("pads", None) or node.attribute("paddings", None) or node.ints(1) or []
    axes = node.ints(3) or list(range(x.rank))
    before, after = [0] * x.rank, [0] * x.rank
    for place, axis in enumerate(axes):
        before[axis], after[axis] = widths[place], widths[len(axes) + place]
    value = node.attribute("value", 0.0)
    if node.optional(2) is not None:
        value = node.scalar(2, 0.0)
    return movement.pad(x, before, after, str(node.attribute("mode", "constant")), value)


def gather(node: Node) -> Value:
    return indexing.gather(node[0], node[1], node.attribute("axis", 0))


def gather_elements(node: Node) -> Value:
    return indexing.gather_elements(node[0], node[1], node.attribute("axis", 0))


def gather_nd(node: Node) -> Value:
    return indexing.gather_nd(node[0], node[1], node.attribute("batch_dims", 0))


def scatter_elements(node: Node) -> Value:
    x, indices, updates = node[0], node[1], node[2]
    if not indices.elements:
        return x
    axis, reduction = node.attribute("axis", 0) % x.rank, _reduction(node)
    result = indexing.scatter_elements(x, indices, updates, axis, reduction)
    is_whole = math.prod(x.shape[:axis]) == 1 and x.shape[axis + 1 :] == indices.shape[axis + 1 :]
    if not (is_whole and reduction == "none" and isinstance(indices.made, PerIteration)):
        return result
    rows = indices.made.rows.reshape(-1, indices.shape[axis], math.prod(x.shape[axis + 1 :]))
    if (rows != rows[..., :1]).any():
        return result
    places = np.zeros((*rows.shape[:2], axis + 1), np.int64)
    places[..., axis] = rows[..., 0]
    return written(result, x, updates, indices.made.number, places)


def scatter_nd(node: Node) -> Value:
    x, indices, updates, reduction = node[0], node[1], node[2], _reduction(node)
    if not indices.elements:
        return x
    result = indexing.scatter_nd(x, indices, updates, reduction)
    if reduction != "none" or not isinstance(indices.made, PerIteration):
        return result
    rows = indices.made.rows
    places = rows.reshape(len(rows), -1, rows.shape[-1])
    return written(result, x, updates, indices.made.number, places)


def _reduction(node: Node) -> str:
    return str(node.attribute("reduction", "none"))


def one_hot(node: Node) -> Value:
    depth = int(node.scalar(1, 0))
    indices = cast(node[0], "int64")
    return indexing.one_hot(indices, depth, node[2], node.attribute("axis", -1))


def triangle(node: Node) -> Value:
    upper = bool(node.attribute("upper", 1))
    diagonal = node.optional(1)
    if diagonal is not None and diagonal.array is None:
        return movement.triangle(node[0], scalar(diagonal), upper=upper)
    return movement.triangle(node[0], int(node.scalar(1, 0)), upper=upper)


def depth_to_space(node: Node) -> Value:
    x, block = node[0], node.attribute("blocksize", 1)
    n, c, h, w = x.shape
    if node.attribute("mode", "DCR") == "DCR":
        parts = movement.reshape(x, [n, block, block, c // block**2, h, w])
        moved = movement.transpose(parts, [0, 3, 4, 1, 5, 2])
    else:
        parts = movement.reshape(x, [n, c // block**2, block, block, h, w])
        moved = movement.transpose(parts, [0, 1, 4, 2, 5, 3])
    return movement.reshape(moved, [n, c // block**2, h * block, w * block])


def space_to_depth(node: Node) -> Value:
    x, block = node[0], node.attribute("blocksize", 1)
    n, c, h, w = x.shape
    parts = movement.reshape(x, [n, c, h // block, block, w // block, block])
    crd = node.attribute("mode", "DCR") == "CRD"
    moved = movement.transpose(parts, [0, 1, 3, 5, 2, 4] if crd else [0, 3, 5, 1, 2, 4])
    return movement.reshape(moved, [n, c * block**2, h // block, w // block])


def shape(node: Node) -> Value:
    x = node[0]
    places = range(x.rank)[slice(node.attribute("start", 0), node.attribute("end", None))]
    if not any(place in x.counts for place in places):
        return node.builder.constant(np.array([x.shape[place] for place in places], np.int64))
    return extents_of(x, places)


def size(node: Node) -> Value:
    x = node[0]
    if not x.counts:
        return node.builder.constant(np.array(x.elements, np.int64))
    total = constant(1, "int64")
    for axis in range(x.rank):
        total = total * scalar(count_of(x, axis))
    return count(x, total)


def reverse_sequence(node: Node) -> Value:
    """The first `lengths` elements along time turned round, for each of the batch."""
    x, lengths = node[0], node[1]
    time, batch = node.attribute("time_axis", 0), node.attribute("batch_axis", 1)

    def body(*i: Elem) -> Elem:
        length = lengths[i[batch]]
        places = [*i]
        inside = i[time] < length
        places[time] = clamp(
            where(inside, clamp(length, 0, x.shape[time]) - 1 - i[time], i[time]),
            0,
            x.shape[time] - 1,
        )
        return x[tuple(places)]

    return node.builder.compute("reverse_sequence", x.shape, body, dtype=x.dtype)


def eye_like(node: Node) -> Value:
    x = node[0]
    dtype = x.dtype
    if node.attribute("dtype", 0):
        dtype = dtype_of(node.attribute("dtype", 0), "an identity matrix")
    rows, columns = x.shape
    return node.builder.constant(np.eye(rows, columns, node.attribute("k", 0)), dtype)


def tensor_scatter(node: Node) -> Value:
    x = node[0]
    circular = node.attribute("mode", "linear") == "circular"
    axis = node.attribute("axis", -2) % x.rank
    return indexing.write_slices(x, node[1], node.optional(2), axis, circular=circular)


def of_known_inputs(node: Node) -> Value:
    """An operator whose result has a shape that depends on its inputs' values. Where they
    are known ONNX's evaluator has computed it before."""
    for place in range(len(node.inputs)):
        node.known(place)
    raise node.refusal("is not computed by ONNX's evaluator")


TABLE: Mapping[str, Convert] = {
    "BlackmanWindow": of_known_inputs,
    "Concat": concat,
    "ConstantOfShape": constant_of_shape,
    "DepthToSpace": depth_to_space,
    "Expand": expand,
    "EyeLike": eye_like,
    "Flatten": flatten,
    "Gather": gather,
    "GatherElements": gather_elements,
    "GatherND": gather_nd,
    "HammingWindow": of_known_inputs,
    "HannWindow": of_known_inputs,
    "MelWeightMatrix": of_known_inputs,
    "OneHot": one_hot,
    "Pad": pad,
    "Range": number_range,
    "Reshape": reshape,
    "ReverseSequence": reverse_sequence,
    "Scatter": scatter_elements,
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "Shape": shape,
    "Size": size,
    "Slice": take_slice,
    "SpaceToDepth": space_to_depth,
    "Split": split,
    "Squeeze": squeeze,
    "TensorScatter": tensor_scatter,
    "Tile": tile,
    "Transpose": transpose,
    "Trilu": triangle,
    "Unsqueeze": unsqueeze,
}
