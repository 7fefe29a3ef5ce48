"""Zero-point compensation: a factor of a sum of products is offset, and its sums corrected.

An instruction may take unsigned numbers only, so that a constant is added to signed
ones. Of the sum of (a + c) * b over the reduction, c * b is the same for all rows of a.
It is summed once, beside the packed copy of b, and subtracted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.spaces.cpu.nest_parts import NestParts
from tuner.spaces.cpu.tile_loops import TileLoops
from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.marks import DotProduct, Unroll, Vectorize
from tuner.spaces.program.program import Block, Buffer, ComputeAt, DecomposeReduction, Reorder
from tuner.spaces.rewrite.groups import TileGroup
from tuner.workload.expression import (
    Axis,
    Binary,
    Const,
    Read,
    Scalar,
    Var,
    reads,
    walk,
)


@dataclass(frozen=True)
class ZeroPointSums:
    """The block of a tile nest that sums what the zero point adds."""

    block: Block
    loops: TileLoops
    parts: NestParts

    def subtract_from(self, total: Scalar) -> Scalar:
        """A sum with what the zero point has added to it taken off."""
        return Binary("sub", total, Read(self.block.buffer, self.block.indices))

    def place(self, host: str, packed_levels: Mapping[str, Axis]) -> None:
        """Beside the packed copy that it sums, under the same loop of the host."""
        (copy,) = {read.tensor for read in reads(self.block.body)}
        name, loops, steps = self.block.name, self.loops, self.parts.steps
        register = [axis for axis in loops.register if axis in self.block.axes]
        outside = [axis for axis in self.block.axes if axis not in register]
        if copy in packed_levels:
            steps.append(ComputeAt(block=name, loop=LoopId.of(host, packed_levels[copy])))
        order = [*outside, *loops.reduction, *register, *loops.instruction]
        steps.append(Reorder(loops=loops_of(name, order)))
        steps += [Unroll(loop=LoopId.of(name, axis)) for axis in register[:-1]]
        steps.append(DotProduct(loop=LoopId.of(name, register[-1])))
        if copy not in packed_levels:
            self.parts.share_loops(name, outside)

    def decompose(self) -> None:
        """Splits the initialisation of the sums off."""
        name, loops = self.block.name, self.loops
        first, lanes = loops.reduction[0], loops.register[-1]
        self.parts.steps += [
            DecomposeReduction(block=name, loop=LoopId.of(name, first)),
            Vectorize(loop=LoopId.of(name, lanes, initial=True)),
        ]


def add_zero_point(
    body: Scalar, group: TileGroup, zero_point: int, loops: TileLoops, parts: NestParts
) -> tuple[Scalar, ZeroPointSums]:
    """The anchor's product with the zero point added to its shared factor, and the sums of it.

    That factor does not move with the vector's lanes, or is the one that is interleaved in
    registers. `body` is in the nest's iterators. The block of the sums is added to the parts.
    """
    assert isinstance(body, Binary) and isinstance(group.anchor.body, Binary)
    interleaved = loops.plan.instruction.interleaved
    first_is_shared = (
        loops.vector_lane in _iterators(body.rhs)
        if interleaved is None
        else interleaved in reads(group.anchor.body.lhs)
    )
    shared, own = (body.lhs, body.rhs) if first_is_shared else (body.rhs, body.lhs)
    constant = Const(zero_point, "int32")
    added: Scalar = Binary("mul", constant, own)
    moving = _iterators(added)
    axes = [axis for axis in (*loops.reduction_blocks, *loops.spatial) if axis.name in moving]
    name = f"{group.name}_offset"
    shape = tuple(axis.extent for axis in axes)
    dtype = loops.plan.instruction.group_dtype or group.anchor.accumulator
    parts.buffers.append(Buffer(name=name, shape=shape, dtype=dtype))
    block = parts.compute(
        name,
        axes,
        [Var(axis.name) for axis in axes],
        added,
        reduce_axes=[*loops.reduction, *loops.instruction],
        reducer=group.anchor.reducer,
    )
    return Binary("mul", Binary("add", shared, constant), own), ZeroPointSums(block, loops, parts)


def _iterators(node: Scalar) -> frozenset[str]:
    """The iterators that a value's reads move with."""
    return frozenset(
        inner.name
        for read in reads(node)
        for index in read.indices
        for inner in walk(index)
        if isinstance(inner, Var)
    )
