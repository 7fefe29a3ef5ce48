"""Reductions along the column of a row nest, in parallel lanes.

A reduction keeps a tile of partial results of each row in registers, adds the rest of a
column that the tile does not divide from one masked, overlapping tile, and folds the
lanes by halves.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.spaces.cpu.row_blocks import RowBlocks
from tuner.spaces.cpu.row_bodies import RowBodies
from tuner.spaces.cpu.row_group_values import RowGroupValues
from tuner.spaces.cpu.row_plan import RowLoops
from tuner.spaces.cpu.row_prefetch import RowPrefetch
from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.groups import COLUMN
from tuner.spaces.rewrite.stages import balanced_tree
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Read,
    Scalar,
    Select,
    Stage,
    Var,
)
from tuner.workload.scalar_operators import REDUCTIONS, identity


class RowReductions:
    """Adds the blocks that reduce stages of one nest."""

    def __init__(
        self, loops: RowLoops, blocks: RowBlocks, bodies: RowBodies, prefetch: RowPrefetch
    ) -> None:
        self._loops, self._blocks = loops, blocks
        self._bodies, self._prefetch = bodies, prefetch
        self.group_values = RowGroupValues(loops, blocks)
        # The reduction loops of each block that has some, in the order of the blocks.
        self.loops_of: dict[str, list[Axis]] = {}

    def add(self, stage: Stage) -> Scalar:
        """Blocks that reduce a stage; returns the expression of its finished value."""
        assert stage.reducer is not None
        lanes = self._loops.lanes
        parts = self._partial_results(stage)
        combine, row = REDUCTIONS[stage.reducer].combine, self._loops.row
        partial: list[Scalar] = [
            Read(part, (*row, constant(vector), Var(lanes.name)))
            for vector in range(self._loops.vectors.extent)
            for part in parts
        ]
        folded, width = f"{stage.name}_fold{lanes.extent}", lanes.extent
        self._blocks.local(folded, [lanes], balanced_tree(combine, partial), stage.accumulator)
        while width > 1:
            width //= 2
            half = Axis(name=lanes.name, extent=width)
            low, high = (
                Read(folded, (*row, lane))
                for lane in (Var(half.name), add(Var(half.name), constant(width)))
            )
            folded = f"{stage.name}_fold{width}"
            self._blocks.local(folded, [half], Binary(combine, low, high), stage.accumulator)
        value = Read(folded, (*row, constant(0)))
        return value if stage.dtype == stage.accumulator else Cast(stage.dtype, value)

    def _partial_results(self, stage: Stage) -> list[str]:
        """The buffers of partial results in all lanes: those of whole tiles of the column,
        and those of the rest."""
        column = self._loops.plan.column
        others = [axis for axis in stage.reduce_axes if axis.name != COLUMN]
        whole, rest = divmod(column.axis.extent, column.tile)
        parts: list[str] = []
        if whole:
            steps = Axis(name=f"{COLUMN}_s", extent=whole)
            index = add(times(Var(steps.name), column.tile), column.offset)
            name = f"{stage.name}_acc"
            body = self._bodies.along_column(stage, index, Var(steps.name))
            body, groups = self._by_groups(name, body, others)
            self._accumulate(name, stage, [*groups, steps], index, body)
            parts.append(name)
        if rest:
            assert stage.reducer is not None
            # Of the tile that ends with the column, the elements that no whole tile has.
            fresh = Binary("ge", column.offset, constant(column.tile - rest))
            index = add(column.offset, constant(column.axis.extent - column.tile))
            name = f"{stage.name}_rest"
            body = self._bodies.along_column(stage, index, constant(whole))
            body = Select(fresh, body, identity(stage.reducer, stage.accumulator))
            body, groups = self._by_groups(name, body, others)
            self._accumulate(name, stage, groups, index, body)
            parts.append(name)
        return parts

    def _by_groups(self, block: str, body: Scalar, groups: list[Axis]) -> tuple[Scalar, list[Axis]]:
        """The body of a block and its loops over groups, whose values come first if the plan
        says so."""
        if not self._loops.plan.group_values:
            return body, groups
        return self.group_values.read_by(block, body, groups)

    def _accumulate(
        self, name: str, stage: Stage, reductions: Sequence[Axis], index: Scalar, body: Scalar
    ) -> None:
        along = [self._loops.vectors, self._loops.lanes]
        self._blocks.allocate(name, along, stage.accumulator)
        self._blocks.compute(
            name,
            along,
            body,
            reduce_axes=reductions,
            reducer=stage.reducer,
            when=self._bodies.live(stage, index) if reductions else (),
            prefetches=self._prefetch.of(stage, index) if reductions else (),
        )
        if reductions:
            self.loops_of[name] = list(reductions)
