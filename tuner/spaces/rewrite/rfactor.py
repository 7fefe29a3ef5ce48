"""Reductions to few points in parts, tasks for units that would have none: a CPU's
threads, a GPU's multiprocessors.

The name is that of Suriana, Adams & Kamil, "Parallel associative reductions in Halide"
(CGO 2017); of a product it is split-K. One thread needs none of it: its sums have as
many lanes and accumulators as pay.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import prod

from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.groups import column_of, shapes_of
from tuner.spaces.rewrite.parallel_units import Sharing
from tuner.spaces.rewrite.stages import names, renamed, unused
from tuner.workload.expression import (
    COMBINE,
    Axis,
    Binary,
    Expression,
    Read,
    Scalar,
    Stage,
    Var,
    substitute,
)

SUFFIX = (
    "rf"  # of the names of rewritten stages; their knobs are others than those of the reduction
)
LEAST = (
    4  # parts: fewer gain less than their combination costs, or is as easily had by smaller tiles
)
MOST = 4  # times as many parts as are wanted, if they leave no rest
LEAST_TERMS = 256  # of a point in a part


def rfactored(expression: Expression, sharing: Sharing) -> Expression | None:
    """The expression with each long reduction to few points done in parts, stages under
    new names; None where there is none."""
    shapes = shapes_of(expression)
    taken, stages = names(expression), list[Stage]()
    for stage in expression.stages:
        parts = _parts(stage, shapes, sharing)
        made = (stage,) if parts is None else _in_parts(stage, *parts, taken)
        taken |= {one.name for one in made}
        stages += made
    return (
        renamed(replace(expression, stages=tuple(stages)), SUFFIX)
        if len(stages) > len(expression.stages)
        else None
    )


def _parts(
    stage: Stage, shapes: Mapping[str, tuple[int, ...]], sharing: Sharing
) -> tuple[Axis, int] | None:
    """The axis of the reduction that is done in parts, the longest, and how many there
    are: the fewest that leave no rest, if they are not too many more than are wanted."""
    if not stage.reduce_axes or stage.points < sharing.terms * sharing.units:
        return None
    axis = max(stage.reduce_axes, key=lambda one: one.extent)
    of_task = sharing.tile if column_of(stage, accesses(stage, shapes)) is None else 1
    tasks = -(-prod(one.extent for one in stage.axes) // of_task)
    most = min(axis.extent, prod(one.extent for one in stage.reduce_axes) // LEAST_TERMS)
    wanted = min(-(-sharing.units * sharing.tasks // tasks), most)
    if wanted < LEAST:
        return None
    most = min(MOST * wanted, most)
    return axis, next(
        (count for count in range(wanted, most + 1) if axis.extent % count == 0), wanted
    )


def _in_parts(stage: Stage, axis: Axis, count: int, taken: Collection[str]) -> tuple[Stage, ...]:
    """The parts, their combination, and where a rest is left the rest and both."""
    part = Axis(name=unused("p", stage.extents), extent=count)
    length, rest = divmod(axis.extent, count)
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


def _reduced(
    stage: Stage, axis: Axis, length: int, start: Scalar, name: str, parts: tuple[Axis, ...] = ()
) -> Stage:
    """The reduction of a piece of an axis, kept as it is accumulated."""
    return replace(
        stage,
        name=name,
        axes=(*parts, *stage.axes),
        reduce_axes=tuple(
            replace(one, extent=length) if one == axis else one for one in stage.reduce_axes
        ),
        body=substitute(stage.body, {axis.name: add(start, Var(axis.name))}),
        dtype=stage.accumulator,
    )


def _read(stage: Stage) -> Read:
    return Read(stage.name, tuple(Var(axis.name) for axis in stage.axes))
