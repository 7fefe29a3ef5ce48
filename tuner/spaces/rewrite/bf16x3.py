"""Sums of products of float32 as three sums of products of bfloat16 (bf16x3).

Henry, Tang & Heinecke, "Leveraging the bfloat16 Artificial Intelligence Datatype For
Higher-Precision Computations" (2019): a number is split into h + l, where h is the
nearest bfloat16 and l the bfloat16 nearest to the residual. Of the four products of two
such pairs that of the two residuals is left out. The others are exact in float32, in
which they are summed.

A residual is at most 2^-8 of its number. Rounding it loses 2^-17 of the number, and the
product that is left out is 2^-16 of a term. Together that is 2^-15 of each term, for
numbers whose residuals are not subnormal. The algorithm is for `numerics=fast`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuner.spaces.program.tiles import constant, times
from tuner.spaces.rewrite.stages import fresh_name, renamed
from tuner.workload.expression import (
    Axis,
    Binary,
    BinaryOp,
    Cast,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Tensor,
    Unary,
    Var,
    walk,
)

PRODUCTS = 3  # in place of one
# Number of the product that takes the left factor's residual, and the right factor's.
RESIDUALS = (1, 2)
SUFFIX = "split"  # of names of rewritten stages, whose knobs differ from the original's


def bf16x3(expression: Expression) -> Expression | None:
    """The expression with sums of products of bfloat16, its stages under new names.

    Rewritten are the sums that use each element of both factors several times. None
    where there are none.
    """
    tensors = expression.tensors
    stages: list[Stage] = []
    for stage in expression.stages:
        factors = _factors(stage)
        which = Axis(name=fresh_name("t", stage.extents), extent=PRODUCTS)
        parts = []
        for read, rest in zip(factors, RESIDUALS, strict=False):
            order = _order(read, stage)
            made = _parts(
                tensors[read.tensor], fresh_name(f"{stage.name}{read.tensor}", tensors), rest, order
            )
            tensors[made.name] = made.tensor
            stages.append(made)
            pad = None if read.pad is None else replace(read.pad, dtype=made.dtype)
            indices = (Var(which.name), *(read.indices[dimension] for dimension in order))
            parts.append(Cast("float32", Read(made.name, indices, pad)))
        if factors:
            stage = replace(
                stage, reduce_axes=(which, *stage.reduce_axes), body=Binary("mul", *parts)
            )
        stages.append(stage)
    return (
        renamed(replace(expression, stages=tuple(stages)), SUFFIX)
        if len(stages) > len(expression.stages)
        else None
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FactorParts:
    """The three products of a rewritten stage, and which part of a factor each takes."""

    axis: str  # over the products
    left: str  # tensor of the left factor's operands

    def part(self, tensor: str, product: Scalar) -> Scalar:
        """What the product takes of a factor: 0 for the nearest bfloat16, 1 for the residual."""
        op: BinaryOp = "floormod" if self._residual(tensor) == 1 else "floordiv"
        return Binary(op, product, constant(2))

    def product(self, tensor: str, part: Scalar) -> Scalar:
        """One that takes this part of a factor."""
        return times(part, self._residual(tensor))

    def _residual(self, tensor: str) -> int:
        return RESIDUALS[0] if tensor == self.left else RESIDUALS[1]


def factor_parts(stage: Stage) -> FactorParts | None:
    """The products of a rewritten stage; None of other stages."""
    match stage.body:
        case Binary(
            op="mul",
            lhs=Cast(arg=Read(tensor=tensor, indices=(Var(name=left), *_))),
            rhs=Cast(arg=Read(indices=(Var(name=right), *_))),
        ):
            extents = {axis.name: axis.extent for axis in stage.reduce_axes}
            is_rewritten = left == right and extents.get(left) == PRODUCTS
            return FactorParts(axis=left, left=tensor) if is_rewritten else None
        case _:
            return None


def _factors(stage: Stage) -> tuple[Read, ...]:
    """The two factors of a stage to rewrite; empty for other stages.

    The stage is a sum of products of float32. Each factor is used by several sums and
    is zero outside its tensor.
    """
    match stage:
        case Stage(
            reducer="sum",
            dtype="float32",
            accumulator="float32",
            body=Binary(op="mul", lhs=Read() as left, rhs=Read() as right),
        ) if left != right and all(
            _is_reused(factor, stage) and (factor.pad is None or factor.pad.value == 0)
            for factor in (left, right)
        ):
            return left, right
    return ()


def _is_reused(read: Read, stage: Stage) -> bool:
    moving = {node.name for index in read.indices for node in walk(index) if isinstance(node, Var)}
    return any(axis.extent > 1 and axis.name not in moving for axis in stage.axes)


def _order(read: Read, stage: Stage) -> tuple[int, ...]:
    """Order of a factor's dimensions in its parts.

    Where adjacent outputs share the factor, a summed dimension becomes the innermost,
    as matrix units read it. The parts are new tensors, so reordering costs nothing.
    """
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
    """The operands of the three products that come from one factor.

    One product takes the residual, the others the nearest bfloat16.
    """
    axes = tuple(
        Axis(name=f"p{dimension}", extent=extent) for dimension, extent in enumerate(tensor.shape)
    )
    value = Read(tensor.name, tuple(Var(axis.name) for axis in axes))
    nearest = Unary("bfloat16", value)
    body = Select(Binary("eq", Var("t"), constant(rest)), Binary("sub", value, nearest), nearest)
    written = (Axis(name="t", extent=PRODUCTS), *(axes[dimension] for dimension in order))
    return Stage(name=name, axes=written, body=body, dtype="bfloat16")
