"""Reductions to few points computed in parts, so that all parallel units have work.

The name is that of Suriana, Adams & Kamil, "Parallel associative reductions in Halide"
(CGO 2017). For a matrix product it is split-K. One thread needs no parts: vector lanes
and accumulators already split its sums.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.groups import column_axis
from tuner.spaces.rewrite.parallel_units import ParallelUnits
from tuner.spaces.rewrite.stages import fresh_name, renamed, tensor_names
from tuner.workload.expression import (
    Axis,
    Binary,
    Expression,
    Read,
    Scalar,
    Stage,
    Var,
    rows_from_data,
    substitute,
)
from tuner.workload.scalar_operators import REDUCTIONS

SUFFIX = "rf"  # of names of rewritten stages, whose knobs differ from the original's


@dataclass(frozen=True, kw_only=True)
class PartLimits:
    """How many parts a reduction may be done in."""

    # Fewer parts gain less than their combination costs, or less than smaller tiles do.
    min_parts: int = 4
    # Up to so many times the preferred number of parts are made if they divide the axis.
    max_parts_factor: int = 4
    min_terms_per_part: int = 256  # of each point


LIMITS = PartLimits()


def rfactored(
    expression: Expression, units: ParallelUnits, limits: PartLimits = LIMITS
) -> Expression | None:
    """The expression with long reductions to few points in parts, stages under new names.

    None where there is no such reduction.
    """
    shapes = expression.shapes
    reserved, stages = tensor_names(expression), list[Stage]()
    for stage in expression.stages:
        parts = _parts(stage, shapes, units, limits)
        made = (stage,) if parts is None else _in_parts(stage, *parts, reserved)
        reserved |= {created.name for created in made}
        stages += made
    return (
        renamed(replace(expression, stages=tuple(stages)), SUFFIX)
        if len(stages) > len(expression.stages)
        else None
    )


def _parts(
    stage: Stage,
    shapes: Mapping[str, tuple[int, ...]],
    units: ParallelUnits,
    limits: PartLimits,
) -> tuple[Axis, int] | None:
    """The longest axis of a reduction and the number of its parts; None for too few.

    The smallest number is chosen that divides the axis, unless it exceeds the preferred
    number too far.
    """
    if rows_from_data(stage) is not None:
        return None  # rows are short, and share the work among them
    if not stage.reduce_axes or stage.points < units.min_terms_per_unit * units.count:
        return None
    axis = max(stage.reduce_axes, key=lambda candidate: candidate.extent)
    of_task = units.points_per_tile if column_axis(stage, accesses(stage, shapes)) is None else 1
    tasks = -(-prod(spatial.extent for spatial in stage.axes) // of_task)
    most = min(
        axis.extent,
        prod(reduced.extent for reduced in stage.reduce_axes) // limits.min_terms_per_part,
    )
    preferred = min(-(-units.count * units.tasks_per_unit // tasks), most)
    if preferred < limits.min_parts:
        return None
    most = min(limits.max_parts_factor * preferred, most)
    return axis, next(
        (count for count in range(preferred, most + 1) if axis.extent % count == 0), preferred
    )


def _in_parts(stage: Stage, axis: Axis, count: int, reserved: Collection[str]) -> tuple[Stage, ...]:
    """The stages of a reduction in parts.

    They are the parts and their combination. Where the parts do not divide the axis,
    the remainder and the combination of both follow.
    """
    part = Axis(name=fresh_name("p", stage.extents), extent=count)
    length, rest = divmod(axis.extent, count)
    start = times(Var(part.name), length)
    parts = _reduced(stage, axis, length, start, fresh_name(f"{stage.name}p", reserved), (part,))
    combined = replace(stage, reduce_axes=(part,), body=_read(parts))
    if rest == 0:
        return parts, combined
    combined = replace(
        combined, name=fresh_name(f"{stage.name}w", reserved), dtype=stage.accumulator
    )
    left = _reduced(
        stage, axis, rest, constant(count * length), fresh_name(f"{stage.name}r", reserved)
    )
    assert stage.reducer is not None
    both = Binary(REDUCTIONS[stage.reducer].combine, _read(combined), _read(left))
    return parts, combined, left, replace(stage, reducer=None, reduce_axes=(), body=both)


def _reduced(
    stage: Stage, axis: Axis, length: int, start: Scalar, name: str, parts: tuple[Axis, ...] = ()
) -> Stage:
    """The reduction of a piece of an axis, stored in the accumulator's dtype."""
    return replace(
        stage,
        name=name,
        axes=(*parts, *stage.axes),
        reduce_axes=tuple(
            replace(reduced, extent=length) if reduced == axis else reduced
            for reduced in stage.reduce_axes
        ),
        body=substitute(stage.body, {axis.name: add(start, Var(axis.name))}),
        dtype=stage.accumulator,
    )


def _read(stage: Stage) -> Read:
    return Read(stage.name, tuple(Var(axis.name) for axis in stage.axes))
