"""Reductions to few points in parts, of which each is a task of a thread, and what combines the parts.

The name is that of Suriana, Adams & Kamil, "Parallel associative reductions in Halide" (CGO 2017). One thread needs none of it:
its sums have as many lanes and accumulators as pay. Of several most would have nothing to do where there is hardly a point each.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod

from tuner.spaces.access import accesses
from tuner.spaces.groups import column_of, shapes_of
from tuner.spaces.stages import names, renamed, unused
from tuner.spaces.tiles import add, times
from tuner.workload.expression import Axis, Expression, Read, Stage, Var, substitute

SUFFIX = "rf"  # of the names of rewritten stages; their knobs are others than those of the reduction
MOST_ROWS = 8  # for each thread: with more of them threads share rows
MOST_POINTS = 256  # the same of points that are computed in tiles, which have up to as many
LEAST_TERMS = 1 << 14  # for each thread: a task of one takes some microseconds to start
PARTS = range(4, 17)  # for each thread: the fewest of them that the extent is a multiple of


def rfactored(expression: Expression, threads: int) -> Expression | None:
    """The expression with each long reduction to few points done in parts, stages under new names; None where there is none, or
    none that has parts of equal length."""
    shapes = shapes_of(expression)
    stages: list[Stage] = []
    for stage in expression.stages:
        parts = _parts(stage, shapes, threads)
        if parts is not None:
            axis, count = parts
            part = Axis(name=unused("p", stage.extents), extent=count)
            length = axis.extent // count
            moved = add(times(Var(part.name), length), Var(axis.name))
            partial = replace(
                stage,
                name=unused(f"{stage.name}p", {*names(expression), *(one.name for one in stages)}),
                axes=(part, *stage.axes),
                reduce_axes=tuple(replace(one, extent=length) if one == axis else one for one in stage.reduce_axes),
                body=substitute(stage.body, {axis.name: moved}),
                dtype=stage.accumulator,
            )
            stages.append(partial)
            body = Read(partial.name, tuple(Var(one.name) for one in partial.axes))
            stage = replace(stage, reduce_axes=(part,), body=body)
        stages.append(stage)
    return renamed(replace(expression, stages=tuple(stages)), SUFFIX) if len(stages) > len(expression.stages) else None


def _parts(stage: Stage, shapes: Mapping[str, tuple[int, ...]], threads: int) -> tuple[Axis, int] | None:
    """The axis of the reduction that is done in parts, the longest, and how many there are."""
    if threads == 1 or not stage.reduce_axes or stage.points < LEAST_TERMS * threads:
        return None
    most = MOST_POINTS if column_of(stage, accesses(stage, shapes)) is None else MOST_ROWS
    if prod(axis.extent for axis in stage.axes) > most * threads:
        return None
    axis = max(stage.reduce_axes, key=lambda one: one.extent)
    counts = range(PARTS.start * threads, PARTS.stop * threads)
    return next(((axis, count) for count in counts if axis.extent % count == 0), None)
