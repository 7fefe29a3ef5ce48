"""Groups of stages that become one loop nest: a reduction or a map with its epilogue,
or a chain of stages along shared rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner.spaces.program.program import LARGEST_SHUFFLED_STRIDE
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.liveness import needed
from tuner.workload.expression import (
    Axis,
    Expression,
    Read,
    Scalar,
    Stage,
    Var,
    reads,
    rewrite,
    substitute,
)

COLUMN = "_column"  # name every member of a row group gives its column axis; no notation can use it


@dataclass(frozen=True, slots=True, kw_only=True)
class TileGroup:
    """A stage, reduction or not, whose points are tiled; `epilogue` reads it point by
    point and is written in its place."""

    anchor: Stage
    epilogue: Stage | None  # with its axes renamed to the anchor's
    needed: tuple[
        Scalar, ...
    ] = ()  # comparisons of the anchor's axes where it matters: `tuner.spaces.rewrite.liveness`

    @property
    def output(self) -> Stage:
        return self.epilogue or self.anchor

    @property
    def name(self) -> str:
        return self.output.name


@dataclass(frozen=True, slots=True, kw_only=True)
class RowGroup:
    """Stages that share row axes and run a row at a time; reductions go along the
    column, others along it or once a row."""

    rows: tuple[Axis, ...]
    column: Axis
    stages: tuple[
        Stage, ...
    ]  # axes renamed: rows as `rows`, the column as COLUMN; only the last is read from outside
    needed: Mapping[str, tuple[Scalar, ...]] = field(default_factory=dict)  # the same of each stage

    @property
    def output(self) -> Stage:
        return self.stages[-1]

    @property
    def name(self) -> str:
        return self.output.name


Group = TileGroup | RowGroup


def shapes_of(expression: Expression) -> dict[str, tuple[int, ...]]:
    return {name: tensor.shape for name, tensor in expression.tensors.items()}


def groups(expression: Expression) -> tuple[Group, ...]:
    """The partition of an (inlined) expression's stages, each group after those it reads."""
    shapes = shapes_of(expression)
    matters = needed(expression)
    taken: set[str] = set()
    found: list[Group] = []
    for stage in expression.stages:
        if stage.name in taken:
            continue
        group: Group
        members: set[str]
        row = _row_group(stage, expression, shapes, taken, matters)
        if row is not None:
            group, members = row
        else:
            epilogue = _epilogue(stage, expression, taken)
            group = TileGroup(anchor=stage, epilogue=epilogue, needed=matters.get(stage.name, ()))
            members = {stage.name} | ({epilogue.name} if epilogue else set())
        taken |= members
        found.append(group)
    return _ordered(found)


def _members(group: Group) -> tuple[Stage, ...]:
    if isinstance(group, RowGroup):
        return group.stages
    return (group.anchor,) if group.epilogue is None else (group.anchor, group.epilogue)


def _ordered(found: list[Group]) -> tuple[Group, ...]:
    defined = {stage.name for group in found for stage in _members(group)}
    done: set[str] = set()
    ordered: list[Group] = []
    while found:
        for group in found:
            own = {stage.name for stage in _members(group)}
            needs = {
                read.tensor for stage in _members(group) for read in reads(stage.body)
            } & defined
            if needs - own <= done:
                ordered.append(group)
                done |= own
                found = [other for other in found if other is not group]
                break
        else:
            raise AssertionError(
                f"groups read each other in a circle: "
                f"{[_members(group)[-1].name for group in found]}"
            )
    return tuple(ordered)


def _epilogue(anchor: Stage, expression: Expression, taken: set[str]) -> Stage | None:
    """The one elementwise reader of the anchor, if it reads each of its points once and
    in place, and no group has it yet."""
    consumers = expression.consumers(anchor.name)
    if (
        anchor.name in expression.outputs
        or len(consumers) != 1
        or consumers[0].reducer is not None
        or anchor.reducer is None
    ):
        return None
    reader = consumers[0]
    if reader.name in taken:
        return None
    found = {read for read in reads(reader.body) if read.tensor == anchor.name}
    if len(found) != 1:
        return None
    (read,) = found
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
# ------------------------------------------------------------------------------


