"""Scales and zero points of groups: applied to the sum of a group, once.

A group is one block of the reduction. Its sum is in registers when the scale multiplies
it. What a zero point adds to a sum is the zero point times the sum of the shared factor,
which is the same for all outputs of a row, and made before everything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.spaces.cpu.nest_parts import NestParts
from tuner.spaces.cpu.tile_loops import TileLoops
from tuner.spaces.program.program import Block, Buffer
from tuner.spaces.program.tiles import constant
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.quantized_products import Factors
from tuner.workload.dtypes import DType
from tuner.workload.expression import Binary, Cast, Read, Scalar, Var, reads, substitute, walk


@dataclass(frozen=True)
class GroupScale:
    """What makes of the sum of a group what it adds to the whole sum."""

    zero_point: Scalar | None
    scale: Scalar | None
    sums: Block | None  # of the shared factor by groups, where there is a zero point
    dtype: DType  # of the whole sum

    def applied(self, total: Scalar) -> Scalar:
        total = Cast(self.dtype, total)
        if self.zero_point is not None and self.sums is not None:
            shared = Cast(self.dtype, Read(self.sums.buffer, self.sums.indices))
            total = Binary("sub", total, Binary("mul", shared, self.zero_point))
        return total if self.scale is None else Binary("mul", total, self.scale)


def split_group_scale(
    body: Scalar,
    group: TileGroup,
    loops: TileLoops,
    parts: NestParts,
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[Scalar, GroupScale]:
    """The product that a group sums, and what is done with its sum.

    `body` is in the nest's iterators. The block of the sums is added to the parts. Both are
    of integers where the plan's instruction sums such.
    """
    anchor, narrow = group.anchor, loops.plan.instruction.group_dtype
    factors, stated = (
        Factors.of(whole, constants=narrow is not None) for whole in (body, anchor.body)
    )
    dtype = narrow or anchor.accumulator
    # A group is one iteration of its axis: within the block it stays where it is.
    still: dict[str, Scalar] = {
        axis.inner.name: constant(0)
        for axis in loops.plan.reduction
        if axis.axis.name == loops.plan.instruction.groups
    }
    zero_point, scale = (
        None if part is None else substitute(part, still)
        for part in (factors.zero_point, factors.scale)
    )
    sums: Block | None = None
    if zero_point is not None:
        shared = with_explicit_padding(_summed(stated.shared, narrow), shapes, anchor.extents)
        shared = substitute(shared, loops.indices)
        moving = {
            node.name
            for read in reads(shared)
            for index in read.indices
            for node in walk(index)
            if isinstance(node, Var)
        }
        axes = [axis for axis in (*loops.reduction_blocks, *loops.spatial) if axis.name in moving]
        name = f"{group.name}_groups"
        shape = tuple(axis.extent for axis in axes)
        parts.buffers.append(Buffer(name=name, shape=shape, dtype=dtype))
        sums = parts.compute(
            name,
            axes,
            [Var(axis.name) for axis in axes],
            shared,
            reduce_axes=[*loops.reduction, *loops.instruction],
            reducer=anchor.reducer,
        )
    product = Binary("mul", _summed(factors.shared, narrow), _summed(factors.weight, narrow))
    return product, GroupScale(zero_point, scale, sums, anchor.accumulator)


def _summed(factor: Scalar, narrow: DType | None) -> Scalar:
    """A factor as it is summed: the integer behind a conversion, where such are."""
    match factor:
        case Cast(arg=arg) if narrow is not None:
            return Cast(narrow, arg)
    return factor
