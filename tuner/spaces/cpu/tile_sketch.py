"""The tile sketch of CPUs: one stage in register tiles, with one axis vectorised."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tuner.spaces.core.choice import open_knobs
from tuner.spaces.core.space import Config, Knob
from tuner.spaces.cpu.arithmetic import Arithmetic
from tuner.spaces.cpu.copy_prefetch import is_streamed
from tuner.spaces.cpu.facts import LoopNestFacts, PrefetchedRead
from tuner.spaces.cpu.map_nest import map_nest
from tuner.spaces.cpu.memory_values import far_rows
from tuner.spaces.cpu.prefetch import boxes, gathered_rows, is_packed_in_parts, is_walked
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.cpu.sum_nest import SumNest
from tuner.spaces.cpu.tile_choices import TileChoices, tile_choices
from tuner.spaces.cpu.tile_plan import ReductionAxis, TilePlan
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.tiles import TiledAxis, fit_block
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.predicates import live_fraction
from tuner.workload.expression import ragged_range


@dataclass(frozen=True, kw_only=True)
class TileSketch:
    """A stage, and the arithmetic that its tiles are computed with."""

    stage: TiledStage
    arithmetic: Arithmetic
    # whether an operand that can be read in place may be copied instead, or prefetched
    copying: bool = True

    @property
    def name(self) -> str:
        return self.arithmetic.name(self.stage)

    @property
    def group(self) -> TileGroup:
        return self.stage.group

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return open_knobs(self.choices.in_order)

    @cached_property
    def choices(self) -> TileChoices:
        owner, values = f"{self.group.name}.{self.name}", self.arithmetic.values(self.stage)
        return tile_choices(owner, self.stage, values, copying=self.copying)

    @cached_property
    def facts(self) -> LoopNestFacts:
        stage, anchor, choices = self.stage, self.group.anchor, self.choices
        return LoopNestFacts(
            context=stage.context,
            stages=(replace(anchor, accumulator=stage.summed),),
            epilogue=self.group.epilogue,
            spatial=anchor.axes,
            reduction=anchor.reduce_axes,
            vector=stage.vector,
            lanes=stage.lanes,
            tiled=tuple(axis.name for axis in anchor.axes),
            register_tile=choices.register_tile,
            cache_blocks=choices.cache_blocks,
            outer_order=choices.outer_order,
            inner_order=choices.inner_order,
            reduction_block=choices.reduction_block,
            unrolling=choices.unrolling,
            reads=stage.reads,
            copies=choices.copies,
            prefetch=choices.prefetch,
            prefetched=self._prefetched(),
            store_mode=choices.store_mode,
            math_functions=choices.math_functions,
            instruction_axes=stage.instruction.axes,
            rate=self.arithmetic.rate(stage),
            loads_whole_rows=stage.instruction.register_rows is not None,
            multiplies_matrices=stage.instruction.paired is not None,
            computed_share=self._computed_share(),
        )

    def _prefetched(self) -> tuple[PrefetchedRead, ...]:
        stage, anchor = self.stage, self.group.anchor
        if far := far_rows(stage):
            return tuple(
                PrefetchedRead(read=row.access, in_place=True, packed=False, whole=False)
                for row in gathered_rows(anchor, stage.vector, stage.context.shapes)
                if row.access.read.tensor in far
            )
        in_boxes = () if stage.instruction.axes else boxes(anchor, stage.context.shapes)
        return tuple(
            PrefetchedRead(
                read=read,
                in_place=read in in_boxes and is_walked(read, anchor, stage.vector),
                packed=read in in_boxes and is_packed_in_parts(read, anchor),
                whole=is_streamed(read, anchor, stage.vector, stage.instruction),
            )
            for read in stage.reads
        )

    def _computed_share(self) -> float:
        """Of the points those that are computed: instructions that take several leave none out."""
        if not self.stage.is_sum or self.stage.instruction.axes:
            return 1.0
        ragged = ragged_range(self.group.anchor)
        if ragged is not None:
            return 1 / self.group.anchor.extents[ragged.row]
        return live_fraction(self.group.anchor, self.group.live_conditions)

    def nest(self, config: Config) -> Nest:
        plan, context = self.plan(config), self.stage.context
        if not self.stage.is_sum:
            return map_nest(self.group, plan, context.shapes, context.dtypes)
        return SumNest(self.group, plan, context.shapes, context.dtypes).build()

    def plan(self, config: Config) -> TilePlan:
        """The config decoded."""
        stage, choices = self.stage, self.choices
        copies = zip(stage.reads, choices.copies, strict=True)
        return TilePlan(
            spatial=self._spatial(config),
            vector=stage.vector,
            reduction=self._reduction(config),
            outer_order=choices.outer_order.of(config),
            inner_order=choices.inner_order.of(config),
            copies={read.read: mode.of(config) for read, mode in copies},
            math_functions=choices.math_functions.of(config),
            threads=stage.context.units,
            line_bytes=stage.context.isa.line_bytes,
            prefetch=choices.prefetch.of(config),
            far=far_rows(stage),
            non_temporal=choices.store_mode.of(config) is StoreMode.NON_TEMPORAL,
            instruction=stage.instruction,
        )

    def _spatial(self, config: Config) -> tuple[TiledAxis, ...]:
        stage, choices = self.stage, self.choices
        spatial = []
        for axis, tile in zip(
            self.group.anchor.axes, choices.register_tile.of(config), strict=True
        ):
            whole = TiledAxis(axis=axis, tile=tile)
            block = choices.cache_blocks.get(axis.name)
            elements = 0 if block is None else block.of(config)
            fitted = fit_block(whole.tiles, -(-elements // tile))
            lanes = stage.lanes_along(axis.name)
            spatial.append(TiledAxis(axis=axis, tile=tile, block=fitted, lanes=lanes))
        return tuple(spatial)

    def _reduction(self, config: Config) -> tuple[ReductionAxis, ...]:
        choices, axes = self.choices, self.group.anchor.reduce_axes
        if choices.reduction_block is None or choices.unrolling is None:
            return ()
        main = self.stage.main_reduction
        iterations, unrolling = choices.reduction_block.of(config), choices.unrolling.of(config)
        innermost = axes[unrolling.position]
        ordered = [axis for axis in axes if axis != innermost] + [innermost]
        reduction = []
        for axis in ordered:
            block = iterations if axis == main else axis.extent
            divides = axis == innermost and block % unrolling.factor == 0
            unroll = unrolling.factor if divides else 1
            reduction.append(ReductionAxis(axis=axis, block=block, unroll=unroll))
        taken_whole = self.stage.instruction.axes
        return tuple(sorted(reduction, key=lambda part: part.axis.name in taken_whole))
