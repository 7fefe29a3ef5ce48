"""Arithmetic of constants, done ahead of any call in the dtype that the kernel would do it in.

The compiler folds most of it too, but calls no mathematical function for that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tuner.workload.expression import Binary, BinaryOp, Cast, Const, DType, Scalar, Unary, UnaryOp

# Of float64, rounded once to what is narrower.
_FUNCTIONS: Mapping[UnaryOp, Callable[[float], float]] = {
    "neg": lambda x: -x, "abs": abs, "exp": math.exp, "log": math.log, "sqrt": math.sqrt, "tanh": math.tanh, "erf": math.erf,
}  # fmt: skip
_ARITHMETIC: Mapping[BinaryOp, Callable[[Any, Any], Any]] = {
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "max": np.maximum, "min": np.minimum,
}  # fmt: skip
_WIDE: Mapping[DType, Callable[[Any], Any]] = {"float32": np.float32, "float64": np.float64}
_KEPT: Mapping[DType, Callable[[Any], Any]] = {**_WIDE, "float16": np.float16}


def evaluated(node: Scalar) -> Scalar:
    """The constant that a function of floating-point constants is; the node itself where it is none, or no finite number."""
    try:
        with np.errstate(all="ignore"):
            found = _value(node)
    except (ValueError, OverflowError):  # a logarithm of nothing
        return node
    return node if found is None or not math.isfinite(found.value) else found


def _value(node: Scalar) -> Const | None:
    match node:
        case Unary(op=op, arg=Const(value=value, dtype=dtype)) if dtype in _WIDE and op in _FUNCTIONS:
            function = _FUNCTIONS[op]
            return Const(float(_WIDE[dtype](function(float(_WIDE[dtype](value))))), dtype)
        case Binary(op=operation, lhs=Const(value=a, dtype=dtype), rhs=Const(value=b, dtype=other)) if (
            dtype == other and dtype in _WIDE and operation in _ARITHMETIC
        ):
            return Const(float(_ARITHMETIC[operation](_WIDE[dtype](a), _WIDE[dtype](b))), dtype)
        case Cast(dtype=dtype, arg=Const(value=value, dtype=source)) if dtype in _WIDE and source in _KEPT:
            return Const(float(_WIDE[dtype](_KEPT[source](value))), dtype)
        case _:
            return None
