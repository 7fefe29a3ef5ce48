"""How the tensors that a nest reads and writes move with its axes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.axes import Ints, NestAxes
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.rewrite.access import Access
from tuner.workload.affine import linear
from tuner.workload.dtypes import DTYPE_BYTES


@dataclass(frozen=True, kw_only=True)
class ReadMap:
    """How a read moves with the axes of a nest; all arrays follow the nest's axes."""

    coefficients: Ints  # (dimensions, axes): absolute steps in each dimension per step of an axis
    shape: Ints  # (dimensions,)
    uses: NDArray[np.bool_]  # (axes,)
    strides: Ints  # (axes,) elements moved; -1 where that is not constant
    dtype_bytes: int
    extents: Ints  # (axes,)

    @cached_property
    def moving(self) -> list[list[tuple[int, float]]]:
        """For each dimension the axes that move in it, with their steps in visited positions."""
        steps = self.coefficients // self._steps[:, None]
        return [[(int(axis), float(row[axis])) for axis in np.flatnonzero(row)] for row in steps]

    @cached_property
    def _steps(self) -> Ints:
        """(dimensions,) positions from one that is visited to the next.

        1 along contiguous elements, whose lines come whole.
        """
        steps: Ints = np.maximum(np.gcd.reduce(self.coefficients, axis=1), 1)
        steps[-1] = 1
        return steps

    @cached_property
    def clipped(self) -> NDArray[np.bool_]:
        """(dimensions,) whether the axes move beyond the tensor, as windows do at a border."""
        beyond: NDArray[np.bool_] = self.coefficients @ (self.extents - 1) + 1 > self.shape
        return beyond

    @cached_property
    def pitches(self) -> Ints:
        """(dimensions,) bytes from one visited position to the next."""
        inside = [
            prod(map(int, self.shape[dimension + 1 :])) * self.dtype_bytes
            for dimension in range(len(self.shape))
        ]
        return np.array(inside, np.int64) * self._steps

    def turned(self, vector: int) -> ReadMap:
        """In a copy in which the dimension comes last that the vectorised axis moves in."""
        if not self.uses[vector]:
            return self
        last = self.coefficients[self.last(vector)]
        return replace(self, strides=np.where(last > 0, last, self.strides))

    def last(self, vector: int) -> int:
        """The dimension that such a copy has last."""
        moved = [row[vector] != 0 for row in self.coefficients] if vector >= 0 else []
        last = len(self.shape) - 1
        return last - moved[::-1].index(True) if True in moved else last

    def crossing(self, page_bytes: int) -> float:
        """Share of the runs of adjacent bytes that begin on another page than the one before."""
        pitches = [
            int(self.pitches[dimension]) for dimension, axes in enumerate(self.moving[:-1]) if axes
        ]
        return min(min(pitches) / page_bytes, 1.0) if pitches else 0.0

    def size(self, spans: Floats, dimension: int) -> Floats:
        """Elements of a dimension that each level touches, in the shape of the levels."""
        moving = self.moving[dimension]
        size: Floats
        if len(moving) == 1 and moving[0][1] == 1:
            size = spans[moving[0][0]]
        else:
            size = np.full(spans.shape[1:], 1.0 - sum(step for _, step in moving), np.float32)
            for axis, step in moving:
                size += spans[axis] * step
            # With gaps between where a window is a part of its stride.
            if len(moving) > 1 and dimension < len(self.shape) - 1:
                size = np.minimum(size, prod(spans[axis] for axis, _ in moving))
        return np.minimum(size, float(self.shape[dimension])) if self.clipped[dimension] else size

    def sizes(self, span: Floats) -> Floats:
        """Elements of each dimension that a body touches, (dimensions, n)."""
        return np.stack([self.size(span, dimension) for dimension in range(len(self.shape))])


def input_map(access: Access, axes: NestAxes, context: SpaceContext) -> ReadMap:
    """Of a tensor that the nest reads."""
    names, shape = axes.names, context.shapes[access.read.tensor]
    coefficients = np.zeros((max(len(shape), 1), len(names)), np.int64)
    for dimension, index in enumerate(access.read.indices):
        form = linear(index)
        for name in access.axes & set(names):
            step = form.coefficient(name) if form is not None else 1
            coefficients[dimension, names.index(name)] = abs(step)
    strides = [access.stride_within(name, shape) for name in names]
    return ReadMap(
        coefficients=coefficients,
        shape=np.array(shape or (1,), np.int64),
        uses=np.array([name in access.axes for name in names]),
        strides=np.array([-1 if stride is None else stride for stride in strides], np.int64),
        dtype_bytes=DTYPE_BYTES[context.dtypes[access.read.tensor]],
        extents=axes.extents,
    )


def output_map(axes: NestAxes, dtype_bytes: int, *, is_rows: bool, whole_rows: bool) -> ReadMap:
    """Of what is written: an element of each row, or with `whole_rows` all of it."""
    count = len(axes.names)
    uses = np.arange(count) < len(axes.spatial) - len(axes.repeated)
    uses[-1] |= whole_rows
    written = axes.extents[uses]
    # Elements of rows are written one after the other.
    strides = np.full(count, int(is_rows), np.int64)
    strides[uses] = [prod(map(int, written[dimension + 1 :])) for dimension in range(len(written))]
    return ReadMap(
        coefficients=np.eye(count, dtype=np.int64)[uses],
        shape=written,
        uses=uses,
        strides=strides,
        dtype_bytes=dtype_bytes,
        extents=axes.extents,
    )
