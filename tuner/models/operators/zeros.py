"""Values that are never -0, so that adding 0 leaves them as they are."""

from __future__ import annotations

import numpy as np

from tuner.models.graph import Array
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.values import Value
from tuner.workload.dtypes import FLOATS
from tuner.workload.expression import Binary, Cast, Const, Read, Scalar, Select, Unary

_WIDE = ("float32", "float64")  # rounded to others, what is not -0 may become that
_DEPTH = 32  # of scalars and stages that are looked into


def is_never_negative_zero(value: Value) -> bool:
    """Whether that is known of all elements of a value."""
    if value.dtype not in FLOATS:
        return True
    if value.array is not None:
        return _has_none(value.array)
    return value.dtype in _WIDE and _of_tensor(value.builder, value.tensor, _DEPTH)


def _has_none(array: Array) -> bool:
    return not (np.signbit(array) & (array == 0)).any()


def _of_tensor(builder: GraphBuilder, name: str, depth: int) -> bool:
    defined = builder.definition(builder.root(name))
    if isinstance(defined, np.ndarray):
        return _has_none(defined)
    if defined is None or defined.reducer is not None or defined.dtype not in _WIDE:
        return False
    return _is_never(builder, defined.body, depth)


def _is_never(builder: GraphBuilder, node: Scalar, depth: int) -> bool:
    """A sum is -0 just where both its terms are."""
    if depth == 0:
        return False
    match node:
        case Binary(op="add", lhs=lhs, rhs=rhs):
            return any(_is_never(builder, term, depth - 1) for term in (lhs, rhs))
        case Binary(op="sub", lhs=lhs):
            return _is_never(builder, lhs, depth - 1)
        case Select(then=then, other=other):
            return all(_is_never(builder, side, depth - 1) for side in (then, other))
        case Read(tensor=tensor, pad=None):
            return _of_tensor(builder, tensor, depth - 1)
    return _has_no_sign(node)


def _has_no_sign(node: Scalar) -> bool:
    match node:
        case Const(value=value):
            return not np.signbit(value)
        case Unary(op="exp" | "abs"):
            return True
        case Binary(op="add" | "mul" | "div", lhs=lhs, rhs=rhs):
            return _has_no_sign(lhs) and _has_no_sign(rhs)
        case Cast(arg=arg):
            return _has_no_sign(arg)
    return False
