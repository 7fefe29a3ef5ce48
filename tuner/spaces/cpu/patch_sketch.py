"""The patch sketch of CPUs: a map whose register tiles are patches.

It is for maps that pick by an element's place in a patch, such as the transforms of
Winograd's algorithm. It knows no operator's name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.space import Config, Knob
from tuner.spaces.cpu.arithmetic import TileValues
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.spaces.cpu.patch_nest import PatchNest
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.patches import Patches, patches
from tuner.workload.expression import Axis

# Vectors of a patch with two along the vectorised axis, of which AVX2 has two in a line.
MOST_VECTORS = 72


@dataclass(frozen=True)
class PatchArithmetic:
    """The elements of a patch, in vectors along an axis that has no places."""

    places: Mapping[str, int]

    def name(self, stage: TiledStage) -> str:
        return f"patch_{stage.vector}" if stage.vector else "patch"

    def rate(self, stage: TiledStage) -> float:
        return 1.0

    def values(self, stage: TiledStage) -> TileValues:
        patch = prod(self.places.values())
        counts = [
            count
            for count in (1, 2)
            if count == 1
            or (
                stage.vector is not None
                and count * patch <= MOST_VECTORS
                and count * stage.lanes <= stage.extent(stage.vector)
            )
        ]
        return TileValues(
            register_tiles=[
                tuple(self._size(stage, axis, count) for axis in stage.group.anchor.axes)
                for count in counts
            ],
            reduction_blocks=(),
            unrollings=(),
            copies=[(CopyMode.NONE,) for _ in stage.reads],
        )

    def _size(self, stage: TiledStage, axis: Axis, vectors: int) -> int:
        """Elements of one axis in a register tile."""
        if axis.name in self.places:
            return axis.extent
        return vectors * stage.lanes if axis.name == stage.vector else 1


@dataclass(frozen=True, kw_only=True)
class PatchSketch:
    """One map in patches: the loops over them are those of the tile sketch."""

    group: TileGroup
    patches: Patches
    tiles: TileSketch  # of the map in patches

    @property
    def name(self) -> str:
        return self.tiles.name

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return self.tiles.knobs

    @cached_property
    def facts(self) -> LoopNestFacts:
        return replace(self.tiles.facts, operations=self.patches.operations)

    def nest(self, config: Config) -> Nest:
        context = self.tiles.stage.context
        plan = self.tiles.plan(config)
        return PatchNest(self.patches, plan, context.shapes, context.dtypes).build()


def patch_sketch(group: TileGroup, context: SpaceContext) -> PatchSketch | None:
    """The sketch of a group; None where its anchor picks by no places."""
    split = patches(group.anchor) if group.epilogue is None else None
    if split is None:
        return None
    stage = TiledStage(
        group=TileGroup(anchor=split.stage, epilogue=None),
        context=context,
        vector=_vector(split, context),
        places=frozenset(split.places),
    )
    tiles = TileSketch(stage=stage, arithmetic=PatchArithmetic(split.places), copying=False)
    return PatchSketch(group=group, patches=split, tiles=tiles)


def _vector(split: Patches, context: SpaceContext) -> str | None:
    """The axis along which most reads are vectors; of several the last one."""
    reads = accesses(split.stage, context.shapes)
    wide = [
        axis.name for axis in split.stage.axes if axis.extent > 1 and axis.name not in split.places
    ]
    contiguous = {name: sum(read.stride(name) == 1 for read in reads) for name in wide}
    return max(reversed(wide), key=lambda name: contiguous[name], default=None)
