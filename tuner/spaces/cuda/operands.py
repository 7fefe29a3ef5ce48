"""Operands of persistent products: what tensor cores make of their elements.

Under `numerics=tensor` float32 is multiplied as tf32, and bytes may stand for floats of 8
bits. Sources: PTX ISA, "wgmma.mma_async".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.program.persistent import BYTE_FACTORS, FACTORS, TF32, Factor
from tuner.spaces.rewrite.access import Access, access
from tuner.workload.dtypes import DType
from tuner.workload.expression import Axis, Binary, Bitcast, Cast, Const, Read, Scalar, Stage, Var


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A factor of a sum of products."""

    access: Access
    factor: Factor
    value: Scalar  # of an element, in the dtype of the sums

    @property
    def read(self) -> Read:
        return self.access.read


def is_whole(read: Read, axes: Sequence[Axis], shape: tuple[int, ...]) -> bool:
    """Whether the whole tensor is read, each dimension along one of the axes, in order.

    A dimension of one point needs no axis: it moves nothing.
    """
    dimensions = [
        (index, extent)
        for index, extent in zip(read.indices, shape, strict=True)
        if extent > 1 or not isinstance(index, Const)
    ]
    along = [(Var(axis.name), axis.extent) for axis in axes]
    return read.pad is None and dimensions == along


def operands_of(stage: Stage, context: SpaceContext) -> tuple[Operand, Operand] | None:
    """The operands as they are written; None where no instruction multiplies such ones
    and sums them as the stage does."""
    body = stage.body
    if stage.reducer != "sum" or not stage.reduce_axes:
        return None
    if not isinstance(body, Binary) or body.op != "mul":
        return None
    left, right = (_operand(part, stage, context) for part in (body.lhs, body.rhs))
    if left is None or right is None:
        return None
    return (left, right) if _multiply(left.factor, right.factor, stage.accumulator) else None


def _multiply(left: Factor, right: Factor, accumulator: DType) -> bool:
    """Whether an instruction multiplies them. Those of one byte need not be of one kind."""
    if not left.accumulator == right.accumulator == accumulator:
        return False
    return left == right or left.itemsize == right.itemsize == 1


def _operand(node: Scalar, stage: Stage, context: SpaceContext) -> Operand | None:
    while isinstance(node, Cast):
        node = node.arg
    is_short = context.numerics == "tensor"
    match node:
        case Read(tensor=tensor):
            dtype = context.dtypes[tensor]
            factor = TF32 if dtype == "float32" and is_short else FACTORS.get(dtype)
            read = node
        case Bitcast(dtype="float8_e4m3fn" | "float8_e5m2" as dtype, arg=Read() as read):
            factor = BYTE_FACTORS[dtype] if is_short else None
        case _:
            return None
    if factor is None:
        return None
    return Operand(
        access=access(read, context.shapes[read.tensor], stage.extents),
        factor=factor,
        value=Cast(factor.accumulator, node),
    )
