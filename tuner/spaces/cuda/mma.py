"""The tensor-core sketch for GPUs: a sum of products on fragments of 16 by 16, each of
one warp (WMMA), operands through shared memory.

Nest, outermost first: the grid, the warps of a block, blocks of the reduction with both
operands' copies under them, steps of the reduction with their operands loaded into
fragments, and the warp's own fragments of the output. Accumulators go through one
fragment of shared memory for each warp, where the epilogue reads them. Until the
instructions are put in, loops compute the same element by element.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cuda.accumulators import AccumulatorNest, store_width
from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.cuda.copy_mode import SharedCopy
from tuner.spaces.cuda.limits import widest
from tuner.spaces.cuda.pipelining import Pipelining
from tuner.spaces.cuda.shared_copies import BoxCopy, OperandBox
from tuner.spaces.program.instructions import (
    FragmentFill,
    FragmentLoad,
    FragmentMultiply,
    FragmentStore,
    TensorInstruction,
)
from tuner.spaces.program.loops import Level, LoopId
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import (
    Bind,
    ComputeAt,
    ReverseComputeAt,
    Scope,
    Tensorize,
    ThreadAxis,
)
from tuner.spaces.program.tiles import add, times
from tuner.spaces.rewrite.access import Access
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.cuda import WARP
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Binary, Cast, Read, Scalar, Var

FRAGMENT_EDGE = 16  # elements of each side of the fragments that an instruction takes
FRAGMENT_ALIGNMENT = 32  # bytes at which a fragment's row may begin


@dataclass(frozen=True, slots=True, kw_only=True)
class ProductShape:
    """Which axis of a sum of products plays which part."""

    rows: Axis
    columns: Axis
    depth: Axis
    left: Access
    right: Access
    transposed: bool  # the right operand lies with the reduction last


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpAxis(GridAxis):
    """A spatial axis as blocks of warps of fragments."""

    warps: int = 1
    fragments: int = 1  # of one warp

    @property
    def block(self) -> int:
        return self.warps * self.fragments * FRAGMENT_EDGE

    @property
    def warp(self) -> Axis:
        """The loop over warps."""
        return Level.WARP.axis(self.axis.name, self.warps)

    @property
    def fragment(self) -> Axis:
        """The loop over a warp's fragments."""
        return Level.FRAGMENT.axis(self.axis.name, self.fragments)

    @property
    def element(self) -> Axis:
        """The loop over a fragment's elements."""
        return Level.ELEMENT.axis(self.axis.name, FRAGMENT_EDGE)

    @property
    def within(self) -> Scalar:
        fragment = add(times(Var(self.warp.name), self.fragments), Var(self.fragment.name))
        return add(times(fragment, FRAGMENT_EDGE), Var(self.element.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class MmaPlan:
    """A config of the sketch, decoded."""

    shape: ProductShape
    rows: WarpAxis  # along which the left operand moves
    columns: WarpAxis  # along which the right one does, and adjacent elements are written
    others: tuple[GridAxis, ...]  # one element a block
    grid: tuple[str, ...]  # all axes, in the order in which blocks are numbered
    depth: DepthAxis  # of the reduction that both move along; unrolled by FRAGMENT_EDGE
    window: tuple[DepthAxis, ...]  # further reduction axes
    padded: bool  # rows in shared memory stretched against bank conflicts
    pipelining: Pipelining

    @property
    def spatial(self) -> tuple[GridAxis, ...]:
        return (*self.others, self.rows, self.columns)

    @property
    def reduction(self) -> tuple[DepthAxis, ...]:
        return (*self.window, self.depth)


class CudaMmaNest(AccumulatorNest):
    """Builds the blocks and steps of one tile group under one plan."""

    def __init__(self, group: TileGroup, plan: MmaPlan, context: SpaceContext) -> None:
        super().__init__(group, context.shapes)
        self.plan, self.dtypes = plan, context.dtypes
        self.operand_dtype = context.dtypes[plan.shape.left.read.tensor]
        self.staging = f"{group.name}_square"  # a fragment of shared memory for each warp
        outers = {part.axis.name: part.outer for part in plan.spatial}
        self.grid = [outers[name] for name in plan.grid]
        self.warps = [plan.rows.warp, plan.columns.warp]
        self.fragments = [plan.rows.fragment, plan.columns.fragment]
        self.elements = [plan.rows.element, plan.columns.element]
        self.outer = [part.outer for part in plan.reduction]
        self.inner = [axis for part in plan.window for axis in (part.inner, part.unrolled)]
        self.inner.append(plan.depth.inner)
        self.indices: dict[str, Scalar] = {part.axis.name: part.index for part in plan.spatial}
        self.indices |= {part.axis.name: part.index for part in plan.reduction}

    def build(self) -> Nest:
        plan, shape = self.plan, self.plan.shape
        left = self._copy("left", shape.left)
        right = self._copy("right", shape.right)
        a = self._fragment(left, plan.rows, "wmma.matrix_a", row_major=True)
        b = self._fragment(right, plan.columns, "wmma.matrix_b", row_major=shape.transposed)
        dtype = self.accumulator_dtype
        product = Binary("mul", Cast(dtype, a), Cast(dtype, b))
        spatial = [*self.grid, *self.warps, *self.fragments, *self.elements]
        reduce = (*self.outer, *self.inner, plan.depth.unrolled)
        self.add(self.accumulators, spatial, product, dtype, "wmma.accumulator", reduce)
        finished = _element(self.accumulators, spatial)
        self.add(self.staging, spatial, finished, dtype, "shared.dyn")
        self.add_output(spatial, _element(self.staging, spatial), self.indices)
        self._schedule([left, right])
        return self.nest

    # --- blocks

    def _copy(self, side: str, operand: Access) -> BoxCopy:
        """The copy of one operand's box; adds its block and buffer."""
        plan, tensor = self.plan, operand.read.tensor
        dtype = self.dtypes[tensor]
        itemsize = DTYPE_BYTES[dtype]
        box = OperandBox(operand, plan.spatial, plan.reduction, self.shapes[tensor], dtype)
        mode = SharedCopy(width=widest(itemsize), transposed=False, padded=plan.padded)
        copy = box.copy(f"{self.name}_{side}", mode)
        pad = row_padding(plan, itemsize) if plan.padded else 0
        copy = replace(copy, buffer=replace(copy.buffer, scope="shared.dyn"), pad=pad)
        self.blocks.append(copy.block)
        self.buffers.append(copy.buffer)
        return copy

    def _fragment(self, copy: BoxCopy, axis: WarpAxis, scope: Scope, *, row_major: bool) -> Read:
        """A warp's fragments of one operand at one step of the reduction; the read of one
        element.

        `row_major`: a fragment's elements along the reduction are adjacent.
        """
        name = f"{copy.block.name}_fragment"
        fragment = [axis.element, self.plan.depth.unrolled]
        if not row_major:
            fragment.reverse()
        axes = [*self.grid, axis.warp, *self.outer, *self.inner, axis.fragment, *fragment]
        self.add(name, axes, copy.read, copy.buffer.dtype, scope)
        return _element(name, axes)

    # --- steps

    def _schedule(self, copies: list[BoxCopy]) -> None:
        plan, accumulators = self.plan, self.accumulators
        outer = [*self.grid, *self.warps, *self.outer, *self.inner]
        self.reorder(accumulators, [*outer, *self.fragments, *self.elements, plan.depth.unrolled])
        threads: tuple[tuple[ThreadAxis, int], ...] = (
            ("threadIdx.z", plan.columns.warps),
            ("threadIdx.y", plan.rows.warps),
            ("threadIdx.x", WARP),
        )
        column_warps = LoopId.of(accumulators, plan.columns.warp)
        self.steps += [
            Bind(loop=LoopId.of(accumulators, plan.rows.warp), axis="threadIdx.y"),
            Bind(loop=column_warps, axis="threadIdx.z"),
            ReverseComputeAt(block=self.staging, loop=column_warps),
        ]
        self.reorder(self.staging, [*self.fragments, *self.elements])
        column_fragments = LoopId.of(self.staging, plan.columns.fragment)
        self.steps.append(ReverseComputeAt(block=self.name, loop=column_fragments))
        self._store()
        for copy in copies:
            fragment = f"{copy.block.name}_fragment"
            loop = LoopId.of(accumulators, plan.depth.inner)
            self.steps.append(ComputeAt(block=fragment, loop=loop))
            self.steps += copy.steps(LoopId.of(accumulators, self.outer[-1]), threads)
        self.launch(plan.pipelining)
        self._instructions()

    def _store(self) -> None:
        """A warp's threads share its fragment: each writes adjacent elements, where rows
        are aligned for that."""
        columns, width = self.plan.columns, store_width(self.group)
        while width > 1 and not (
            columns.starts_at_multiples_of(width) and columns.axis.extent % width == 0
        ):
            width //= 2
        self.share_store(self.elements, WARP, width)

    def _instructions(self) -> None:
        """Puts instructions in place of the loops over fragments' elements."""
        plan = self.plan
        operand, accumulator = self.operand_dtype, self.accumulator_dtype
        transposed = plan.shape.transposed
        rows, columns = plan.rows.element.name, plan.columns.element.name
        right = columns if transposed else plan.depth.unrolled.name
        instructions: dict[LoopId, TensorInstruction] = {
            LoopId(f"{self.name}_left_fragment", rows): FragmentLoad(operand="a", dtype=operand),
            LoopId(f"{self.name}_right_fragment", right): FragmentLoad(
                operand="b", dtype=operand, transposed=transposed
            ),
            LoopId(self.accumulators, rows, initial=True): FragmentFill(dtype=accumulator),
            LoopId(self.accumulators, rows): FragmentMultiply(
                dtype=operand, accumulator=accumulator, transposed=transposed
            ),
            LoopId(self.staging, rows): FragmentStore(dtype=accumulator),
        }
        self.steps += [
            Tensorize(loop=loop, instruction=instruction)
            for loop, instruction in instructions.items()
        ]


def _element(buffer: str, axes: list[Axis]) -> Read:
    return Read(buffer, tuple(Var(axis.name) for axis in axes))


def row_padding(plan: MmaPlan, itemsize: int) -> int:
    """Elements by which rows of a box are stretched.

    Where a window moves along the rows a fragment begins at any of them, so that every
    row keeps a fragment's alignment.
    """
    return (FRAGMENT_ALIGNMENT if plan.window else FRAGMENT_ALIGNMENT // 2) // itemsize
