"""What a tile nest fetches ahead of its use: the lines that a map streams, the next
block of an operand that a sum walks, and the next part of one that it packs.

A CPU fetches by itself what follows in a page; at its end it stops, and of rows a page
apart it knows nothing. While a nest computes, memory then idles (docs/spaces.md has the
probes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.tile_plan import TilePlan
from tuner.spaces.program.program import Prefetch
from tuner.spaces.program.tiles import add, at_most, constant, times
from tuner.spaces.rewrite.access import Access, accesses, linear
from tuner.target.target import LINE_BYTES
from tuner.workload.expression import (
    DTYPE_BYTES,
    Axis,
    Binary,
    DType,
    Read,
    Scalar,
    Stage,
    Var,
    substitute,
)

MOST_AT_ONCE = (
    4  # lines before one step of a reduction; more are no longer hidden by what it computes
)
# Uses of an element by a sum beyond which computing takes far longer than fetching:
# read in place, and packed, where the copy waits for all of a part at once
# (docs/spaces.md has the probes).
MOST_USES, MOST_USES_PACKED = 64, 256


def read_once(
    stage: Stage, vector: str | None, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[Read, ...]:
    """What a map reads once, in whole vectors, as it writes them."""
    moving = [axis.name for axis in stage.axes if axis.extent > 1]
    if stage.reducer is not None or vector is None or moving[-1:] != [vector]:
        return ()
    return tuple(
        found.read
        for found in accesses(stage, shapes)
        if not (found.padded or found.gathered)
        and found.stride(vector) == 1
        and found.axes.issuperset(moving)
    )


def boxes(stage: Stage, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Access, ...]:
    """What a sum reads whose every dimension a single axis moves: what a block of its
    loops reads of it is a box of lines."""
    found = accesses(stage, shapes) if stage.reducer is not None else ()
    return tuple(one for one in found if not (one.padded or one.gathered) and _axes(one.read))


def walked(one: Access, stage: Stage, vector: str | None) -> bool:
    """Whether the next block of what is read of boxes in place is worth fetching: whole
    vectors, each element a few times."""
    return vector is not None and _axes(one.read)[-1] == vector and _uses(one, stage) <= MOST_USES


def parted(one: Access, stage: Stage) -> bool:
    """Whether the next part of boxes that are packed a part at a time is worth fetching."""
    return _uses(one, stage) <= MOST_USES_PACKED


def _uses(one: Access, stage: Stage) -> int:
    return prod(axis.extent for axis in stage.axes if axis.name not in one.axes)


def _axes(read: Read) -> list[str]:
    """The axis that moves each dimension one by one; none where one is moved otherwise,
    or two by the same."""
    names: list[str] = []
    for index in read.indices:
        form = linear(index)
        if form is None or form.constant or list(form.coefficients.values()) != [1]:
            return []
        names += form.coefficients
    return names if len(set(names)) == len(names) else []


def of_map(
    plan: TilePlan,
    stage: Stage,
    written: Read,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
    *,
    wide: bool,
) -> tuple[Prefetch, ...]:
    """What a map will read further along its vectors, and write unless that goes past
    the caches; `wide`: a tile's vectors are one."""
    tiled = plan.tiled(str(plan.vector))
    vectors, lanes = tiled.register
    starts: list[dict[str, Scalar]] = [{lanes.name: constant(0)}]
    if wide:
        starts = [
            {lanes.name: constant(0), vectors.name: constant(number)}
            for number in range(vectors.extent)
        ]
    indices = {axis.axis.name: axis.index for axis in plan.spatial}
    found = []
    own = () if plan.streamed else (written,)
    for read in (*read_once(stage, plan.vector, shapes), *own):
        further = constant(plan.ahead // DTYPE_BYTES[dtypes[read.tensor]])
        for start in starts:
            coming = indices | {tiled.axis.name: add(substitute(tiled.index, start), further)}
            found.append(
                Prefetch(
                    read=replace(
                        read, indices=tuple(substitute(index, coming) for index in read.indices)
                    )
                )
            )
    return tuple(found)


def of_sum(
    plan: TilePlan,
    stage: Stage,
    levels: Sequence[Axis],
    inner: Sequence[Axis],
    register: Sequence[Axis],
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> tuple[Prefetch, ...]:
    """Of operands read in place the next block of the reduction in this cache block, of
    those packed in parts the next part: line by line in the order in which they lie in
    memory, since hardware that sees lines follow each other fetches along. `levels` are
    the loops of cache blocks and of blocks of the reduction, in their order; each turn
    of those below, `inner` and the reduction's, fetches its share, in the first point
    of its `register` tile.
    """
    once = [*register, *(axis.unrolled for axis in plan.reduction)]
    first = tuple(Binary("eq", Var(axis.name), constant(0)) for axis in once if axis.extent > 1)
    found: list[Prefetch] = []
    for one in boxes(stage, shapes):
        level = _level(plan, stage, one, levels)
        if level is None:
            continue
        coming = {level.name: at_most(add(Var(level.name), constant(1)), level.extent - 1)}
        starts, sizes = zip(*(_part(plan, axis) for axis in _axes(one.read)), strict=True)
        elements = LINE_BYTES // DTYPE_BYTES[dtypes[one.read.tensor]]
        sizes = (*sizes[:-1], -(-sizes[-1] // elements))
        below = [
            *levels[levels.index(level) + 1 :],
            *inner,
            *(axis.inner for axis in plan.reduction),
        ]
        for line in _shares(below, prod(sizes)):
            places = _unravelled(line, sizes)
            places = (*places[:-1], times(places[-1], elements))
            indices = tuple(
                add(substitute(start, coming), place)
                for start, place in zip(starts, places, strict=True)
            )
            found.append(Prefetch(read=replace(one.read, indices=indices), when=first))
    return tuple(found)


def _level(plan: TilePlan, stage: Stage, one: Access, levels: Sequence[Axis]) -> Axis | None:
    """The loop whose next turn reads what is to be fetched of an operand; None where nothing is."""
    match plan.copies.get(one.read, CopyMode.NONE):
        case CopyMode.NONE if walked(one, stage, plan.vector):
            return None if plan.blocked is None else plan.blocked.outer
        case CopyMode.PACK if parted(one, stage):
            moving = [
                plan.tiled(axis.axis.name).outer
                for axis in plan.spatial
                if axis.axis.name in one.axes
            ]
            moving += [axis.outer for axis in plan.reduction if axis.axis.name in one.axes]
            return next(
                (level for level in reversed(levels) if level.extent > 1 and level in moving), None
            )
    return None


def _shares(loops: Sequence[Axis], lines: int) -> list[Scalar]:
    """Numbers of the lines that a turn of the loops fetches, so that all turns together
    fetch all; none where those are too many. Where turns are more than lines, some that
    follow each other fetch the same, and the last ones the last: that is cheaper than
    to tell them apart."""
    *around, steps = loops
    number: Scalar = constant(0)
    for axis in around:
        number = add(times(number, axis.extent), Var(axis.name)) if axis.extent > 1 else number
    turns, apart = prod(axis.extent for axis in around), 1
    while turns * (steps.extent // (2 * apart)) >= lines:
        apart *= 2
    each = -(-steps.extent // apart)
    at_once = -(-lines // (turns * each))
    if at_once > MOST_AT_ONCE:
        return []
    step: Scalar = Var(steps.name) if steps.extent > 1 else constant(0)
    turn = add(
        times(number, each), step if apart == 1 else Binary("floordiv", step, constant(apart))
    )
    found = [add(times(turn, at_once), constant(which)) for which in range(at_once)]
    return (
        found if turns * each * at_once == lines else [at_most(line, lines - 1) for line in found]
    )


def _part(plan: TilePlan, name: str) -> tuple[Scalar, int]:
    """Where an axis begins, and how much of it there is, in a block of the reduction in
    a cache block."""
    for axis in plan.reduction:
        if axis.axis.name == name:
            return (
                times(Var(axis.outer.name), axis.block) if axis.blocked else constant(0)
            ), axis.block
    tiled = plan.tiled(name)
    return substitute(tiled.base, {tiled.inner.name: constant(0)}), min(
        tiled.block * tiled.tile, tiled.axis.extent
    )


def _unravelled(number: Scalar, sizes: Sequence[int]) -> tuple[Scalar, ...]:
    """A number of an element as its index in each dimension, the last one fastest."""
    places: list[Scalar] = []
    for size in reversed(sizes[1:]):
        places.append(Binary("floormod", number, constant(size)) if size > 1 else constant(0))
        number = Binary("floordiv", number, constant(size)) if size > 1 else number
    return (number, *reversed(places))
