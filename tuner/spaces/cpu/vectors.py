"""Tiles of plain vectors: which axes of a stage are worth vectorising."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.arithmetic import TileValues
from tuner.spaces.cpu.copy_values import copy_modes
from tuner.spaces.cpu.reduction_values import reduction_blocks, unrollings
from tuner.spaces.cpu.register_tiles import register_tiles
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.target import Target
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis


@dataclass(frozen=True)
class VectorArithmetic:
    """One multiply-add for each lane."""

    def name(self, stage: TiledStage) -> str:
        if stage.across is not None:
            return f"turn_{stage.across}_{stage.vector}"
        return f"tile_{stage.vector}" if stage.vector else "tile"

    def rate(self, stage: TiledStage) -> float:
        return 1.0

    def values(self, stage: TiledStage) -> TileValues:
        return TileValues(
            register_tiles=register_tiles(stage),
            reduction_blocks=reduction_blocks(stage) if stage.is_sum else (),
            unrollings=unrollings(stage) if stage.is_sum else (),
            copies=[copy_modes(stage, read) for read in stage.reads],
        )


def tile_sketches(
    group: TileGroup, context: SpaceContext, *, copying: bool = True
) -> list[TileSketch]:
    """One sketch for each axis worth vectorising, and one for transposed reads of a map."""
    return [
        TileSketch(stage=stage, arithmetic=VectorArithmetic(), copying=copying)
        for stage in vectorised_stages(group, context)
    ]


def vectorised_stages(group: TileGroup, context: SpaceContext) -> list[TiledStage]:
    """The stage with each axis that is worth vectorising.

    Worth it are the output's last axis, and the one along which most reads are made of
    vectors, in place or as packed copies. Where vectors along the last axis overlap by
    more than a twentieth, the longest axis is too: storing elements one by one is then
    little beside the sum.
    """
    anchor, target = group.anchor, context.target
    reads = accesses(anchor, context.shapes)

    def stage(axis: str | None, across: str | None = None) -> TiledStage:
        return TiledStage(group=group, context=context, vector=axis, across=across)

    def in_vectors(axis: Axis) -> tuple[int, int]:
        along = stage(axis.name)
        contiguous = [along.contiguous(read) for read in reads]
        return sum(
            here or along.packable(read) for here, read in zip(contiguous, reads, strict=True)
        ), sum(contiguous)

    wide = [axis for axis in anchor.axes if axis.extent >= 2]
    if not wide:
        return [stage(None)]
    last = next(axis for axis in reversed(group.output.axes) if axis.extent >= 2)
    last = next(axis for axis in anchor.axes if axis.name == last.name)
    best = max(wide, key=lambda axis: (*in_vectors(axis), axis.extent))
    dtype = anchor.accumulator if anchor.reducer else anchor.dtype
    lanes = target.vector_bytes // DTYPE_BYTES[dtype]
    longest = max(wide, key=lambda axis: axis.extent)
    overlap = -(-last.extent // lanes) * lanes - last.extent
    alternative = (
        anchor.reducer is not None and overlap * 20 > last.extent and lanes <= longest.extent
    )
    worth = (last, best, longest) if alternative else (last, best)
    chosen = dict.fromkeys(
        axis.name for axis in worth if any(axis.name in read.axes for read in reads) or axis is last
    )
    stages = [stage(name) for name in chosen]
    across = _across(group, last, reads, target)
    return stages if across is None else [*stages, stage(last.name, across)]


def _across(group: TileGroup, vector: Axis, reads: Sequence[Access], target: Target) -> str | None:
    """The axis along which a map reads contiguously what it writes along another.

    None where one of them is too short to transpose square tiles in registers.
    """
    stage = group.anchor
    lanes = target.vector_bytes // DTYPE_BYTES[stage.dtype]
    if stage.reducer is not None or vector.extent < lanes or not 4 <= lanes <= 16:
        return None
    transposed = [
        read for read in reads if read.stride(vector.name) not in (0, 1, None) and not read.padded
    ]
    for axis in stage.axes:
        if (
            axis.name != vector.name
            and axis.extent >= lanes
            and any(read.stride(axis.name) == 1 for read in transposed)
        ):
            return axis.name
    return None
