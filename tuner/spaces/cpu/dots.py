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

Where both factors move along the lanes, as in a depthwise convolution with its channels
last, only the one that is used at many points is packed. The other would be packed for
each use, in several times its size. So a vector of bytes is loaded for each number that
an instruction takes, and they are put beside each other in registers, where the outputs
of a register tile share them. Fours only: of pairs that is no faster than float32
(`float_sums`).

Where both factors have a sign, or neither has, and the instruction wants them apart, the
one that lanes share is moved by 128 into the other range. What that adds to every sum,
128 times the sum of the other factor, is computed once for all rows and subtracted.
Reductions so long that such a sum might not fit 32 bits are left to other instructions:
the compiler assumes that none overflows.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from itertools import product
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
from tuner.spaces.rewrite.dot_products import (
    factors,
    shared_axes,
    split_reduction,
    split_window,
)
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.isa import DotProduct
from tuner.workload.expression import Axis, Stage

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
        # Half of the work on factors that lie apart is to put them beside each other.
        return self.numbers / (1 if stage.instruction.interleaved is None else 2)

    def values(self, stage: TiledStage) -> TileValues:
        return TileValues(
            register_tiles=register_tiles(stage),
            reduction_blocks=reduction_blocks(stage),
            unrollings=unrollings(stage),
            copies=[_modes(stage, read) for read in stage.reads],
        )


def _modes(stage: TiledStage, access: Access) -> list[CopyMode]:
    """How a factor may be brought into the form that the instruction takes.

    One that is read where it lies has its padding made real: a comparison for each vector
    would cost more than the sum. So a window is read from its image, each group of
    neighbours at any place, where a packed copy would hold each element many times.
    """
    packed = [CopyMode.PACK, CopyMode.PACK_ROOT]
    plain = (CopyMode.PAD, CopyMode.PAD_PARTS) if access.padded else (CopyMode.NONE,)
    in_place = [mode for mode in copy_modes(stage, access) if mode in plain]
    if access.read == stage.instruction.interleaved:
        return in_place
    return [*in_place, *packed] if _lies_together(stage, access) else packed


def _lies_together(stage: TiledStage, access: Access) -> bool:
    """Whether the numbers that all lanes share lie side by side."""
    (numbers,) = stage.instruction.axes
    return (
        stage.vector not in access.axes
        and access.read.tensor in stage.context.exact
        and access.stride(numbers) == 1
    )


def dot_sketch(group: TileGroup, context: SpaceContext, vector: str) -> TileSketch | None:
    """Of the instruction that takes most. None where the anchor is no sum of products
    of 8-bit integers or bfloat16, its factors share no reduction axis, or the target
    has no such instruction."""
    shapes, dtypes = context.shapes, context.dtypes
    anchor, reads = group.anchor, accesses(group.anchor, shapes)
    operands = factors(anchor)
    interleaved = _interleaved(reads, vector)
    moving = {vector in operand.axes for operand in reads}
    if operands is None or (moving != {True, False} and interleaved is None):
        return None
    narrow = {dtypes[operand.tensor] for operand in operands}
    offered = _offered(group, context, vector)
    cuts = (
        (numbers, _cut(anchor, axis, numbers, interleaved, context))
        for numbers, axis in _ways(anchor, reads, vector, offered, interleaved)
    )
    numbers, made = next(((numbers, made) for numbers, made in cuts if made is not None), (0, None))
    if made is None:
        return None
    cut, instruction = made
    if is_moved(offered[numbers], narrow):
        zero_point = RANGE if narrow == {"int8"} else -RANGE
        instruction = replace(instruction, zero_point=zero_point)
    stage = TiledStage(
        group=replace(group, anchor=cut),
        context=context,
        vector=vector,
        instruction=instruction,
    )
    sketch = TileSketch(stage=stage, arithmetic=DotProductArithmetic(numbers))
    return sketch if _copied(stage) else None


def _interleaved(reads: tuple[Access, ...], vector: str) -> Access | None:
    """The factor that is put in groups in registers: where both move along the lanes, the
    one at whose points the other is used again. None where there is none such."""
    if len(reads) != 2 or any(read.gathered or read.stride(vector) != 1 for read in reads):
        return None
    packed, whole = sorted(reads, key=lambda read: len(read.axes))
    return whole if packed.axes < whole.axes else None


def _ways(
    anchor: Stage,
    reads: tuple[Access, ...],
    vector: str,
    offered: Collection[int],
    interleaved: Access | None,
) -> list[tuple[int, Axis]]:
    """The numbers that an instruction takes, and the reduction axis that they lie along, by
    the products of one instruction; of two alike the one along which the factor that lanes
    share lies together."""
    axes = shared_axes(anchor, reads)
    shared = next((read for read in reads if vector not in read.axes), None)
    sizes = set(offered)
    if interleaved is None:
        axes.reverse()
    else:
        sizes &= {FOUR}

    def worth(way: tuple[int, Axis]) -> tuple[float, bool]:
        numbers, axis = way
        together = shared is not None and shared.stride(axis.name) == 1
        return axis.extent / -(-axis.extent // numbers), together

    return sorted(product(sorted(sizes), axes), key=worth, reverse=True)


def _cut(
    anchor: Stage, axis: Axis, numbers: int, interleaved: Access | None, context: SpaceContext
) -> tuple[Stage, Instruction] | None:
    """The anchor with its axis cut into what an instruction takes."""
    shapes, dtypes = context.shapes, context.dtypes
    if interleaved is None:
        made = split_reduction(anchor, axis, (numbers,), shapes, dtypes)
        return None if made is None else (made[0], Instruction(axes=made[1]))
    window = split_window(anchor, axis, numbers, interleaved.read, shapes, dtypes)
    if window is None:
        return None
    stage, names, whole = window
    return stage, Instruction(axes=names, interleaved=whole)


def _copied(stage: TiledStage) -> bool:
    """Whether each factor can be brought into that form."""
    return all(
        bool(_modes(stage, read))
        if read.read == stage.instruction.interleaved
        else copy_modes(stage, read)[-1] is CopyMode.PACK_ROOT
        for read in stage.reads
    )


def _offered(group: TileGroup, context: SpaceContext, vector: str) -> dict[int, DotProduct]:
    """The target's instructions for the anchor, by the products that they add to one
    accumulator; of two alike the one that takes the factors as they are."""
    anchor = group.anchor
    narrow = {context.dtypes[operand.tensor] for operand in factors(anchor) or ()}
    lanes = TiledStage(group=group, context=context, vector=vector).lanes
    is_long = prod(axis.extent for axis in anchor.reduce_axes) > LONGEST
    chosen: dict[int, DotProduct] = {}
    for dot in context.isa.dot_products:
        moved = is_moved(dot, narrow)
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


def is_moved(dot: DotProduct, narrow: Collection[str]) -> bool:
    """Whether one of the factors, of these dtypes, is moved into the range of the other
    sign."""
    return dot.signs == "mixed" and len(narrow) == 1
