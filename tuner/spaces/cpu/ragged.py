"""Tiles of reductions over the places of compressed rows: one row at a time.

The conditions of a ragged range are the same for all lanes of a vector along another
axis, so the nest is that of any sum, with the loop over places cut to the row.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.arithmetic import TileValues
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.facts import Unrolling
from tuner.spaces.cpu.register_tiles import register_tiles
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.rewrite.groups import TileGroup
from tuner.workload.expression import RaggedRange, ragged_range


def is_ragged(group: TileGroup) -> bool:
    """Whether a group reduces over the places of rows."""
    return ragged_range(group.anchor) is not None


def ragged_sketches(group: TileGroup, context: SpaceContext) -> list[TileSketch]:
    """The sketch of one row at a time, vectorised along the output's last dense axis."""
    ragged = ragged_range(group.anchor)
    assert ragged is not None
    dense = [axis for axis in group.anchor.axes if axis.name != ragged.row and axis.extent >= 2]
    vector = dense[-1].name if dense else None
    stage = TiledStage(group=group, context=context, vector=vector)
    return [TileSketch(stage=stage, arithmetic=RowArithmetic(ragged), copying=False)]


@dataclass(frozen=True)
class RowArithmetic:
    """One multiply-add for each lane, and no tile along rows: their places differ."""

    ragged: RaggedRange

    def name(self, stage: TiledStage) -> str:
        return f"ragged_{stage.vector}" if stage.vector else "ragged"

    def rate(self, stage: TiledStage) -> float:
        return 1.0

    def values(self, stage: TiledStage) -> TileValues:
        axes = stage.group.anchor.reduce_axes
        position = [axis.name for axis in axes].index(self.ragged.axis)
        return TileValues(
            # A row has few places: accumulators that hide no latency cost nothing.
            register_tiles=register_tiles(stage, undivided={self.ragged.row}, least=1),
            reduction_blocks=[stage.main_reduction.extent],
            unrollings=[Unrolling(position=position, factor=1)],
            copies=[(CopyMode.NONE,) for _ in stage.reads],
        )
