"""Knobs of the warpgroup sketch: how many warpgroups, fragments and panels a block has,
how many copies of the operands, and the order.

The sketch takes any sum of products of two reads whose depth is the last dimension of
the left operand, and either the last of the right one or the one before its columns.
Along the other axes of the left operand nothing is asked but that they are not the
right one's: they are the rows, and further reductions are walked one by one. It knows
no operator's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from tuner.spaces.core.choice import Choice
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.space import Config
from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.cuda.block_order import BlockOrder
from tuner.spaces.cuda.block_shapes import WarpgroupTile
from tuner.spaces.cuda.facts import ComputeUnit, KernelFacts
from tuner.spaces.cuda.limits import OTHER_REGISTERS, Footprint, block_shared_bytes, covers
from tuner.spaces.cuda.products import product_operands
from tuner.spaces.cuda.shared_choices import block_choice, block_order_choice
from tuner.spaces.cuda.sketch import CudaSketch
from tuner.spaces.cuda.warpgroup import (
    COLUMNS,
    DEPTH,
    GROUP,
    PIECE,
    ROWS,
    STRIP,
    STRIP_PAD,
    THREADS,
    CudaWarpgroupNest,
    WarpgroupPlan,
    WarpgroupShape,
)
from tuner.spaces.program.instructions import WARPGROUP_OPERANDS
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.access import Access
from tuner.spaces.rewrite.groups import TileGroup
from tuner.workload.affine import linear
from tuner.workload.expression import Axis, Const

DOWN, FRAGMENTS, ACROSS, PANELS, STAGES = (1, 2, 4), (1, 2), (1, 2), (1, 2, 3, 4), (2, 3, 4, 5)
MAX_WARPGROUPS = 4  # of a block
MAX_ACCUMULATORS = 192  # 32-bit registers of a thread


def warpgroup_shape(group: TileGroup, context: SpaceContext) -> WarpgroupShape | None:
    """The parts that the axes of a group play, None where it is no sum of products that
    warpgroups take."""
    anchor = group.anchor
    operands = product_operands(anchor, context.shapes)
    if operands is None or anchor.accumulator != "float32":
        return None
    left_dtype, right_dtype = (context.dtypes[operand.read.tensor] for operand in operands)
    if left_dtype != right_dtype or left_dtype not in WARPGROUP_OPERANDS:
        return None
    for operand in operands:
        if operand.gathered or not all(linear(index) for index in operand.read.indices):
            return None
        # What lies outside is copied as zeros.
        if operand.read.pad not in (None, Const(0, left_dtype)):
            return None
    for left, right in (operands, operands[::-1]):
        for depth in anchor.reduce_axes:
            shape = _fit(group, depth, left, right, context.shapes)
            if shape is not None:
                return shape
    return None


def _fit(
    group: TileGroup,
    depth: Axis,
    left: Access,
    right: Access,
    shapes: Mapping[str, tuple[int, ...]],
) -> WarpgroupShape | None:
    """The shape where these are its operands and its depth, None where they do not fit it."""
    if not group.output.axes or depth.extent % PIECE or not _runs_along(left, depth, shapes):
        return None
    last = group.output.axes[-1].name
    columns = next((axis for axis in group.anchor.axes if axis.name == last), None)
    if columns is None or last in left.axes or columns.extent % PIECE or columns.extent < COLUMNS:
        return None
    rows = _rows(group, left, right)
    if rows is None:
        return None
    transposed = _runs_along(right, depth, shapes) and not _moves_last(right, columns)
    if not transposed and not (
        _runs_along(right, columns, shapes) and not _moves_last(right, depth)
    ):
        return None
    return WarpgroupShape(
        rows=rows, columns=columns, depth=depth, left=left, right=right, transposed=transposed
    )


def _rows(group: TileGroup, left: Access, right: Access) -> tuple[Axis, ...] | None:
    """The axes along which only the left operand moves, the last in groups of eight; None
    where there are too few rows or no such axis."""
    rows = tuple(
        axis
        for axis in group.anchor.axes
        if axis.name in left.axes and axis.name not in right.axes and axis.extent > 1
    )
    # Rows of the operand need not be adjacent in memory: any axis may be the one that is
    # taken by eight.
    last = next((axis for axis in reversed(rows) if axis.extent % GROUP == 0), None)
    if last is None or prod(axis.extent for axis in rows) < ROWS:
        return None
    return (*(axis for axis in rows if axis != last), last)


def _runs_along(operand: Access, axis: Axis, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether adjacent elements along the axis lie together, and whole pieces of them
    stay inside the last dimension."""
    read = operand.read
    last = linear(read.indices[-1]) if read.indices else None
    if last is None or dict(last.coefficients) != {axis.name: 1} or last.constant != 0:
        return False
    others = (linear(index) for index in read.indices[:-1])
    moved = any(form is not None and form.coefficient(axis.name) != 0 for form in others)
    return shapes[read.tensor][-1] == axis.extent and not moved


