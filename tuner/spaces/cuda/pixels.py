"""Products whose rows are points of several axes, which a window of the reduction moves:
convolutions of channels-last images, in any number of dimensions, with short strides.

A fragment of 64 rows is a box of points, which one copy brings for each point of the
window. What lies in the padding is copied as zeros.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cuda.operands import Operand, is_whole
from tuner.spaces.cuda.persistent import ProductShape
from tuner.spaces.program.persistent import COLUMNS, ROWS, Pixels
from tuner.spaces.rewrite.groups import TileGroup
from tuner.workload.affine import linear
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Const, Read, Var

ALIGNMENT = 16  # bytes that divide the distance between rows of every tensor
RANKS = (2, 3)  # axes of rows that a copy takes, its channels besides
MOST_STRIDE = 8  # of a copy's elements: CUDA driver API, `cuTensorMapEncodeTiled`
MOST_SPAN = 256  # elements from the first to behind the last of a box
MOST_ZEROS = 2  # how often the depth may fit into the stages that it fills


def fit_pixels(
    group: TileGroup, left: Operand, right: Operand, context: SpaceContext
) -> ProductShape | None:
    """The shape where these are its operands, None where they do not fit it."""
    *rows, columns = group.output.axes
    dtype, factor = context.dtypes[left.read.tensor], left.factor
    moved = {axis.name for axis in rows} & right.access.axes
    if len(rows) not in RANKS or moved or factor.itemsize != 2:
        return None
    *window, depth = _in_order(group.anchor.reduce_axes, right.read)
    if not is_whole(right.read, (*window, depth, columns), context.shapes[right.read.tensor]):
        return None
    if left.read.pad not in (None, Const(0, dtype)):
        return None
    pixels = _pixels(left.read, tuple(rows), tuple(window), depth, context)
    if pixels is None:
        return None
    deep = -(-depth.extent // factor.depth) * factor.depth
    row_bytes = (
        depth.extent * factor.itemsize,
        columns.extent * factor.itemsize,
        columns.extent * DTYPE_BYTES[group.output.dtype],
    )
    if any(size % ALIGNMENT for size in row_bytes) or deep > MOST_ZEROS * depth.extent:
        return None
    if columns.extent < COLUMNS or prod(axis.extent for axis in rows) < ROWS:
        return None
    return ProductShape(
        batch=(),
        rows=tuple(rows),
        columns=columns,
        depth=depth,
        left=left.read,
        right=right.read,
        factors=(factor, factor),
        values=(left.value, right.value),
        is_right_batched=False,
        is_right_transposed=False,
        pixels=pixels,
    )


def _in_order(axes: Sequence[Axis], read: Read) -> list[Axis]:
    """The axes in the order in which the read has them; others first."""
    names = [index.name for index in read.indices if isinstance(index, Var)]
    return sorted(axes, key=lambda axis: names.index(axis.name) if axis.name in names else -1)


def _pixels(
    read: Read,
    rows: tuple[Axis, ...],
    window: tuple[Axis, ...],
    depth: Axis,
    context: SpaceContext,
) -> Pixels | None:
    """How rows and window move in the left operand; None where not each axis of the rows
    has a dimension of its own, in order, with the depth behind them."""
    *indices, last = read.indices
    if last != Var(depth.name) or context.shapes[read.tensor][-1] != depth.extent:
        return None
    if len(indices) != len(rows):
        return None
    names = {axis.name for axis in window}
    strides, steps, offsets = [], [], []
    for axis, index in zip(rows, indices, strict=True):
        form = linear(index)
        if form is None or not 1 <= form.coefficient(axis.name) <= MOST_STRIDE:
            return None
        strides.append(form.coefficient(axis.name))
        if not {name for name, by in form.coefficients.items() if by} <= {axis.name, *names}:
            return None
        steps.append(tuple(form.coefficient(each.name) for each in window))
        offsets.append(form.constant)
    boxes = [
        box
        for box in _boxes(len(rows))
        if all(side * step <= MOST_SPAN for side, step in zip(box, strides, strict=True))
    ]
    return Pixels(
        box=min(boxes, key=lambda box: _covered(rows, box)),
        window=window,
        strides=tuple(strides),
        steps=tuple(steps),
        offsets=tuple(offsets),
        extents=context.shapes[read.tensor][:-1],
    )


def _boxes(rank: int) -> Iterator[tuple[int, ...]]:
    """Boxes of 64 points, the longest along the last axis first."""
    sides = [1 << power for power in range(ROWS.bit_length() - 1, -1, -1)]
    for box in product(sides, repeat=rank):
        if prod(box) == ROWS:
            yield box[::-1]


def _covered(rows: Sequence[Axis], box: Sequence[int]) -> int:
    """Points of all boxes together."""
    pairs = zip(rows, box, strict=True)
    return prod(-(-axis.extent // side) * side for axis, side in pairs)
