"""Reductions placed inside the tile of the reduction that reads them.

A stage that only one other group reads need not be in memory as a whole. Where the reader
is computed tile by tile, each tile needs a region of it, which follows from access maps
(`regions`). It is computed when the tile is, in a buffer of the region's size. Halide calls
that `compute_at`. Here it is found for any stages: chains of products, a window's sum before
a product, stencils in a row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import product

from tuner.errors import IllegalSchedule
from tuner.spaces.rewrite.access import in_bounds_condition
from tuner.spaces.rewrite.groups import (
    FusedGroup,
    Group,
    RowGroup,
    TileGroup,
    epilogue_of,
    groups,
)
from tuner.spaces.rewrite.regions import (
    Region,
    Regions,
    Window,
    first_of,
    reads_of,
    regions_of,
    tile_starts,
)
from tuner.spaces.rewrite.stages import is_expensive
from tuner.workload.affine import Affine, linear
from tuner.workload.expression import Expression, Read, ragged_range

# Names of the stages end in these: of an algorithm that fuses all it can, and of one that
# places only what a tile reads itself, not what is read for that.
SUFFIX, NEAREST_SUFFIX = "fused", "paired"
# Tiles of an axis that a placement is checked for, from each end.
CHECKED_TILES = 32


def fused_groups(expression: Expression, *, nearest: bool = False) -> tuple[FusedGroup, ...]:
    """The fusions of an inlined expression, none where nothing can be placed in a tile.

    With `nearest` a tile has only members that its own stage reads.
    """
    candidates = {
        group.name: group
        for group in map(lambda group: _candidate(group, expression), groups(expression))
        if group is not None
    }
    fused: list[FusedGroup] = []
    grouped: set[str] = set()
    for name in reversed(list(candidates)):
        if name in grouped:
            continue
        group = _grown(candidates[name], candidates, grouped, expression, nearest=nearest)
        if len(group.members) > 1:
            grouped |= {member.name for member in group.members}
            fused.append(_with_costly_epilogues_apart(group, expression))
            check_fusion(fused[-1], expression)
    return tuple(fused)


def parts_in_tiles(expression: Expression, *, nearest: bool = False) -> tuple[frozenset[str], ...]:
    """Of each fusion the names of its stages."""
    return tuple(
        frozenset(stage.name for stage in group.stages)
        for group in fused_groups(expression, nearest=nearest)
    )


def left_out(group: FusedGroup) -> frozenset[str]:
    """Names of the stages that are in memory only tile by tile."""
    return frozenset(stage.name for stage in group.stages) - {group.name}


def _candidate(group: Group, expression: Expression) -> TileGroup | None:
    """The group as one whose points are tiled; None of one that cannot be."""
    if isinstance(group, RowGroup) and len(group.stages) == 1:
        group = TileGroup(anchor=expression.stage(group.name), epilogue=None)
    if not isinstance(group, TileGroup) or group.live_conditions:
        return None
    anchor = group.anchor
    return group if anchor.axes and ragged_range(anchor) is None else None


def _grown(
    root: TileGroup,
    candidates: Mapping[str, TileGroup],
    grouped: set[str],
    expression: Expression,
    *,
    nearest: bool,
) -> FusedGroup:
    """The root with all that can be placed in its tiles."""
    group = FusedGroup(members=(root,))
    changed = True
    while changed:
        changed = False
        inside = {stage.name for stage in group.stages}
        for name in reversed(list(candidates)):
            readers = {stage.name for stage in expression.consumers(name)}
            if (
                name in inside | grouped
                or name in expression.outputs
                or not readers <= inside
                or (nearest and not readers <= {root.anchor.name, root.name})
            ):
                continue
            larger = FusedGroup(members=(candidates[name], *group.members))
            if _moves_with_tiles(larger, candidates[name], expression):
                group, changed = larger, True
                break
    return group


def _moves_with_tiles(group: FusedGroup, member: TileGroup, expression: Expression) -> bool:
    """Whether the tiles of a group, of one element each, need a part of the member each."""
    root = group.root.anchor
    tile = {axis.name: 1 for axis in (*root.axes, *root.reduce_axes)}
    regions = regions_of(group, expression.shapes, tile)
    if regions is None:
        return False
    symbols = regions.depends_on(regions.members[member.name])
    return any(first_of(axis.name) in symbols for axis in root.axes)


def _with_costly_epilogues_apart(group: FusedGroup, expression: Expression) -> FusedGroup:
    """The group with epilogues that take long as members of their own.

    Unrolled in a register tile, they take the compiler seconds.
    """
    members: list[TileGroup] = []
    for member in group.members:
        if member.epilogue is not None and is_expensive(member.epilogue.body):
            members.append(replace(member, epilogue=None))
            members.append(TileGroup(anchor=expression.stage(member.name), epilogue=None))
        else:
            members.append(member)
    return FusedGroup(members=tuple(members))


# --- what is checked


def check_fusion(group: FusedGroup, expression: Expression) -> None:
    """Raises IllegalSchedule where the group computes something else than its stages."""
    if reason := _refusal(group, expression):
        raise IllegalSchedule(f"{group.name} cannot be fused: {reason}")


def check_regions(
    group: FusedGroup,
    regions: Regions,
    tile: Mapping[str, int],
    shapes: Mapping[str, tuple[int, ...]],
) -> None:
    """Raises IllegalSchedule where a tile of these extents reads beyond a region of a member.

    Reads are followed in numbers, at the corners of what iterators take, tile by tile. Of an
    axis with many tiles those at its ends are tried.
    """
    if reason := _Check(group, regions, tile, shapes).refusal():
        raise IllegalSchedule(f"{group.name} cannot be fused: {reason}")


def _refusal(group: FusedGroup, expression: Expression) -> str | None:
    stages = {stage.name: stage for stage in expression.stages}
    inside = {stage.name for stage in group.stages}
    done: set[str] = set()
    for member in group.members:
        name = member.anchor.name
        if name not in stages:
            return f"{name} is no stage of the expression"
        if stages[name] != member.anchor:
            return f"{name} differs from what the stage computes"
        if member.epilogue is not None and member.epilogue != epilogue_of(
            member.anchor, expression, set()
        ):
            return f"{member.name} is no epilogue of {name}"
        if ragged_range(member.anchor) is not None:
            return f"{name} has rows of its own lengths"
        for read in reads_of(member):
            if read.tensor in inside and read.tensor not in done:
                return f"{name} reads {read.tensor}, which is computed later"
            if read.tensor in inside and any(linear(index) is None for index in read.indices):
                return f"{name} reads {read.tensor} at places that are not linear"
        done.add(member.name)
    for name in left_out(group):
        readers = {stage.name for stage in expression.consumers(name)}
        if name in expression.outputs or not readers <= inside:
            return f"{name} is read elsewhere"
    return None


class _Check:
    """One placement, followed in numbers."""

    def __init__(
        self,
        group: FusedGroup,
        regions: Regions,
        tile: Mapping[str, int],
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        self.group, self.regions, self.tile, self.shapes = group, regions, tile, shapes
        self.inside = {member.name for member in group.members}
        root = group.root.anchor
        self.starts = {
            first_of(axis.name): _ends(tile_starts(axis, tile[axis.name]))
            for axis in (*root.axes, *root.reduce_axes)
        }

    def refusal(self) -> str | None:
        """Why the regions are not enough; None where they are."""
        root = self.group.root
        own = self.regions.members[root.name]
        if own.extents != tuple(self.tile[axis.name] for axis in root.anchor.axes):
            return "the last member is not computed tile by tile"
        for axis, start in zip(root.anchor.axes, own.starts, strict=True):
            whole = self.tile[axis.name] == axis.extent
            steps = {} if whole else {first_of(axis.name): 1}
            if start != Affine.of_iterators(steps, 0):
                return "the last member's tiles do not cover its output"
        for member in self.group.members:
            for read in reads_of(member):
                if reason := self._refused(member, read):
                    return reason
        for window in self.regions.windows:
            if window.tensor in self.inside and self._leaves(window):
                return f"{window.name} leaves the region of {window.tensor}"
        return None

    def _refused(self, member: TileGroup, read: Read) -> str | None:
        windows = [w for w in self.regions.windows_of(member.name) if read in w.reads]
        if windows:
            region = windows[0].region
            if windows[0].tensor != read.tensor or windows[0].pad not in (read.pad, None):
                return f"{windows[0].name} is of another read"
        elif read.tensor in self.inside:
            region = self._of_tensor(read.tensor)
        else:
            return None
        shape = self.shapes[read.tensor]
        extents = member.anchor.extents
        beyond = in_bounds_condition(read.indices, shape, extents) is not None
        for dimension, index in enumerate(read.indices):
            form = linear(index)
            if form is None:
                return f"{member.name} reads {read.tensor} at places that are not linear"
            start, extent = region.starts[dimension], region.extents[dimension]
            sides = {name: self._side(member, name) for name in form.coefficients}
            for where in self._places((*(first for first, _ in sides.values()), start)):
                low, high = self._range(form, sides, where)
                if beyond and not windows:
                    low, high = max(low, 0), min(high, shape[dimension] - 1)
                first = self._value(start, where)
                if low <= high and not first <= low <= high < first + extent:
                    return f"{member.name} reads {read.tensor} beyond the region it has"
        return None

    def _leaves(self, window: Window) -> bool:
        region, shape = self._of_tensor(window.tensor), self.shapes[window.tensor]
        for dimension, (start, extent) in enumerate(
            zip(window.region.starts, window.region.extents, strict=True)
        ):
            for where in self._places((start, region.starts[dimension])):
                low = max(self._value(start, where), 0)
                high = min(self._value(start, where) + extent, shape[dimension])
                first = self._value(region.starts[dimension], where)
                if low < high and not first <= low < high <= first + region.extents[dimension]:
                    return True
        return False

    def _of_tensor(self, name: str) -> Region:
        """A member's region in the order of its tensor's dimensions."""
        member = next(member for member in self.group.members if member.name == name)
        region = self.regions.members[name]
        places = [member.anchor.axes.index(axis) for axis in member.output.axes]
        return Region(
            starts=tuple(region.starts[place] for place in places),
            extents=tuple(region.extents[place] for place in places),
        )

    def _side(self, member: TileGroup, name: str) -> tuple[Affine, int]:
        """The first value that an iterator of a member takes, and how many it takes."""
        region = self.regions.members[member.name]
        for axis, start, extent in zip(
            member.anchor.axes, region.starts, region.extents, strict=True
        ):
            if axis.name == name:
                return start, extent
        axis = next(axis for axis in member.anchor.reduce_axes if axis.name == name)
        if member is self.group.root and self.tile[name] < axis.extent:
            return Affine.of_iterators({first_of(name): 1}, 0), self.tile[name]
        return Affine({}, 0), axis.extent

    def _range(
        self, form: Affine, sides: Mapping[str, tuple[Affine, int]], where: Mapping[str, int]
    ) -> tuple[int, int]:
        """Least and greatest value of an index."""
        low = high = form.constant
        for name, step in form.coefficients.items():
            start, extent = sides[name]
            first = self._value(start, where)
            ends = (step * first, step * (first + extent - 1))
            low, high = low + min(ends), high + max(ends)
        return low, high

    def _value(self, form: Affine, where: Mapping[str, int]) -> int:
        total = form.constant
        for name, step in form.coefficients.items():
            if name in self.regions.moved:
                moved = self.regions.moved[name]
                total += step * min(max(self._value(moved.first, where), 0), moved.limit)
            else:
                total += step * where[name]
        return total

    def _places(self, forms: tuple[Affine, ...]) -> list[dict[str, int]]:
        """Values of all symbols that some forms are made of, together."""
        names: set[str] = set()
        for form in forms:
            region = Region(starts=(form,), extents=(1,))
            names |= self.regions.depends_on(region)
        ordered = sorted(names)
        return [
            dict(zip(ordered, values, strict=True))
            for values in product(*(self.starts[name] for name in ordered))
        ]


def _ends(starts: list[int]) -> list[int]:
    return sorted({*starts[:CHECKED_TILES], *starts[-CHECKED_TILES:]})
