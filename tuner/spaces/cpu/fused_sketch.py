"""The fused sketch of CPUs: groups placed in the tiles of the group that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tuner.spaces.core.choice import Choice, choice, open_knobs
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config, Knob
from tuner.spaces.cpu.facts import LoopNestFacts, Unrolling
from tuner.spaces.cpu.fused_facts import FusedFacts
from tuner.spaces.cpu.fused_layout import FusedLayout, layout_of
from tuner.spaces.cpu.fused_nest import FusedNest
from tuner.spaces.cpu.fused_plan import FusedPlan, RegisterTile
from tuner.spaces.cpu.fused_tiles import FusedTile, fused_tiles
from tuner.spaces.cpu.shared_choices import math_functions_choice, unrolling_choice
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.rewrite.groups import FusedGroup, TileGroup
from tuner.spaces.rewrite.tile_fusion import check_regions

MAX_ROWS, MAX_VECTORS = 12, 4  # of a register tile
UNROLLINGS = (1, 2, 4, 8)


@dataclass(frozen=True)
class FusedSketch:
    """The fused sketch of one group; `tiles` are those that the target has room for."""

    group: FusedGroup
    context: SpaceContext
    layout: FusedLayout
    tiles: tuple[FusedTile, ...]

    @property
    def name(self) -> str:
        return "fused"

    @property
    def knobs(self) -> tuple[Knob, ...]:
        choices: tuple[Choice[Any], ...] = (
            self.tile,
            *self.registers.values(),
            self.unrolling,
            self.math_functions,
        )
        return open_knobs(choices)

    # --- choices

    @property
    def _owner(self) -> str:
        return f"{self.group.name}.{self.name}"

    @cached_property
    def tile(self) -> Choice[FusedTile]:
        """Extents along the last member's axes, those that it reduces over last."""
        return choice(self._owner, KnobRole.BLOCK_TILE, self.tiles, lambda tile: tile.stored)

    @cached_property
    def registers(self) -> Mapping[str, Choice[RegisterTile]]:
        """(rows, vectors) of each member that reduces."""
        return {
            member.name: choice(
                self._owner,
                KnobRole.REGISTER_TILE,
                self._register_tiles(member),
                lambda tile: (tile.rows, tile.vectors),
                subject=f"_{member.name}",
            )
            for member in self.group.members
            if member.anchor.reducer is not None
        }

    def _register_tiles(self, member: TileGroup) -> list[RegisterTile]:
        layout = self.layout.members[member.name]
        rows = 1 if layout.tiled is None else min(layout.tiled.extent, MAX_ROWS)
        most = max(1, min(layout.vector.extent // layout.lanes, MAX_VECTORS))
        budget = self.context.target.vector_registers
        tiles = [
            RegisterTile(rows=row, vectors=vectors)
            for row in range(1, rows + 1)
            for vectors in range(1, most + 1)
            if row * vectors + vectors + 1 <= budget
        ]
        least = min(8, max(tile.rows * tile.vectors for tile in tiles))
        return [tile for tile in tiles if tile.rows * tile.vectors >= least]

    @cached_property
    def unrolling(self) -> Choice[Unrolling]:
        """Iterations of the innermost loops of long reductions."""
        return unrolling_choice(self._owner, UNROLLINGS)

    @cached_property
    def math_functions(self) -> Choice[MathFunctions]:
        return math_functions_choice(self._owner)

    # --- for the cost model

    @cached_property
    def facts(self) -> LoopNestFacts:
        """As the last member's nest, in whose tiles the others compute."""
        return FusedFacts(
            self.group,
            self.context,
            self.layout,
            tile=self.tile,
            registers=self.registers,
            unrolling=self.unrolling,
            math_functions=self.math_functions,
        ).facts()

    # --- the nest

    def nest(self, config: Config) -> Nest:
        plan = self.plan(config)
        return FusedNest(plan, self.context.shapes, self.context.dtypes).build()

    def plan(self, config: Config) -> FusedPlan:
        """The config decoded. Raises IllegalSchedule where a region does not reach."""
        tile = self.tile.of(config)
        check_regions(self.group, tile.regions, tile.extents, self.context.shapes)
        return FusedPlan(
            group=self.group,
            layout=self.layout,
            tile=tile.extents,
            regions=tile.regions,
            registers={name: each.of(config) for name, each in self.registers.items()},
            unroll=self.unrolling.of(config).factor,
            math_functions=self.math_functions.of(config),
            threads=self.context.units,
        )


def fused_sketch(group: FusedGroup, context: SpaceContext) -> FusedSketch | None:
    """The fused sketch of a group; None where no tile fits into the second cache."""
    layout = layout_of(group, context.shapes, context.target)
    tiles = fused_tiles(group, context, layout)
    return FusedSketch(group, context, layout, tiles) if tiles else None
