"""Fusion groups: the stages that become one loop nest.

A group is a reduction or a map with its epilogue, or a chain of stages along shared
rows.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner.spaces.program.program import LARGEST_SHUFFLED_STRIDE
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.liveness import live_conditions
from tuner.spaces.rewrite.stream_group import StreamGroup
from tuner.workload.expression import (
    Axis,
    Expression,
    Read,
    Scalar,
    Stage,
    Var,
    reads,
    rewrite,
    rows_from_data,
    substitute,
)

# Name of the column axis in every member of a row group; not a valid name in the notation.
COLUMN = "_column"


@dataclass(frozen=True, slots=True, kw_only=True)
class TileGroup:
    """A stage whose points are tiled, perhaps with an epilogue.

    The epilogue reads the stage point by point and is written in its place.
    """

    anchor: Stage
    epilogue: Stage | None  # with its axes renamed to the anchor's
    # comparisons of the anchor's axes outside of which it is dead (`liveness`)
    live_conditions: tuple[Scalar, ...] = ()

    @property
    def output(self) -> Stage:
        return self.epilogue or self.anchor

    @property
    def name(self) -> str:
        return self.output.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Stages that share row axes and run one row at a time.

    Reductions run along the column, other stages along it or once for each row.
    """

    rows: tuple[Axis, ...]
    column: Axis
    # axes are renamed to `rows` and COLUMN; only the last stage is read from outside
    stages: tuple[Stage, ...]
    # by stage, comparisons of its axes outside of which it is dead
    live_conditions: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)

    @property
    def output(self) -> Stage:
        return self.stages[-1]

    @property
    def name(self) -> str:
        return self.output.name


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedGroup:
    """Groups of which the last is computed tile by tile, and of the others what a tile needs.

    Where tiles need the same points of a member, each computes them.
    """

    members: tuple[TileGroup, ...]  # each after those that it reads

    @property
    def root(self) -> TileGroup:
        return self.members[-1]

    @property
    def output(self) -> Stage:
        return self.root.output

    @property
    def name(self) -> str:
        return self.root.name

    @property
    def stages(self) -> tuple[Stage, ...]:
        """Of all members, each after those that it reads."""
        return tuple(
            stage
            for member in self.members
            for stage in (member.anchor, member.epilogue)
            if stage is not None
        )


Group = TileGroup | RowGroup | StreamGroup | FusedGroup


def groups(
    expression: Expression, given: Sequence[Group] = (), left_out: Collection[str] = ()
) -> tuple[Group, ...]:
    """The partition of an inlined expression's stages, each group after those it reads.

    Some groups may be given; `left_out` are stages that no group computes.
    """
    shapes = expression.shapes
    live = live_conditions(expression)
    grouped = {*left_out, *(group.name for group in given)}
    unordered = list(given)
    for stage in expression.stages:
        if stage.name in grouped:
            continue
        group: Group
        members: set[str]
        row = _row_group(stage, expression, shapes, grouped, live)
        if row is not None:
            group, members = row
        else:
            epilogue = epilogue_of(stage, expression, grouped)
            group = TileGroup(
                anchor=stage, epilogue=epilogue, live_conditions=live.get(stage.name, ())
            )
            members = {stage.name} | ({epilogue.name} if epilogue else set())
        grouped |= members
        unordered.append(group)
    return _ordered(unordered)


def _names_and_reads(group: Group) -> tuple[set[str], set[str]]:
    """Names of the stages that a group computes, and of the tensors that these read."""
    if isinstance(group, StreamGroup):
        return {group.name}, set(group.sources)
    members = (group.anchor, group.output) if isinstance(group, TileGroup) else group.stages
    return {stage.name for stage in members}, {
        read.tensor for stage in members for read in reads(stage.body)
    }


