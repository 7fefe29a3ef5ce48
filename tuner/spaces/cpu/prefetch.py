"""Software prefetches of a tile nest.

They ask for the lines that a map streams, the next block of an operand that a sum walks
along, the next part of one that it packs, and rows that indices to come name. A CPU
prefetches by itself what follows in a page. At the page's end it stops, and of rows a page
apart it knows nothing. While a nest computes, memory then idles (docs/design-notes/0014 has
the probes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.tile_loops import TileLoops
from tuner.spaces.cpu.tile_plan import TilePlan
from tuner.spaces.program.program import Prefetch
from tuner.spaces.program.tiles import add, at_most, constant, times
from tuner.spaces.rewrite.access import Access, accesses
from tuner.workload.affine import linear
from tuner.workload.dtypes import DTYPE_BYTES, DType
from tuner.workload.expression import (
    Axis,
    Binary,
    Read,
    Scalar,
    Stage,
    Var,
    reads,
    substitute,
    walk,
)

# Lines before one step of a reduction; computing no longer hides more.
MOST_AT_ONCE = 4
# Uses of an element by a sum beyond which computing takes far longer than fetching:
# read in place, and packed, where the copy waits for all of a part at once
# (docs/design-notes/0014 has the probes).
MOST_USES, MOST_USES_PACKED = 64, 256


def read_once(
    stage: Stage, vector: str | None, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Read, ...]:
    """What a map reads once, in whole vectors, as it writes them."""
    moving = [axis.name for axis in stage.axes if axis.extent > 1]
    if stage.reducer is not None or vector is None or moving[-1:] != [vector]:
        return ()
    return tuple(
        access.read
        for access in accesses(stage, shapes)
        if not (access.padded or access.gathered)
        and access.stride(vector) == 1
        and access.axes.issuperset(moving)
    )


def boxes(stage: Stage, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Access, ...]:
    """The reads of a sum that a block of its loops makes of a box of lines.

    A single axis moves each of their dimensions.
    """
    reads = accesses(stage, shapes) if stage.reducer is not None else ()
    return tuple(
        access for access in reads if not (access.padded or access.gathered) and _axes(access.read)
    )


def is_walked(access: Access, stage: Stage, vector: str | None) -> bool:
    """Whether the next block of a box in place is worth a prefetch.

    It is where whole vectors are read, each element a few times.
    """
    return (
        vector is not None
        and _axes(access.read)[-1] == vector
        and _uses(access, stage) <= MOST_USES
    )


def is_packed_in_parts(access: Access, stage: Stage) -> bool:
    """Whether the next part of a box that is packed a part at a time is worth a prefetch."""
    return _uses(access, stage) <= MOST_USES_PACKED


@dataclass(frozen=True, slots=True)
class GatheredRow:
    """A read along a row that an index names, another one in each iteration."""

    access: Access
    axis: str  # which moves the index


def gathered_rows(
    stage: Stage, vector: str | None, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[GatheredRow, ...]:
    """The rows that a sum gathers and reads in whole vectors, along its reduction."""
    if stage.reducer is None:
        return ()
    return _rows(stage, vector, shapes, {axis.name for axis in stage.reduce_axes})


def epilogue_rows(
    epilogue: Stage | None, vector: str | None, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[GatheredRow, ...]:
    """The rows that an epilogue gathers and reads in whole vectors, one for each of its own."""
    if epilogue is None:
        return ()
    return _rows(epilogue, vector, shapes, {axis.name for axis in epilogue.axes} - {vector})


def _rows(
    stage: Stage, vector: str | None, shapes: Mapping[str, tuple[int, ...]], moving: set[str]
) -> tuple[GatheredRow, ...]:
    """The gathered rows of a stage of which one of the axes moves the index."""
    if vector is None:
        return ()
    rows = []
    for access in accesses(stage, shapes):
        named = [index for index in access.read.indices if any(reads(index))]
        moved = {node.name for index in named for node in walk(index) if isinstance(node, Var)}
        along = access.stride_within(vector, shapes[access.read.tensor]) == 1
        if along and not access.padded and len(moved & moving) == 1:
            rows.append(GatheredRow(access, *(moved & moving)))
    return tuple(rows)


def _uses(access: Access, stage: Stage) -> int:
    return prod(axis.extent for axis in stage.axes if axis.name not in access.axes)


def _axes(read: Read) -> list[str]:
    """The axis that moves each dimension one by one.

    None at all where a dimension is moved otherwise, or two by the same axis.
    """
    names: list[str] = []
    for index in read.indices:
        form = linear(index)
        if form is None or form.constant or list(form.coefficients.values()) != [1]:
            return []
        names += form.coefficients
    return names if len(set(names)) == len(names) else []


def map_prefetches(
    plan: TilePlan,
    stage: Stage,
    written: Read,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
    *,
    merged: bool,
) -> tuple[Prefetch, ...]:
    """What a map will read further along its vectors, and write unless that is non-temporal.

    `merged` says that the vectors of a tile are one.
    """
    tiled = plan.tiled(str(plan.vector))
    vectors, lanes = tiled.register
    starts: list[dict[str, Scalar]] = [{lanes.name: constant(0)}]
    if merged:
        starts = [
            {lanes.name: constant(0), vectors.name: constant(number)}
            for number in range(vectors.extent)
        ]
    indices = {axis.axis.name: axis.index for axis in plan.spatial}
    own = () if plan.non_temporal else (written,)
    prefetches = []
    for read in (*read_once(stage, plan.vector, shapes), *own):
        distance = constant(plan.prefetch // DTYPE_BYTES[dtypes[read.tensor]])
        for start in starts:
            further = add(substitute(tiled.index, start), distance)
            where = indices | {tiled.axis.name: further}
            moved = tuple(substitute(index, where) for index in read.indices)
            prefetches.append(Prefetch(read=replace(read, indices=moved)))
    return tuple(prefetches)


def sum_prefetches(
    plan: TilePlan,
    stage: Stage,
    loops: TileLoops,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> tuple[Prefetch, ...]:
    """The next block of operands read in place, and the next part of packed ones.

    Line by line in the order in which they lie in memory, since hardware that sees
    lines follow each other prefetches along. Each iteration of the loops below the one
    over blocks or parts prefetches its share, in the first element of its register
    tile.
    """
    levels = [*loops.outer, *loops.reduction_blocks]
    unrolled = [axis for axis in loops.register if axis.name != loops.vector_lane]
    unrolled += [axis.unrolled for axis in plan.reduction]
    first = tuple(Binary("eq", Var(axis.name), constant(0)) for axis in unrolled if axis.extent > 1)
    prefetches: list[Prefetch] = []
    for access in boxes(stage, shapes):
        level = _level(plan, stage, access, levels)
        if level is None:
            continue
        elements = plan.line_bytes // DTYPE_BYTES[dtypes[access.read.tensor]]
        starts, sizes = zip(*(_part(plan, axis) for axis in _axes(access.read)), strict=True)
        sizes = (*sizes[:-1], -(-sizes[-1] // elements))
        following = {level.name: at_most(add(Var(level.name), constant(1)), level.extent - 1)}
        below = [
            *levels[levels.index(level) + 1 :],
            *loops.inner,
            *(axis.inner for axis in plan.reduction),
        ]
        for line in _shares(below, prod(sizes)):
            places = _unravelled(line, sizes)
            places = (*places[:-1], times(places[-1], elements))
            indices = tuple(
                add(substitute(start, following), place)
                for start, place in zip(starts, places, strict=True)
            )
            prefetches.append(Prefetch(read=replace(access.read, indices=indices), when=first))
    return tuple(prefetches)


def row_prefetches(
    plan: TilePlan,
    stage: Stage,
    rows: Sequence[GatheredRow],
    loops: TileLoops,
    dtypes: Mapping[str, DType],
    when: tuple[Scalar, ...] = (),
) -> tuple[Prefetch, ...]:
    """The part that the current tile has of rows which later iterations gather.

    `when` holds in the iterations of a sum. What is further ahead than the last iteration
    is the row of the last.
    """
    prefetches: list[Prefetch] = []
    for row in rows:
        read = row.access.read
        copied = plan.copies.get(read, CopyMode.NONE) is not CopyMode.NONE
        if copied or read.tensor not in plan.far:
            continue
        vector, extent = plan.tiled(str(plan.vector)), stage.extents[row.axis]
        further = at_most(add(loops.indices[row.axis], constant(plan.prefetch)), extent - 1)
        start = substitute(vector.index, {axis.name: constant(0) for axis in vector.register})
        once = [
            axis
            for tiled in plan.spatial
            for axis in tiled.register
            if tiled is vector or tiled.axis.name not in {*row.access.axes, row.axis}
            if axis.extent > 1 and axis.name != loops.vector_lane
        ]
        first = tuple(Binary("eq", Var(axis.name), constant(0)) for axis in once)
        for offset in range(0, vector.tile, plan.line_bytes // DTYPE_BYTES[dtypes[read.tensor]]):
            place = {row.axis: further, vector.axis.name: add(start, constant(offset))}
            where = {**loops.indices, **place}
            indices = tuple(substitute(index, where) for index in read.indices)
            line = replace(read, indices=indices)
            prefetches.append(Prefetch(read=line, when=(*when, *first)))
    return tuple(prefetches)


def _level(plan: TilePlan, stage: Stage, access: Access, levels: Sequence[Axis]) -> Axis | None:
    """The loop whose next iteration reads what is to be prefetched; None where nothing is."""
    match plan.copies.get(access.read, CopyMode.NONE):
        case CopyMode.NONE if is_walked(access, stage, plan.vector):
            return None if plan.blocked is None else plan.blocked.outer
        case CopyMode.PACK if is_packed_in_parts(access, stage):
            moving = [tiled.outer for tiled in plan.spatial if tiled.axis.name in access.axes]
            moving += [axis.outer for axis in plan.reduction if axis.axis.name in access.axes]
            return next(
                (level for level in reversed(levels) if level.extent > 1 and level in moving), None
            )
    return None


def _shares(loops: Sequence[Axis], lines: int) -> list[Scalar]:
    """Numbers of the lines that one iteration of the loops prefetches.

    All iterations together prefetch all lines; there are none where each would have too
    many. Where there are more iterations than lines, some that follow each other
    prefetch the same line, and the last ones the last: that is cheaper than to tell
    them apart.
    """
    *outside, steps = loops
    number: Scalar = constant(0)
    for axis in outside:
        number = add(times(number, axis.extent), Var(axis.name)) if axis.extent > 1 else number
    iterations, steps_per_share = prod(axis.extent for axis in outside), 1
    while iterations * (steps.extent // (2 * steps_per_share)) >= lines:
        steps_per_share *= 2
    shares = -(-steps.extent // steps_per_share)
    at_once = -(-lines // (iterations * shares))
    if at_once > MOST_AT_ONCE:
        return []
    step: Scalar = Var(steps.name) if steps.extent > 1 else constant(0)
    if steps_per_share > 1:
        step = Binary("floordiv", step, constant(steps_per_share))
    share = add(times(number, shares), step)
    numbers = [add(times(share, at_once), constant(which)) for which in range(at_once)]
    if iterations * shares * at_once == lines:
        return numbers
    return [at_most(line, lines - 1) for line in numbers]


def _part(plan: TilePlan, name: str) -> tuple[Scalar, int]:
    """Where an axis begins in a block of the reduction in a cache block, and its extent there."""
    for axis in plan.reduction:
        if axis.axis.name == name:
            start = times(Var(axis.outer.name), axis.block) if axis.blocked else constant(0)
            return start, axis.block
    tiled = plan.tiled(name)
    extent = min(tiled.block * tiled.tile, tiled.axis.extent)
    return substitute(tiled.base, {tiled.inner.name: constant(0)}), extent


def _unravelled(number: Scalar, sizes: Sequence[int]) -> tuple[Scalar, ...]:
    """A number of an element as its index in each dimension, the last one fastest."""
    places: list[Scalar] = []
    for size in reversed(sizes[1:]):
        places.append(Binary("floormod", number, constant(size)) if size > 1 else constant(0))
        number = Binary("floordiv", number, constant(size)) if size > 1 else number
    return (number, *reversed(places))
