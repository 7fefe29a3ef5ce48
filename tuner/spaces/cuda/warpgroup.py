"""The sketch for Hopper's tensor cores: sums of products by warpgroups, which read both
operands from shared memory.

A warpgroup is 128 threads. Its instruction (wgmma) multiplies 64 rows by 64 to 256
columns, 64 deep here; the sums are spread over the threads' registers. Operands lie in
rows of 128 bytes whose eight pieces of 16 bytes are permuted: piece c of row r is at c
xor r mod 8, the layout that PTX calls 128-byte swizzle. Copies write such rows whole:
measured on an H200, the layout without permutation, whose rows copies cannot write
whole, is as fast to multiply from and three times slower to fill. Sources: PTX ISA,
"Asynchronous Warpgroup Level Matrix Instructions"; "Strides" there for the layout.

The rows of the product are points of all axes along which only the left operand moves,
taken together in groups of eight adjacent ones along the last of them: for a convolution,
pixels of all images. What is copied is what the left operand reads there, so that an
implicit matrix product needs no box and no stride of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cuda.accumulators import AccumulatorNest, store_width
from tuner.spaces.cuda.axes import DepthAxis, GridAxis, block_start
from tuner.spaces.cuda.block_order import BlockOrder
from tuner.spaces.cuda.block_shapes import WarpgroupTile
from tuner.spaces.cuda.pipelining import Overlap, Pipelining
from tuner.spaces.program.instructions import WarpgroupFill, WarpgroupMultiply, WarpgroupStore
from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.marks import GuardedCopy, Unroll, Vectorize
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import (
    Bind,
    ComputeAt,
    Fuse,
    ReverseComputeAt,
    SplitLoop,
    StorageAlign,
    Tensorize,
    ThreadAxis,
)
from tuner.spaces.program.tiles import add, times
from tuner.spaces.rewrite.access import Access, with_explicit_padding
from tuner.spaces.rewrite.groups import TileGroup
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Var,
    substitute,
)

GROUP = 8  # rows of 128 bytes after which the permutation starts again
PIECES, PIECE = 8, 8  # pieces of a row, and 16-bit elements of a piece
DEPTH = PIECES * PIECE  # of a row of the left operand: what one instruction's loop goes over
ROWS = 64  # of an instruction's fragment
COLUMNS = 64  # of a panel: a part of the right operand that lies together
STRIP = 32  # columns whose accumulators are held, and written back, together
THREADS = 128  # of a warpgroup
# 32-bit elements by which rows of a strip in shared memory are stretched against bank
# conflicts
STRIP_PAD = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupShape:
    """Which axis of a sum of products plays which part."""

    rows: tuple[Axis, ...]  # along which only the left operand moves, the last in groups of eight
    columns: Axis  # along which only the right one does, and adjacent elements are written
    depth: Axis
    left: Access
    right: Access
    transposed: bool  # the right operand lies with the reduction last


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupPlan:
    """A config of the sketch, decoded."""

    shape: WarpgroupShape
    tile: WarpgroupTile
    others: tuple[GridAxis, ...]  # one element a block
    depth: DepthAxis  # of the reduction that both operands move along
    window: tuple[DepthAxis, ...]  # further reduction axes, walked one by one
    order: BlockOrder

    @property
    def block_groups(self) -> int:
        """Groups of a block's rows."""
        return self.tile.down * self.tile.fragments * (ROWS // GROUP)

    @property
    def all_groups(self) -> int:
        """Groups of all rows."""
        return prod(axis.extent for axis in self.shape.rows) // GROUP

    @property
    def row_blocks(self) -> Axis:
        """The loop over blocks of rows."""
        return Axis(name="rows_2", extent=-(-self.all_groups // self.block_groups))

    @property
    def width(self) -> int:
        """Columns of a block."""
        return self.tile.across * self.tile.panels * COLUMNS

    @property
    def column_blocks(self) -> Axis:
        """The loop over blocks of columns."""
        return Axis(name="columns_2", extent=-(-self.shape.columns.extent // self.width))

    @property
    def reduction(self) -> tuple[DepthAxis, ...]:
        return (*self.window, self.depth)


class CudaWarpgroupNest(AccumulatorNest):
    """Builds the blocks and steps of one tile group under one plan."""

    def __init__(self, group: TileGroup, plan: WarpgroupPlan, context: SpaceContext) -> None:
        super().__init__(group, context.shapes)
        self.plan, self.strip = plan, f"{group.name}_strip"
        self.dtype = context.dtypes[plan.shape.left.read.tensor]
        blocks = [plan.row_blocks, plan.column_blocks]
        if plan.order is BlockOrder.COLUMNS_FIRST:
            blocks.reverse()
        self.grid = [*(part.outer for part in plan.others), *blocks]
        self.outer = [part.outer for part in plan.reduction]
        self.down = Axis(name="down", extent=plan.tile.down)
        self.across = Axis(name="across", extent=plan.tile.across)
        self.fragments = Axis(name="square", extent=plan.tile.fragments)
        self.panels = Axis(name="panel", extent=plan.tile.panels)
        self.halves = Axis(name="half", extent=COLUMNS // STRIP)
        # Of a strip of accumulators: groups of rows and rows of a group, pieces of its
        # columns and columns of a piece.
        self.element = [
            Axis(name="group", extent=ROWS // GROUP),
            Axis(name="row", extent=GROUP),
            Axis(name="piece", extent=STRIP // PIECE),
            Axis(name="column", extent=PIECE),
        ]
        self.inner = [Axis(name="depth_1", extent=PIECES), Axis(name="depth_0", extent=PIECE)]

    def build(self) -> Nest:
        left, right = self._left(), self._right()
        warpgroups = [*self.grid, self.down, self.across]
        spatial = [*warpgroups, self.fragments, self.panels, self.halves, *self.element]
        dtype = self.accumulator_dtype
        product = Binary("mul", Cast(dtype, left), Cast(dtype, right))
        reduce = (*self.outer, *self.inner)
        self.add(self.accumulators, spatial, product, dtype, "wmma.accumulator", reduce)
        element = tuple(Var(axis.name) for axis in spatial)
        self.add(self.strip, spatial, Read(self.accumulators, element), dtype, "shared.dyn")
        indices = self._point(Var(self.down.name), Var(self.fragments.name), self._column)
        self.add_output(spatial, Read(self.strip, element), indices)
        self._schedule()
        return self.nest

    # --- indices

    @cached_property
    def _column(self) -> Scalar:
        """The column within the block, from the axes of the accumulators."""
        strip = add(times(self._panel, COLUMNS // STRIP), Var(self.halves.name))
        piece = add(times(strip, STRIP // PIECE), Var("piece"))
        return add(times(piece, PIECE), Var("column"))

    @cached_property
    def _panel(self) -> Scalar:
        """The panel within the block."""
        return add(times(Var(self.across.name), self.plan.tile.panels), Var(self.panels.name))

    def _point(self, down: Scalar, fragment: Scalar, column: Scalar) -> dict[str, Scalar]:
        """The values of all spatial axes of the group.

        A block that does not divide its extent is moved back, as everywhere.
        """
        plan, shape = self.plan, self.plan.shape
        first = block_start(plan.row_blocks, plan.block_groups, plan.all_groups)
        fragment_index = add(times(down, plan.tile.fragments), fragment)
        group = add(first, add(times(fragment_index, ROWS // GROUP), Var("group")))
        start = block_start(plan.column_blocks, plan.width, shape.columns.extent)
        indices = {part.axis.name: part.index for part in plan.others}
        return indices | self._row(group) | {shape.columns.name: add(start, column)}

    def _row(self, group: Scalar) -> dict[str, Scalar]:
        """The values of the row axes at the current row of a group."""
        *others, last = self.plan.shape.rows
        chunks = last.extent // GROUP
        last_group = _digit(group, chunks) if others else group
        indices = {last.name: add(times(last_group, GROUP), Var("row"))}
        for position, axis in reversed(list(enumerate(others))):
            group = Binary("floordiv", group, Const(chunks, "int64"))
            chunks = axis.extent
            indices[axis.name] = _digit(group, chunks) if position else group
        return indices

    def _deep(self, piece: Scalar, element: Scalar) -> dict[str, Scalar]:
        """The values of the reduction axes at an element of the current block."""
        indices = {part.axis.name: part.base for part in self.plan.window}
        base = times(Var(self.plan.depth.outer.name), DEPTH)
        depth = add(base, add(times(piece, PIECE), element))
        return indices | {self.plan.depth.axis.name: depth}

    # --- operands

    def _left(self) -> Read:
        """Rows of a fragment, 64 deep, as the permutation lays them; what the nest reads
        of them."""
        row, place, lane = (
            Axis(name=name, extent=extent)
            for name, extent in (("row", GROUP), ("place", PIECES), ("lane", PIECE))
        )
        groups = Axis(name="group", extent=ROWS // GROUP)
        box = [self.down, self.fragments, groups, row, place, lane]
        indices = self._point(Var(self.down.name), Var(self.fragments.name), Const(0, "int64"))
        indices |= self._deep(_permuted(Var(place.name), Var(row.name)), Var(lane.name))
        levels = self._copy("left", self.plan.shape.left.read, box, indices)
        rows = [Var(axis.name) for axis in (self.down, self.fragments, *self.element[:2])]
        deep = (_permuted(Var("depth_1"), Var("row")), Var("depth_0"))
        return Read(f"{self.name}_left", (*levels, *rows, *deep))

    def _right(self) -> Read:
        """Panels of 64 columns: rows of the reduction where adjacent columns lie
        together, else rows of columns."""
        if self.plan.shape.transposed:
            box, indices, element = self._rows_of_columns()
        else:
            box, indices, element = self._rows_of_reduction()
        levels = self._copy("right", self.plan.shape.right.read, box, indices)
        return Read(f"{self.name}_right", (*levels, *element))

    def _rows_of_columns(self) -> tuple[list[Axis], dict[str, Scalar], list[Scalar]]:
        """Of panels whose rows are columns: the box, the values of the group's axes in
        it, and where an element lies in it."""
        place, lane = Axis(name="place", extent=PIECES), Axis(name="lane", extent=PIECE)
        piece, column = Var("piece"), Var("column")
        box = [self.across, self.panels, self.halves, *self.element[2:], place, lane]
        indices = self._point(Const(0, "int64"), Const(0, "int64"), self._column)
        indices |= self._deep(_permuted(Var(place.name), column), Var(lane.name))
        panel = [Var(axis.name) for axis in (self.across, self.panels, self.halves)]
        deep = [_permuted(Var("depth_1"), column), Var("depth_0")]
        return box, indices, [*panel, piece, column, *deep]

    def _rows_of_reduction(self) -> tuple[list[Axis], dict[str, Scalar], list[Scalar]]:
        """Of panels whose rows are iterations: the box, the values of the group's axes in
        it, and where an element lies in it."""
        place, lane = Axis(name="place", extent=PIECES), Axis(name="lane", extent=PIECE)
        piece, column = Var("piece"), Var("column")
        depth = [Var("depth_1"), Var("depth_0")]
        box = [self.across, self.panels, *self.inner, place, lane]
        place_column = times(_permuted(Var(place.name), depth[1]), PIECE)
        panel_column = add(times(self._panel, COLUMNS), add(place_column, Var(lane.name)))
        indices = self._point(Const(0, "int64"), Const(0, "int64"), panel_column)
        indices |= self._deep(*depth)
        panel = [Var(self.across.name), Var(self.panels.name)]
        panel_piece = add(times(Var(self.halves.name), STRIP // PIECE), piece)
        return box, indices, [*panel, *depth, _permuted(panel_piece, depth[1]), column]

    def _copy(
        self, side: str, read: Read, box: list[Axis], indices: dict[str, Scalar]
    ) -> tuple[Scalar, ...]:
        """The copy of an operand's part.

        Returns the iterators it is placed under, which number it in its buffer until it
        is placed.
        """
        blocks = self.plan.row_blocks if side == "left" else self.plan.column_blocks
        moving = [*(part.outer for part in self.plan.others), blocks]
        levels = [axis for axis in self.grid if axis in moving] + self.outer
        body = substitute(
            with_explicit_padding(read, self.shapes, self.group.anchor.extents), indices
        )
        depth = self.plan.depth
        if depth.axis.extent % DEPTH:
            # Pieces lie within the reduction or beyond it as a whole.
            inside = Binary("lt", indices[depth.axis.name], Const(depth.axis.extent, "int64"))
            body = Select(inside, body, Const(0, self.dtype))
        self.add(f"{self.name}_{side}", [*levels, *box], body, self.dtype, "shared.dyn")
        return tuple(Var(axis.name) for axis in levels)

    # --- steps

    def _schedule(self) -> None:
        accumulators, strip = self.accumulators, self.strip
        tile = [self.fragments, self.panels, self.halves, *self.element]
        # Loops of one iteration stand outside of what the instruction replaces, which
        # has none.
        replaced = sorted(tile, key=lambda axis: axis.extent > 1)
        warpgroups = [*self.grid, self.down, self.across]
        self.reorder(accumulators, [*warpgroups, *self.outer, *replaced, *self.inner])
        self.steps.append(Bind(loop=LoopId(accumulators, "down"), axis="threadIdx.y"))
        self.steps.append(Bind(loop=LoopId(accumulators, "across"), axis="threadIdx.z"))
        self.steps.append(ReverseComputeAt(block=strip, loop=LoopId(accumulators, "across")))
        self.reorder(strip, tile)
        self.steps.append(ReverseComputeAt(block=self.name, loop=LoopId(strip, "half")))
        self._store()
        for side in ("left", "right"):
            self._place(f"{self.name}_{side}")
        self.launch(Pipelining(overlap=Overlap.ASYNC, stages=self.plan.tile.stages))
        self._instructions()

    def _place(self, block: str) -> None:
        """Under the loop over the reduction, dealt out to all threads of the block:
        eight adjacent ones write a row."""
        threads: tuple[tuple[ThreadAxis, int], ...] = (
            ("threadIdx.z", self.plan.tile.across),
            ("threadIdx.y", self.plan.tile.down),
            ("threadIdx.x", THREADS),
        )
        copy = next(candidate for candidate in self.blocks if candidate.name == block)
        box = [axis for axis in copy.axes if axis not in (*self.grid, *self.outer)]
        parts = tuple(LoopId(block, axis) for axis, _ in threads)
        lanes = LoopId(block, "lanes")
        self.steps += [
            ComputeAt(block=block, loop=LoopId.of(self.accumulators, self.outer[-1])),
            Fuse(loops=loops_of(block, box), into=LoopId(block, "all")),
            SplitLoop(
                loop=LoopId(block, "all"),
                factors=(*(extent for _, extent in threads), PIECE),
                into=(LoopId(block, "step"), *parts, lanes),
            ),
            *(Bind(loop=part, axis=axis) for part, (axis, _) in zip(parts, threads, strict=True)),
            GuardedCopy(loop=lanes) if isinstance(copy.body, Select) else Vectorize(loop=lanes),
            Unroll(loop=LoopId(block, "step")),
        ]

    def _store(self) -> None:
        """A warpgroup's threads share its strip: each writes adjacent elements, as
        rows are aligned for that."""
        self.share_store(self.element, THREADS, min(store_width(self.group), PIECE))

    def _instructions(self) -> None:
        """Puts instructions in place of the loops over fragments and panels."""
        tile = self.plan.tile
        loops = (self.fragments, self.panels, self.halves)
        replaced = next(axis.name for axis in loops if axis.extent > 1)
        self.steps += [
            # Accumulators are addressed by numbers that the compiler must know.
            *(Unroll(loop=LoopId.of(self.strip, axis)) for axis in loops),
            *(Unroll(loop=LoopId.of(self.accumulators, axis, initial=True)) for axis in loops),
            Tensorize(
                loop=LoopId(self.accumulators, "group", initial=True),
                instruction=WarpgroupFill(),
            ),
            Tensorize(
                loop=LoopId(self.accumulators, replaced),
                instruction=WarpgroupMultiply(
                    fragments=tile.fragments,
                    panels=tile.panels,
                    dtype=self.dtype,
                    transposed=self.plan.shape.transposed,
                ),
            ),
            Tensorize(loop=LoopId(self.strip, "group"), instruction=WarpgroupStore()),
            # Asked of the block that TVM puts around the instruction: what is asked of
            # the loops before is lost with them.
            StorageAlign(block=f"{self.strip}_o", dimension=-3, factor=STRIP, offset=STRIP_PAD),
        ]


def _permuted(piece: Scalar, row: Scalar) -> Scalar:
    """Where a piece of a row lies, and the other way round."""
    return Binary("xor", piece, row)


def _digit(number: Scalar, base: int) -> Scalar:
    return Binary("floormod", number, Const(base, "int64"))
