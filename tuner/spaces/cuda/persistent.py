"""The nest of a persistent product: what its tiles compute, and the kernel that does it.

The blocks say which tiles there are and what lies beyond the extents. How warps share
the work is the kernel's own affair: `tuner.spaces.program.persistent`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.program.epilogues import as_stored
from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.persistent import (
    ROWS,
    Bands,
    Factor,
    Matrix,
    PersistentProduct,
    PersistentTile,
    Pixels,
    height_of,
)
from tuner.spaces.program.program import Bind, Block, Buffer, Fuse, Specialize, Step
from tuner.spaces.program.tiles import add, times
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.groups import TileGroup, replace_reads
from tuner.workload.expression import (
    Axis,
    Binary,
    Const,
    Read,
    Scalar,
    Var,
    substitute,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductShape:
    """Which axis of a sum of products plays which part."""

    batch: tuple[Axis, ...]  # both operands move along them
    rows: tuple[Axis, ...]  # only the left one does
    columns: Axis  # only the right one does
    depth: Axis
    left: Read
    right: Read
    factors: tuple[Factor, Factor]  # the left and the right one
    values: tuple[Scalar, Scalar]  # of their elements, in the dtype of the sums
    is_right_batched: bool
    is_right_transposed: bool  # the right operand lies with the depth last
    pixels: Pixels | None = None  # None: rows lie one after another


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentPlan:
    """A config of the sketch, decoded."""

    shape: ProductShape
    tile: PersistentTile
    bands: Bands
    shares_depth: bool = False


class CudaPersistentNest:
    """Builds the blocks of one tile group under one plan."""

    product: ClassVar[type[PersistentProduct]] = PersistentProduct  # what computes them

    def __init__(self, group: TileGroup, plan: PersistentPlan, context: SpaceContext) -> None:
        self.group, self.plan, self.context = group, plan, context
        self.sums = f"{group.name}_acc"
        shape, tile = plan.shape, plan.tile
        self._height = height_of(shape.rows, shape.pixels)
        self._down = Axis(name="rows_2", extent=-(-self._height // tile.rows))
        self._across = Axis(name="columns_2", extent=-(-shape.columns.extent // tile.columns))
        self._row = Axis(name="rows_1", extent=tile.rows)
        self._column = Axis(name="columns_1", extent=tile.columns)
        deep = shape.factors[0].depth
        self._step = Axis(name="depth_1", extent=-(-shape.depth.extent // deep))
        self._inner = Axis(name="depth_0", extent=deep)

    def build(self) -> Nest:
        shape, tile, anchor = self.plan.shape, self.plan.tile, self.group.anchor
        axes = (*shape.batch, self._down, self._across, self._row, self._column)
        row = add(times(Var(self._down.name), tile.rows), Var(self._row.name))
        column = add(times(Var(self._across.name), tile.columns), Var(self._column.name))
        depth = add(times(Var(self._step.name), self._inner.extent), Var(self._inner.name))
        accumulator = shape.factors[0].accumulator
        rows = self._rows(row)
        values = rows | {shape.columns.name: column, shape.depth.name: depth}
        inside = (
            *self._rows_inside(row, rows),
            *_inside(column, shape.columns.extent, tile.columns),
        )
        window = () if shape.pixels is None else shape.pixels.window
        extents = {axis.name: axis.extent for axis in (*axes, *window, self._step, self._inner)}
        factors = [
            with_explicit_padding(substitute(value, values), self.context.shapes, extents)
            for value in shape.values
        ]
        place = tuple(Var(axis.name) for axis in axes)
        product = Block(
            name=self.sums,
            axes=axes,
            reduce_axes=(*window, self._step, self._inner),
            buffer=self.sums,
            indices=place,
            body=Binary("mul", *factors),
            reducer="sum",
            when=(*inside, *_inside(depth, shape.depth.extent, self._inner.extent)),
        )
        finished: Scalar = Read(self.sums, place)
        if self.group.epilogue is not None:
            body = substitute(self.group.epilogue.body, values)
            finished = replace_reads(body, {anchor.name: finished})
        output = self.group.output
        indices = {axis.name: Var(axis.name) for axis in shape.batch} | values
        store = Block(
            name=self.group.name,
            axes=axes,
            buffer=self.group.name,
            indices=tuple(indices[axis.name] for axis in output.axes),
            body=finished,
            when=inside,
        )
        sums = Buffer(
            name=self.sums,
            shape=tuple(axis.extent for axis in axes),
            dtype=accumulator,
            scope="wmma.accumulator",
        )
        kernel = Specialize(product=self.sums, store=self.group.name, kernel=self.kernel())
        grid = (*shape.batch, self._down, self._across)
        steps = (*_in_blocks(self.sums, grid), *_in_blocks(self.group.name, grid), kernel)
        return Nest((product, store), (sums,), steps)

    def _rows(self, row: Scalar) -> dict[str, Scalar]:
        """The value of each axis of the rows, from a row's number."""
        shape = self.plan.shape
        if shape.pixels is None:
            return _values(shape.rows, row)
        fragment = Binary("floordiv", row, Const(ROWS, "int64"))
        point = Binary("floormod", row, Const(ROWS, "int64"))
        boxes, box = shape.pixels.boxes(shape.rows), shape.pixels.box
        corners = _values(_resized(shape.rows, boxes), fragment)
        within = _values(_resized(shape.rows, box), point)
        return {
            axis.name: add(times(corners[axis.name], side), within[axis.name])
            for axis, side in zip(shape.rows, box, strict=True)
        }

    def _rows_inside(self, row: Scalar, rows: Mapping[str, Scalar]) -> tuple[Scalar, ...]:
        """The conditions under which a row's number is one of a row."""
        shape, tile = self.plan.shape, self.plan.tile
        if shape.pixels is None:
            return _inside(row, self._height, tile.rows)
        first, *others = zip(shape.rows, shape.pixels.box, strict=True)
        # The last tile may have more boxes than there are; they lie behind the first axis.
        whole = first[1] if self._height % tile.rows == 0 else first[0].extent + 1
        conditions = _inside(rows[first[0].name], first[0].extent, whole)
        for axis, side in others:
            conditions += _inside(rows[axis.name], axis.extent, side)
        return conditions

    def kernel(self) -> PersistentProduct:
        """What computes the blocks."""
        shape, epilogue = self.plan.shape, self.group.epilogue
        return self.product(
            batch=shape.batch,
            rows=shape.rows,
            columns=shape.columns,
            depth=shape.depth,
            left=Matrix(tensor=shape.left.tensor, batched=bool(shape.batch)),
            right=Matrix(
                tensor=shape.right.tensor,
                batched=shape.is_right_batched,
                transposed=shape.is_right_transposed,
            ),
            output=Matrix(tensor=self.group.name, batched=bool(shape.batch)),
            factors=shape.factors,
            output_dtype=self.group.output.dtype,
            epilogue=None
            if epilogue is None
            else as_stored(epilogue.body, self.group.output.dtype),
            sums=self.group.anchor.name,
            tile=self.plan.tile,
            bands=self.plan.bands,
            multiprocessors=self.context.target.cores,
            pixels=shape.pixels,
            shares_depth=self.plan.shares_depth,
        )


def _resized(axes: Sequence[Axis], extents: Sequence[int]) -> tuple[Axis, ...]:
    return tuple(replace(axis, extent=extent) for axis, extent in zip(axes, extents, strict=True))


def _values(axes: Sequence[Axis], number: Scalar) -> dict[str, Scalar]:
    """The value of each axis, from the number of a point of all of them."""
    values: dict[str, Scalar] = {}
    for axis in reversed(axes[1:]):
        extent = Const(axis.extent, "int64")
        values[axis.name] = Binary("floormod", number, extent)
        number = Binary("floordiv", number, extent)
    return values | {axes[0].name: number}


def _in_blocks(block: str, grid: Sequence[Axis]) -> tuple[Step, ...]:
    """Steps that give each tile a block of the grid."""
    fused = LoopId(block, "grid")
    return Fuse(loops=loops_of(block, grid), into=fused), Bind(loop=fused, axis="blockIdx.x")


def _inside(index: Scalar, extent: int, block: int) -> tuple[Scalar, ...]:
    """The condition under which an index is inside; none where blocks divide the extent."""
    return () if extent % block == 0 else (Binary("lt", index, Const(extent, "int64")),)
