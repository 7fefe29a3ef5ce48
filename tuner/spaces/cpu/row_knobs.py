"""Knobs of the row sketch for CPUs.

They decide how many rows run at a time, the vectors of the column, and which stages are
kept and which computed twice.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import permutations, product
from math import prod
from typing import Any

from tuner.spaces.core.choice import Choice, choice, open_knobs
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config, Knob
from tuner.spaces.cpu.facts import LoopNestFacts, RowColumns
from tuner.spaces.cpu.rows import RowNest, RowPlan, passes, row_reads
from tuner.spaces.cpu.store_mode import StoreMode, store_modes
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.program.tiles import TiledAxis, fit_block
from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.groups import COLUMN, RowGroup, TileGroup
from tuner.spaces.rewrite.stages import calls_approximated_function, is_expensive
from tuner.workload.expression import DTYPE_BYTES, Axis, Stage, Var, substitute

CACHE_BLOCKS = (8, 16, 32, 64, 128, 256)  # rows of a cache block, besides none and all
# Vectors of a tile whose points each cost transcendental functions, and one operand.
MAX_COSTLY_VECTORS = 17
PREFETCH_DISTANCES = (0, 1, 4)  # tiles of rows
MAX_ROW_TILE = 8  # rows of an axis at a time


@dataclass(frozen=True)
class RowSketch:
    """The row sketch of one group.

    `reuse` says that rows share operands, as in a matrix product, so that tiles of rows
    on two axes pay.
    """

    group: RowGroup
    context: SpaceContext
    reuse: bool

    @property
    def name(self) -> str:
        return "lanes" if self.reuse else "rows"

    @property
    def prefix(self) -> str:
        return f"{self.group.name}.{self.name}"

    @property
    def lanes(self) -> int:
        reducing = next(stage for stage in self.group.stages if stage.reducer is not None)
        lanes = self.context.target.vector_bytes // max(DTYPE_BYTES[reducing.accumulator], 1)
        while lanes > self.group.column.extent:
            lanes //= 2
        return lanes

    def tiled_rows(self) -> list[Axis]:
        """The row axes that get tiles: the two longest where rows share operands, else
        the innermost that is no unit."""
        wide = [axis for axis in self.group.rows if axis.extent > 1]
        if self.reuse:
            longest = sorted(wide, key=lambda axis: -axis.extent)[:2]
            return [axis for axis in wide if axis in longest]
        return wide[-1:]

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return open_knobs(self.choices)

    @cached_property
    def choices(self) -> tuple[Choice[Any], ...]:
        """All decisions of the sketch, in the order of its knobs."""
        return (
            self.register_tile,
            *self.cache_blocks.values(),
            self.outer_order,
            self.inner_order,
            *self.recompute.values(),
            self.prefetch,
            self.store_mode,
            self.math_functions,
        )

    @cached_property
    def register_tile(self) -> Choice[tuple[int, ...]]:
        """Rows of each tiled axis, and elements of the column."""
        return choice(self.prefix, KnobRole.REGISTER_TILE, self.register_values(), tuple)

    @cached_property
    def cache_blocks(self) -> dict[str, Choice[int]]:
        """Rows of each tiled axis, where rows share operands; 0 for no blocking."""
        return {
            axis.name: choice(
                self.prefix, KnobRole.CACHE_BLOCK, self._block_values(axis), int, subject=axis.name
            )
            for axis in (self.tiled_rows() if self.reuse else ())
        }

    @cached_property
    def outer_order(self) -> Choice[tuple[str, ...]]:
        return self._orders(KnobRole.OUTER_ORDER)

    @cached_property
    def inner_order(self) -> Choice[tuple[str, ...]]:
        return self._orders(KnobRole.INNER_ORDER)

    def _orders(self, role: KnobRole) -> Choice[tuple[str, ...]]:
        """All row axes: those without a say first, then the tiled ones in every order
        where rows share operands."""
        tiled = self.tiled_rows()
        rest = [axis.name for axis in self.group.rows if axis not in tiled]
        every = tuple(permutations(range(len(tiled))))
        stored = every if self.reuse else every[:1]
        orders = tuple((*rest, *(tiled[position].name for position in order)) for order in stored)
        return Choice(owner=self.prefix, role=role, values=orders, stored=stored)

    @cached_property
    def recompute(self) -> dict[str, Choice[bool]]:
        """Of each optional stage, by name: whether every reader computes it again."""
        return {
            stage.name: Choice(
                owner=self.prefix,
                role=KnobRole.RECOMPUTE,
                values=(False, True),
                stored=("keep", "recompute"),
                subject=stage.name,
            )
            for stage in self._optional()
        }

    @cached_property
    def prefetch(self) -> Choice[int]:
        """Tiles of rows."""
        return choice(self.prefix, KnobRole.PREFETCH, self._prefetch_values(), int)

    @cached_property
    def store_mode(self) -> Choice[StoreMode]:
        modes = store_modes(self.group.output, COLUMN, self.lanes, self.context.target)
        return choice(self.prefix, KnobRole.STORE_MODE, modes, lambda mode: mode.value)

    @cached_property
    def math_functions(self) -> Choice[MathFunctions]:
        varied = any(calls_approximated_function(stage.body) for stage in self.group.stages)
        values: tuple[MathFunctions, ...] = ("polynomial", "libm") if varied else ("libm",)
        return choice(self.prefix, KnobRole.MATH_FUNCTIONS, values, str)

    def _optional(self) -> list[Stage]:
        """Stages along the column that may be kept in a row buffer or computed again by
        each reader."""
        rows = len(self.group.rows)
        return [
            stage
            for stage in self.group.stages[:-1]
            if stage.reducer is None and len(stage.axes) > rows
        ]

    def register_values(self) -> list[tuple[int, ...]]:
        """(rows of each tiled axis…, elements of the column) of a tile of accumulators."""
        rows = [range(1, min(axis.extent, MAX_ROW_TILE) + 1) for axis in self.tiled_rows()]
        columns = [
            count * self.lanes
            for count in (1, 2, 4, 8)
            if count * self.lanes <= self.group.column.extent
        ]
        tiles = []
        for values in product(*rows, columns):
            *tile, column = values
            vectors = column // self.lanes
            operands = min(sum(tile), 8) if self.reuse else 1
            costly = any(is_expensive(stage.body) for stage in self.group.stages)
            budget = (
                MAX_COSTLY_VECTORS
                if costly and not self.reuse
                else self.context.target.vector_registers
            )
            if prod(tile) * vectors + operands <= budget:
                tiles.append(tuple(values))
        most = max(prod(tile[:-1]) for tile in tiles)
        least = min(4, most) if self.reuse else 1
        return [
            tile
            for tile in sorted(tiles, key=lambda sizes: sizes[::-1])
            if prod(tile[:-1]) >= least
        ]

    def _prefetch_values(self) -> tuple[int, ...]:
        """Tiles of rows that inputs are fetched ahead, where a later pass over a row
        has the time for it."""
        first, *later = passes(self.group.stages, len(self.group.rows))
        reads = (
            row_reads(first, self.group, self.context.shapes) if later and not self.reuse else ()
        )
        # TVM stores narrow floats as integers, under pointers of another type.
        wide = reads and all(
            self.context.dtypes[read.tensor] in ("float32", "float64") for read in reads
        )
        return PREFETCH_DISTANCES if wide and self.context.isa.prefetch else (0,)

    def _block_values(self, axis: Axis) -> list[int]:
        return (
            [0, *(size for size in CACHE_BLOCKS if size < axis.extent), axis.extent]
            if axis.extent > MAX_ROW_TILE
            else [0]
        )

    @cached_property
    def facts(self) -> LoopNestFacts:
        stages, column = self.group.stages, self.group.column
        anchor = next((stage for stage in stages if stage.reducer is not None), stages[0])
        inside = {stage.name for stage in stages}
        reads = {
            read.read: read
            for stage in stages
            for read in accesses(stage, self.context.shapes)
            if read.read.tensor not in inside
        }
        return LoopNestFacts(
            context=self.context,
            stages=stages,
            epilogue=None,
            spatial=self.group.rows,
            reduction=(*(axis for axis in anchor.reduce_axes if axis.name != COLUMN), column),
            columns=RowColumns(
                written=column in self.group.output.axes,
                recompute=tuple(self.recompute.values()),
            ),
            vector=COLUMN,
            lanes=self.lanes,
            tiled=tuple(axis.name for axis in self.tiled_rows()),
            register_tile=self.register_tile,
            cache_blocks=self.cache_blocks,
            outer_order=self.outer_order,
            inner_order=self.inner_order,
            reads=tuple(reads.values()),
            prefetch=self.prefetch,
            store_mode=self.store_mode,
            math_functions=self.math_functions,
        )

    def nest(self, config: Config) -> Nest:
        return RowNest(self.group, self.plan(config), self.context.shapes).build()

    def plan(self, config: Config) -> RowPlan:
        """The config decoded."""
        *sizes, column = self.register_tile.of(config)
        tiles = dict(zip((axis.name for axis in self.tiled_rows()), sizes, strict=True))
        rows = []
        for axis in self.group.rows:
            tile = tiles.get(axis.name, 1)
            whole = TiledAxis(axis=axis, tile=tile)
            block = self.cache_blocks.get(axis.name)
            elements = 0 if block is None else block.of(config)
            rows.append(
                TiledAxis(axis=axis, tile=tile, block=fit_block(whole.tiles, -(-elements // tile)))
            )
        return RowPlan(
            rows=tuple(rows),
            outer_order=self.outer_order.of(config),
            inner_order=self.inner_order.of(config),
            column=TiledAxis(axis=self.group.column, tile=column, lanes=self.lanes),
            recomputed=frozenset(
                name for name, recompute in self.recompute.items() if recompute.of(config)
            ),
            math_functions=self.math_functions.of(config),
            prefetch=self.prefetch.of(config),
            non_temporal=self.store_mode.of(config) is StoreMode.NON_TEMPORAL,
            threads=self.context.units,
        )


def row_sketch(group: RowGroup, context: SpaceContext) -> RowSketch:
    """The row sketch of stages that share rows."""
    return RowSketch(group, context, reuse=False)


def lane_sketches(group: TileGroup, context: SpaceContext) -> list[RowSketch]:
    """The row sketch of a reduction that reuses operands, where one of its reduction
    axes is contiguous in all reads along it."""
    stage = group.anchor
    if stage.reducer is None or not stage.axes:
        return []
    reads = accesses(stage, context.shapes)
    for axis in reversed(stage.reduce_axes):
        moving = [read for read in reads if axis.name in read.axes]
        if (
            axis.extent >= 8
            and moving
            and all(
                read.stride(axis.name) == 1 and not read.padded and not read.gathered
                for read in moving
            )
        ):
            return [RowSketch(_as_rows(group, axis), context, reuse=True)]
    return []


def _as_rows(group: TileGroup, column: Axis) -> RowGroup:
    anchor = group.anchor
    reduce_axes = tuple(
        Axis(name=COLUMN, extent=axis.extent) if axis == column else axis
        for axis in anchor.reduce_axes
    )
    renamed = replace(
        anchor, reduce_axes=reduce_axes, body=substitute(anchor.body, {column.name: Var(COLUMN)})
    )
    stages = (renamed,) if group.epilogue is None else (renamed, group.epilogue)
    return RowGroup(rows=anchor.axes, column=Axis(name=COLUMN, extent=column.extent), stages=stages)
