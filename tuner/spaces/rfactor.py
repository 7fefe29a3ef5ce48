"""Reductions to few points in parts, of which each is a task of a thread, and what combines the parts.

The name is that of Suriana, Adams & Kamil, "Parallel associative reductions in Halide" (CGO 2017). One thread needs none of it:
its sums have as many lanes and accumulators as pay. Of several most would have nothing to do where there is hardly a point each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod

from tuner.spaces.access import accesses
from tuner.spaces.groups import column_of, shapes_of
from tuner.spaces.stages import inlined, names, renamed, unused
from tuner.spaces.tiles import add, constant, times
from tuner.workload.expression import COMBINE, Axis, Binary, Expression, Read, Scalar, Stage, Var, substitute

SUFFIX = "rf"  # of the names of rewritten stages; their knobs are others than those of the reduction
MOST_ROWS = 8  # for each thread: with more of them threads share rows
MOST_POINTS = 256  # the same of points that are computed in tiles, which have up to as many
LEAST_TERMS = 1 << 14  # for each thread: a task of one takes some microseconds to start
PARTS = range(4, 17)  # for each thread: the fewest of them that leave no rest, or the fewest


def rfactored(expression: Expression, threads: int) -> Expression | None:
    """The expression with each long reduction to few points done in parts, stages under new names; None where there is none."""
    shapes = shapes_of(expression)
    taken, stages = names(expression), list[Stage]()
    for stage in expression.stages:
        parts = _parts(stage, shapes, threads)
        made = (stage,) if parts is None else _in_parts(stage, *parts, taken)
        taken |= {one.name for one in made}
        stages += made
    if len(stages) == len(expression.stages):
        return None
    return renamed(inlined(replace(expression, stages=tuple(stages))), SUFFIX)


def _parts(stage: Stage, shapes: Mapping[str, tuple[int, ...]], threads: int) -> tuple[Axis, int] | None:
    """The axis of the reduction that is done in parts, the longest, and how many there are."""
    if threads == 1 or not stage.reduce_axes or stage.points < LEAST_TERMS * threads:
        return None
    most = MOST_POINTS if column_of(stage, accesses(stage, shapes)) is None else MOST_ROWS
    if prod(axis.extent for axis in stage.axes) > most * threads:
        return None
    axis = max(stage.reduce_axes, key=lambda one: one.extent)
    counts = range(PARTS.start * threads, PARTS.stop * threads)
    return axis, next((count for count in counts if axis.extent % count == 0), counts.start)


def _in_parts(stage: Stage, axis: Axis, count: int, taken: Collection[str]) -> tuple[Stage, ...]:
    """The parts, their combination, and where a rest is left the rest and both."""
    part = Axis(name=unused("p", stage.extents), extent=count)
    length, rest = divmod(axis.extent, count)
    if length == 0:
        return (stage,)
    start = times(Var(part.name), length)
    parts = _reduced(stage, axis, length, start, unused(f"{stage.name}p", taken), (part,))
    combined = replace(stage, reduce_axes=(part,), body=_read(parts))
    if rest == 0:
        return parts, combined
    combined = replace(combined, name=unused(f"{stage.name}w", taken), dtype=stage.accumulator)
    left = _reduced(stage, axis, rest, constant(count * length), unused(f"{stage.name}r", taken))
    assert stage.reducer is not None
    both = Binary(COMBINE[stage.reducer], _read(combined), _read(left))
    return parts, combined, left, replace(stage, reducer=None, reduce_axes=(), body=both)


def _reduced(stage: Stage, axis: Axis, length: int, start: Scalar, name: str, parts: tuple[Axis, ...] = ()) -> Stage:
    """The reduction of a piece of an axis, kept as it is accumulated."""
    return replace(
        stage,
        name=name,
        axes=(*parts, *stage.axes),
        reduce_axes=tuple(replace(one, extent=length) if one == axis else one for one in stage.reduce_axes),
        body=substitute(stage.body, {axis.name: add(start, Var(axis.name))}),
        dtype=stage.accumulator,
    )


def _read(stage: Stage) -> Read:
    return Read(stage.name, tuple(Var(axis.name) for axis in stage.axes))
