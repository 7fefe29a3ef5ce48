"""The row sketch of CPUs: stages that share rows, a few rows at a time."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tuner.spaces.core.choice import open_knobs
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.space import Config, Knob
from tuner.spaces.cpu.facts import LoopNestFacts, RowColumns
from tuner.spaces.cpu.row_choices import RowChoices, row_choices
from tuner.spaces.cpu.row_nest import RowNest
from tuner.spaces.cpu.row_plan import RowPlan
from tuner.spaces.cpu.row_stages import RowStages
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.tiles import TiledAxis, fit_block
from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.groups import COLUMN, RowGroup, TileGroup
from tuner.spaces.rewrite.unpacking import unpacked, unpacked_sum
from tuner.workload.expression import Axis, Var, substitute


@dataclass(frozen=True)
class RowSketch:
    """The row sketch of one group."""

    stages: RowStages

    @property
    def name(self) -> str:
        if self.stages.unpacks:
            return "unpacked"
        return "lanes" if self.stages.reuse else "rows"

    @property
    def group(self) -> RowGroup:
        return self.stages.group

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return open_knobs(self.choices.in_order)

    @cached_property
    def choices(self) -> RowChoices:
        return row_choices(f"{self.group.name}.{self.name}", self.stages)

    @cached_property
    def facts(self) -> LoopNestFacts:
        stages, column, choices = self.group.stages, self.group.column, self.choices
        anchor = next((stage for stage in stages if stage.reducer is not None), stages[0])
        inside = {stage.name for stage in stages}
        reads = {
            read.read: read
            for stage in stages
            for read in accesses(stage, self.stages.context.shapes)
            if read.read.tensor not in inside
        }
        return LoopNestFacts(
            context=self.stages.context,
            stages=stages,
            epilogue=None,
            spatial=self.group.rows,
            reduction=(*(axis for axis in anchor.reduce_axes if axis.name != COLUMN), column),
            columns=RowColumns(
                written=column in self.group.output.axes,
                recompute=tuple(choices.recompute.values()),
            ),
            vector=COLUMN,
            lanes=self.stages.lanes,
            tiled=tuple(axis.name for axis in self.stages.tiled_rows),
            register_tile=choices.register_tile,
            cache_blocks=choices.cache_blocks,
            outer_order=choices.outer_order,
            inner_order=choices.inner_order,
            reads=tuple(reads.values()),
            prefetch=choices.prefetch,
            store_mode=choices.store_mode,
            math_functions=choices.math_functions,
        )

    def nest(self, config: Config) -> Nest:
        return RowNest(self.group, self.plan(config), self.stages.context.shapes).build()

    def plan(self, config: Config) -> RowPlan:
        """The config decoded."""
        choices = self.choices
        *sizes, column = choices.register_tile.of(config)
        tiles = dict(zip((axis.name for axis in self.stages.tiled_rows), sizes, strict=True))
        rows = []
        for axis in self.group.rows:
            tile = tiles.get(axis.name, 1)
            whole = TiledAxis(axis=axis, tile=tile)
            block = choices.cache_blocks.get(axis.name)
            elements = 0 if block is None else block.of(config)
            fitted = fit_block(whole.tiles, -(-elements // tile))
            rows.append(TiledAxis(axis=axis, tile=tile, block=fitted))
        return RowPlan(
            rows=tuple(rows),
            outer_order=choices.outer_order.of(config),
            inner_order=choices.inner_order.of(config),
            column=TiledAxis(axis=self.group.column, tile=column, lanes=self.stages.lanes),
            recomputed=frozenset(
                name for name, recompute in choices.recompute.items() if recompute.of(config)
            ),
            math_functions=choices.math_functions.of(config),
            prefetch=choices.prefetch.of(config),
            non_temporal=choices.store_mode.of(config) is StoreMode.NON_TEMPORAL,
            threads=self.stages.context.units,
            group_values=self.stages.unpacks,
        )


def row_sketch(group: RowGroup, context: SpaceContext) -> RowSketch:
    """The row sketch of stages that share rows."""
    return RowSketch(RowStages(group=group, context=context, reuse=False))


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
                read.stride_within(axis.name, context.shapes[read.read.tensor]) == 1
                and not read.padded
                for read in moving
            )
        ):
            return [RowSketch(RowStages(group=_as_rows(group, axis), context=context, reuse=True))]
    return []


def unpacked_sketches(group: RowGroup | TileGroup, context: SpaceContext) -> list[RowSketch]:
    """The row sketch of a sum of products with fields of bytes, taken apart."""
    if isinstance(group, RowGroup):
        first, *rest = group.stages
        stage = unpacked(first, COLUMN, context.dtypes)
        if stage is None or group.live_conditions:
            return []
        rows, reuse = replace(group, stages=(stage, *rest)), False
    else:
        apart = unpacked_sum(group.anchor, context.shapes, context.dtypes)
        if apart is None or not apart.stage.axes:
            return []
        rows, reuse = _as_rows(replace(group, anchor=apart.stage), apart.column), True
    stages = RowStages(group=rows, context=context, reuse=reuse, unpacks=True)
    return [RowSketch(stages)]


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
