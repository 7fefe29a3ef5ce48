"""The tensor-core sketch for GPUs: a sum of products on squares of 16, a square a warp
at a time, operands through shared memory.

Nest, outermost first: the grid, the warps of a block, blocks of the reduction with both
operands fetched under them, squares of the reduction with their operands loaded into
fragments, and the warp's own squares of the output. What is summed goes through a
square of shared memory a warp, where the epilogue reads it. Until the instructions are
put in, loops do the same one by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tuner.spaces.cuda.accumulators import SumsNest, store_width
from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.cuda.limits import widest
from tuner.spaces.cuda.shared_copies import Fetch, fetch
from tuner.spaces.program.loops import Level, LoopId
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import (
    Bind,
    ComputeAt,
    Pipeline,
    Program,
    ReverseComputeAt,
    Scope,
    StorageAlign,
    Tensorize,
    ThreadAxis,
)
from tuner.spaces.program.tiles import add, at_most, times
from tuner.spaces.rewrite.access import Access
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.cuda import WARP
from tuner.workload.expression import DTYPE_BYTES, Axis, Binary, Cast, DType, Read, Scalar, Var

EDGE = 16  # of the squares that an instruction takes
SHORT: Mapping[str, str] = {
    "float16": "f16",
    "bfloat16": "bf16",
    "int8": "s8",
    "float32": "f32",
    "int32": "s32",
}
FRAGMENT_ALIGNMENT = 32  # bytes at which a square's row may begin


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpAxis(GridAxis):
    """A spatial axis as blocks of warps of squares; a block that does not divide the
    extent is moved back, as everywhere."""

    warps: int = 1
    squares: int = 1  # of one warp

    @property
    def block(self) -> int:
        return self.warps * self.squares * EDGE

    @property
    def warp(self) -> Axis:
        return Level.WARP.axis(self.axis.name, self.warps)

    @property
    def square(self) -> Axis:
        return Level.FRAGMENT.axis(self.axis.name, self.squares)

    @property
    def element(self) -> Axis:
        return Level.ELEMENT.axis(self.axis.name, EDGE)

    @property
    def within(self) -> Scalar:
        square = add(times(Var(self.warp.name), self.squares), Var(self.square.name))
        return add(times(square, EDGE), Var(self.element.name))

    @property
    def base(self) -> Scalar:
        first = times(Var(self.outer.name), self.block)
        return (
            at_most(first, self.axis.extent - self.block)
            if self.axis.extent % self.block
            else first
        )

    @property
    def outer(self) -> Axis:
        return Level.BLOCK.axis(self.axis.name, -(-self.axis.extent // self.block))


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaPlan:
    """A config of the sketch, decoded."""

    rows: WarpAxis  # along which the left operand moves
    columns: WarpAxis  # along which the right one does, and neighbouring elements are written
    others: tuple[GridAxis, ...]  # one element a block
    grid: tuple[str, ...]  # all axes, in the order in which blocks are numbered
    depth: DepthAxis  # of the reduction that both move along; unrolled by EDGE
    window: tuple[DepthAxis, ...]  # further reduction axes
    left: Access
    right: Access
    turned: bool  # the right operand lies with the reduction last
    padded: bool  # rows in shared memory stretched against bank conflicts
    pipeline: str  # "none", "registers" or "async"
    stages: int  # copies of the operands in shared memory where they are overlapped

    @property
    def spatial(self) -> tuple[GridAxis, ...]:
        return (*self.others, self.rows, self.columns)

    @property
    def reduction(self) -> tuple[DepthAxis, ...]:
        return (*self.window, self.depth)


class CudaMmaNest(SumsNest):
    """Builds the blocks and steps of one tile group under one plan."""

    def __init__(
        self,
        group: TileGroup,
        plan: MmaPlan,
        shapes: Mapping[str, tuple[int, ...]],
        dtypes: Mapping[str, DType],
    ) -> None:
        super().__init__(group, shapes)
        self.plan, self.dtypes = plan, dtypes
        self.kind = SHORT[dtypes[plan.left.read.tensor]]
        outers = {one.axis.name: one.outer for one in plan.spatial}
        self.grid = [outers[name] for name in plan.grid]
        self.warps = [plan.rows.warp, plan.columns.warp]
        self.squares = [plan.rows.square, plan.columns.square]
        self.elements = [plan.rows.element, plan.columns.element]
        self.outer = [one.outer for one in plan.reduction]
        self.inner = [axis for one in plan.window for axis in (one.inner, one.unrolled)] + [
            plan.depth.inner
        ]
        self.indices: dict[str, Scalar] = {one.axis.name: one.index for one in plan.spatial}
        self.indices |= {one.axis.name: one.index for one in plan.reduction}

    def build(self) -> Nest:
        plan = self.plan
        left = self._fetch("left", plan.left)
        right = self._fetch("right", plan.right)
        a = self._fragment(left, plan.rows, "matrix_a", turned=False)
        b = self._fragment(right, plan.columns, "matrix_b", turned=plan.turned)
        product = Binary("mul", Cast(self.accumulator, a), Cast(self.accumulator, b))
        spatial = [*self.grid, *self.warps, *self.squares, *self.elements]
        reduce = (*self.outer, *self.inner, plan.depth.unrolled)
        self.add(self.sums, spatial, product, self.accumulator, "wmma.accumulator", reduce)
        self.add(
            f"{self.name}_square",
            spatial,
            self._at(self.sums, spatial),
            self.accumulator,
            "shared.dyn",
        )
        self.add_output(spatial, self._at(f"{self.name}_square", spatial), self.indices)
        self._schedule([left, right])
        return self.nest

    # --- blocks
    # ------------------------------------------------------------------------------

    def _fetch(self, which: str, found: Access) -> Fetch:
        plan, tensor = self.plan, found.read.tensor
        itemsize = DTYPE_BYTES[self.dtypes[tensor]]
        made = fetch(
            f"{self.name}_{which}",
            found,
            plan.spatial,
            plan.reduction,
            self.shapes[tensor],
            self.dtypes[tensor],
            turned=False,
            width=widest(itemsize),
            padded=plan.padded,
        )
        buffer = replace(made.buffer, scope="shared.dyn")
        made = replace(made, buffer=buffer, pad=pad_of(plan, itemsize) if plan.padded else 0)
        self.blocks.append(made.block)
        self.buffers.append(made.buffer)
        return made

    def _fragment(self, made: Fetch, axis: WarpAxis, operand: str, *, turned: bool) -> Read:
        """A warp's squares of one operand at one square of the reduction; what is read of it."""
        name = f"{made.block.name}_fragment"
        square = [axis.element, self.plan.depth.unrolled]
        if operand == "matrix_b" and not turned:
            square.reverse()
        axes = [*self.grid, axis.warp, *self.outer, *self.inner, axis.square, *square]
        scope: Scope = "wmma.matrix_a" if operand == "matrix_a" else "wmma.matrix_b"
        self.add(name, axes, made.read, made.buffer.dtype, scope)
        return self._at(name, axes)

    def _at(self, name: str, axes: list[Axis]) -> Read:
        return Read(name, tuple(Var(axis.name) for axis in axes))

    # --- steps
    # ------------------------------------------------------------------------------

    def _schedule(self, fetches: list[Fetch]) -> None:
        plan, sums, square = self.plan, self.sums, f"{self.name}_square"
        unrolled = plan.depth.unrolled
        self.reorder(
            sums,
            [
                *self.grid,
                *self.warps,
                *self.outer,
                *self.inner,
                *self.squares,
                *self.elements,
                unrolled,
            ],
        )
        threads: tuple[tuple[ThreadAxis, int], ...] = (
            ("threadIdx.z", plan.columns.warps),
            ("threadIdx.y", plan.rows.warps),
            ("threadIdx.x", WARP),
        )
        self.steps.append(Bind(loop=LoopId.of(sums, plan.rows.warp), axis="threadIdx.y"))
        self.steps.append(Bind(loop=LoopId.of(sums, plan.columns.warp), axis="threadIdx.z"))
        self.steps.append(ReverseComputeAt(block=square, loop=LoopId.of(sums, plan.columns.warp)))
        self.reorder(square, [*self.squares, *self.elements])
        self.steps.append(
            ReverseComputeAt(block=self.name, loop=LoopId.of(square, plan.columns.square))
        )
        self._store()
        for made, part in zip(fetches, ("left", "right"), strict=True):
            fragment = f"{self.name}_{part}_fragment"
            self.steps.append(ComputeAt(block=fragment, loop=LoopId.of(sums, plan.depth.inner)))
            self.steps += made.steps(LoopId.of(sums, self.outer[-1]), threads)
        self.launch(
            asynchronous=None if plan.pipeline == "none" else plan.pipeline == "async",
            stages=plan.stages,
        )
        self._instructions()

    def _store(self) -> None:
        """A warp's threads share its square: each writes neighbouring elements, where
        rows are aligned for that."""
        columns, width = self.plan.columns, store_width(self.group)
        while width > 1 and not (
            columns.starts_at_multiples_of(width) and columns.axis.extent % width == 0
        ):
            width //= 2
        self.share_store(self.elements, WARP, width)

    def _instructions(self) -> None:
        plan, kind, sums = self.plan, self.kind, SHORT[self.accumulator]
        turned = "_turned" if plan.turned else ""
        rows, columns = plan.rows.element.name, plan.columns.element.name
        right = columns if plan.turned else plan.depth.unrolled.name
        self.steps += [
            Tensorize(
                loop=LoopId(f"{self.name}_left_fragment", rows), instruction=f"square_load_a_{kind}"
            ),
            Tensorize(
                loop=LoopId(f"{self.name}_right_fragment", right),
                instruction=f"square_load_b_{kind}{turned}",
            ),
            Tensorize(
                loop=LoopId(self.sums, rows, initial=True), instruction=f"square_fill_{sums}"
            ),
            Tensorize(
                loop=LoopId(self.sums, rows), instruction=f"square_multiply_{kind}_{sums}{turned}"
            ),
            Tensorize(loop=LoopId(f"{self.name}_square", rows), instruction=f"square_store_{sums}"),
        ]


def pad_of(plan: MmaPlan, itemsize: int) -> int:
    """Elements by which rows of a box are stretched.

    Where a window moves along the rows a square begins at any of them, so that every
    row keeps a square's alignment.
    """
    return (FRAGMENT_ALIGNMENT if plan.window else FRAGMENT_ALIGNMENT // 2) // itemsize


def described(program: Program) -> Program:
    """The program with what its instructions do in their place: the same loops one by
    one, on ordinary memory."""
    blocks = {
        block.name for block in program.blocks
    }  # those that TVM puts around instructions are not among them
    return replace(
        program,
        buffers=tuple(
            replace(one, scope="local") if one.scope.startswith("wmma") else one
            for one in program.buffers
        ),
        steps=tuple(
            replace(step, asynchronous=False) if isinstance(step, Pipeline) else step
            for step in program.steps
            if not isinstance(step, Tensorize)
            and not (isinstance(step, StorageAlign) and step.block not in blocks)
        ),
    )
