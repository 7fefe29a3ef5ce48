"""Sums of products with weights of few bits: unpacked in registers, scaled by groups.

Weights of four bits lie two to a byte. A packed copy has a word of 32 bits for each
lane, with eight weights of one output that follow each other. One vector is loaded for
eight steps of the reduction; each shifts it, and looks the numbers that the lowest four
bits of each lane mean up in a register (vpermps, which ignores the bits above); where a
register holds eight numbers, in two of them, one of which the fourth bit chooses. So any
sixteen numbers cost the same: with a sign or without, with an offset, or a codebook.

Where the other factor is of 8-bit integers, and the sixteen numbers are integers in a row,
the halves of the bytes of a word are two factors of an instruction that sums products in
fours (vpdpbusd): two for the eight steps, in int32. A register tile of several rows unpacks
its weights once for all of them.

Weights of a byte are read as they are, and converted; or are factors in fours themselves,
where the other factor is of 8-bit integers too.

The sum of a group is a block of the reduction. The scale multiplies it once
(`group_scales`), and no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.arithmetic import TileValues
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.copy_values import copy_modes
from tuner.spaces.cpu.dots import FOUR, LONGEST, RANGE, is_moved
from tuner.spaces.cpu.facts import Unrolling
from tuner.spaces.cpu.reduction_values import SHORT_REDUCTION, UNROLL_FACTORS
from tuner.spaces.cpu.register_tiles import register_tiles
from tuner.spaces.cpu.tile_plan import Instruction
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.rewrite.access import Access
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.quantized_products import (
    Factors,
    QuantizedProduct,
    in_integers,
    quantized_product,
)
from tuner.workload.expression import Axis, reads

PACKED = (CopyMode.PACK, CopyMode.PACK_ROOT)
SHARING_ROWS = 8  # of a register tile, about as many as there are registers for


@dataclass(frozen=True)
class QuantizedArithmetic:
    """One multiply-add for each lane, of weights that are looked up or converted; or
    products in fours, of bytes or of halves of them."""

    def name(self, stage: TiledStage) -> str:
        instruction = stage.instruction
        if instruction.group_dtype is not None:
            return f"{'halves' if instruction.takes_halves else 'fours'}_{stage.vector}"
        return f"{'lookup' if instruction.table else 'grouped'}_{stage.vector}"

    def rate(self, stage: TiledStage) -> float:
        if stage.instruction.group_dtype is None:
            return 1.0
        if not stage.instruction.takes_halves:
            return float(FOUR)
        # Of eight steps: two products for each row of a tile, three instructions to unpack.
        rows = min(SHARING_ROWS, prod(axis.extent for axis in _sharing(stage)))
        return 8 * rows / (2 * rows + 3)

    def values(self, stage: TiledStage) -> TileValues:
        return TileValues(
            register_tiles=register_tiles(stage),
            reduction_blocks=[1],
            unrollings=_unrollings(stage),
            copies=[_copies(stage, read) for read in stage.reads],
        )


def _sharing(stage: TiledStage) -> list[Axis]:
    """The axes along which weights are used again."""
    (weights,) = (
        read
        for read in stage.reads
        if stage.vector in read.axes and read.axes.intersection(stage.instruction.axes)
    )
    return [axis for axis in stage.group.anchor.axes if axis.name not in weights.axes]


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
    if stage.instruction.takes_halves:
        return PACKED  # the numbers of one half lie apart in memory
    in_place = (
        stage.vector not in access.axes
        and not access.padded
        and access.read.tensor in stage.context.exact
    )
    return (CopyMode.NONE, *PACKED) if in_place else PACKED


def quantized_sketches(group: TileGroup, context: SpaceContext, vector: str) -> list[TileSketch]:
    """None where the anchor is no sum of products with weights along the vector; weights of
    four bits need a table of sixteen numbers in one or two registers, or products in fours."""
    product = quantized_product(group.anchor, context.shapes, context.dtypes)
    if product is None:
        return []
    offered = []
    if not product.table or context.isa.table_numbers == _lanes(group, context, vector):
        table = Instruction(axes=product.instruction, table=product.table, groups=product.groups)
        offered.append((product, table))
    integers = in_integers(product, context.dtypes)
    if integers is not None:
        fours = _fours(integers, context, _lanes(group, context, vector))
        offered += [] if fours is None else [(integers, fours)]
    stages = (
        TiledStage(
            group=replace(group, anchor=part.stage),
            context=context,
            vector=vector,
            instruction=instruction,
        )
        for part, instruction in offered
    )
    return [
        TileSketch(stage=stage, arithmetic=QuantizedArithmetic())
        for stage in stages
        if _moves_weights_alone(stage)
    ]


def _lanes(group: TileGroup, context: SpaceContext, vector: str) -> int:
    return TiledStage(group=group, context=context, vector=vector).lanes


def _fours(product: QuantizedProduct, context: SpaceContext, lanes: int) -> Instruction | None:
    """That of the target that takes fours of the integers that lanes share. Four bits have
    either sign; of two bytes with the same one may be moved."""
    factors = Factors.of(product.stage.body)
    instruction = Instruction(axes=product.instruction, groups=product.groups, group_dtype="int32")
    used = (factors.shared,) if instruction.takes_halves else (factors.shared, factors.weight)
    extents = product.stage.extents
    group = prod(extents[axis.name] for axis in product.stage.reduce_axes[1:])
    if group > LONGEST:
        return None
    narrow = {context.dtypes[read.tensor] for factor in used for read in reads(factor)}
    fitting = [
        dot
        for dot in context.isa.dot_products
        if (dot.group, dot.lanes, dot.rows, dot.accumulator) == (FOUR, lanes, 1, "int32")
        and narrow <= dot.factors
        and (len(narrow) == 1 or dot.signs != "same")
    ]
    if instruction.takes_halves or any(not is_moved(dot, narrow) for dot in fitting):
        return instruction if fitting else None
    zero_point = RANGE if narrow == {"int8"} else -RANGE
    return replace(instruction, zero_point=zero_point) if fitting else None


def _moves_weights_alone(stage: TiledStage) -> bool:
    """Whether of the two factors only the weights move along the vector."""
    factors = Factors.of(stage.group.anchor.body)
    (weights,) = set(reads(factors.weight))
    (shared,) = set(reads(factors.shared))
    moving = {access.read: stage.vector in access.axes for access in stage.reads}
    return moving[weights] and not moving[shared]
