"""Epilogues that a kernel of our own generator can compute: one value from a sum and
elements of other tensors, in float32 or int32."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from tuner.workload.affine import linear
from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Binary,
    BinaryOp,
    Cast,
    Const,
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
COMPARISONS: frozenset[BinaryOp] = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
# Of integers; a quotient of integers is rounded down, C's towards zero.
WHOLE_UNARY: frozenset[UnaryOp] = frozenset(("neg", "abs"))
WHOLE_BINARY: frozenset[BinaryOp] = frozenset(("add", "sub", "mul", "max", "min"))


class ValueKind(Enum):
    """What a value is computed as."""

    REAL = "float"  # the value is the name in C
    WHOLE = "int"
    TRUTH = "bool"


KINDS: Mapping[DType, ValueKind] = {
    "float16": ValueKind.REAL,
    "bfloat16": ValueKind.REAL,
    "float32": ValueKind.REAL,
    "int8": ValueKind.WHOLE,
    "uint8": ValueKind.WHOLE,
    "int32": ValueKind.WHOLE,
}
SHORT: tuple[DType, ...] = ("float16", "bfloat16")
CASTS: tuple[DType, ...] = ("float32", "int8", "uint8", "int32")


def is_expressible(epilogue: Scalar, sums: str, dtypes: Mapping[str, DType]) -> bool:
    """Whether a kernel can compute the epilogue.

    `sums` is the tensor of the sums. Other reads are of dtypes in `KINDS`, at places
    that are linear in the axes, inside their tensors.
    """
    return value_kind(epilogue, sums, dtypes) is not None


def as_stored(epilogue: Scalar, dtype: DType) -> Scalar:
    """The value before it is rounded to the dtype of the output, which storing does."""
    match epilogue:
        case Cast(dtype="float32", arg=Cast(dtype=rounded, arg=arg)) if rounded == dtype in SHORT:
            return arg
        case Cast(dtype=rounded, arg=arg) if rounded == dtype in SHORT:
            return arg
        case _:
            return epilogue


def value_kind(node: Scalar, sums: str, dtypes: Mapping[str, DType]) -> ValueKind | None:
    """What the node is computed as, None where a kernel cannot compute it."""
    match node:
        case Const(dtype=dtype):
            return KINDS[dtype] if dtype in ("float32", "int32") else None
        case Read(tensor=tensor, indices=indices, pad=pad):
            plain = pad is None and all(linear(index) is not None for index in indices)
            return KINDS.get(dtypes[tensor]) if tensor == sums or plain else None
    kinds = [value_kind(part, sums, dtypes) for part in children(node)]
    match node, kinds:
        case Cast(dtype=dtype), [kind] if kind is not None and dtype in CASTS:
            return KINDS[dtype]
        case Unary(op=op), [kind] if kind is not None and op in UNARY_OPERATORS:
            return kind if _takes_unary(op, kind) else None
        case Binary(op=op), [kind, other] if kind is other and kind is not None:
            return _of_binary(op, kind)
        case Select(), [ValueKind.TRUTH, kind, other] if kind is other:
            return kind
        case _:
            return None


def _takes_unary(op: UnaryOp, kind: ValueKind) -> bool:
    match kind:
        case ValueKind.REAL:
            return op != "not"
        case ValueKind.WHOLE:
            return op in WHOLE_UNARY
        case ValueKind.TRUTH:
            return op == "not"


def _of_binary(op: BinaryOp, kind: ValueKind) -> ValueKind | None:
    """What an operator makes of two values of a kind, None where it takes none such."""
    if op not in BINARY_OPERATORS:
        return None
    if op in COMPARISONS:
        return ValueKind.TRUTH
    if kind is ValueKind.TRUTH or op in ("and", "or"):
        return kind if kind is ValueKind.TRUTH and op in ("and", "or") else None
    return kind if kind is ValueKind.REAL or op in WHOLE_BINARY else None


def epilogue_tensors(epilogue: Scalar, sums: str) -> tuple[str, ...]:
    """The tensors that it reads beside the sums, in order of appearance."""
    names = (read.tensor for read in reads(epilogue))
    return tuple(dict.fromkeys(name for name in names if name != sums))