def column_of(stage: Stage, found: Sequence[Access]) -> Axis | None:
    """The reduction axis along which every read is contiguous or constant, if the
    reduction reuses nothing between its points.

    One to a single point has no other axis to make vectors of: they are put together of
    elements that lie apart.
    """
    spatial = {axis.name for axis in stage.axes if axis.extent > 1}
    apart = []
    for axis in reversed(stage.reduce_axes):
        moving = [one for one in found if axis.name in one.axes]
        if not moving or any(
            one.padded or one.gathered or one.axes & spatial not in (spatial, frozenset())
            for one in moving
        ):
            continue
        if all(one.stride(axis.name) == 1 for one in moving):
            return axis
        apart.append(axis)
    return None if spatial else max(apart, key=lambda axis: axis.extent, default=None)


def _row_group(
    first: Stage,
    expression: Expression,
    shapes: Mapping[str, tuple[int, ...]],
    taken: set[str],
    matters: Mapping[str, tuple[Scalar, ...]],
) -> tuple[RowGroup, set[str]] | None:
    if first.reducer is None:
        return None
    column = column_of(first, accesses(first, shapes))
    if column is None or column.extent < 2:
        return None
    rows = first.axes
    member = _as_member(first, rows, column, {})
    if member is None:
        return None
    chain = [member]
    best = 1
    later = [
        stage for stage in expression.stages if stage.name not in taken and stage.name != first.name
    ]
    for stage in later:
        known = {member.name: member for member in chain}
        if not any(read.tensor in known for read in reads(stage.body)):
            continue
        member = _as_member(stage, rows, column, known)
        if member is None:
            break
        chain.append(member)
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
        stage.name: _of_member(matters[stage.name], expression, stage)
        for stage in stages
        if stage.name in matters
    }
    group = RowGroup(
        rows=rows, column=Axis(name=COLUMN, extent=column.extent), stages=stages, needed=conditions
    )
    return group, {stage.name for stage in stages}


def _closed(chain: list[Stage], expression: Expression) -> bool:
    """Whether only the last stage is visible outside."""
    inside = {stage.name for stage in chain}
    return all(
        stage.name not in expression.outputs
        and {reader.name for reader in expression.consumers(stage.name)} <= inside
        for stage in chain[:-1]
    )


def _as_member(
    stage: Stage, rows: tuple[Axis, ...], column: Axis, known: Mapping[str, Stage]
) -> Stage | None:
    """The stage with its axes renamed to the group's, or None where it does not run
    along the same rows and column."""
    count = len(rows)
    extra = stage.axes[count:]
    if tuple(axis.extent for axis in stage.axes[:count]) != tuple(axis.extent for axis in rows):
        return None
    columns = (*extra, *stage.reduce_axes)
    if known and (len(columns) > 1 or any(axis.extent != column.extent for axis in columns)):
        return None
    names = {axis.name: Var(row.name) for axis, row in zip(stage.axes[:count], rows, strict=True)}
    if known:
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
    return (
        member
        if all(_in_place(read, rows, known) for read in reads(member.body) if read.tensor in known)
        else None
    )


def _of_member(
    conditions: Sequence[Scalar], expression: Expression, member: Stage
) -> tuple[Scalar, ...]:
    """Conditions of a stage in the axes of the group's member that it became."""
    stage = next(one for one in expression.stages if one.name == member.name)
    axes = zip((*stage.axes, *stage.reduce_axes), (*member.axes, *member.reduce_axes), strict=True)
    renamed = {axis.name: Var(other.name) for axis, other in axes}
    return tuple(substitute(condition, renamed) for condition in conditions)


def _in_place(read: Read, rows: tuple[Axis, ...], known: Mapping[str, Stage]) -> bool:
    expected = tuple(Var(axis.name) for axis in known[read.tensor].axes)
    return read.pad is None and read.indices == expected


def replace_reads(node: Scalar, values: Mapping[str, Scalar]) -> Scalar:
    """The tree with every read of the named tensors replaced by a value, wherever it was read."""
    return rewrite(
        node, lambda found: values.get(found.tensor) if isinstance(found, Read) else None
    )
