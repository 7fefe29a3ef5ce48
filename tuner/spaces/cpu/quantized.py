"""Sums of products with weights of few bits: unpacked in registers, scaled by groups.

Weights of four bits lie two to a byte. A packed copy has a word of 32 bits for each
lane, with eight weights of one output that follow each other. One vector is loaded for
eight steps of the reduction; each shifts it, and looks the numbers that the lowest four
bits of each lane mean up in a register (vpermps, which ignores the bits above). So any
sixteen numbers cost the same: with a sign or without, with an offset, or a codebook.

Weights of a byte are read as they are, and converted.

The sum of a group is a block of the reduction. The scale multiplies it once
(`group_scales`), and no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.arithmetic import TileValues
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.copy_values import copy_modes
from tuner.spaces.cpu.facts import Unrolling
from tuner.spaces.cpu.reduction_values import SHORT_REDUCTION, UNROLL_FACTORS
from tuner.spaces.cpu.register_tiles import register_tiles
from tuner.spaces.cpu.tile_plan import Instruction
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.rewrite.access import Access
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.quantized_products import Factors, quantized_product
from tuner.workload.expression import Axis, reads

PACKED = (CopyMode.PACK, CopyMode.PACK_ROOT)


@dataclass(frozen=True)
class QuantizedArithmetic:
    """One multiply-add for each lane, of weights that are looked up or converted."""

    def name(self, stage: TiledStage) -> str:
        return f"{'lookup' if stage.instruction.table else 'grouped'}_{stage.vector}"

    def rate(self, stage: TiledStage) -> float:
        return 1.0

    def values(self, stage: TiledStage) -> TileValues:
        return TileValues(
            register_tiles=register_tiles(stage),
            reduction_blocks=[1],
            unrollings=_unrollings(stage),
            copies=[_copies(stage, read) for read in stage.reads],
        )


def _unrollings(stage: TiledStage) -> list[Unrolling]:
    """Of the steps within a group."""
    position, steps = _steps(stage)
    if steps.extent <= SHORT_REDUCTION:
        return [Unrolling(position=position, factor=steps.extent)]
    return [
        Unrolling(position=position, factor=factor)
        for factor in UNROLL_FACTORS
        if steps.extent % factor == 0
    ]


def _steps(stage: TiledStage) -> tuple[int, Axis]:
    instruction = stage.instruction
    return next(
        (position, axis)
        for position, axis in enumerate(stage.group.anchor.reduce_axes)
        if axis.name != instruction.groups and axis.name not in instruction.axes
    )


def _copies(stage: TiledStage, access: Access) -> Sequence[CopyMode]:
    if not access.axes.intersection(stage.instruction.axes):
        return copy_modes(stage, access)
    in_place = (
        stage.vector not in access.axes
        and not access.padded
        and access.read.tensor in stage.context.exact
    )
    return (CopyMode.NONE, *PACKED) if in_place else PACKED


def quantized_sketch(group: TileGroup, context: SpaceContext, vector: str) -> TileSketch | None:
    """None where the anchor is no sum of products with weights along the vector, or the
    target has no table of sixteen numbers in a register."""
    product = quantized_product(group.anchor, context.shapes, context.dtypes)
    if product is None:
        return None
    stage = TiledStage(
        group=replace(group, anchor=product.stage),
        context=context,
        vector=vector,
        instruction=Instruction(
            axes=product.instruction, table=product.table, groups=product.groups
        ),
    )
    if product.table and context.isa.table_numbers != stage.lanes:
        return None
    factors = Factors.of(product.stage.body)
    (weights,) = set(reads(factors.weight))
    (shared,) = set(reads(factors.shared))
    moving = {access.read: vector in access.axes for access in stage.reads}
    if not moving[weights] or moving[shared]:
        return None
    return TileSketch(stage=stage, arithmetic=QuantizedArithmetic())
