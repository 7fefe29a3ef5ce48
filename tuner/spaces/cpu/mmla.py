"""Sums of products of small matrices: tiles of two rows by two lanes, with one reduction axis
taken in eights or fours.

Arm's I8MM and BF16 (Architecture Reference Manual, C7) multiply a matrix of two rows of
eight 8-bit integers, or of four bfloat16, with another such matrix, transposed, and add
to four sums of 32 bits (smmla, ummla, usmmla; bfmmla). That is twice as many products as
a dot product of the same vectors has. Sums of integers are exact; bfloat16's are of
float32, with subnormal numbers taken as zero.

Sums stay two by two in registers, so that a vector of them is half of two rows. Adjacent
ones are put together into rows when they are stored.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.arithmetic import TileValues
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.reduction_values import reduction_blocks, unrollings
from tuner.spaces.cpu.register_tiles import register_tiles
from tuner.spaces.cpu.tile_plan import Instruction
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.dot_products import factors, shared_axes, split_reduction
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.isa import DotProduct

SIDE = 2  # rows of each matrix


@dataclass(frozen=True)
class SmallMatrixArithmetic:
    """The anchor has a reduction axis cut in two: steps, and what an instruction takes."""

    products: int  # that an instruction adds to one sum

    def name(self, stage: TiledStage) -> str:
        return f"mmla_{stage.vector}"

    def rate(self, stage: TiledStage) -> float:
        return float(self.products)

    def values(self, stage: TiledStage) -> TileValues:
        packed = [CopyMode.PACK, CopyMode.PACK_ROOT]
        return TileValues(
            register_tiles=self.register_tiles(stage),
            reduction_blocks=reduction_blocks(stage),
            unrollings=unrollings(stage),
            copies=[
                [CopyMode.NONE, *packed] if _in_place(stage, read) else packed
                for read in stage.reads
            ],
        )

    def register_tiles(self, stage: TiledStage) -> list[tuple[int, ...]]:
        """Whole matrices of sums, and whole vectors of each row of them.

        Beside them in registers are the matrices of one side and one of the other.
        """
        names = [axis.name for axis in stage.group.anchor.axes]
        vector, paired = names.index(str(stage.vector)), names.index(str(stage.instruction.paired))
        registers = stage.context.target.vector_registers

        def fits(tile: tuple[int, ...]) -> bool:
            columns = tile[vector] // SIDE
            rows = prod(tile) // tile[vector] // SIDE
            vectors = tile[vector] // stage.lanes
            return (
                tile[paired] % SIDE == 0
                and vectors & (vectors - 1) == 0
                and rows * columns + min(rows, columns) < registers
            )

        return [tile for tile in register_tiles(stage) if fits(tile)]


def _in_place(stage: TiledStage, access: Access) -> bool:
    """Whether the rows of a matrix can be read from where they are."""
    if stage.vector in access.axes or access.padded:
        return False
    (numbers,) = stage.instruction.axes
    return access.read.tensor in stage.context.exact and access.stride(numbers) == 1


def mmla_sketch(group: TileGroup, context: SpaceContext, vector: str) -> TileSketch | None:
    """None where the target has no such instruction for the anchor's factors, or the anchor
    is no sum of products with an axis for rows and one for its steps."""
    anchor, shapes = group.anchor, context.shapes
    reads = accesses(anchor, shapes)
    operands = factors(anchor)
    if operands is None or {vector in read.axes for read in reads} != {True, False}:
        return None
    dot = _instruction(group, context, vector)
    narrow = next(read for read in reads if vector not in read.axes)
    apart = set().union(*(read.axes for read in reads if vector in read.axes))
    own = narrow.axes - apart
    rows = [axis for axis in anchor.axes if axis.extent >= SIDE and axis.name in own]
    if dot is None or not rows:
        return None
    paired = max(rows, key=lambda axis: (axis.extent, anchor.axes.index(axis)))
    ways = sorted(
        reversed(shared_axes(anchor, reads)),
        key=lambda axis: axis.extent / -(-axis.extent // dot.group),
        reverse=True,
    )
    cuts = (split_reduction(anchor, axis, (dot.group,), shapes, context.dtypes) for axis in ways)
    made = next((made for made in cuts if made is not None), None)
    if made is None:
        return None
    stage = TiledStage(
        group=replace(group, anchor=made[0]),
        context=context,
        vector=vector,
        instruction=Instruction(axes=made[1], paired=paired.name),
    )
    arithmetic = SmallMatrixArithmetic(dot.group)
    if any(read.gathered or not stage.grows_little(read) for read in stage.reads):
        return None
    return (
        TileSketch(stage=stage, arithmetic=arithmetic) if arithmetic.register_tiles(stage) else None
    )


def _instruction(group: TileGroup, context: SpaceContext, vector: str) -> DotProduct | None:
    """The target's instruction for the anchor. Of mixed signs its first factor, whose rows are
    the paired ones, has none."""
    anchor = group.anchor
    reads = accesses(anchor, context.shapes)
    lanes = TiledStage(group=group, context=context, vector=vector).lanes
    narrow, wide = (
        next(context.dtypes[read.read.tensor] for read in reads if (vector in read.axes) is moves)
        for moves in (False, True)
    )
    for dot in context.isa.dot_products:
        if (
            dot.rows == SIDE
            and {narrow, wide} <= dot.factors
            and (dot.accumulator, dot.lanes) == (anchor.accumulator, lanes)
            and (dot.signs != "mixed" or (narrow, wide) == ("uint8", "int8"))
        ):
            return dot
    return None
