"""The stage that a tile sketch nests, as its knobs and its nest see it."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.tile_plan import Instruction
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.groups import TileGroup
from tuner.workload.dtypes import DTYPE_BYTES, DType
from tuner.workload.expression import Axis

# Times its source that a packed copy may grow to; a 3x3 window packs to 9 times.
MAX_EXPANSION = 12
# The same where the instruction takes numbers that only a copy has side by side, and a
# window of 7x7 with a stride of 2 over 3 channels, taken as 4, packs to 17 times.
MAX_INTERLEAVED_EXPANSION = 20


@dataclass(frozen=True, kw_only=True)
class TiledStage:
    """A group's anchor with one axis vectorised."""

    group: TileGroup
    context: SpaceContext
    vector: str | None
    # of a map: the axis along which what is read is contiguous, where that is not the vector
    across: str | None = None
    instruction: Instruction = field(default_factory=Instruction)
    places: frozenset[str] = frozenset()  # axes that each register tile has whole

    @cached_property
    def reads(self) -> tuple[Access, ...]:
        return accesses(self.group.anchor, self.context.shapes)

    @property
    def is_sum(self) -> bool:
        """Whether the anchor reduces, by whatever operation."""
        return self.group.anchor.reducer is not None

    @property
    def summed(self) -> DType:
        """The dtype of the sums that lie in registers."""
        return self.instruction.group_dtype or self.group.anchor.accumulator

    @property
    def lanes(self) -> int:
        """Elements of a vector register, fewer where the axis is shorter."""
        if self.vector is None:
            return 1
        anchor = self.group.anchor
        dtype = self.summed if self.is_sum else anchor.dtype
        lanes = self.context.target.vector_bytes // max(DTYPE_BYTES[dtype], 1)
        extent = self.extent(self.vector)
        while lanes > extent:
            lanes //= 2
        return lanes

    def lanes_along(self, name: str) -> int:
        """Elements of a spatial axis in one vector, of sums two by two half along each."""
        if name == self.instruction.paired:
            return 2
        if name not in (self.vector, self.across):
            return 1
        return self.lanes if self.instruction.paired is None else self.lanes // 2

    def extent(self, name: str) -> int:
        """Iterations of a spatial axis."""
        return next(axis.extent for axis in self.group.anchor.axes if axis.name == name)

    def is_batch(self, axis: Axis) -> bool:
        """Whether every read moves with the axis, so that a register tile along it
        reuses nothing."""
        return all(axis.name in read.axes for read in self.reads)

    def is_fixed(self, axis: Axis) -> bool:
        """Whether an axis of a sum has neither tiles nor an order to choose."""
        return self.is_sum and self.is_batch(axis) and axis.name != self.vector

    @property
    def major_axes(self) -> list[str]:
        """The axes whose loops are worth ordering, at most three, in the stage's order."""
        axes = [
            axis
            for axis in self.group.anchor.axes
            if axis.extent > 1
            and axis.name not in self.places
            and (axis.name == self.vector or not self.is_fixed(axis))
        ]
        kept = sorted(axes, key=lambda axis: -axis.extent)[:3]
        return [axis.name for axis in axes if axis in kept]

    @property
    def main_reduction(self) -> Axis:
        """The reduction axis that may be cut into blocks: the longest, or that over groups."""
        axes, groups = self.group.anchor.reduce_axes, self.instruction.groups
        return max(axes, key=lambda axis: (axis.name == groups, axis.extent))

    def contiguous(self, access: Access) -> bool:
        """Whether the lanes of a vector lie side by side in an operand, or are one number."""
        return self.vector is None or access.stride(self.vector) in (0, 1)

    def packable(self, access: Access) -> bool:
        """Whether a copy of an operand of a sum, in the order in which it is read, may
        be worth making."""
        if not self.is_sum or access.gathered or not access.axes:
            return False
        axes = self.group.anchor.axes
        reused = any(axis.extent > 1 and axis.name not in access.axes for axis in axes)
        # An instruction of several numbers a lane wants them side by side, reused or not.
        in_groups = bool(self.instruction.axes) and self.vector in access.axes
        return (reused or in_groups or not self.contiguous(access)) and self.grows_little(access)

    def grows_little(self, access: Access) -> bool:
        """Whether a packed copy is not too many times as large as its source."""
        extents = self.group.anchor.extents
        grown = prod(extents[name] for name in access.axes)
        limit = MAX_INTERLEAVED_EXPANSION if self.instruction.axes else MAX_EXPANSION
        return grown <= limit * prod(self.context.shapes[access.read.tensor])

    def pads_in_parts(self, access: Access) -> bool:
        """Whether a padded copy may be made one part at a time."""
        return any(
            axis.extent > 1 and self.is_fixed(axis) and access.divides(axis.name)
            for axis in self.group.anchor.axes
        )
