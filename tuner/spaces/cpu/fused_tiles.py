"""The tiles of a fused group that are worth offering: what they hold and compute again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import product
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.fused_layout import FusedLayout
from tuner.spaces.rewrite.groups import FusedGroup
from tuner.spaces.rewrite.predicates import term_operations
from tuner.spaces.rewrite.regions import Region, Regions, first_of, regions_of
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Var, reads, walk

MAX_AXES = 3  # of the last member that tiles are offered along, the longest ones
SIZES = (1, 4, 8, 16, 32, 64, 128)  # of a tile along an axis, in vectors along that of vectors
BLOCKS = (32, 64, 128, 256, 512)  # elements of a reduction block, about
# Operations of a tile's members for each that they need if nothing is computed twice.
MAX_RECOMPUTATION = 2.0
USABLE = 0.75  # of the second cache, which holds a tile of each member


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedTile:
    """Extents along the last member's axes, and the regions of all members."""

    extents: Mapping[str, int]  # by axis, those of the reduction included
    packed: bool  # whether a tile has copies of operands that its rows use again
    regions: Regions
    recomputation: float  # operations for each that is needed once
    held_bytes: int  # of buffers that live while a tile is computed

    @property
    def stored(self) -> tuple[int, ...]:
        """As configs have it."""
        return (*self.extents.values(), *([1] if self.packed else []))


def fused_tiles(
    group: FusedGroup, context: SpaceContext, layout: FusedLayout
) -> tuple[FusedTile, ...]:
    """The tiles whose buffers fit into the second cache; none where that is none."""
    root = group.root.anchor
    tiles = []
    names = [axis.name for axis in (*root.axes, *root.reduce_axes)]
    ways = (False, True) if layout.packable else (False,)
    for sizes, packed in product(product(*_sizes(group, layout)), ways):
        extents = dict(zip(names, sizes, strict=True))
        of_tile = layout.packable if packed else ()
        regions = regions_of(group, context.shapes, extents, layout.copied, of_tile)
        if regions is None:
            return ()
        if packed and not _packs(regions, layout):
            continue
        tile = FusedTile(
            extents=extents,
            packed=packed,
            regions=regions,
            recomputation=_recomputation(group, regions, extents),
            held_bytes=held_bytes(group, regions, extents, context),
        )
        if tile.held_bytes <= USABLE * context.target.l2_bytes:
            tiles.append(tile)
    least = min((tile.recomputation for tile in tiles), default=1.0)
    most = max(MAX_RECOMPUTATION, least)
    return tuple(tile for tile in tiles if tile.recomputation <= most)


def _packs(regions: Regions, layout: FusedLayout) -> bool:
    """Whether a tile has any operand's rows closer together."""
    packed = {read for _, read in layout.packable}
    return any(window.reads & packed for window in regions.windows)


def _sizes(group: FusedGroup, layout: FusedLayout) -> list[tuple[int, ...]]:
    """Extents of tiles along each axis of the last member."""
    root = group.root.anchor
    members = layout.members[group.root.name]
    longest = sorted(root.axes, key=lambda axis: -axis.extent)[:MAX_AXES]
    sizes = []
    for axis in root.axes:
        step = members.lanes if axis == members.vector else 1
        offered = {min(size * step, axis.extent) for size in SIZES} | {axis.extent}
        sizes.append(tuple(sorted(offered)) if axis in longest else (1,))
    divided = _divided(group)
    for axis in root.reduce_axes:
        sizes.append(_blocks(axis) if axis == divided else (axis.extent,))
    return sizes


def _divided(group: FusedGroup) -> Axis | None:
    """The reduction axis that blocks are offered of: the longest one that members move with."""
    inside = {member.name for member in group.members}
    root = group.root.anchor
    moving = {
        part.name
        for read in reads(root.body)
        if read.tensor in inside
        for index in read.indices
        for part in walk(index)
        if isinstance(part, Var)
    }
    axes = [axis for axis in root.reduce_axes if axis.name in moving]
    return max(axes, key=lambda axis: axis.extent, default=None)


def _blocks(axis: Axis) -> tuple[int, ...]:
    """Divisors of the extent, since what two blocks share would be added twice."""
    divisors = [size for size in range(16, axis.extent // 2 + 1) if axis.extent % size == 0]
    near = {min(divisors, key=lambda size: abs(size - block)) for block in BLOCKS if divisors}
    return (*sorted(near), axis.extent)


def executions(region: Region, regions: Regions, group: FusedGroup, tile: Mapping[str, int]) -> int:
    """How often a region is computed: in each tile and block that it moves with, and in those
    inside of them."""
    root = group.root.anchor
    symbols = regions.depends_on(region)
    blocks = prod(-(-axis.extent // tile[axis.name]) for axis in root.reduce_axes)
    tiles = prod(-(-axis.extent // tile[axis.name]) for axis in root.axes)
    if any(first_of(axis.name) in symbols for axis in root.reduce_axes):
        return tiles * blocks
    return tiles if symbols else 1


def _recomputation(group: FusedGroup, regions: Regions, tile: Mapping[str, int]) -> float:
    computed = needed = 0.0
    for member in group.members:
        anchor = member.anchor
        region = regions.members[member.name]
        each = max(term_operations(anchor), 1)
        reduced = prod(axis.extent for axis in anchor.reduce_axes)
        needed += anchor.points * each
        times = 1 if member is group.root else executions(region, regions, group, tile)
        points = anchor.points if member is group.root else prod(region.extents) * reduced
        computed += times * points * each
    return max(computed / needed, 1.0)


def held_bytes(
    group: FusedGroup,
    regions: Regions,
    tile: Mapping[str, int],
    context: SpaceContext,
    *,
    of_tasks: bool = True,
) -> int:
    """Of members' regions and windows; with `of_tasks` of those that each task has its own of."""
    total = 0
    for member in group.members:
        region = regions.members[member.name]
        if member is group.root:
            axes = member.anchor.reduce_axes
            blocks = any(tile[axis.name] < axis.extent for axis in axes)
            # Sums are kept between blocks; else a tile of the output passes through.
            total += prod(region.extents) * DTYPE_BYTES[member.anchor.accumulator] * blocks
        elif not of_tasks or regions.depends_on(region):
            total += prod(region.extents) * DTYPE_BYTES[member.output.dtype]
    for window in regions.windows:
        if not of_tasks or regions.depends_on(window.region):
            total += prod(window.region.extents) * DTYPE_BYTES[context.dtypes[window.tensor]]
    return total
