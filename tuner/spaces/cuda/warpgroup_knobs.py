"""Knobs of the warpgroup sketch: how many warpgroups, squares and panels a block has
with its copies of operands, and the order.

The sketch takes any sum of products of two reads whose depth is the last dimension of
the left operand, and either the last of the right one or the one before its columns.
Along the other axes of the left operand nothing is asked but that they are not the
right one's: they are the rows, and further reductions are walked one by one. It knows
no operator's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.space import Knob, Value
from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.cuda.facts import KernelFacts, KernelKind
from tuner.spaces.cuda.limits import OTHER_REGISTERS, Footprint, block_shared_bytes
from tuner.spaces.cuda.mma_knobs import bare
from tuner.spaces.cuda.warpgroup import (
    COLUMNS,
    DEPTH,
    GROUP,
    KINDS,
    PIECE,
    ROWS,
    STRIP,
    STRIP_PAD,
    THREADS,
    CudaWarpgroupNest,
    WarpgroupPlan,
)
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.access import Access, access, linear
from tuner.spaces.rewrite.groups import TileGroup
from tuner.workload.expression import Axis, Binary, Const, DType

DOWN, SQUARES, ACROSS, PANELS, STAGES = (1, 2, 4), (1, 2), (1, 2), (1, 2, 3, 4), (2, 3, 4, 5)
MAX_GROUPS = 4  # warpgroups of a block
MAX_SUMS = 192  # 32-bit registers of a thread for sums
MAX_WASTE = 0.25  # work done twice or on what lies beyond the reduction, as a share


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupShape:
    """Which axis of a sum of products plays which part."""

    rows: tuple[Axis, ...]
    columns: Axis
    depth: Axis
    left: Access
    right: Access
    turned: bool  # the right operand lies with the reduction last


def warpgroup_shape(
    group: TileGroup, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, DType]
) -> WarpgroupShape | None:
    """The parts that the axes of a group play, None where it is no sum of products that
    warpgroups take."""
    anchor = group.anchor
    if (
        anchor.reducer != "sum"
        or not isinstance(anchor.body, Binary)
        or anchor.body.op != "mul"
        or not anchor.reduce_axes
    ):
        return None
    found = [
        access(read, shapes[read.tensor], anchor.extents)
        for read in map(bare, (anchor.body.lhs, anchor.body.rhs))
        if read
    ]
    kinds = {dtypes[one.read.tensor] for one in found}
    if (
        len(found) != 2
        or len(kinds) != 1
        or not kinds <= KINDS.keys()
        or anchor.accumulator != "float32"
    ):
        return None
    if any(one.gathered or not all(linear(index) for index in one.read.indices) for one in found):
        return None
    # What lies outside is copied as zeros.
    if any(
        one.read.pad is not None and one.read.pad != Const(0, dtypes[one.read.tensor])
        for one in found
    ):
        return None
    for left, right in (found, reversed(found)):
        for depth in anchor.reduce_axes:
            made = _fit(group, depth, left, right, shapes)
            if made is not None:
                return made
    return None


def _fit(
    group: TileGroup,
    depth: Axis,
    left: Access,
    right: Access,
    shapes: Mapping[str, tuple[int, ...]],
) -> WarpgroupShape | None:
    anchor = group.anchor
    if not group.output.axes or depth.extent % PIECE or not _runs(left, depth, shapes):
        return None
    columns = next((axis for axis in anchor.axes if axis.name == group.output.axes[-1].name), None)
    if (
        columns is None
        or columns.name in left.axes
        or columns.extent % PIECE
        or columns.extent < COLUMNS
    ):
        return None
    rows = tuple(
        axis
        for axis in anchor.axes
        if axis.name in left.axes and axis.name not in right.axes and axis.extent > 1
    )
    # Rows of the operand need not be neighbours in memory: any axis may be the one that
    # is taken by eight.
    last = next((axis for axis in reversed(rows) if axis.extent % GROUP == 0), None)
    if last is None or prod(axis.extent for axis in rows) < ROWS:
        return None
    rows = (*(axis for axis in rows if axis != last), last)
    turned = _runs(right, depth, shapes) and not _moves(right, columns)
    if not turned and not (_runs(right, columns, shapes) and not _moves(right, depth)):
        return None
    return WarpgroupShape(
        rows=rows, columns=columns, depth=depth, left=left, right=right, turned=turned
    )


def _runs(found: Access, axis: Axis, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether neighbours along the axis lie together, and whole pieces of them stay
    inside the last dimension."""
    last = linear(found.read.indices[-1]) if found.read.indices else None
    return (
        last is not None
        and dict(last.coefficients) == {axis.name: 1}
        and last.constant == 0
        and shapes[found.read.tensor][-1] == axis.extent
        and not any(
            (form := linear(index)) and form.coefficient(axis.name)
            for index in found.read.indices[:-1]
        )
    )


