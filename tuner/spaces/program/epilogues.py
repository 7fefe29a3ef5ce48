"""Epilogues that a kernel of our own generator can compute: one value from a sum and
elements of other tensors, in float32."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.workload.affine import linear
from tuner.workload.expression import (
    Binary,
    BinaryOp,
    Cast,
    Const,
    DType,
    Read,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    children,
    reads,
)

UNARY_OPERATORS: frozenset[UnaryOp] = frozenset(
    ("neg", "not", "abs", "floor", "ceil", "trunc", "round", "exp", "log", "sqrt", "rsqrt", "erf",
     "sin", "cos", "tanh")
)  # fmt: skip
BINARY_OPERATORS: frozenset[BinaryOp] = frozenset(
    ("add", "sub", "mul", "div", "max", "min", "lt", "le", "gt", "ge", "eq", "ne", "and", "or")
)
READ_DTYPES: tuple[DType, ...] = ("float16", "bfloat16", "float32")


def is_expressible(epilogue: Scalar, sums: str, dtypes: Mapping[str, DType]) -> bool:
    """Whether a kernel can compute the epilogue.

    `sums` is the tensor of the sums. Other reads are of floats of 16 or 32 bits at
    places that are linear in the axes, inside their tensors.
    """
    match epilogue:
        case Const(dtype=dtype):
            return dtype == "float32"
        case Read(tensor=tensor) if tensor == sums:
            return True
        case Read(tensor=tensor, indices=indices, pad=pad):
            plain = pad is None and all(linear(index) is not None for index in indices)
            return plain and dtypes[tensor] in READ_DTYPES
        case Unary(op=op):
            expressible = op in UNARY_OPERATORS
        case Binary(op=op):
            expressible = op in BINARY_OPERATORS
        case Cast(dtype=dtype):
            expressible = dtype == "float32"
        case Select():
            expressible = True
        case _:
            return False
    return expressible and all(is_expressible(part, sums, dtypes) for part in children(epilogue))


def epilogue_tensors(epilogue: Scalar, sums: str) -> tuple[str, ...]:
    """The tensors that it reads beside the sums, in order of appearance."""
    names = (read.tensor for read in reads(epilogue))
    return tuple(dict.fromkeys(name for name in names if name != sums))
