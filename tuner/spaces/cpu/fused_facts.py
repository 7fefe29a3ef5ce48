"""What the cost model knows of a fused group: a nest for each member.

Each member computes its region in register tiles, once for each tile of the last member and
each block of its reduction that the region moves with. Tiles that it does not move with
compute it again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from math import prod
from typing import Any, TypeVar

from tuner.spaces.core.choice import Choice
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.cpu.facts import Fusion, LoopNestFacts, Unrolling
from tuner.spaces.cpu.fused_layout import FusedLayout
from tuner.spaces.cpu.fused_plan import RegisterTile, unrolled_whole
from tuner.spaces.cpu.fused_tiles import FusedTile, executions, held_bytes
from tuner.spaces.cpu.fused_windows import window_order
from tuner.spaces.cpu.shared_choices import fixed_choice
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.groups import FusedGroup, TileGroup
from tuner.spaces.rewrite.regions import Region, axis_of, first_of
from tuner.workload.expression import Axis, Read

T = TypeVar("T")


class FusedFacts:
    """The facts of one fused sketch, from its choices."""

    def __init__(
        self,
        group: FusedGroup,
        context: SpaceContext,
        layout: FusedLayout,
        *,
        tile: Choice[FusedTile],
        registers: Mapping[str, Choice[RegisterTile]],
        unrolling: Choice[Unrolling],
        math_functions: Choice[MathFunctions],
    ) -> None:
        self.group, self.context, self.layout = group, context, layout
        self.tile, self.registers, self.unrolling = tile, registers, unrolling
        self.math_functions = math_functions
        self.inside = frozenset(member.name for member in group.members)
        self.root_axes = (*group.root.anchor.axes, *group.root.anchor.reduce_axes)

    def facts(self) -> LoopNestFacts:
        """Of the last member's nest; it has those of the others."""
        inner = tuple(self._member(member, ()) for member in self.group.members[:-1])
        return self._member(self.group.root, inner)

    def _member(self, member: TileGroup, inner: tuple[LoopNestFacts, ...]) -> LoopNestFacts:
        anchor, layout = member.anchor, self.layout.members[member.name]
        is_root = member is self.group.root
        own = anchor.axes
        if not is_root:  # in the order of its buffer, elements along the vectors side by side
            own = (*(axis for axis in member.output.axes if axis != layout.vector), layout.vector)
        movers = {axis.name: self._movers(member, axis) for axis in own}
        again = [] if is_root else self._again(member)
        lanes = min(layout.lanes, layout.vector.extent)
        tiled, register_tile = self._register_tile(member, lanes)
        reads = accesses(anchor, self.context.shapes)
        return LoopNestFacts(
            context=self.context,
            stages=(anchor,),
            epilogue=member.epilogue,
            spatial=(*own, *(Axis(name=first_of(axis.name), extent=1) for axis in again)),
            reduction=anchor.reduce_axes,
            vector=layout.vector.name,
            lanes=lanes,
            tiled=tiled,
            register_tile=register_tile,
            cache_blocks=self._regions(member, own)
            | {first_of(axis.name): self._fixed(KnobRole.CACHE_BLOCK, 1) for axis in again},
            outer_order=self._fixed(KnobRole.OUTER_ORDER, self._outer_order(movers, again)),
            inner_order=self._fixed(KnobRole.INNER_ORDER, self._inner_order(member, own, again)),
            reduction_block=self._reduction_block(member),
            unrolling=self._unrolling(member),
            reads=reads,
            prefetch=self._fixed(KnobRole.PREFETCH, 0),
            store_mode=self._fixed(KnobRole.STORE_MODE, StoreMode.CACHED),
            math_functions=self.math_functions,
            fusion=Fusion(
                loops=self._loops(member, own, again),
                repeated=tuple(first_of(axis.name) for axis in again),
                tasks=self._by_tile(lambda tile: self._tasks(member, tile)),
                held=self.inside - {self.group.root.name},
                held_bytes=self._by_tile(self._held_bytes),
                pitches={
                    each.read: self._by_tile(partial(self._pitch, member, each.read))
                    for each in reads
                },
                copied=self._by_tile(lambda tile: self._copied(member, tile)),
                inner=inner,
            ),
        )

    # --- loops over tiles

    def _loops(
        self, member: TileGroup, own: tuple[Axis, ...], again: list[Axis]
    ) -> dict[str, Choice[int]]:
        """Of each axis how many tiles and blocks have a region of their own along it."""
        loops: dict[str, Choice[int]] = {}
        counted: set[str] = set()
        for axis in own:
            # Where tiles move along a diagonal, their number counts once.
            names = self._movers(member, axis) - counted
            counted |= names

            def along(tile: FusedTile, axis: Axis = axis, names: set[str] = names) -> int:
                if member is self.group.root:
                    return _tiles(axis, tile)
                moved = self._moved(member, axis, tile) & names
                return prod(_tiles(each, tile) for each in self.root_axes if each.name in moved)

            loops[axis.name] = self._by_tile(along)
        for axis in again:
            loops[first_of(axis.name)] = self._by_tile(partial(self._repeats, member, axis))
        return loops

    def _moved(self, member: TileGroup, axis: Axis, tile: FusedTile) -> set[str]:
        """The axes of the last member with whose tiles a region moves along an axis."""
        region = tile.regions.members[member.name]
        start = region.starts[member.anchor.axes.index(axis)]
        symbols = tile.regions.depends_on(Region(starts=(start,), extents=(1,)))
        return {each.name for each in self.root_axes if first_of(each.name) in symbols}

    def _movers(self, member: TileGroup, axis: Axis) -> set[str]:
        """As `_moved`, of any tile."""
        return set().union(*(self._moved(member, axis, tile) for tile in self.tile.values))

    def _moving(self, member: TileGroup, tile: FusedTile) -> frozenset[str]:
        """The axes of the last member with whose tiles a region moves."""
        symbols = tile.regions.depends_on(tile.regions.members[member.name])
        return frozenset(axis_of(symbol) for symbol in symbols)

    def _repeats(self, member: TileGroup, axis: Axis, tile: FusedTile) -> int:
        """Tiles along an axis of the last member that compute a region again."""
        moving = self._moving(member, tile)
        return _tiles(axis, tile) if moving and axis.name not in moving else 1

    def _again(self, member: TileGroup) -> list[Axis]:
        """The axes of the last member along which some tiles compute a region again."""
        return [
            axis
            for axis in self.group.root.anchor.axes
            if any(self._repeats(member, axis, tile) > 1 for tile in self.tile.values)
        ]

    def _tasks(self, member: TileGroup, tile: FusedTile) -> int:
        """What threads share: tiles, or loops over a region that stands before all tiles."""
        if member is not self.group.root and not self._moving(member, tile):
            return prod(tile.regions.members[member.name].extents)
        return prod(_tiles(axis, tile) for axis in self.group.root.anchor.axes)

    def _outer_order(self, movers: Mapping[str, set[str]], again: list[Axis]) -> tuple[str, ...]:
        """Axes in the order in which tiles and blocks move along them."""
        places = {axis.name: place for place, axis in enumerate(self.root_axes)}
        first = {
            name: min((places[each] for each in moving), default=len(places))
            for name, moving in movers.items()
        } | {first_of(axis.name): places[axis.name] for axis in again}
        return tuple(sorted(first, key=lambda name: first[name]))

    def _inner_order(
        self, member: TileGroup, own: tuple[Axis, ...], again: list[Axis]
    ) -> tuple[str, ...]:
        """Axes in the order of the loops over register tiles of a region."""
        layout = self.layout.members[member.name]
        tile = [layout.vector] if layout.tiled is None else [layout.tiled, layout.vector]
        if layout.reuses:
            tile.reverse()
        ordered = [*(axis for axis in own if axis not in tile), *tile]
        return (*(first_of(axis.name) for axis in again), *(axis.name for axis in ordered))

    # --- tiles

    def _regions(self, member: TileGroup, own: tuple[Axis, ...]) -> dict[str, Choice[int]]:
        return {axis.name: self._by_tile(partial(_extent, member, axis)) for axis in own}

    def _register_tile(
        self, member: TileGroup, lanes: int
    ) -> tuple[tuple[str, ...], Choice[tuple[int, ...]]]:
        """Axes of register tiles, and what they have of each."""
        layout = self.layout.members[member.name]
        if (rows := self.registers.get(member.name)) is None:
            whole: tuple[int, ...] = (lanes,)
            return (layout.vector.name,), self._fixed(KnobRole.REGISTER_TILE, whole)
        sizes: list[tuple[int, ...]] = [(tile.vectors * lanes, tile.rows) for tile in rows.values]
        names = (layout.vector.name, "" if layout.tiled is None else layout.tiled.name)
        return names, derived(rows, sizes)

    def _reduction_block(self, member: TileGroup) -> Choice[int] | None:
        axes = member.anchor.reduce_axes
        if not axes:
            return None
        longest = max(axes, key=lambda axis: axis.extent)
        if member is self.group.root:
            return self._by_tile(lambda tile: tile.extents[longest.name])
        return self._fixed(KnobRole.REDUCTION_BLOCK, longest.extent)

    def _unrolling(self, member: TileGroup) -> Choice[Unrolling] | None:
        axes = member.anchor.reduce_axes
        if not axes:
            return None
        innermost = len(axes) - 1
        if unrolled_whole(axis.extent for axis in axes):
            whole = Unrolling(position=innermost, factor=axes[-1].extent)
            return self._fixed(KnobRole.UNROLL, whole)
        factors = [Unrolling(position=innermost, factor=u.factor) for u in self.unrolling.values]
        return derived(self.unrolling, factors)

    def _held_bytes(self, tile: FusedTile) -> int:
        return held_bytes(self.group, tile.regions, tile.extents, self.context, of_tasks=False)

    def _pitch(self, member: TileGroup, read: Read, tile: FusedTile) -> int:
        """Elements of a row of the buffer that a member reads, 0 where it is in place."""
        for window in tile.regions.windows_of(member.name):
            if read in window.reads:
                order = window_order(window, self.layout.members[member.name].vector)
                return window.region.extents[order[-1]]
        if read.tensor not in self.inside:
            return 0
        source = next(each for each in self.group.members if each.name == read.tensor)
        vector = self.layout.members[source.name].vector
        return _extent(source, vector, tile)

    def _copied(self, member: TileGroup, tile: FusedTile) -> float:
        """Elements of the copies that a member reads, each as often as it is made."""
        regions = tile.regions
        total = 0.0
        for window in regions.windows_of(member.name):
            times = executions(window.region, regions, self.group, tile.extents)
            total += times * prod(window.region.extents)
        return total

    def _by_tile(self, value: Callable[[FusedTile], T]) -> Choice[T]:
        return derived(self.tile, [value(tile) for tile in self.tile.values])

    def _fixed(self, role: KnobRole, value: T) -> Choice[T]:
        return fixed_choice(self.tile.owner, role, value)


def derived(source: Choice[Any], values: list[T]) -> Choice[T]:
    """The same knob, of which each value means something else."""
    return Choice(
        owner=source.owner,
        role=source.role,
        values=tuple(values),
        stored=source.stored,
        subject=source.subject,
    )


def _extent(member: TileGroup, axis: Axis, tile: FusedTile) -> int:
    """Of a member's region along one of its axes."""
    return tile.regions.members[member.name].extents[member.anchor.axes.index(axis)]


def _tiles(axis: Axis, tile: FusedTile) -> int:
    return -(-axis.extent // tile.extents[axis.name])
