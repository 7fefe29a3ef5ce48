"""The fused sketch of CPUs: groups placed in the tiles of the group that reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

from tuner.spaces.core.choice import Choice, choice, open_knobs
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config, Knob
from tuner.spaces.cpu.facts import Fusion, LoopNestFacts, Unrolling
from tuner.spaces.cpu.fused_layout import FusedLayout, layout_of
from tuner.spaces.cpu.fused_nest import FusedNest
from tuner.spaces.cpu.fused_plan import FusedPlan, RegisterTile
from tuner.spaces.cpu.fused_tiles import FusedTile, fused_tiles
from tuner.spaces.cpu.shared_choices import (
    fixed_choice,
    math_functions_choice,
    unrolling_choice,
)
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.rewrite.access import Access, access, accesses
from tuner.spaces.rewrite.groups import FusedGroup, TileGroup
from tuner.spaces.rewrite.regions import Regions, axis_of, placed
from tuner.spaces.rewrite.tile_fusion import check_regions
from tuner.workload.affine import Affine, linear
from tuner.workload.expression import Axis, Read

T = TypeVar("T")

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
        root, layout = self.group.root, self.layout.members[self.group.root.name]
        anchor = root.anchor
        spatial = anchor.axes
        names = tuple(axis.name for axis in spatial)
        fitting = min(layout.lanes, layout.vector.extent)
        lanes: tuple[int, ...] = (fitting,)
        register_tile = fixed_choice(self._owner, KnobRole.REGISTER_TILE, lanes)
        tiled: tuple[str, ...] = (layout.vector.name,)
        if (rows := self.registers.get(root.name)) is not None:
            sizes: list[tuple[int, ...]] = [
                (tile.vectors * fitting, tile.rows) for tile in rows.values
            ]
            register_tile = _derived(rows, sizes)
            tiled = (*tiled, "" if layout.tiled is None else layout.tiled.name)
        return LoopNestFacts(
            context=self.context,
            stages=(anchor, *(member.anchor for member in self.group.members[:-1])),
            epilogue=root.epilogue,
            spatial=spatial,
            reduction=anchor.reduce_axes,
            vector=layout.vector.name,
            lanes=fitting,
            tiled=tiled,
            register_tile=register_tile,
            cache_blocks={axis.name: self._extent_of(axis) for axis in spatial},
            outer_order=fixed_choice(self._owner, KnobRole.OUTER_ORDER, names),
            inner_order=fixed_choice(self._owner, KnobRole.INNER_ORDER, names),
            reduction_block=self._extent_of(_longest(anchor.reduce_axes))
            if anchor.reduce_axes
            else None,
            unrolling=self.unrolling if anchor.reduce_axes else None,
            reads=self._reads(),
            prefetch=fixed_choice(self._owner, KnobRole.PREFETCH, 0),
            store_mode=fixed_choice(self._owner, KnobRole.STORE_MODE, StoreMode.CACHED),
            math_functions=self.math_functions,
            fusion=Fusion(
                recomputation=_derived(self.tile, [t.recomputation for t in self.tiles]),
                held_bytes=_derived(self.tile, [t.held_bytes for t in self.tiles]),
            ),
        )

    def _extent_of(self, axis: Axis) -> Choice[int]:
        """The extent of a tile along an axis, by the knob that has all of them."""
        return _derived(self.tile, [tile.extents[axis.name] for tile in self.tiles])

    def _reads(self) -> tuple[Access, ...]:
        """What is read from outside, as it moves with the tiles of the last member."""
        inside = {member.name for member in self.group.members}
        root = self.group.root.anchor
        by_read = {
            each.read: each
            for each in accesses(root, self.context.shapes)
            if each.read.tensor not in inside
        }
        extents = {axis.name: axis.extent for axis in (*root.axes, *root.reduce_axes)}
        regions = self.tiles[0].regions
        for member in self.group.members[:-1]:
            starts = regions.members[member.name].starts
            firsts = {
                axis.name: _of_axes(start, regions)
                for axis, start in zip(member.anchor.axes, starts, strict=True)
            }
            firsts |= {axis.name: Affine({}, 0) for axis in member.anchor.reduce_axes}
            for each in accesses(member.anchor, self.context.shapes):
                forms = [linear(index) for index in each.read.indices]
                if each.read.tensor in inside or None in forms:
                    continue
                indices = (placed(form, firsts).index for form in forms if form is not None)
                read = Read(each.read.tensor, tuple(indices), each.read.pad)
                by_read[read] = access(read, self.context.shapes[read.tensor], extents)
        return tuple(by_read.values())

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


def _derived(source: Choice[Any], values: list[T]) -> Choice[T]:
    """The same knob, of which each value means something else."""
    return Choice(
        owner=source.owner,
        role=source.role,
        values=tuple(values),
        stored=source.stored,
        subject=source.subject,
    )


def _of_axes(start: Affine, regions: Regions) -> Affine:
    """A start with the last member's axes in place of the first elements of their tiles."""
    total = Affine({}, start.constant)
    for name, step in start.coefficients.items():
        if name in regions.moved:
            form = _of_axes(regions.moved[name].first, regions)
        else:
            form = Affine.of_iterators({axis_of(name): 1}, 0)
        total += form.scaled(step)
    return total


def _longest(axes: tuple[Axis, ...]) -> Axis:
    return max(axes, key=lambda axis: axis.extent)
