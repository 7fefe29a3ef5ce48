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
from tuner.workload.expression import Binary, Read, Scalar, Var, reads, substitute, walk


@dataclass(frozen=True)
class GroupScale:
    """What makes of the sum of a group what it adds to the whole sum."""

    zero_point: Scalar | None
    scale: Scalar | None
    sums: Block | None  # of the shared factor by groups, where there is a zero point

    def applied(self, total: Scalar) -> Scalar:
        if self.zero_point is not None and self.sums is not None:
            added = Binary("mul", Read(self.sums.buffer, self.sums.indices), self.zero_point)
            total = Binary("sub", total, added)
        return total if self.scale is None else Binary("mul", total, self.scale)


def split_group_scale(
    body: Scalar,
    group: TileGroup,
    loops: TileLoops,
    parts: NestParts,
    shapes: Mapping[str, tuple[int, ...]],
) -> tuple[Scalar, GroupScale]:
    """The product that a group sums, and what is done with its sum.

    `body` is in the nest's iterators. The block of the sums is added to the parts.
    """
    factors, anchor = Factors.of(body), group.anchor
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
        shared = with_explicit_padding(Factors.of(anchor.body).shared, shapes, anchor.extents)
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
        parts.buffers.append(Buffer(name=name, shape=shape, dtype=anchor.accumulator))
        sums = parts.compute(
            name,
            axes,
            [Var(axis.name) for axis in axes],
            shared,
            reduce_axes=[*loops.reduction, *loops.instruction],
            reducer=anchor.reducer,
        )
    product = Factors(shared=factors.shared, weight=factors.weight, zero_point=None, scale=None)
    return product.body, GroupScale(zero_point, scale, sums)
