"""The nest of a fused group: tile by tile of its last member, and in each what it reads.

A task is one tile. Members are computed in their order, each for its region of the tile, in
register tiles. Where the last reduction is done block by block, members that move with the
blocks are computed in each block. Those that move with no tile are computed once, before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.spaces.cpu.fused_plan import BLOCK, TASK, FusedPlan, dimensions, unrolled_whole
from tuner.spaces.cpu.fused_windows import WindowCopy, window_order
from tuner.spaces.program.loop_tree import (
    Loop,
    LoopKind,
    LoopTree,
    Statement,
    Store,
    unrolled_in_part,
)
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import Buffer
from tuner.spaces.program.tiles import add, at_most, constant, times
from tuner.spaces.rewrite.access import in_bounds_condition
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.regions import Region, Window, first_of, placed
from tuner.workload.affine import Affine, affine, linear
from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Read,
    Scalar,
    Select,
    Var,
    rewrite,
    substitute,
)
from tuner.workload.scalar_operators import REDUCTIONS, identity

# Names that no axis has.
ROW, VECTOR, LANE = "_row", "_vector", "_lane"  # iterators of a register tile
TILE = "_tile"  # ends the name of an iterator over register tiles


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """Register tiles of one size along an axis."""

    axis: str
    count: int
    size: int
    first: Scalar  # element of a tile, in terms of the iterator over tiles
    lanes: int = 1

    def around(self, body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        """The statements in the loop over tiles."""
        if self.count == 1:
            return body
        return (Loop(iterator=f"{self.axis}{TILE}", extent=self.count, body=body),)


class FusedNest:
    """The tree of loops of one plan."""

    def __init__(
        self,
        plan: FusedPlan,
        shapes: Mapping[str, tuple[int, ...]],
        dtypes: Mapping[str, DType],
    ) -> None:
        self.plan, self.group = plan, plan.group
        self.shapes, self.dtypes = shapes, dtypes
        self.buffers: list[Buffer] = []
        self.members = {member.name: member for member in self.group.members}
        self.held = {
            member.name: self._buffer(
                member.name, self._sizes(member, dimensions(member, plan)), member.output.dtype
            )
            for member in self.group.members[:-1]
        }
        self.windows: dict[Read, tuple[Window, str]] = {}  # of the member that is nested

    def build(self) -> Nest:
        """The nest: one tree, and its buffers."""
        plan, root = self.plan, self.group.root
        before: list[Statement] = []
        task: list[Statement] = []
        block: list[Statement] = []
        for member in self.group.members:
            for window in plan.regions.windows_of(member.name):
                level = self._level(window.region, before, task, block)
                level += self._shared(self._copied(member, window), level is before)
            if member is not root:
                region = plan.regions.members[member.name]
                level = self._level(region, before, task, block)
                level += self._shared(self._computed(member), level is before)
        task += self._root(block)
        kind = LoopKind.PARALLEL if plan.threads > 1 and plan.tasks > 1 else LoopKind.SERIAL
        tree = LoopTree(
            name=f"{self.group.name}_fused",
            buffer=self.group.name,
            body=(*before, Loop(iterator=TASK, extent=plan.tasks, kind=kind, body=tuple(task))),
            polynomials=plan.math_functions == "polynomial",
        )
        return Nest((), tuple(self.buffers), (), tree)

    def _level(
        self,
        region: Region,
        before: list[Statement],
        task: list[Statement],
        block: list[Statement],
    ) -> list[Statement]:
        """Where what fills a region stands: outside all loops with which it does not move."""
        if self.plan.within_block(region):
            return block
        return task if self.plan.within_task(region) else before

    def _shared(self, statements: Iterable[Statement], shared: bool) -> list[Statement]:
        """The statements, of which threads share the loops where they stand before all tasks."""
        if not shared or self.plan.threads == 1:
            return list(statements)
        return [
            replace(statement, kind=LoopKind.PARALLEL)
            if isinstance(statement, Loop)
            and statement.kind is LoopKind.SERIAL
            and not statement.transposed
            and statement.extent > 1
            else statement
            for statement in statements
        ]

    def _root(self, block: list[Statement]) -> list[Statement]:
        """The last member, of which a tile is written at last."""
        root, divided = self.group.root, self.plan.divided
        if divided is None:
            return self._computed(root)
        anchor = root.anchor
        axes = dimensions(root, self.plan)
        partial = self._buffer("partial", self._sizes(root, axes), anchor.accumulator)
        sums = Read(partial, tuple(Var(axis.name) for axis in axes))
        assert anchor.reducer is not None
        empty = identity(anchor.reducer, anchor.accumulator)
        blocks = divided.extent // self.plan.tile[divided.name]
        return [
            *self._mapped(root, lambda point: [self._store(sums, empty, point)]),
            Loop(
                iterator=BLOCK,
                extent=blocks,
                body=(*block, *self._computed(root, partial=sums)),
            ),
            *self._mapped(
                root, lambda point: [self._written(root, self._moved(sums, point), point)]
            ),
        ]

    # --- buffers

    def _buffer(self, name: str, shape: Sequence[int], dtype: DType, *, stack: bool = False) -> str:
        buffer = Buffer(
            name=f"{self.group.name}_{name}_t{len(self.buffers)}",
            shape=tuple(shape),
            dtype=dtype,
            scope="stack" if stack else "global",
        )
        self.buffers.append(buffer)
        return buffer.name

    def _sizes(self, member: TileGroup, axes: Sequence[Axis]) -> list[int]:
        extents = self._extents(member)
        return [extents[axis.name] for axis in axes]

    def _extents(self, member: TileGroup) -> dict[str, int]:
        """Points of a member's axes in its region, and of the blocks of its reduction."""
        region = self.plan.regions.members[member.name]
        extents = {
            axis.name: extent
            for axis, extent in zip(member.anchor.axes, region.extents, strict=True)
        }
        for axis in member.anchor.reduce_axes:
            whole = member is not self.group.root
            extents[axis.name] = axis.extent if whole else self.plan.tile[axis.name]
        return extents

    def _starts(self, member: TileGroup) -> dict[str, Affine]:
        region = self.plan.regions.members[member.name]
        starts = {
            axis.name: start for axis, start in zip(member.anchor.axes, region.starts, strict=True)
        }
        divided = self.plan.divided
        for axis in member.anchor.reduce_axes:
            moves = member is self.group.root and axis == divided
            starts[axis.name] = (
                Affine.of_iterators({first_of(axis.name): 1}, 0) if moves else Affine({}, 0)
            )
        return starts

    def _copied(self, member: TileGroup, window: Window) -> list[Statement]:
        order = window_order(window, self.plan.layout.members[member.name].vector)
        sizes = [window.region.extents[dimension] for dimension in order]
        buffer = self._buffer("window", sizes, self.dtypes[window.tensor])
        for read in window.reads:
            self.windows[read] = (window, buffer)
        if window.tensor in self.members:
            source = self.members[window.tensor]
            starts = self._starts(source)
            named = {axis.name: place for place, axis in enumerate(source.output.axes)}

            def read_at(place: tuple[Affine, ...]) -> Read:
                indices = (
                    self.plan.scalar(place[named[axis.name]] - starts[axis.name])
                    for axis in dimensions(source, self.plan)
                )
                return Read(self.held[source.name], tuple(indices))
        else:

            def read_at(place: tuple[Affine, ...]) -> Read:
                return Read(window.tensor, tuple(map(self.plan.scalar, place)))

        leaves = self._leaves(member, window)
        lanes = self.plan.layout.members[member.name].lanes
        shape = self.shapes[window.tensor]
        copy = WindowCopy(
            window,
            buffer,
            order,
            shape=shape,
            leaves=leaves,
            lanes=lanes,
            read_at=read_at,
            scalar=self.plan.scalar,
        )
        return copy.statements(turns=self.dtypes[window.tensor] == "float32")

    def _leaves(self, member: TileGroup, window: Window) -> list[bool]:
        """Whether a window may be beyond its tensor, by dimension."""
        if window.pad is None:
            return [False] * len(window.region.starts)
        extents = member.anchor.extents
        return [
            any(
                in_bounds_condition((read.indices[dimension],), (size,), extents) is not None
                for read in window.reads
            )
            for dimension, size in enumerate(self.shapes[window.tensor])
        ]

    # --- a member

    def _computed(self, member: TileGroup, partial: Read | None = None) -> list[Statement]:
        """A member's region in register tiles; sums are added to `partial` where it is given."""
        anchor = member.anchor
        if anchor.reducer is None:
            return self._mapped(
                member,
                lambda point: [
                    self._written(member, self._term(member, anchor.body, point), point)
                ],
            )
        layout, extents = self.plan.layout.members[member.name], self._extents(member)
        registers = self.plan.registers[member.name]
        exact = partial is not None  # what overlaps would be added twice
        lanes = _fitting(layout.lanes, extents[layout.vector.name])
        vectors = _parts(
            layout.vector.name,
            extents[layout.vector.name],
            lanes * registers.vectors,
            lanes,
            exact=exact,
        )
        rows = [_Part(axis="", count=1, size=1, first=constant(0))]
        if layout.tiled is not None:
            tiled = layout.tiled.name
            rows = _parts(tiled, extents[tiled], registers.rows, 1, exact=exact)
        tile = max(part.size for part in rows), max(part.size for part in vectors)
        held = self._buffer("acc", tile, anchor.accumulator, stack=True)
        others = [axis for axis in anchor.axes if axis not in (layout.vector, layout.tiled)]
        statements: list[Statement] = []
        for vector in vectors:
            for row in rows:
                inside = self._register_tile(member, row, vector, held, partial)
                pair = (row, vector) if layout.reuses else (vector, row)
                for part in pair:
                    inside = part.around(inside)
                statements += _nested([(axis.name, extents[axis.name]) for axis in others], inside)
        return statements

    def _register_tile(
        self, member: TileGroup, row: _Part, vector: _Part, held: str, partial: Read | None
    ) -> tuple[Statement, ...]:
        anchor = member.anchor
        assert anchor.reducer is not None
        point = self._offsets(member, row, vector)
        within = add(times(Var(VECTOR), vector.lanes), Var(LANE))
        total = Read(held, (Var(ROW), within))
        empty: Scalar = identity(anchor.reducer, anchor.accumulator)
        if partial is not None:
            empty = self._moved(partial, point)
        term = Cast(anchor.accumulator, self._term(member, anchor.body, point))
        grown = REDUCTIONS[anchor.reducer].combine
        if partial is not None:
            last: Statement = self._store(partial, total, point)
        else:
            last = self._written(member, total, point)

        def each(statement: Statement) -> Loop:
            return _each(statement, row, vector)

        return (
            each(Store(buffer=held, indices=total.indices, value=empty)),
            self._summed(
                member,
                each(Store(buffer=held, indices=total.indices, value=Binary(grown, total, term))),
            ),
            each(last),
        )

    def _summed(self, member: TileGroup, body: Statement) -> Statement:
        """The loops of a reduction, short ones unrolled, of long ones the innermost in part."""
        extents = self._extents(member)
        axes = [(axis.name, extents[axis.name]) for axis in member.anchor.reduce_axes]
        if unrolled_whole(extent for _, extent in axes):
            for name, extent in reversed(axes):
                body = Loop(iterator=name, extent=extent, kind=LoopKind.UNROLLED, body=(body,))
            return body
        *outer, (name, extent) = axes
        return _nested(outer, (unrolled_in_part(name, extent, self.plan.unroll, body),))[0]

    def _mapped(
        self, member: TileGroup, body: Callable[[Mapping[str, Affine]], list[Statement]]
    ) -> list[Statement]:
        """Statements for all points of a member's region, vector by vector."""
        layout, extents = self.plan.layout.members[member.name], self._extents(member)
        lanes = _fitting(layout.lanes, extents[layout.vector.name])
        (vector,) = _parts(layout.vector.name, extents[layout.vector.name], lanes, lanes)
        row = _Part(axis="", count=1, size=1, first=constant(0))
        point = self._offsets(member, row, vector)
        inside = vector.around(tuple(_each(statement, row, vector) for statement in body(point)))
        others = [(axis.name, extents[axis.name]) for axis in dimensions(member, self.plan)[:-1]]
        return _nested(others, inside)

    # --- scalars

    def _offsets(self, member: TileGroup, row: _Part, vector: _Part) -> dict[str, Affine]:
        """By axis the point of a member that a register tile's lane is, from its region on."""
        point = {name: affine(Var(name)) for name in self._extents(member)}
        if row.axis:
            point[row.axis] = affine(add(row.first, Var(ROW)))
        within = add(times(Var(VECTOR), vector.lanes), Var(LANE))
        point[vector.axis] = affine(add(vector.first, within))
        return point

    def _term(self, member: TileGroup, node: Scalar, point: Mapping[str, Affine]) -> Scalar:
        """A scalar of a member at a point, which reads buffers for what the group computes."""
        starts = self._starts(member)
        places = {name: starts[name] + offset for name, offset in point.items()}
        extents = member.anchor.extents

        def change(part: Scalar) -> Scalar | None:
            if isinstance(part, Var) and part.name in places:
                return self.plan.scalar(places[part.name])
            if not isinstance(part, Read):
                return None
            if part in self.windows and self.windows[part][0].reader == member.name:
                return self._from_window(member, part, places)
            if part.tensor in self.held:
                return self._from_member(part, places)
            plain = Read(part.tensor, tuple(rewrite(index, change) for index in part.indices))
            if part.pad is None:
                return plain
            inside = in_bounds_condition(part.indices, self.shapes[part.tensor], extents)
            return plain if inside is None else Select(rewrite(inside, change), plain, part.pad)

        return rewrite(node, change)

    def _from_window(self, member: TileGroup, read: Read, places: Mapping[str, Affine]) -> Read:
        window, buffer = self.windows[read]
        order = window_order(window, self.plan.layout.members[member.name].vector)
        local = [
            self._local(index, places, start)
            for index, start in zip(read.indices, window.region.starts, strict=True)
        ]
        return Read(buffer, tuple(local[dimension] for dimension in order))

    def _from_member(self, read: Read, places: Mapping[str, Affine]) -> Read:
        source = self.members[read.tensor]
        starts = self._starts(source)
        local = {
            axis.name: self._local(index, places, starts[axis.name])
            for axis, index in zip(source.output.axes, read.indices, strict=True)
        }
        return Read(
            self.held[read.tensor],
            tuple(local[axis.name] for axis in dimensions(source, self.plan)),
        )

    def _local(self, index: Scalar, places: Mapping[str, Affine], start: Affine) -> Scalar:
        form = linear(index)
        assert form is not None  # `regions_of` refuses others
        return self.plan.scalar(placed(form, places) - start)

    def _written(self, member: TileGroup, total: Scalar, point: Mapping[str, Affine]) -> Store:
        """A finished element, with the epilogue done on it, where its readers look for it."""
        output, anchor, value = member.output, member.anchor, total
        if member.epilogue is not None:
            held = Read(anchor.name, ())  # stands for the sum while the rest is placed
            epilogue = rewrite(
                member.epilogue.body,
                lambda part: (
                    held if isinstance(part, Read) and part.tensor == anchor.name else None
                ),
            )
            placed_body = self._term(member, epilogue, point)
            value = rewrite(placed_body, lambda part: total if part == held else None)
        stored = Cast(output.dtype, value)
        if member is self.group.root:
            starts = self._starts(member)
            indices = tuple(
                self.plan.scalar(starts[axis.name] + point[axis.name]) for axis in output.axes
            )
            return Store(buffer=output.name, indices=indices, value=stored)
        indices = tuple(
            self.plan.scalar(point[axis.name]) for axis in dimensions(member, self.plan)
        )
        return Store(buffer=self.held[member.name], indices=indices, value=stored)

    def _moved(self, read: Read, point: Mapping[str, Affine]) -> Read:
        """A read of a buffer that has the axes' names for indices, at a point."""
        values = {name: self.plan.scalar(form) for name, form in point.items()}
        return Read(read.tensor, tuple(substitute(index, values) for index in read.indices))

    def _store(self, to: Read, value: Scalar, point: Mapping[str, Affine]) -> Store:
        return Store(buffer=to.tensor, indices=self._moved(to, point).indices, value=value)