def _ordered(pending: list[Group]) -> tuple[Group, ...]:
    defined = set[str]().union(*(_names_and_reads(group)[0] for group in pending))
    done: set[str] = set()
    ordered: list[Group] = []
    while pending:
        for group in pending:
            own, sources = _names_and_reads(group)
            if (sources & defined) - own <= done:
                ordered.append(group)
                done |= own
                pending = [other for other in pending if other is not group]
                break
        else:
            raise AssertionError(
                f"groups read each other in a circle: {[group.name for group in pending]}"
            )
    return tuple(ordered)


def epilogue_of(anchor: Stage, expression: Expression, grouped: set[str]) -> Stage | None:
    """The only reader of a reduction, if it is a map over the same points.

    It reads each point once and in place, and is in no group yet. Else None.
    """
    consumers = expression.consumers(anchor.name)
    if (
        anchor.name in expression.outputs
        or len(consumers) != 1
        or consumers[0].reducer is not None
        or anchor.reducer is None
    ):
        return None
    reader = consumers[0]
    if reader.name in grouped:
        return None
    anchor_reads = {read for read in reads(reader.body) if read.tensor == anchor.name}
    if len(anchor_reads) != 1:
        return None
    (read,) = anchor_reads
    names = [index.name if isinstance(index, Var) else None for index in read.indices]
    if (
        read.pad is not None
        or None in names
        or sorted(str(name) for name in names) != sorted(axis.name for axis in reader.axes)
    ):
        return None
    renamed = {str(name): Var(axis.name) for name, axis in zip(names, anchor.axes, strict=True)}
    by_name = {axis.name: axis for axis in anchor.axes}
    extents = {axis.name: axis.extent for axis in reader.axes}
    if any(by_name[target.name].extent != extents[name] for name, target in renamed.items()):
        return None
    return replace(
        reader,
        axes=tuple(Axis(name=renamed[axis.name].name, extent=axis.extent) for axis in reader.axes),
        body=substitute(reader.body, renamed),
    )


# --- rows


def column_axis(stage: Stage, read_accesses: Sequence[Access]) -> Axis | None:
    """The axis of a row-wise reduction: every read is contiguous or constant along it.

    None if the reduction reuses data between its points, or if there is no such axis. A
    reduction to a single point has no other axis to vectorise, so for it the longest
    axis serves even if its elements lie apart.
    """
    spatial = {axis.name for axis in stage.axes if axis.extent > 1}
    apart = []
    for axis in reversed(stage.reduce_axes):
        moving = [access for access in read_accesses if axis.name in access.axes]
        if not moving or any(
            access.padded or access.gathered or access.axes & spatial not in (spatial, frozenset())
            for access in moving
        ):
            continue
        if all(access.stride(axis.name) == 1 for access in moving):
            return axis
        apart.append(axis)
    return None if spatial else max(apart, key=lambda axis: axis.extent, default=None)


def _row_group(
    first: Stage,
    expression: Expression,
    shapes: Mapping[str, tuple[int, ...]],
    grouped: set[str],
    live: Mapping[str, tuple[Scalar, ...]],
) -> tuple[RowGroup, set[str]] | None:
    if first.reducer is None or rows_from_data(first) is not None:
        return None
    column = column_axis(first, accesses(first, shapes))
    if column is None or column.extent < 2:
        return None
    rows = first.axes
    member = _as_member(first, rows, column, {})
    if member is None:
        return None
    chain = [member]
    best = 1
    later = [
        stage
        for stage in expression.stages
        if stage.name not in grouped and stage.name != first.name
    ]
    for stage in later:
        members = {member.name: member for member in chain}
        if not any(read.tensor in members for read in reads(stage.body)):
            continue
        if rows_from_data(stage) is not None:
            break
        beside = _beside(stage, expression, shapes, grouped | members.keys(), rows, column)
        members |= {other.name: other for other in beside}
        member = _as_member(stage, rows, column, members)
        if member is None:
            break
        chain += [*beside, member]
        if _closed(chain, expression):
            best = len(chain)
    stages = tuple(chain[:best])
    if not _closed(list(stages), expression):
        return None
    along = [
        stage
        for stage in stages
        if COLUMN in {axis.name for axis in (*stage.axes, *stage.reduce_axes)}
    ]
    if column.extent <= LARGEST_SHUFFLED_STRIDE and len(along) == 1:
        return None  # vectors along the rows are longer, and made of whole loads
    conditions = {
        stage.name: _of_member(live[stage.name], expression, stage)
        for stage in stages
        if stage.name in live
    }
    group = RowGroup(
        rows=rows,
        column=Axis(name=COLUMN, extent=column.extent),
        stages=stages,
        live_conditions=conditions,
    )
    return group, {stage.name for stage in stages}


