"""Sums of products of float16, few terms at a time in float16: for `numerics=tensor`.

A vector has twice as many elements of float16 as of float32, and cores that compute with
them (Arm's FP16, AVX512-FP16) multiply and add all of them in one instruction. So parts of
the reduction are summed in float16, and these sums are added up in float32.

Each of n multiply-adds rounds to 11 bits, so that the sum of a part is off by less than
n * 2^-11 of the sizes of its terms, and by about sqrt(n) * 2^-12 of them where roundings
are independent and no signs cancel. Adding up parts makes neither greater.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.arithmetic import TileValues
from tuner.spaces.cpu.tile_plan import Instruction
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.cpu.vectors import VectorArithmetic
from tuner.spaces.rewrite.dot_products import factors, split_reduction
from tuner.spaces.rewrite.groups import TileGroup
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Stage

MOST_TERMS, FEWEST_TERMS = 16, 8  # of a part
# Instructions for each vector of a part: two halves are widened, and added to sums.
ADDED_UP = 4


class Float16Arithmetic(VectorArithmetic):
    """A multiply-add of float16 for each lane, within parts of the reduction."""

    def name(self, stage: TiledStage) -> str:
        return f"float16_{stage.vector}"

    def rate(self, stage: TiledStage) -> float:
        reduction = stage.group.anchor.reduce_axes
        terms = prod(axis.extent for axis in reduction if axis.name != stage.instruction.groups)
        return terms / (terms + ADDED_UP)

    def values(self, stage: TiledStage) -> TileValues:
        values = super().values(stage)
        within = [
            unrolling
            for unrolling in values.unrollings
            if stage.group.anchor.reduce_axes[unrolling.position].name != stage.instruction.groups
        ]
        return replace(values, reduction_blocks=[1], unrollings=within)


def float16_sketch(group: TileGroup, context: SpaceContext, vector: str) -> TileSketch | None:
    """None where numerics or the target do not have such sums, the anchor is none that is
    stored in float16, its parts would be too short, or its axis is no whole vector."""
    anchor, operands = group.anchor, factors(group.anchor)
    if (
        context.numerics != "tensor"
        or not context.isa.native_float16
        or operands is None
        or {context.dtypes[operand.tensor] for operand in operands} != {"float16"}
        or group.output.dtype != "float16"
    ):
        return None
    cut = _in_parts(anchor, context)
    if cut is None:
        return None
    stage = TiledStage(
        group=replace(group, anchor=cut[0]),
        context=context,
        vector=vector,
        instruction=Instruction(groups=cut[1].name, group_dtype="float16"),
    )
    if stage.lanes * DTYPE_BYTES["float16"] < context.target.vector_bytes:
        return None
    return TileSketch(stage=stage, arithmetic=Float16Arithmetic())


def _in_parts(anchor: Stage, context: SpaceContext) -> tuple[Stage, Axis] | None:
    """The anchor with its longest reduction axis cut, and the axis over parts. A part has all
    of the other axes."""
    axis = max(anchor.reduce_axes, key=lambda axis: axis.extent)
    others = prod(each.extent for each in anchor.reduce_axes) // axis.extent
    most, fewest = MOST_TERMS // others, -(-FEWEST_TERMS // others)
    if most < fewest or axis.extent <= most:
        return None
    divisors = (size for size in range(most, fewest - 1, -1) if axis.extent % size == 0)
    made = split_reduction(anchor, axis, (next(divisors, most),), context.shapes, context.dtypes)
    if made is None:
        return None
    return made[0], next(part for part in made[0].reduce_axes if part.name == axis.name)