def _moves(found: Access, axis: Axis) -> bool:
    """Whether the last dimension moves with the axis."""
    last = linear(found.read.indices[-1])
    return last is not None and last.coefficient(axis.name) != 0


@dataclass(frozen=True)
class CudaWarpgroupSketch:
    """The warpgroup sketch of one group; `shape` says that it has one."""

    group: TileGroup
    context: SpaceContext
    shape: WarpgroupShape

    name = "warpgroup"

    @property
    def prefix(self) -> str:
        return f"{self.group.name}.{self.name}"

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        knobs = [
            self._knob("tile", self.tile_values()),
            self._knob("order", ("rows first", "columns first")),
        ]
        return tuple(knob for knob in knobs if len(knob.values) > 1)

    def _knob(self, what: str, values: Iterable[Value]) -> Knob:
        return Knob(name=f"{self.prefix}.{what}", values=tuple(values))

    def tile_values(self) -> tuple[tuple[int, ...], ...]:
        """(warpgroups, squares of 64) down, (warpgroups, panels of 64) across, copies
        of the operands. Empty where none fits."""
        return self._tiles

    @cached_property
    def _tiles(self) -> tuple[tuple[int, ...], ...]:
        return tuple(self._fitting())

    def _fitting(self) -> Iterator[tuple[int, ...]]:
        shape = self.shape
        rows = prod(axis.extent for axis in shape.rows)
        for down, squares, across, panels, stages in product(DOWN, SQUARES, ACROSS, PANELS, STAGES):
            tile = (down, squares, across, panels, stages)
            covered = _covers(rows, down * squares * ROWS) and _covers(
                shape.columns.extent, across * panels * COLUMNS
            )
            turns = prod(
                axis.extent for axis in self.group.anchor.reduce_axes if axis != shape.depth
            )
            useful = stages <= turns * -(-shape.depth.extent // DEPTH)
            sums = squares * panels * COLUMNS // 2
            if (
                down * across <= MAX_GROUPS
                and covered
                and useful
                and sums <= MAX_SUMS
                and self.footprint(tile).fault is None
            ):
                yield tile

    def footprint(self, tile: tuple[int, ...]) -> Footprint:
        """What a block of this tile takes."""
        down, squares, across, panels, stages = tile
        operands = stages * (down * squares * ROWS + across * panels * COLUMNS) * DEPTH * 2
        strips = down * across * ROWS * (STRIP + STRIP_PAD) * 4
        return Footprint(
            threads=(THREADS, down, across),
            registers=squares * panels * COLUMNS // 2 + OTHER_REGISTERS,
            shared_bytes=max(
                operands, strips
            ),  # strips are written when operands have been read, in their place
            most_shared_bytes=block_shared_bytes(self.context.target),
        )

    # --- meaning
    # ------------------------------------------------------------------------------

    @property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            kind=KernelKind.WARPGROUPS,
            group=self.group,
            owner=self.prefix,
            knobs=self.knobs,
            footprint=self.footprint,
        )

    def nest(self, config: Mapping[str, Value]) -> Nest:
        return CudaWarpgroupNest(
            self.group, self.plan(config), self.context.shapes, self.context.dtypes
        ).build()

    def plan(self, config: Mapping[str, Value]) -> WarpgroupPlan:
        """The config decoded; knobs with a single value are not in it. Raises
        IllegalSchedule where a block does not fit."""
        values = {
            knob.name.removeprefix(self.prefix + "."): config[knob.name] for knob in self.knobs
        }
        tile = values.get("tile") or self.tile_values()[0]
        assert isinstance(tile, tuple)
        self.footprint(tile).check()
        shape, anchor = self.shape, self.group.anchor
        down, squares, across, panels, stages = tile
        taken = {axis.name for axis in (*shape.rows, shape.columns)}
        return WarpgroupPlan(
            rows=shape.rows,
            columns=shape.columns,
            others=tuple(GridAxis(axis=axis) for axis in anchor.axes if axis.name not in taken),
            down=down,
            squares=squares,
            across=across,
            panels=panels,
            depth=DepthAxis(axis=shape.depth, depth=DEPTH),
            window=tuple(
                DepthAxis(axis=axis, depth=1) for axis in anchor.reduce_axes if axis != shape.depth
            ),
            left=shape.left.read,
            right=shape.right.read,
            turned=shape.turned,
            stages=stages,
            rows_first=values.get("order", "rows first") == "rows first",
        )


def _covers(extent: int, block: int) -> bool:
    return block <= extent and -(-extent // block) * block - extent <= MAX_WASTE * extent
