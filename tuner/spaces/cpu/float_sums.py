"""Sums of few products of 8-bit integers, in float32: tiles of plain vectors that multiply
and add in one instruction.

Where both factors move along the lanes, no instruction takes several numbers that lie side
by side. A product of 32-bit integers takes two slow instructions (vpmulld), one of float32
shares its instruction with the sum. float32 holds every integer up to 2^24, so a sum of up
to 258 such products is exact in any order.

Bytes are converted as they are loaded. Packed copies, as of constant weights, are of
float32.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.tile_plan import Instruction
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.cpu.vectors import VectorArithmetic
from tuner.spaces.rewrite.dot_products import MOST_EXACT, factors
from tuner.spaces.rewrite.groups import TileGroup, replace_reads
from tuner.workload.expression import Binary, Cast, Read, Stage, Var


class FloatArithmetic(VectorArithmetic):
    """A multiply-add of float32 for each lane."""

    def name(self, stage: TiledStage) -> str:
        return f"floats_{stage.vector}"


def float_sketch(group: TileGroup, context: SpaceContext, vector: str) -> TileSketch | None:
    """None where the anchor is no such sum, or lanes share one of its factors."""
    anchor, operands = group.anchor, factors(group.anchor)
    if (
        operands is None
        or anchor.accumulator != "int32"
        or any(context.dtypes[operand.tensor] not in ("int8", "uint8") for operand in operands)
        or prod(axis.extent for axis in anchor.reduce_axes) > MOST_EXACT
    ):
        return None
    stage = TiledStage(
        group=_in_floats(group, operands),
        context=context,
        vector=vector,
        instruction=Instruction(packed_dtype="float32"),
    )
    if any(vector not in read.axes for read in stage.reads):
        return None
    return TileSketch(stage=stage, arithmetic=FloatArithmetic())


def _in_floats(group: TileGroup, operands: tuple[Read, Read]) -> TileGroup:
    """The group with its sums in float32, which its epilogue gets as the integers they are."""
    anchor, epilogue = group.anchor, group.epilogue
    first, second = (Cast("float32", operand) for operand in operands)
    sums: Stage = replace(anchor, body=Binary("mul", first, second), accumulator="float32")
    if epilogue is not None:
        place = tuple(Var(axis.name) for axis in anchor.axes)
        whole = Cast(anchor.dtype, Read(anchor.name, place))
        epilogue = replace(epilogue, body=replace_reads(epilogue.body, {anchor.name: whole}))
    return replace(group, anchor=sums, epilogue=epilogue)
