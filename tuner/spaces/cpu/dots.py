"""Sums of products of small numbers, two or four at a time: the tile sketch with one
reduction axis taken in pairs or fours.

x86 multiplies 16-bit integers pairwise and adds each pair to a 32-bit lane in one
instruction (vpmaddwd; with VNNI it accumulates too, vpdpwssd). Exact for operands of 8
bits: a pair is at most 2 * 255 * 255. VNNI also takes four 8-bit numbers at once
(vpdpbusd), of one factor without and of the other with a sign. AVX512-BF16 sums pairs
of bfloat16 in float32 (vdpbf16ps), with subnormal numbers taken as zero. The factor
that moves along the lanes is packed in pairs or fours; the lanes of the accumulators
are the vectorised axis, as in the tile sketch.

Where both factors have a sign, or neither has, the one that lanes share is moved by 128
into the other range. What that adds to every sum, 128 times the sum of the other
factor, is computed once for all rows and subtracted. Reductions so long that such a sum
might not fit 32 bits are left to pairs: the compiler assumes that none overflows.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.space import Config
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.tile_knobs import TileSketch
from tuner.spaces.cpu.tile_plan import TilePlan
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.dot_products import factors, shared_axes, split_reduction
from tuner.spaces.rewrite.groups import TileGroup

PAIR, FOUR = 2, 4
INTEGERS = frozenset({"int8", "uint8"})
RANGE = 128  # by which an 8-bit number with a sign becomes one without
LONGEST = 2**31 // (255 * 128)  # reduction of moved products that surely fits 32 bits


@dataclass(frozen=True)
class DotSketch(TileSketch):
    """The group's anchor has a reduction axis cut in two: steps, and the place among
    what an instruction takes, `instruction_axes`."""

    numbers: int = PAIR  # that an instruction takes of either factor, for each lane
    zero_point: int = 0  # added to the factor that lanes share, and what it adds subtracted

    @property
    def name(self) -> str:
        return f"{'pairs' if self.numbers == PAIR else 'fours'}_{self.vector}"

    @property
    def rate(self) -> float:
        return float(self.numbers)

    def copy_values(self, access: Access) -> list[CopyMode]:
        packed = [CopyMode.PACK, CopyMode.PACK_ROOT]
        return [CopyMode.NONE, *packed] if self._in_place(access) else packed

    def _in_place(self, access: Access) -> bool:
        """Whether the numbers that all lanes share can be read from where they are."""
        if (
            self.vector in access.axes
            or access.padded
            or access.read.tensor not in self.context.exact
        ):
            return False
        return access.stride(self.instruction_axes[0]) == 1

    def plan(self, config: Config) -> TilePlan:
        return replace(super().plan(config), zero_point=self.zero_point)


def dot_sketch(group: TileGroup, context: SpaceContext, vector: str) -> DotSketch | None:
    """Of the instruction that takes most. None where the anchor is no sum of products
    of 8-bit integers or bfloat16, its factors share no reduction axis, or the target
    has no such instruction."""
    shapes, dtypes = context.shapes, context.dtypes
    anchor, reads = group.anchor, accesses(group.anchor, shapes)
    operands = factors(anchor)
    if operands is None or {vector in operand.axes for operand in reads} != {True, False}:
        return None
    narrow = {dtypes[operand.tensor] for operand in operands}
    lanes = TileSketch(group, context, vector).lanes
    moved = len(narrow) == 1 and narrow <= INTEGERS
    most = PAIR if moved and prod(axis.extent for axis in anchor.reduce_axes) > LONGEST else FOUR
    offered = {
        dot.group
        for dot in context.isa.dot_products
        if narrow <= dot.factors
        and (dot.accumulator, dot.lanes) == (anchor.accumulator, lanes)
        and dot.group <= most
        # Factors of the same sign are moved to mixed ones below.
        and dot.signs != "same"
    }
    ways = [
        (numbers, axis)
        for numbers in sorted(offered)
        for axis in reversed(shared_axes(anchor, reads))
    ]
    ways.sort(
        key=lambda way: way[1].extent / -(-way[1].extent // way[0]), reverse=True
    )  # products by one instruction
    cuts = (
        (numbers, split_reduction(anchor, axis, (numbers,), shapes, dtypes))
        for numbers, axis in ways
    )
    numbers, made = next(((numbers, made) for numbers, made in cuts if made is not None), (0, None))
    if made is None:
        return None
    group = replace(group, anchor=made[0])
    zero_point = (RANGE if narrow == {"int8"} else -RANGE) if numbers == FOUR and moved else 0
    sketch = DotSketch(
        group, context, vector, instruction_axes=made[1], numbers=numbers, zero_point=zero_point
    )
    return (
        sketch
        if all(
            TileSketch.copy_values(sketch, read)[-1] is CopyMode.PACK_ROOT for read in sketch.reads
        )
        else None
    )
