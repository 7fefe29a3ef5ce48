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
taken together in groups of eight neighbours along the last of them: for a convolution,
pixels of all images. What is fetched is what the left operand reads there, so that an
implicit matrix product needs no box and no stride of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tuner.spaces.cuda.accumulators import SumsNest, store_width
from tuner.spaces.cuda.axes import DepthAxis, GridAxis
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
from tuner.spaces.program.tiles import add, at_most, times
from tuner.spaces.rewrite.access import unpadded
from tuner.spaces.rewrite.groups import TileGroup
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Const,
    DType,
    Read,
    Scalar,
    Select,
    Var,
    substitute,
)

GROUP = 8  # rows of 128 bytes after which the permutation starts again
PIECES, PIECE = 8, 8  # pieces of a row, and 16-bit elements of a piece
DEPTH = PIECES * PIECE  # of a row of the left operand: what one instruction's loop goes over
ROWS = 64  # of an instruction
COLUMNS = 64  # of the operand's panel that lies together
STRIP = 32  # columns whose sums are held, and written back, together
THREADS = 128  # of a warpgroup
# 32-bit elements by which rows of a strip in shared memory are stretched against bank
# conflicts
STRIP_PAD = 8
KINDS: Mapping[str, str] = {"float16": "f16", "bfloat16": "bf16"}


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupPlan:
    """A config of the sketch, decoded. A block has `down` by `across` warpgroups of
    `squares` by `panels` of 64 by 64."""

    rows: tuple[Axis, ...]  # along which only the left operand moves, the last in groups of eight
    columns: Axis  # along which only the right one does, and neighbouring elements are written
    others: tuple[GridAxis, ...]  # one element a block
    down: int
    squares: int
    across: int
    panels: int
    depth: DepthAxis  # of the reduction that both move along
    window: tuple[DepthAxis, ...]  # further reduction axes, walked one by one
    left: Read
    right: Read
    turned: bool  # the right operand lies with the reduction last
    stages: int  # copies of the operands in shared memory
    rows_first: bool  # the order in which blocks are numbered

    @property
    def groups(self) -> int:
        """Of a block's rows."""
        return self.down * self.squares * (ROWS // GROUP)

    @property
    def all_groups(self) -> int:
        return prod(axis.extent for axis in self.rows) // GROUP

    @property
    def row_blocks(self) -> Axis:
        return Axis(name="rows_2", extent=-(-self.all_groups // self.groups))

    @property
    def width(self) -> int:
        return self.across * self.panels * COLUMNS

    @property
    def column_blocks(self) -> Axis:
        return Axis(name="columns_2", extent=-(-self.columns.extent // self.width))

    @property
    def reduction(self) -> tuple[DepthAxis, ...]:
        return (*self.window, self.depth)


class CudaWarpgroupNest(SumsNest):
    """Builds the blocks and steps of one tile group under one plan."""

    def __init__(
        self,
        group: TileGroup,
        plan: WarpgroupPlan,
        shapes: Mapping[str, tuple[int, ...]],
        dtypes: Mapping[str, DType],
    ) -> None:
        super().__init__(group, shapes)
        self.plan, self.strip = plan, f"{group.name}_strip"
        self.dtype = dtypes[plan.left.tensor]
        numbered = [plan.row_blocks, plan.column_blocks]
        self.grid = [
            *(one.outer for one in plan.others),
            *(numbered if plan.rows_first else reversed(numbered)),
        ]
        self.outer = [one.outer for one in plan.reduction]
        self.down, self.across = (
            Axis(name="down", extent=plan.down),
            Axis(name="across", extent=plan.across),
        )
        self.squares, self.panels = (
            Axis(name="square", extent=plan.squares),
            Axis(name="panel", extent=plan.panels),
        )
        self.halves = Axis(name="half", extent=COLUMNS // STRIP)
        # Of a strip of sums: groups of rows and rows of a group, pieces of its columns
        # and columns of a piece.
        self.element = [
            Axis(name="group", extent=ROWS // GROUP),
            Axis(name="row", extent=GROUP),
            Axis(name="piece", extent=STRIP // PIECE),
            Axis(name="column", extent=PIECE),
        ]
        self.inner = [Axis(name="depth_1", extent=PIECES), Axis(name="depth_0", extent=PIECE)]

    def build(self) -> Nest:
        left, right = self._left(), self._right()
        spatial = [
            *self.grid,
            self.down,
            self.across,
            self.squares,
            self.panels,
            self.halves,
            *self.element,
        ]
        product = Binary("mul", Cast(self.accumulator, left), Cast(self.accumulator, right))
        self.add(
            self.sums,
            spatial,
            product,
            self.accumulator,
            "wmma.accumulator",
            (*self.outer, *self.inner),
        )
        here = tuple(Var(axis.name) for axis in spatial)
        self.add(self.strip, spatial, Read(self.sums, here), self.accumulator, "shared.dyn")
        indices = self._point(Var(self.down.name), Var(self.squares.name), self._column)
        self.add_output(spatial, Read(self.strip, here), indices)
        self._schedule()
        return self.nest

    # --- indices
    # ------------------------------------------------------------------------------

    @cached_property
    def _column(self) -> Scalar:
        """The column within the block, from the axes of the sums."""
        panel = add(times(Var(self.across.name), self.plan.panels), Var(self.panels.name))
        strip = add(times(panel, COLUMNS // STRIP), Var(self.halves.name))
        piece = add(times(strip, STRIP // PIECE), Var("piece"))
        return add(times(piece, PIECE), Var("column"))

    def _point(self, down: Scalar, square: Scalar, column: Scalar) -> dict[str, Scalar]:
        """Where all spatial axes of the group stand. A block that does not divide is
        moved back, as everywhere."""
        plan = self.plan
        first = times(Var(plan.row_blocks.name), plan.groups)
        first = (
            at_most(first, plan.all_groups - plan.groups)
            if plan.all_groups % plan.groups
            else first
        )
        number = add(
            first, add(times(add(times(down, plan.squares), square), ROWS // GROUP), Var("group"))
        )
        found = {one.axis.name: one.index for one in plan.others}
        *others, last = plan.rows
        chunks = last.extent // GROUP
        found[last.name] = add(
            times(_digit(number, chunks) if others else number, GROUP), Var("row")
        )
        for place, axis in reversed(list(enumerate(others))):
            number = Binary("floordiv", number, Const(chunks, "int64"))
            chunks = axis.extent
            found[axis.name] = _digit(number, chunks) if place else number
        start = times(Var(plan.column_blocks.name), plan.width)
        extent = plan.columns.extent
        start = at_most(start, extent - plan.width) if extent % plan.width else start
        found[plan.columns.name] = add(start, column)
        return found

    def _deep(self, piece: Scalar, element: Scalar) -> dict[str, Scalar]:
        """Where the reduction stands at an element of the current block of it."""
        found = {one.axis.name: one.base for one in self.plan.window}
        base = times(Var(self.plan.depth.outer.name), DEPTH)
        return found | {self.plan.depth.axis.name: add(base, add(times(piece, PIECE), element))}

    # --- operands
    # ------------------------------------------------------------------------------

    def _left(self) -> Read:
        """Rows of a square, 64 deep, as the permutation lays them; what the nest reads of them."""
        row, place, lane = (
            Axis(name=name, extent=extent)
            for name, extent in (("row", GROUP), ("place", PIECES), ("lane", PIECE))
        )
        box = [self.down, self.squares, Axis(name="group", extent=ROWS // GROUP), row, place, lane]
        indices = self._point(Var(self.down.name), Var(self.squares.name), Const(0, "int64"))
        indices |= self._deep(_permuted(Var(place.name), Var(row.name)), Var(lane.name))
        levels = self._fetch("left", self.plan.left, box, indices)
        reads = [self.down, self.squares, *self.element[:2]]
        deep = (_permuted(Var("depth_1"), Var("row")), Var("depth_0"))
        return Read(f"{self.name}_left", (*levels, *(Var(axis.name) for axis in reads), *deep))

    def _right(self) -> Read:
        """Panels of 64 columns: rows of the reduction where neighbouring columns lie
        together, else rows of columns."""
        place, lane = Axis(name="place", extent=PIECES), Axis(name="lane", extent=PIECE)
        piece, column = Var("piece"), Var("column")
        if self.plan.turned:
            box = [self.across, self.panels, self.halves, *self.element[2:], place, lane]
            indices = self._deep(_permuted(Var(place.name), column), Var(lane.name))
            at = self._column
            reads: list[Scalar] = [
                Var(axis.name) for axis in (self.across, self.panels, self.halves)
            ]
            reads += [piece, column, _permuted(Var("depth_1"), column), Var("depth_0")]
        else:
            box = [self.across, self.panels, *self.inner, place, lane]
            indices = self._deep(Var("depth_1"), Var("depth_0"))
            panel = add(times(Var(self.across.name), self.plan.panels), Var(self.panels.name))
            at = add(
                times(panel, COLUMNS),
                add(times(_permuted(Var(place.name), Var("depth_0")), PIECE), Var(lane.name)),
            )
            within = add(times(Var(self.halves.name), STRIP // PIECE), piece)
            reads = [Var(self.across.name), Var(self.panels.name), Var("depth_1"), Var("depth_0")]
            reads += [_permuted(within, Var("depth_0")), column]
        indices = self._point(Const(0, "int64"), Const(0, "int64"), at) | indices
        levels = self._fetch("right", self.plan.right, box, indices)
        return Read(f"{self.name}_right", (*levels, *reads))

    def _fetch(
        self, which: str, read: Read, box: list[Axis], indices: dict[str, Scalar]
    ) -> tuple[Scalar, ...]:
        """The copy of an operand's part; the iterators it is placed under, which number
        it in its buffer until it is placed."""
        anchor = self.group.anchor
        moving = [one.outer for one in self.plan.others] + [
            self.plan.row_blocks if which == "left" else self.plan.column_blocks
        ]
        levels = [axis for axis in self.grid if axis in moving] + self.outer
        body = substitute(unpadded(read, self.shapes, anchor.extents), indices)
        depth = self.plan.depth
        if depth.axis.extent % DEPTH:
            # Pieces lie within the reduction or beyond it as a whole.
            inside = Binary("lt", indices[depth.axis.name], Const(depth.axis.extent, "int64"))
            body = Select(inside, body, Const(0, self.dtype))
        self.add(f"{self.name}_{which}", [*levels, *box], body, self.dtype, "shared.dyn")
        return tuple(Var(axis.name) for axis in levels)

    # --- steps
    # ------------------------------------------------------------------------------

    def _schedule(self) -> None:
        plan, sums, strip = self.plan, self.sums, self.strip
        tile = [self.squares, self.panels, self.halves, *self.element]
        # Loops of one turn stand outside of what the instruction replaces, which has none.
        replaced = sorted(tile, key=lambda axis: axis.extent > 1)
        self.reorder(
            sums, [*self.grid, self.down, self.across, *self.outer, *replaced, *self.inner]
        )
        self.steps.append(Bind(loop=LoopId(sums, "down"), axis="threadIdx.y"))
        self.steps.append(Bind(loop=LoopId(sums, "across"), axis="threadIdx.z"))
        self.steps.append(ReverseComputeAt(block=strip, loop=LoopId(sums, "across")))
        self.reorder(strip, tile)
        self.steps.append(ReverseComputeAt(block=self.name, loop=LoopId(strip, "half")))
        self._store()
        for which in ("left", "right"):
            self._place(f"{self.name}_{which}")
        self.launch(asynchronous=True, stages=plan.stages)
        self._instructions()

    def _place(self, block: str) -> None:
        """Under the loop over the reduction, dealt out to all threads of the block:
        eight neighbours write a row."""
        threads: tuple[tuple[ThreadAxis, int], ...] = (
            ("threadIdx.z", self.plan.across),
            ("threadIdx.y", self.plan.down),
            ("threadIdx.x", THREADS),
        )
        copy = next(one for one in self.blocks if one.name == block)
        box = [axis for axis in copy.axes if axis not in (*self.grid, *self.outer)]
        parts = tuple(LoopId(block, axis) for axis, _ in threads)
        self.steps += [
            ComputeAt(block=block, loop=LoopId.of(self.sums, self.outer[-1])),
            Fuse(loops=loops_of(block, box), into=LoopId(block, "all")),
            SplitLoop(
                loop=LoopId(block, "all"),
                factors=(*(extent for _, extent in threads), PIECE),
                into=(LoopId(block, "step"), *parts, LoopId(block, "lanes")),
            ),
            *(Bind(loop=part, axis=axis) for part, (axis, _) in zip(parts, threads, strict=True)),
            GuardedCopy(loop=LoopId(block, "lanes"))
            if isinstance(copy.body, Select)
            else Vectorize(loop=LoopId(block, "lanes")),
            Unroll(loop=LoopId(block, "step")),
        ]

    def _store(self) -> None:
        """A warpgroup's threads share its strip: each writes neighbouring elements, as
        rows are aligned for that."""
        self.share_store(self.element, THREADS, min(store_width(self.group), PIECE))

    def _instructions(self) -> None:
        plan = self.plan
        tail = "_turned" if plan.turned else ""
        tile = next(
            axis.name for axis in (self.squares, self.panels, self.halves) if axis.extent > 1
        )
        self.steps += [
            # Sums are addressed by number, which must be known to the compiler.
            Unroll(loop=LoopId(self.strip, "square")),
            Unroll(loop=LoopId(self.strip, "panel")),
            Unroll(loop=LoopId(self.strip, "half")),
            Unroll(loop=LoopId(self.sums, "square", initial=True)),
            Unroll(loop=LoopId(self.sums, "panel", initial=True)),
            Unroll(loop=LoopId(self.sums, "half", initial=True)),
            Tensorize(loop=LoopId(self.sums, "group", initial=True), instruction="warpgroup_fill"),
            Tensorize(
                loop=LoopId(self.sums, tile),
                instruction=f"warpgroup_multiply_{plan.squares}_{plan.panels}_{KINDS[self.dtype]}{tail}",
            ),
            Tensorize(loop=LoopId(self.strip, "group"), instruction="warpgroup_store"),
            # Asked of the block that TVM puts around the instruction: what is asked of
            # the loops before is lost with them.
            StorageAlign(block=f"{self.strip}_o", dimension=-3, factor=STRIP, offset=STRIP_PAD),
        ]


def _permuted(piece: Scalar, row: Scalar) -> Scalar:
    """Where a piece of a row lies, and the other way round."""
    return Binary("xor", piece, row)


def _digit(number: Scalar, base: int) -> Scalar:
    return Binary("floormod", number, Const(base, "int64"))
