"""Sums of products of small numbers, of which an instruction takes several at once:
recognised, and cut for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from math import prod

from tuner.spaces.program.tiles import add, times
from tuner.spaces.rewrite.access import Access, accesses, linear
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Const,
    DType,
    Read,
    Scalar,
    Stage,
    Var,
    rewrite,
    substitute,
)


def factors(stage: Stage) -> tuple[Read, Read] | None:
    """The two factors of a sum of products, each widened to the accumulator's dtype;
    None where the stage is no such sum."""
    if stage.reducer != "sum":
        return None
    match stage.body:
        case Binary(
            op="mul",
            lhs=Cast(dtype=left, arg=Read() as one),
            rhs=Cast(dtype=right, arg=Read() as other),
        ):
            return (one, other) if one != other and left == right == stage.accumulator else None
    return None


def shared_axes(stage: Stage, found: tuple[Access, ...]) -> list[Axis]:
    """Reduction axes of two iterations or more that all reads move with."""
    return [
        axis
        for axis in stage.reduce_axes
        if axis.extent > 1 and all(axis.name in one.axes for one in found)
    ]


def cut(
    stage: Stage,
    axis: Axis,
    parts: tuple[int, ...],
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> tuple[Stage, tuple[str, ...]] | None:
    """The stage with a reduction axis as steps of `parts`, and the names of the axes of
    these, the innermost last.

    Where they do not divide the axis, both factors are zero beyond its end, so that
    products of infinities add nothing. None where a tensor does not end there, or is
    padded with something else.
    """
    rest = axis.extent % prod(parts)
    if rest and not all(_ends_with(one, axis, shapes) for one in accesses(stage, shapes)):
        return None
    names = {one.name for one in (*stage.axes, *stage.reduce_axes)}
    fresh = (name for number in count(1) if (name := axis.name + "h" * number) not in names)
    inner = [Axis(name=next(fresh), extent=extent) for extent in parts]
    position: Scalar = Var(axis.name)
    for one in inner:
        position = add(times(position, one.extent), Var(one.name))
    body = substitute(stage.body, {axis.name: position})
    if rest:
        body = rewrite(
            body, lambda node: _zero_outside(node, dtypes) if isinstance(node, Read) else None
        )
    steps = Axis(name=axis.name, extent=-(-axis.extent // prod(parts)))
    reduce_axes = (*(steps if one == axis else one for one in stage.reduce_axes), *inner)
    return replace(stage, reduce_axes=reduce_axes, body=body), tuple(one.name for one in inner)


def _ends_with(found: Access, axis: Axis, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the read leaves its tensor at the end of the axis, and finds zero there."""
    if not found.divides(axis.name) or (found.read.pad is not None and found.read.pad.value != 0):
        return False
    forms = zip(map(linear, found.read.indices), shapes[found.read.tensor], strict=True)
    return any(
        form is not None and form.coefficient(axis.name) and extent == axis.extent
        for form, extent in forms
    )


def _zero_outside(read: Read, dtypes: Mapping[str, DType]) -> Read:
    return read if read.pad is not None else replace(read, pad=Const(0, dtypes[read.tensor]))