def _moves_last(operand: Access, axis: Axis) -> bool:
    """Whether the last dimension moves with the axis."""
    last = linear(operand.read.indices[-1])
    return last is not None and last.coefficient(axis.name) != 0


@dataclass(frozen=True)
class CudaWarpgroupSketch(CudaSketch[TileGroup]):
    """The warpgroup sketch of one group; `shape` says that it has one."""

    shape: WarpgroupShape

    name = "warpgroup"

    # --- choices

    @cached_property
    def choices(self) -> tuple[Choice[Any], ...]:
        return (self.block, self.order)

    @cached_property
    def block(self) -> Choice[WarpgroupTile]:
        """Tiles that fit a block; empty where none fits."""
        return block_choice(self.prefix, self._fitting())

    @cached_property
    def order(self) -> Choice[BlockOrder]:
        return block_order_choice(self.prefix)

    def _fitting(self) -> Iterator[WarpgroupTile]:
        for down, fragments, across, panels, stages in product(
            DOWN, FRAGMENTS, ACROSS, PANELS, STAGES
        ):
            tile = WarpgroupTile(
                down=down, fragments=fragments, across=across, panels=panels, stages=stages
            )
            if self._is_useful(tile) and self.footprint(tile).fault is None:
                yield tile

    def _is_useful(self, tile: WarpgroupTile) -> bool:
        shape = self.shape
        rows = prod(axis.extent for axis in shape.rows)
        windows = prod(axis.extent for axis in self.group.anchor.reduce_axes if axis != shape.depth)
        return (
            tile.warpgroups <= MAX_WARPGROUPS
            and covers(rows, tile.down * tile.fragments * ROWS)
            and covers(shape.columns.extent, tile.across * tile.panels * COLUMNS)
            and tile.stages <= windows * -(-shape.depth.extent // DEPTH)
            and _accumulators(tile) <= MAX_ACCUMULATORS
        )

    def footprint(self, tile: WarpgroupTile) -> Footprint:
        """What a block of this tile takes."""
        rows, columns = tile.down * tile.fragments * ROWS, tile.across * tile.panels * COLUMNS
        operands = tile.stages * (rows + columns) * DEPTH * 2
        strips = tile.warpgroups * ROWS * (STRIP + STRIP_PAD) * 4
        return Footprint(
            threads=(THREADS, tile.down, tile.across),
            registers=_accumulators(tile) + OTHER_REGISTERS,
            # Strips are written when operands have been read, in their place.
            shared_bytes=max(operands, strips),
            most_shared_bytes=block_shared_bytes(self.context.target),
        )

    # --- meaning

    @cached_property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            owner=self.prefix,
            group=self.group.name,
            unit=ComputeUnit.WARPGROUPS,
            block=self.block,
            footprints=tuple(map(self.footprint, self.block.values)),
        )

    def nest(self, config: Config) -> Nest:
        return CudaWarpgroupNest(self.group, self.plan(config), self.context).build()

    def plan(self, config: Config) -> WarpgroupPlan:
        """The config decoded."""
        shape, anchor = self.shape, self.group.anchor
        sides = {axis.name for axis in (*shape.rows, shape.columns)}
        return WarpgroupPlan(
            shape=shape,
            tile=self.block.of(config),
            others=tuple(GridAxis(axis=axis) for axis in anchor.axes if axis.name not in sides),
            depth=DepthAxis(axis=shape.depth, depth=DEPTH),
            window=tuple(
                DepthAxis(axis=axis, depth=1) for axis in anchor.reduce_axes if axis != shape.depth
            ),
            order=self.order.of(config),
        )


def _accumulators(tile: WarpgroupTile) -> int:
    """32-bit registers of each thread for the accumulators."""
    return tile.fragments * tile.panels * COLUMNS // 2
