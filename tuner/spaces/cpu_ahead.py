"""What a tile nest fetches ahead of its use: the lines that a map streams, and the next block of an operand that a sum walks.

A CPU fetches by itself what follows in a page; at its end it stops, and of rows a page apart it knows nothing. While a nest
computes, memory then idles (docs/spaces.md has the probes).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tuner.spaces.access import Access, accesses, linear
from tuner.spaces.cpu_plan import TilePlan
from tuner.spaces.program import Fetch
from tuner.spaces.tiles import add, at_most, constant, times
from tuner.target.target import LINE_BYTES
from tuner.workload.expression import DTYPE_BYTES, Axis, Binary, DType, Read, Scalar, Stage, Var, substitute

MOST_AT_ONCE = 4  # lines before one step of a reduction; more are no longer hidden by what it computes
MOST_USES = 64  # of an element of an operand: where it has more, computing takes far longer than fetching


def streamed(stage: Stage, vector: str | None, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Read, ...]:
    """What a map reads once, in whole vectors, as it writes them."""
    moving = [axis.name for axis in stage.axes if axis.extent > 1]
    if stage.reducer is not None or vector is None or moving[-1:] != [vector]:
        return ()
    return tuple(
        found.read
        for found in accesses(stage, shapes)
        if not (found.padded or found.gathered) and found.stride(vector) == 1 and found.axes.issuperset(moving)
    )


def walked(stage: Stage, vector: str | None, shapes: Mapping[str, tuple[int, ...]]) -> tuple[Access, ...]:
    """What a sum reads in whole vectors, each element a few times, and whose every dimension a single axis moves."""
    found = []
    for one in accesses(stage, shapes) if stage.reducer is not None and vector is not None else ():
        uses = prod(axis.extent for axis in stage.axes if axis.name not in one.axes)
        if not (one.padded or one.gathered) and _axes(one.read)[-1:] == [vector] and uses <= MOST_USES:
            found.append(one)
    return tuple(found)


def _axes(read: Read) -> list[str]:
    """The axis that moves each dimension one by one; none where one is moved otherwise, or two by the same."""
    names: list[str] = []
    for index in read.indices:
        form = linear(index)
        if form is None or form.constant or list(form.coefficients.values()) != [1]:
            return []
        names += form.coefficients
    return names if len(set(names)) == len(names) else []


def of_map(
    plan: TilePlan, stage: Stage, written: Read, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, DType], *, wide: bool
) -> tuple[Fetch, ...]:
    """What a map will read and write further along its vectors; `wide`: a tile's vectors are one."""
    tiled = plan.tiled(str(plan.vector))
    vectors, lanes = tiled.register
    starts: list[dict[str, Scalar]] = [{lanes.name: constant(0)}]
    if wide:
        starts = [{lanes.name: constant(0), vectors.name: constant(number)} for number in range(vectors.extent)]
    indices = {axis.axis.name: axis.index for axis in plan.spatial}
    found = []
    for read in (*streamed(stage, plan.vector, shapes), written):
        further = constant(plan.ahead // DTYPE_BYTES[dtypes[read.tensor]])
        for start in starts:
            coming = indices | {tiled.axis.name: add(substitute(tiled.index, start), further)}
            found.append(Fetch(read=replace(read, indices=tuple(substitute(index, coming) for index in read.indices))))
    return tuple(found)


def of_sum(
    plan: TilePlan,
    stage: Stage,
    turns: Sequence[Axis],
    register: Sequence[Axis],
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> tuple[Fetch, ...]:
    """Of the next block of the reduction what operands read in place have in this cache block, line by line in the order in which
    they lie in memory: hardware that sees lines follow each other fetches along. `turns` are the loops of a block of the
    reduction, each of which fetches its share of them; once a turn, in the first point of its `register` tile.
    """
    if plan.blocked is None:
        return ()
    number: Scalar = constant(0)
    for axis in turns:
        number = add(times(number, axis.extent), Var(axis.name)) if axis.extent > 1 else number
    count = prod(axis.extent for axis in turns)
    first = tuple(Binary("eq", Var(axis.name), constant(0)) for axis in register if axis.extent > 1)
    found: list[Fetch] = []
    for one in walked(stage, plan.vector, shapes):
        if plan.copies.get(one.read, "none") != "none":
            continue
        starts, sizes = zip(*(_part(plan, axis) for axis in _axes(one.read)), strict=True)
        elements = LINE_BYTES // DTYPE_BYTES[dtypes[one.read.tensor]]
        sizes = (*sizes[:-1], -(-sizes[-1] // elements))
        lines = prod(sizes)
        at_once = -(-lines // count)
        if at_once > MOST_AT_ONCE:
            continue
        turn = number if at_once > 1 or count == lines else Binary("floordiv", number, constant(max(count // lines, 1)))
        for which in range(at_once):
            line = add(times(turn, at_once), constant(which))
            places = _unravelled(line, sizes)
            places = (*places[:-1], times(places[-1], elements))
            indices = tuple(add(start, place) for start, place in zip(starts, places, strict=True))
            found.append(Fetch(read=replace(one.read, indices=indices), when=first))
    return tuple(found)


def _part(plan: TilePlan, name: str) -> tuple[Scalar, int]:
    """Where an axis begins, and how much of it there is, in the next block of the reduction in this cache block."""
    for axis in plan.reduction:
        if axis.axis.name == name:
            coming = at_most(add(Var(axis.outer.name), constant(1)), axis.outer.extent - 1)
            return (times(coming, axis.block) if axis.blocked else constant(0)), axis.block
    tiled = plan.tiled(name)
    return substitute(tiled.base, {tiled.inner.name: constant(0)}), min(tiled.block * tiled.tile, tiled.axis.extent)


def _unravelled(number: Scalar, sizes: Sequence[int]) -> tuple[Scalar, ...]:
    """A number of an element as its index in each dimension, the last one fastest."""
    places: list[Scalar] = []
    for size in reversed(sizes[1:]):
        places.append(Binary("floormod", number, constant(size)) if size > 1 else constant(0))
        number = Binary("floordiv", number, constant(size)) if size > 1 else number
    return (number, *reversed(places))
