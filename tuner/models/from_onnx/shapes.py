"""Operators of ONNX that move elements or make tensors of shapes."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from tuner.models.from_onnx.node import Convert, Node, dtype_of
from tuner.models.operators import indexing, movement
from tuner.models.operators.elementwise import cast
from tuner.models.operators.scalars import Elem, clamp, where
from tuner.models.operators.values import Value


def reshape(node: Node) -> Value:
    x, asked = node[0], node.attribute("shape", None) or node.ints(1) or []
    shape = list(asked)
    if not node.attribute("allowzero", 0):
        shape = [x.shape[place] if extent == 0 else extent for place, extent in enumerate(shape)]
    if -1 in shape:
        rest = math.prod(extent for extent in shape if extent != -1)
        shape[shape.index(-1)] = x.elements // rest if rest else 0
    if math.prod(shape) != x.elements:
        raise node.refusal(f"turns the shape {list(x.shape)} into {list(asked)}")
    return movement.reshape(x, shape)


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
    starts = node.attribute("starts", None) or node.ints(1) or []
    ends = node.attribute("ends", None) or node.ints(2) or []
    axes = node.attribute("axes", None) or node.ints(3) or list(range(len(starts)))
    steps = node.ints(4) or [1] * len(starts)
    begin, stride, shape = [0] * x.rank, [1] * x.rank, list(x.shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step == 0 or not -x.rank <= axis < x.rank:
            raise node.refusal(f"has step {step} along axis {axis} of {x.rank} dimensions")
        places = range(*slice(start, end if end > -(2**62) else None, step).indices(x.shape[axis]))
        begin[axis], stride[axis], shape[axis] = places.start, step, len(places)
    if 0 in shape:
        return node.builder.constant(np.empty(shape), x.dtype)
    return movement.take_slice(x, begin, stride, shape)


def expand(node: Node) -> Value:
    return movement.expand(node[0], node.ints(1) or [])


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
    if not node[1].elements:
        return node[0]
    return indexing.scatter_elements(
        node[0], node[1], node[2], node.attribute("axis", 0), _reduction(node)
    )


def scatter_nd(node: Node) -> Value:
    if not node[1].elements:
        return node[0]
    return indexing.scatter_nd(node[0], node[1], node[2], _reduction(node))


def _reduction(node: Node) -> str:
    return str(node.attribute("reduction", "none"))


def one_hot(node: Node) -> Value:
    depth = int(node.scalar(1, 0))
    indices = cast(node[0], "int64")
    return indexing.one_hot(indices, depth, node[2], node.attribute("axis", -1))


def triangle(node: Node) -> Value:
    upper = bool(node.attribute("upper", 1))
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
    extents = list(node[0].shape)
    begin, end = node.attribute("start", 0), node.attribute("end", None)
    return node.builder.constant(np.array(extents[begin:end], np.int64))


def size(node: Node) -> Value:
    return node.builder.constant(np.array(node[0].elements, np.int64))


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


def compress(node: Node) -> Value:
    """Slices along an axis, or elements, where a condition is true."""
    x, condition = node[0], node.known(1)
    axis = node.attribute("axis", None)
    if axis is None:
        x, axis = movement.reshape(x, [x.elements]), 0
    places = np.flatnonzero(np.asarray(condition))
    return indexing.gather(x, node.builder.constant(places), axis)


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
    "Compress": compress,
    "Concat": concat,
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
    "NonMaxSuppression": of_known_inputs,
    "NonZero": of_known_inputs,
    "OneHot": one_hot,
    "Pad": pad,
    "Range": of_known_inputs,
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
    "Unique": of_known_inputs,
    "Unsqueeze": unsqueeze,
}
