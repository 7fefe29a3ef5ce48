"""Stages that share rows, as the knobs of their sketch see them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.row_prefetch import gathered_reads, passes, row_reads
from tuner.spaces.rewrite.groups import RowGroup
from tuner.spaces.rewrite.stages import is_expensive
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Stage

CACHE_BLOCKS = (8, 16, 32, 64, 128, 256)  # rows of a cache block, besides none and all
# Vectors of a tile whose points each cost transcendental functions, and one operand.
MAX_COSTLY_VECTORS = 17
PREFETCH_DISTANCES = (0, 1, 4)  # tiles of rows
MAX_ROW_TILE = 8  # rows of an axis at a time


@dataclass(frozen=True, kw_only=True)
class RowStages:
    """The stages of one group, vectorised along their column.

    `reuse` says that rows share operands, as in a matrix product, so that tiles of rows
    on two axes pay. `unpacks` says that they are sums of fields of bytes with groups
    (`rewrite.unpacking`).
    """

    group: RowGroup
    context: SpaceContext
    reuse: bool
    unpacks: bool = False

    @property
    def lanes(self) -> int:
        """Lanes of the accumulators in a vector register, fewer where the column is shorter."""
        reducing = next(stage for stage in self.group.stages if stage.reducer is not None)
        lanes = self.context.target.vector_bytes // max(DTYPE_BYTES[reducing.accumulator], 1)
        while lanes > self.group.column.extent:
            lanes //= 2
        return lanes

    @property
    def tiled_rows(self) -> list[Axis]:
        """The row axes that get tiles: the two longest where rows share operands, else
        the innermost that is no unit."""
        wide = [axis for axis in self.group.rows if axis.extent > 1]
        if self.reuse:
            longest = sorted(wide, key=lambda axis: -axis.extent)[:2]
            return [axis for axis in wide if axis in longest]
        return wide[-1:]

    @property
    def optional(self) -> list[Stage]:
        """Stages along the column that may be kept in a row buffer or computed again by
        each reader."""
        rows = len(self.group.rows)
        return [
            stage
            for stage in self.group.stages[:-1]
            if stage.reducer is None and len(stage.axes) > rows
        ]

    def register_tiles(self) -> list[tuple[int, ...]]:
        """(rows of each tiled axis…, elements of the column) of a tile of accumulators."""
        rows = [range(1, min(axis.extent, MAX_ROW_TILE) + 1) for axis in self.tiled_rows]
        columns = [
            count * self.lanes
            for count in (1, 2, 4, 8)
            if count * self.lanes <= self.group.column.extent
        ]
        budget = self._accumulator_budget()
        tiles = []
        for values in product(*rows, columns):
            *tile, column = values
            vectors = column // self.lanes
            operands = min(sum(tile), 8) if self.reuse else 1
            if prod(tile) * vectors + operands <= budget:
                tiles.append(tuple(values))
        most = max(prod(tile[:-1]) for tile in tiles)
        least = min(4, most) if self.reuse else 1
        in_order = sorted(tiles, key=lambda sizes: sizes[::-1])
        return [tile for tile in in_order if prod(tile[:-1]) >= least]

    def _accumulator_budget(self) -> int:
        """Accumulators, with the operands of a step, that a register tile may take."""
        costly = any(is_expensive(stage.body) for stage in self.group.stages)
        if costly and not self.reuse:
            return MAX_COSTLY_VECTORS
        return self.context.target.vector_registers

    def prefetch_distances(self) -> tuple[int, ...]:
        """Tiles of rows that inputs are fetched ahead, where a later pass over a row has the
        time for it, or where a sum gathers them from beyond the second cache."""
        first, *later = passes(self.group.stages, len(self.group.rows))
        context = self.context
        if not context.isa.prefetch:
            return (0,)
        if not later:
            gathered = gathered_reads(first, self.group, context.shapes)
            far = any(self._bytes(read.tensor) > context.target.l2_bytes for read in gathered)
            return PREFETCH_DISTANCES if far else (0,)
        reads = () if self.reuse else row_reads(first, self.group, context.shapes)
        # TVM stores narrow floats as integers, under pointers of another type.
        wide = reads and all(
            context.dtypes[read.tensor] in ("float32", "float64") for read in reads
        )
        return PREFETCH_DISTANCES if wide else (0,)

    def _bytes(self, tensor: str) -> int:
        return prod(self.context.shapes[tensor]) * DTYPE_BYTES[self.context.dtypes[tensor]]

    def block_sizes(self, axis: Axis) -> list[int]:
        """Rows of a cache block; 0 for no blocking."""
        if axis.extent <= MAX_ROW_TILE:
            return [0]
        return [0, *(size for size in CACHE_BLOCKS if size < axis.extent), axis.extent]
