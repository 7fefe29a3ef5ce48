"""Constant folding, in the dtype in which the kernel would compute.

The compiler folds most constants too, but evaluates no mathematical functions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tuner.workload.dtypes import DType
from tuner.workload.expression import Binary, BinaryOp, Cast, Const, Scalar, Select, Unary, rewrite
from tuner.workload.scalar_operators import BINARY_OPERATORS, UNARY_OPERATORS

_WIDE: Mapping[DType, Callable[[Any], Any]] = {"float32": np.float32, "float64": np.float64}
_KEPT: Mapping[DType, Callable[[Any], Any]] = {**_WIDE, "float16": np.float16}


def fold_constant(node: Scalar) -> Scalar:
    """The node with its root folded, or the node itself.

    Folded are functions of floating-point constants with a finite value, selections by
    a comparison of constants, selections between equal values, and max or min of what
    it already contains.
    """
    match node:
        case Select(
            cond=Binary(op=op, lhs=Const(value=a, dtype=dtype), rhs=Const(value=b, dtype=other)),
            then=then,
            other=otherwise,
        ) if dtype == other and dtype in _WIDE and BINARY_OPERATORS[op].is_comparison:
            holds = BINARY_OPERATORS[op].evaluate(_WIDE[dtype](a), _WIDE[dtype](b))
            return then if holds else otherwise
        case Select(then=then, other=otherwise) if then == otherwise:
            return then
        case Binary(op="max" | "min" as op, lhs=lhs, rhs=rhs) if set(_operands(op, rhs)) <= set(
            _operands(op, lhs)
        ):
            return lhs
    try:
        with np.errstate(all="ignore"):
            folded = _value(node)
    except (ValueError, ArithmeticError):  # for instance the logarithm of 0
        return node
    return node if folded is None or not math.isfinite(folded.value) else folded


def fold_through_selects(node: Scalar) -> Scalar:
    """The tree with operations on `Select(c, x, constant)` moved into its branches.

    In the constant's branch they are folded.
    """

    def lift(part: Scalar) -> Scalar:
        inner = rewrite(part, lambda child: None if child is part else lift(child))
        match inner:
            case Unary(op=op, arg=Select(cond=cond, then=then, other=Const() as other)):
                return Select(cond, fold_constant(Unary(op, then)), fold_constant(Unary(op, other)))
            case Cast(dtype=dtype, arg=Select(cond=cond, then=then, other=Const() as other)):
                return Select(
                    cond, fold_constant(Cast(dtype, then)), fold_constant(Cast(dtype, other))
                )
            case Binary(
                op=op, lhs=Select(cond=cond, then=then, other=Const() as other), rhs=Const() as rhs
            ) if BINARY_OPERATORS[op].folds:
                return Select(
                    cond,
                    fold_constant(Binary(op, then, rhs)),
                    fold_constant(Binary(op, other, rhs)),
                )
            case _:
                return fold_constant(inner)

    return lift(node)


def _operands(op: BinaryOp, node: Scalar) -> tuple[Scalar, ...]:
    """The operands of a chain of one operation."""
    match node:
        case Binary(op=other, lhs=lhs, rhs=rhs) if other == op:
            return (*_operands(op, lhs), *_operands(op, rhs))
        case _:
            return (node,)


def _value(node: Scalar) -> Const | None:
    match node:
        case Unary(op=op, arg=Const(value=value, dtype=dtype)) if (
            dtype in _WIDE and (function := UNARY_OPERATORS[op].of_constant) is not None
        ):
            # Computed in float64 and rounded once.
            return Const(float(_WIDE[dtype](function(float(_WIDE[dtype](value))))), dtype)
        case Binary(
            op=operation, lhs=Const(value=a, dtype=dtype), rhs=Const(value=b, dtype=other)
        ) if dtype == other and dtype in _WIDE and BINARY_OPERATORS[operation].folds:
            evaluate = BINARY_OPERATORS[operation].evaluate
            return Const(float(evaluate(_WIDE[dtype](a), _WIDE[dtype](b))), dtype)
        case Cast(dtype=dtype, arg=Const(value=value, dtype=source)) if (
            dtype in _WIDE and source in _KEPT
        ):
            return Const(float(_WIDE[dtype](_KEPT[source](value))), dtype)
        case _:
            return None
