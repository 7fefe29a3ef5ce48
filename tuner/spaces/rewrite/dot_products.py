"""Sums of products of narrow numbers, for instructions that take several at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from math import prod

from tuner.spaces.program.tiles import add, times
from tuner.spaces.rewrite.access import Access, accesses
from tuner.workload.affine import linear
from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Stage,
    Var,
    rewrite,
    substitute,
)

# Products of two 8-bit integers whose sum float32 holds exactly, whatever they are.
MOST_EXACT = 2**24 // (255 * 255)
WHOLE: frozenset[DType] = frozenset({"int32", "int64"})  # accumulators without NaN


def factors(stage: Stage) -> tuple[Read, Read] | None:
    """The two factors of a sum of products that are widened to the accumulator's dtype.

    None where the stage is no such sum.
    """
    if stage.reducer != "sum":
        return None
    match stage.body:
        case Binary(
            op="mul",
            lhs=Cast(dtype=left, arg=Read() as first),
            rhs=Cast(dtype=right, arg=Read() as second),
        ):
            return (
                (first, second) if first != second and left == right == stage.accumulator else None
            )
    return None


def shared_axes(stage: Stage, read_accesses: tuple[Access, ...]) -> list[Axis]:
    """Reduction axes of more than one iteration on which all reads depend."""
    return [
        axis
        for axis in stage.reduce_axes
        if axis.extent > 1 and all(axis.name in access.axes for access in read_accesses)
    ]


def split_reduction(
    stage: Stage,
    axis: Axis,
    parts: tuple[int, ...],
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> tuple[Stage, tuple[str, ...]] | None:
    """The stage with a reduction axis split into steps and `parts` within a step.

    Also returns the names of the inner axes, the innermost last. Where the parts do not
    divide the axis, factors without padding are padded with zero beyond its end; one is
    enough, whatever number the other has there. None where neither factor is zero there,
    or where the other goes on with floats: NaN times zero would be added.
    """
    rest = axis.extent % prod(parts)
    read_accesses = accesses(stage, shapes)
    ends = [access for access in read_accesses if ends_with(access, axis, shapes)]
    if rest and not (
        any(pads_with_zero(access) for access in ends)
        and (stage.accumulator in WHOLE or len(ends) == len(read_accesses))
    ):
        return None
    names = {existing.name for existing in (*stage.axes, *stage.reduce_axes)}
    fresh = (name for number in count(1) if (name := axis.name + "h" * number) not in names)
    inner = [Axis(name=next(fresh), extent=extent) for extent in parts]
    position: Scalar = Var(axis.name)
    for part in inner:
        position = add(times(position, part.extent), Var(part.name))
    body = substitute(stage.body, {axis.name: position})
    if rest:
        body = rewrite(
            body, lambda node: _zero_outside(node, dtypes) if isinstance(node, Read) else None
        )
    steps = Axis(name=axis.name, extent=-(-axis.extent // prod(parts)))
    reduce_axes = (
        *(steps if reduced == axis else reduced for reduced in stage.reduce_axes),
        *inner,
    )
    return replace(stage, reduce_axes=reduce_axes, body=body), tuple(part.name for part in inner)


def split_window(
    stage: Stage,
    axis: Axis,
    numbers: int,
    whole: Read,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> tuple[Stage, tuple[str, ...], Read] | None:
    """As `split_reduction` in steps of `numbers`, where the factor `whole` goes on beyond the
    axis, as an image does beyond a window: it is not read there, and zero. Also returns
    what has become of that read."""
    made = split_reduction(stage, axis, (numbers,), shapes, dtypes)
    pair = factors(stage)
    if made is None or pair is None:
        return None
    split, names = made
    moved = factors(split)
    assert moved is not None
    read = moved[pair.index(whole)]
    plain = replace(read, pad=whole.pad)
    steps = -(-axis.extent // numbers)
    if axis.extent % numbers == 0:
        return split, names, plain
    first: Scalar = Const(0, "int64") if steps == 1 else times(Var(axis.name), numbers)
    inside = Binary("lt", add(first, Var(names[-1])), Const(axis.extent, "int64"))
    guarded = Select(inside, plain, Const(0, dtypes[read.tensor]))
    body = rewrite(split.body, lambda node: guarded if node == read else None)
    return replace(split, body=body), names, plain


def ends_with(access: Access, axis: Axis, shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the read leaves its tensor at the end of the axis."""
    if not access.divides(axis.name):
        return False
    forms = zip(map(linear, access.read.indices), shapes[access.read.tensor], strict=True)
    return any(
        form is not None and form.coefficient(axis.name) and extent == axis.extent
        for form, extent in forms
    )


def pads_with_zero(access: Access) -> bool:
    """Whether outside of its tensor the read is zero, or may be."""
    return access.read.pad is None or access.read.pad.value == 0


def _zero_outside(read: Read, dtypes: Mapping[str, DType]) -> Read:
    return read if read.pad is not None else replace(read, pad=Const(0, dtypes[read.tensor]))