def _fitting(lanes: int, extent: int) -> int:
    """Lanes of a vector, fewer where there are fewer elements."""
    while lanes > extent:
        lanes //= 2
    return lanes


def _parts(axis: str, extent: int, size: int, lanes: int, *, exact: bool = False) -> list[_Part]:
    """Register tiles along an axis. The last one is moved back, or with `exact` smaller."""
    size = max(min(size, extent) // lanes * lanes, lanes)
    whole, left = divmod(extent, size)
    number = times(Var(f"{axis}{TILE}"), size)
    if not exact or not left:
        count = -(-extent // size)
        first = at_most(number, extent - size) if left else number
        first = constant(0) if count == 1 else first
        return [_Part(axis=axis, count=count, size=size, first=first, lanes=lanes)]
    first = constant(0) if whole == 1 else number
    parts = [_Part(axis=axis, count=whole, size=size, first=first, lanes=lanes)]
    vectors, rest = left // lanes * lanes, left % lanes
    for part, width in ((vectors, lanes), (rest, rest)):
        if part:
            begun = constant(extent - left if part == vectors else extent - rest)
            parts.append(_Part(axis=axis, count=1, size=part, first=begun, lanes=width))
    return parts


def _each(statement: Statement, row: _Part, vector: _Part) -> Loop:
    """A statement for all elements of a register tile."""
    lane = Loop(iterator=LANE, extent=vector.lanes, kind=LoopKind.VECTOR, body=(statement,))
    vectors = Loop(
        iterator=VECTOR,
        extent=vector.size // vector.lanes,
        kind=LoopKind.UNROLLED,
        body=(lane,),
    )
    return Loop(iterator=ROW, extent=row.size, kind=LoopKind.UNROLLED, body=(vectors,))


def _nested(axes: Iterable[tuple[str, int]], body: tuple[Statement, ...]) -> list[Statement]:
    """Loops over axes, with their extents, around statements."""
    for name, extent in reversed(list(axes)):
        body = (Loop(iterator=name, extent=extent, body=body),)
    return list(body)
