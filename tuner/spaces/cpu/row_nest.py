"""The row nest of CPUs: stages that share rows run a few rows at a time, reductions
along the column in parallel lanes.

Stages along the column that are kept between two others live in a buffer of one row,
laid out in the tiles of the column. The same nest serves a matrix product whose operands
are both contiguous along the reduction: its rows are then tiles of output elements.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tuner.spaces.cpu.nest_parts import NestParts
from tuner.spaces.cpu.row_blocks import RowBlocks
from tuner.spaces.cpu.row_bodies import RowBodies
from tuner.spaces.cpu.row_plan import RowLoops, RowPlan
from tuner.spaces.cpu.row_prefetch import RowPrefetch
from tuner.spaces.cpu.row_reduction import RowReductions
from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.marks import Unroll, Vectorize
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import Block, ComputeAt, DecomposeReduction, Reorder
from tuner.spaces.rewrite.groups import COLUMN, RowGroup
from tuner.spaces.rewrite.stages import inline_into
from tuner.workload.expression import Axis, Read, Scalar, Stage, Var
from tuner.workload.scalar_operators import identity


class RowNest:
    """Builds the blocks and steps of one row group under one plan."""

    def __init__(
        self, group: RowGroup, plan: RowPlan, shapes: Mapping[str, tuple[int, ...]]
    ) -> None:
        self._plan, self._loops = plan, RowLoops(plan)
        self._stages = _recompute(group.stages, plan.recomputed)
        self._parts = NestParts(math_functions=plan.math_functions, threads=plan.threads)
        self._blocks = RowBlocks(self._loops, self._parts)
        self._bodies = RowBodies(group, self._stages, self._loops, self._blocks, shapes)
        self._prefetch = RowPrefetch(group, self._stages, self._loops, shapes)
        self._reductions = RowReductions(self._loops, self._blocks, self._bodies, self._prefetch)

    def build(self) -> Nest:
        for stage in self._stages[:-1]:
            if stage.reducer is not None:
                self._bodies.finish(stage.name, self._reductions.add(stage))
            elif self._is_along_column(stage):
                self._keep(stage)
            else:
                body = self._bodies.of_row(stage)
                self._blocks.local(stage.name, [], body, stage.dtype)
                self._bodies.finish(stage.name, Read(stage.name, self._loops.row))
        self._place(self._host(self._stages[-1]))
        return self._parts.nest()

    # --- stages

    def _is_along_column(self, stage: Stage) -> bool:
        return len(stage.axes) > len(self._plan.rows)

    @property
    def _along(self) -> list[Axis]:
        """Loops over tiles of the column, their vectors and lanes."""
        return [self._plan.column.outer, self._loops.vectors, self._loops.lanes]

    def _keep(self, stage: Stage) -> None:
        """A stage along the column that others read: a row of it, in the column's tiles."""
        column = self._plan.column
        self._blocks.allocate(stage.name, self._along, stage.dtype, scope="global")
        body = self._bodies.along_column(stage, column.index, Var(column.outer.name))
        live = self._bodies.live(stage, column.index)
        self._blocks.compute(
            stage.name,
            self._along,
            body,
            when=live,
            otherwise=identity("sum", stage.dtype) if live else None,
            prefetches=self._prefetch.of(stage, column.index),
        )
        self._bodies.keep(stage.name)

    def _host(self, stage: Stage) -> Block:
        """The group's output, whose loops host all other blocks."""
        column = self._plan.column
        along, body = list[Axis](), self._output(stage)
        if stage.reducer is None and self._is_along_column(stage):
            along = self._along
        where = self._loops.indices | {COLUMN: column.index}
        live = self._bodies.live(stage, column.index) if along else ()
        return self._parts.compute(
            stage.name,
            [*self._loops.spatial, *along],
            [where[axis.name] for axis in stage.axes],
            body,
            when=live,
            otherwise=identity("sum", stage.dtype) if live else None,
            prefetches=self._prefetch.of(stage, column.index) if along else (),
            non_temporal=self._plan.non_temporal,
        )

    def _output(self, stage: Stage) -> Scalar:
        column = self._plan.column
        if stage.reducer is not None:
            return self._reductions.add(stage)
        if self._is_along_column(stage):
            return self._bodies.along_column(stage, column.index, Var(column.outer.name))
        return self._bodies.of_row(stage)

    # --- steps

    def _place(self, host: Block) -> None:
        """Nests everything under the host's rows, consumers first, then orders,
        vectorises and decomposes each block."""
        loops, steps, blocks = self._loops, self._parts.steps, self._parts.blocks
        reductions, values = self._reductions.loops_of, self._reductions.group_values
        rows = [*loops.outer, *loops.inner]
        steps.append(Reorder(loops=loops_of(host.name, [*rows, *self._within(host, [])])))
        last = LoopId.of(host.name, (loops.inner or loops.outer)[-1])
        for block in reversed(blocks[:-1]):
            within = self._within(block, reductions.get(block.name, []))
            loop = values.loops.get(block.name, last)
            steps.append(ComputeAt(block=block.name, loop=loop))
            steps.append(Reorder(loops=loops_of(block.name, within)))
        for block in blocks:
            self._mark(block)
        self._parts.share_loops(host.name, loops.outer)
        for block in blocks:
            if block.name in reductions:
                outermost = LoopId.of(block.name, reductions[block.name][0])
                steps.append(DecomposeReduction(block=block.name, loop=outermost))
                self._mark(block, initial=True)

    def _within(self, block: Block, reductions: Sequence[Axis]) -> list[Axis]:
        """The block's loops below the rows: tiles of the column or reductions, then
        unrolled rows and vectors, lanes last."""
        loops, outer = self._loops, self._plan.column.outer
        tiles = [axis for axis in block.axes if axis.name == outer.name]
        vectors = {loops.vectors.name, loops.lanes.name, *self._reductions.group_values.lanes}
        lanes = [axis for axis in block.axes if axis.name in vectors]
        return [*reductions, *tiles, *loops.register, *lanes]

    def _mark(self, block: Block, *, initial: bool = False) -> None:
        loops = self._loops
        lanes = {loops.lanes.name, *self._reductions.group_values.lanes}
        for axis in block.axes:
            loop = LoopId.of(block.name, axis, initial=initial)
            if axis.extent > 1 and axis.name in lanes:
                self._parts.steps.append(Vectorize(loop=loop))
            elif axis.extent > 1 and (axis in loops.register or axis.name == loops.vectors.name):
                self._parts.steps.append(Unroll(loop=loop))


def _recompute(stages: tuple[Stage, ...], names: frozenset[str]) -> tuple[Stage, ...]:
    for name in names:
        producer = next(stage for stage in stages if stage.name == name)
        stages = tuple(inline_into(stage, producer) for stage in stages if stage is not producer)
    return stages