def _beside(
    reader: Stage,
    expression: Expression,
    shapes: Mapping[str, tuple[int, ...]],
    grouped: Collection[str],
    rows: tuple[Axis, ...],
    column: Axis,
) -> list[Stage]:
    """Reductions that the reader alone reads, along the same rows and a column as long, as
    members of its group."""
    sources = {read.tensor for read in reads(reader.body)} - {*grouped, *expression.outputs}
    members = []
    for stage in expression.stages:
        if stage.name not in sources or stage.reducer is None or rows_from_data(stage) is not None:
            continue
        if len(stage.reduce_axes) > 1 or len(expression.consumers(stage.name)) > 1:
            continue
        own = column_axis(stage, accesses(stage, shapes))
        member = None if own is None else _as_member(stage, rows, own, {})
        if own is not None and own.extent == column.extent and member is not None:
            members.append(member)
    return members


def _closed(chain: list[Stage], expression: Expression) -> bool:
    """Whether only the last stage is visible outside."""
    inside = {stage.name for stage in chain}
    return all(
        stage.name not in expression.outputs
        and {reader.name for reader in expression.consumers(stage.name)} <= inside
        for stage in chain[:-1]
    )


def _as_member(
    stage: Stage, rows: tuple[Axis, ...], column: Axis, members: Mapping[str, Stage]
) -> Stage | None:
    """The stage with its axes renamed to the group's.

    None where it does not run along the same rows and column.
    """
    count = len(rows)
    extra = stage.axes[count:]
    if tuple(axis.extent for axis in stage.axes[:count]) != tuple(axis.extent for axis in rows):
        return None
    columns = (*extra, *stage.reduce_axes)
    if members and (len(columns) > 1 or any(axis.extent != column.extent for axis in columns)):
        return None
    names = {axis.name: Var(row.name) for axis, row in zip(stage.axes[:count], rows, strict=True)}
    if members:
        names |= {axis.name: Var(COLUMN) for axis in columns}
    else:
        names |= {axis.name: Var(COLUMN if axis == column else axis.name) for axis in columns}
    member = replace(
        stage,
        axes=tuple(Axis(name=names[axis.name].name, extent=axis.extent) for axis in stage.axes),
        reduce_axes=tuple(
            Axis(name=names[axis.name].name, extent=axis.extent) for axis in stage.reduce_axes
        ),
        body=substitute(stage.body, names),
    )
    inside = (read for read in reads(member.body) if read.tensor in members)
    return member if all(_in_place(read, members) for read in inside) else None


def _of_member(
    conditions: Sequence[Scalar], expression: Expression, member: Stage
) -> tuple[Scalar, ...]:
    """The conditions of a stage in terms of the axes of its member of the group."""
    stage = next(original for original in expression.stages if original.name == member.name)
    axes = zip((*stage.axes, *stage.reduce_axes), (*member.axes, *member.reduce_axes), strict=True)
    renamed = {axis.name: Var(other.name) for axis, other in axes}
    return tuple(substitute(condition, renamed) for condition in conditions)


def _in_place(read: Read, members: Mapping[str, Stage]) -> bool:
    """Whether the read is of the member's element at the same row and column."""
    expected = tuple(Var(axis.name) for axis in members[read.tensor].axes)
    return read.pad is None and read.indices == expected


def replace_reads(node: Scalar, values: Mapping[str, Scalar]) -> Scalar:
    """The tree with every read of the named tensors replaced by a value."""
    return rewrite(node, lambda part: values.get(part.tensor) if isinstance(part, Read) else None)
