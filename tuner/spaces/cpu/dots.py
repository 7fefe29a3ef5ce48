"""Sums of products of small numbers, two or four at a time: tiles with one reduction axis
taken in pairs or fours.

x86 multiplies 16-bit integers pairwise and adds each pair to a 32-bit lane in one
instruction (vpmaddwd; with VNNI it accumulates too, vpdpwssd). Exact for operands of 8
bits: a pair is at most 2 * 255 * 255. VNNI also takes four 8-bit numbers at once
(vpdpbusd), of one factor without and of the other with a sign; Arm takes four with signs
alike (sdot, udot) or, with I8MM, apart (usdot). AVX512-BF16 and Arm's BF16 sum pairs of
bfloat16 in float32 (vdpbf16ps, bfdot), with subnormal numbers taken as zero. The factor
that moves along the lanes is packed in pairs or fours; the lanes of the accumulators
are the vectorised axis, as in tiles of plain vectors.

Where both factors have a sign, or neither has, and the instruction wants them apart, the
one that lanes share is moved by 128 into the other range. What that adds to every sum,
128 times the sum of the other factor, is computed once for all rows and subtracted.
Reductions so long that such a sum might not fit 32 bits are left to other instructions:
the compiler assumes that none overflows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.arithmetic import TileValues
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.copy_values import copy_modes
from tuner.spaces.cpu.reduction_values import reduction_blocks, unrollings
from tuner.spaces.cpu.register_tiles import register_tiles
from tuner.spaces.cpu.tile_plan import Instruction
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.dot_products import factors, shared_axes, split_reduction
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.isa import DotProduct

PAIR, FOUR = 2, 4
RANGE = 128  # by which an 8-bit number with a sign becomes one without
LONGEST = 2**31 // (255 * 128)  # reduction of moved products that surely fits 32 bits


@dataclass(frozen=True)
class DotProductArithmetic:
    """The anchor has a reduction axis cut in two: steps, and the place among what an
    instruction takes."""

    numbers: int  # that an instruction takes of either factor, for each lane

    def name(self, stage: TiledStage) -> str:
        return f"{'pairs' if self.numbers == PAIR else 'fours'}_{stage.vector}"

    def rate(self, stage: TiledStage) -> float:
        return float(self.numbers)

    def values(self, stage: TiledStage) -> TileValues:
        packed = [CopyMode.PACK, CopyMode.PACK_ROOT]
        return TileValues(
            register_tiles=register_tiles(stage),
            reduction_blocks=reduction_blocks(stage),
            unrollings=unrollings(stage),
            copies=[
                [CopyMode.NONE, *packed] if _in_place(stage, read) else packed
                for read in stage.reads
            ],
        )


def _in_place(stage: TiledStage, access: Access) -> bool:
    """Whether the numbers that all lanes share can be read from where they are."""
    if stage.vector in access.axes or access.padded:
        return False
    (numbers,) = stage.instruction.axes
    return access.read.tensor in stage.context.exact and access.stride(numbers) == 1


def dot_sketch(group: TileGroup, context: SpaceContext, vector: str) -> TileSketch | None:
    """Of the instruction that takes most. None where the anchor is no sum of products
    of 8-bit integers or bfloat16, its factors share no reduction axis, or the target
    has no such instruction."""
    shapes, dtypes = context.shapes, context.dtypes
    anchor, reads = group.anchor, accesses(group.anchor, shapes)
    operands = factors(anchor)
    if operands is None or {vector in operand.axes for operand in reads} != {True, False}:
        return None
    narrow = {dtypes[operand.tensor] for operand in operands}
    offered = _offered(group, context, vector)
    ways = [
        (numbers, axis)
        for numbers in sorted(offered)
        for axis in reversed(shared_axes(anchor, reads))
    ]
    # By products of one instruction.
    ways.sort(key=lambda way: way[1].extent / -(-way[1].extent // way[0]), reverse=True)
    cuts = (
        (numbers, split_reduction(anchor, axis, (numbers,), shapes, dtypes))
        for numbers, axis in ways
    )
    numbers, made = next(((numbers, made) for numbers, made in cuts if made is not None), (0, None))
    if made is None:
        return None
    moved = _moved(offered[numbers], narrow)
    zero_point = (RANGE if narrow == {"int8"} else -RANGE) if moved else 0
    stage = TiledStage(
        group=replace(group, anchor=made[0]),
        context=context,
        vector=vector,
        instruction=Instruction(axes=made[1], zero_point=zero_point),
    )
    if not all(copy_modes(stage, read)[-1] is CopyMode.PACK_ROOT for read in stage.reads):
        return None
    return TileSketch(stage=stage, arithmetic=DotProductArithmetic(numbers))


def _offered(group: TileGroup, context: SpaceContext, vector: str) -> dict[int, DotProduct]:
    """The target's instructions for the anchor, by the products that they add to one
    accumulator; of two alike the one that takes the factors as they are."""
    anchor = group.anchor
    narrow = {context.dtypes[operand.tensor] for operand in factors(anchor) or ()}
    lanes = TiledStage(group=group, context=context, vector=vector).lanes
    is_long = prod(axis.extent for axis in anchor.reduce_axes) > LONGEST
    chosen: dict[int, DotProduct] = {}
    for dot in context.isa.dot_products:
        moved = _moved(dot, narrow)
        if (
            dot.rows == 1
            and dot.group > 1
            and narrow <= dot.factors
            and (dot.accumulator, dot.lanes) == (anchor.accumulator, lanes)
            and not (moved and is_long)
            and (dot.group not in chosen or not moved)
        ):
            chosen[dot.group] = dot
    return chosen


def _moved(dot: DotProduct, narrow: Collection[str]) -> bool:
    """Whether one of the factors, of these dtypes, is moved into the range of the other
    sign."""
    return dot.signs == "mixed" and len(narrow) == 1
