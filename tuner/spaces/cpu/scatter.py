"""Reductions whose terms name their rows: every task goes over all terms and takes those
of its own rows.

So tasks write no element that another one writes, and the terms of a row are reduced in
their order, whatever the number of threads. Sums lie in memory, where each term changes one
row, along which it is vectorised.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuner.spaces.core.choice import Choice, choice, open_knobs
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config, Knob
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.facts import LoopNestFacts, Unrolling
from tuner.spaces.cpu.memory_values import function_sources
from tuner.spaces.cpu.scatter_nest import ScatterNest, ScatterPlan
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.rewrite.groups import TileGroup
from tuner.workload.expression import Scattering, scattering

TASKS = (1, 2, 4, 8)  # blocks of rows of each thread; each reads all indices
VECTORS = (8, 4, 2, 1)  # of a tile along a row


def scatter_sketch(group: TileGroup, context: SpaceContext) -> ScatterSketch | None:
    """The sketch of a group whose terms name their rows; None of any other."""
    scattered = scattering(group.anchor)
    if scattered is None:
        return None
    last = group.anchor.axes[-1]
    lies_along = last.name not in {scattered.row, *scattered.along} and last.extent >= 2
    stage = TiledStage(group=group, context=context, vector=last.name if lies_along else None)
    return ScatterSketch(stage=stage, scattered=scattered)


@dataclass(frozen=True, kw_only=True)
class ScatterSketch:
    """A stage, and how its terms name their rows."""

    stage: TiledStage
    scattered: Scattering

    @property
    def name(self) -> str:
        return f"scatter_{self.stage.vector}" if self.stage.vector else "scatter"

    @property
    def group(self) -> TileGroup:
        return self.stage.group

    @property
    def knobs(self) -> tuple[Knob, ...]:
        choices: tuple[Choice[Any], ...] = (self._row_tile, self._rows, self._functions)
        return open_knobs(choices)

    @cached_property
    def _row_tile(self) -> Choice[tuple[int, ...]]:
        """Elements of each axis in a tile, which has one row."""
        stage, axes = self.stage, self.group.anchor.axes
        if stage.vector is None:
            tiles = [(1,) * len(axes)]
        else:
            sizes = {stage.lanes * vectors for vectors in VECTORS}
            fitting = sorted((size for size in sizes if size <= axes[-1].extent), reverse=True)
            tiles = [(1,) * (len(axes) - 1) + (size,) for size in fitting]
        return choice(self._owner, KnobRole.REGISTER_TILE, tiles, tuple)

    @cached_property
    def _rows(self) -> Choice[int]:
        """Rows of a task."""
        rows = self.group.anchor.extents[self.scattered.row]
        shares = (-(-rows // (self.stage.context.units * tasks)) for tasks in TASKS)
        sizes = list(dict.fromkeys(shares))
        return choice(self._owner, KnobRole.CACHE_BLOCK, sizes, int, subject=self.scattered.row)

    @cached_property
    def _functions(self) -> Choice[MathFunctions]:
        return choice(self._owner, KnobRole.MATH_FUNCTIONS, function_sources(self.stage), str)

    @property
    def _owner(self) -> str:
        return f"{self.group.name}.{self.name}"

    @cached_property
    def facts(self) -> LoopNestFacts:
        anchor, owner, stage = self.group.anchor, self._owner, self.stage
        order = (tuple(axis.name for axis in anchor.axes),)
        longest = [axis.name for axis in anchor.reduce_axes].index(stage.main_reduction.name)
        return LoopNestFacts(
            context=stage.context,
            stages=(anchor,),
            epilogue=self.group.epilogue,
            spatial=anchor.axes,
            reduction=anchor.reduce_axes,
            vector=stage.vector,
            lanes=stage.lanes,
            tiled=order[0],
            register_tile=self._row_tile,
            cache_blocks={self.scattered.row: self._rows},
            outer_order=choice(owner, KnobRole.OUTER_ORDER, order, len),
            inner_order=choice(owner, KnobRole.INNER_ORDER, order, len),
            reduction_block=choice(
                owner, KnobRole.REDUCTION_BLOCK, (stage.main_reduction.extent,), int
            ),
            unrolling=choice(
                owner,
                KnobRole.UNROLL,
                (Unrolling(position=longest, factor=1),),
                lambda way: way.factor,
            ),
            reads=stage.reads,
            copies=tuple(
                choice(
                    owner,
                    KnobRole.COPY,
                    (CopyMode.NONE,),
                    lambda mode: mode.value,
                    subject=f"{number}_{read.read.tensor}",
                )
                for number, read in enumerate(stage.reads)
            ),
            prefetch=choice(owner, KnobRole.PREFETCH, (0,), int),
            store_mode=choice(
                owner, KnobRole.STORE_MODE, (StoreMode.CACHED,), lambda mode: mode.value
            ),
            math_functions=self._functions,
            computed_share=1 / anchor.extents[self.scattered.row],
        )

    def nest(self, config: Config) -> Nest:
        plan = ScatterPlan(
            rows=self._rows.of(config),
            tile=self._row_tile.of(config)[-1],
            vector=self.stage.vector,
            lanes=self.stage.lanes,
            math_functions=self._functions.of(config),
            threads=self.stage.context.units,
        )
        return ScatterNest(self.group, self.scattered, plan, self.stage.context.shapes).build()
