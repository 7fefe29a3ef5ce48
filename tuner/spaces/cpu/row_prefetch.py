"""Software prefetches of a row nest: what the first pass over rows to come will read, and of
sums the rows that indices to come name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tuner.spaces.cpu.row_plan import RowLoops
from tuner.spaces.program.program import Prefetch
from tuner.spaces.program.tiles import add, at_most, constant
from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.groups import COLUMN, RowGroup
from tuner.workload.expression import Read, Scalar, Stage, Var, reads, substitute, walk


def passes(stages: Sequence[Stage], rows: int) -> list[Stage]:
    """The stages of a group that go along its column."""
    return [stage for stage in stages if stage.reducer is not None or len(stage.axes) > rows]


def row_reads(
    stage: Stage, group: RowGroup, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Read, ...]:
    """What a stage reads of the group's inputs in whole vectors, other elements for
    each row of the last axis of rows."""
    inside = {member.name for member in group.stages}
    shared_axes = {COLUMN, *(axis.name for axis in group.rows)}  # to every pass
    last = next((axis for axis in reversed(group.rows) if axis.extent > 1), None)
    return tuple(
        access.read
        for access in accesses(stage, shapes)
        if last is not None
        and access.read.tensor not in inside
        and not (access.padded or access.gathered)
        and access.stride(COLUMN) == 1
        and last.name in access.axes <= shared_axes
    )


def gathered_reads(
    stage: Stage, group: RowGroup, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Read, ...]:
    """What a sum reads in whole vectors of rows that an index names, another one for each row
    of the last axis of rows."""
    last = next((axis for axis in reversed(group.rows) if axis.extent > 1), None)
    return tuple(
        access.read
        for access in accesses(stage, shapes)
        if last is not None
        and not access.padded
        and access.stride_within(COLUMN, shapes[access.read.tensor]) == 1
        and any(_is_read_along(index, last.name) for index in access.read.indices)
    )


def _is_read_along(index: Scalar, axis: str) -> bool:
    """Whether an index comes from a tensor, and changes along the axis."""
    return any(reads(index)) and any(
        isinstance(node, Var) and node.name == axis for node in walk(index)
    )


class RowPrefetch:
    """Prefetches by the second pass, where there is one: memory would idle while it works on
    what caches hold. A sum's only pass prefetches what it gathers."""

    def __init__(
        self,
        group: RowGroup,
        stages: Sequence[Stage],
        loops: RowLoops,
        shapes: Mapping[str, tuple[int, ...]],
    ) -> None:
        first, *later = passes(stages, len(loops.plan.rows))
        self._loops = loops
        self._pass = (later[0] if later else first).name if loops.plan.prefetch else None
        self._reads = (row_reads if later else gathered_reads)(first, group, shapes)

    def of(self, stage: Stage, index: Scalar) -> tuple[Prefetch, ...]:
        """What a stage at this index of the column asks for."""
        if stage.name != self._pass:
            return ()
        plan, loops = self._loops.plan, self._loops
        column = substitute(index, {loops.lanes.name: constant(0)})
        last = next(tiled for tiled in reversed(plan.rows) if tiled.axis.extent > 1)
        coming = at_most(add(last.index, constant(plan.prefetch * last.tile)), last.axis.extent - 1)
        where = loops.indices | {last.axis.name: coming, COLUMN: column}
        moved = (
            replace(read, indices=tuple(substitute(index, where) for index in read.indices))
            for read in self._reads
        )
        return tuple(Prefetch(read=read) for read in moved)
