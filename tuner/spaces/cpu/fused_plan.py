"""A config of the fused sketch, decoded: tiles of the last member, and of registers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tuner.spaces.cpu.fused_layout import FusedLayout
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.program.tiles import at_most, constant, times
from tuner.spaces.rewrite.groups import FusedGroup, TileGroup
from tuner.spaces.rewrite.regions import Region, Regions, first_of
from tuner.workload.affine import Affine
from tuner.workload.expression import Axis, Binary, Scalar, Var, substitute

UNROLLED_POINTS = 16  # of a whole reduction, up to which all its loops are
TASK, BLOCK = "_task", "_block"  # iterators over tiles and reduction blocks; no axis has them


@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterTile:
    """Of one member; less where its region is smaller."""

    rows: int  # along the tiled axis
    vectors: int


@dataclass(frozen=True, kw_only=True)
class FusedPlan:
    """Extents of a tile along each axis of the last member, and what follows from them."""

    group: FusedGroup
    layout: FusedLayout
    tile: Mapping[str, int]  # by axis; of a reduction axis the extent of its blocks
    regions: Regions
    registers: Mapping[str, RegisterTile]  # by member
    unroll: int  # iterations of the innermost loop of long reductions
    math_functions: MathFunctions
    threads: int

    def tiles(self, axis: Axis) -> int:
        """Tiles along an axis; the last one is moved back to end with it."""
        return -(-axis.extent // self.tile[axis.name])

    @property
    def tasks(self) -> int:
        return prod(self.tiles(axis) for axis in self.group.root.anchor.axes)

    @property
    def divided(self) -> Axis | None:
        """The reduction axis that is done block by block; None where there is none."""
        axes = self.group.root.anchor.reduce_axes
        return next((axis for axis in axes if self.tile[axis.name] < axis.extent), None)

    def within_block(self, region: Region) -> bool:
        """Whether a region differs from one block of the reduction to the next."""
        divided = self.divided
        return divided is not None and first_of(divided.name) in self.regions.depends_on(region)

    def within_task(self, region: Region) -> bool:
        """Whether a region differs from tile to tile."""
        return bool(self.regions.depends_on(region))

    def scalar(self, form: Affine) -> Scalar:
        """A form of symbols and iterators as an index."""
        return substitute(form.index, self._symbols)

    @cached_property
    def _symbols(self) -> dict[str, Scalar]:
        """Every symbol in terms of the loops over tiles and blocks."""
        symbols: dict[str, Scalar] = {}
        left: Scalar = Var(TASK)
        remaining = self.tasks
        for axis in reversed(self.group.root.anchor.axes):
            count, extent = self.tiles(axis), self.tile[axis.name]
            remaining //= count
            if count == 1:
                continue
            number = left if remaining == 1 else Binary("floormod", left, constant(count))
            first = times(number, extent)
            if axis.extent % extent:
                first = at_most(first, axis.extent - extent)
            symbols[first_of(axis.name)] = first
            left = Binary("floordiv", left, constant(count))
        if (divided := self.divided) is not None:
            symbols[first_of(divided.name)] = times(Var(BLOCK), self.tile[divided.name])
        for name, moved in self.regions.moved.items():
            first = substitute(moved.first.index, symbols)
            symbols[name] = at_most(Binary("max", first, constant(0)), moved.limit)
        return symbols


def dimensions(member: TileGroup, plan: FusedPlan) -> tuple[Axis, ...]:
    """The axes of a member's buffer: its tensor's, the one of its vectors last."""
    vector = plan.layout.members[member.name].vector
    return (*(axis for axis in member.output.axes if axis != vector), vector)


def unrolled_whole(extents: Iterable[int]) -> bool:
    """Whether all loops of a reduction with these extents are unrolled."""
    return prod(extents) <= UNROLLED_POINTS
