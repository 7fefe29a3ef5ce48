"""Sums of products of float32 on units for bfloat16: each factor as two such numbers,
three products where there was one.

Henry, Tang & Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For
Higher-Precision Computations" (2019): a number is about h + l, the bfloat16 nearest to
it and the one nearest to the rest. Of the four products of two such pairs that of the
two rests is left out. The others are exact in float32, and summed in it. A rest is at
most 2^-8 of its number, of which 2^-17 is lost when it is rounded; so is 2^-16 of a
product with what is left out, 2^-15 of each term's size in all, of numbers whose rests
are not subnormal. It is for `numerics=fast`.
"""

from __future__ import annotations

from dataclasses import replace

from tuner.spaces.program.tiles import constant
from tuner.spaces.rewrite.stages import renamed, unused
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Expression,
    Read,
    Select,
    Stage,
    Tensor,
    Unary,
    Var,
    walk,
)

PRODUCTS = 3  # in place of one
RESTS = (
    1,
    2,
)  # the product that takes the left factor's rest, and the one that takes the right one's
SUFFIX = "split"  # of the names of rewritten stages; their knobs are others than those of the sum


def bf16x3(expression: Expression) -> Expression | None:
    """The expression with the sums of products that use both factors several times
    rewritten, stages under new names; None where there are none."""
    tensors = expression.tensors
    stages: list[Stage] = []
    for stage in expression.stages:
        found = _factors(stage)
        which = Axis(name=unused("t", stage.extents), extent=PRODUCTS)
        parts = []
        for read, rest in zip(found, RESTS, strict=False):
            order = _order(read, stage)
            made = _parts(
                tensors[read.tensor], unused(f"{stage.name}{read.tensor}", tensors), rest, order
            )
            tensors[made.name] = made.tensor
            stages.append(made)
            pad = None if read.pad is None else replace(read.pad, dtype=made.dtype)
            indices = (Var(which.name), *(read.indices[dimension] for dimension in order))
            parts.append(Cast("float32", Read(made.name, indices, pad)))
        if found:
            stage = replace(
                stage, reduce_axes=(which, *stage.reduce_axes), body=Binary("mul", *parts)
            )
        stages.append(stage)
    return (
        renamed(replace(expression, stages=tuple(stages)), SUFFIX)
        if len(stages) > len(expression.stages)
        else None
    )


def part_axis(stage: Stage) -> str | None:
    """The axis of a rewritten stage that goes over the products of parts; None where
    the stage was not rewritten."""
    match stage.body:
        case Binary(
            op="mul",
            lhs=Cast(arg=Read(indices=(Var(name=one), *_))),
            rhs=Cast(arg=Read(indices=(Var(name=other), *_))),
        ):
            extents = {axis.name: axis.extent for axis in stage.reduce_axes}
            return one if one == other and extents.get(one) == PRODUCTS else None
        case _:
            return None


def _factors(stage: Stage) -> tuple[Read, ...]:
    """The two factors of a sum of products of float32, each for several sums and zero
    outside its tensor; none where it is no such sum."""
    match stage:
        case Stage(
            reducer="sum",
            dtype="float32",
            accumulator="float32",
            body=Binary(op="mul", lhs=Read() as left, rhs=Read() as right),
        ) if left != right and all(
            _is_reused(one, stage) and (one.pad is None or one.pad.value == 0)
            for one in (left, right)
        ):
            return left, right
    return ()


def _is_reused(read: Read, stage: Stage) -> bool:
    moving = {node.name for index in read.indices for node in walk(index) if isinstance(node, Var)}
    return any(axis.extent > 1 and axis.name not in moving for axis in stage.axes)


def _order(read: Read, stage: Stage) -> tuple[int, ...]:
    """The factor's dimensions as its parts have them: they are written anew anyway, so
    where neighbours in the output share it, neighbours in memory are what is summed, as
    units take it."""
    natural = tuple(range(len(read.indices)))
    summed = [
        place
        for place, index in enumerate(read.indices)
        if index in [Var(axis.name) for axis in stage.reduce_axes]
    ]
    shared = not any(
        node == Var(stage.axes[-1].name) for index in read.indices for node in walk(index)
    )
    if not shared or not summed or natural[-1] in summed:
        return natural
    return (*(place for place in natural if place != summed[-1]), summed[-1])


def _parts(tensor: Tensor, name: str, rest: int, order: tuple[int, ...]) -> Stage:
    """What each of the products takes of a tensor: one of them the rest, the others the
    bfloat16 nearest to it."""
    axes = tuple(
        Axis(name=f"p{dimension}", extent=extent) for dimension, extent in enumerate(tensor.shape)
    )
    value = Read(tensor.name, tuple(Var(axis.name) for axis in axes))
    nearest = Unary("bfloat16", value)
    body = Select(Binary("eq", Var("t"), constant(rest)), Binary("sub", value, nearest), nearest)
    written = (Axis(name="t", extent=PRODUCTS), *(axes[dimension] for dimension in order))
    return Stage(name=name, axes=written, body=body, dtype="bfloat16")
