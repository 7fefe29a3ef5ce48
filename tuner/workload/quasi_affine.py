"""Indices and the conditions within them: what analysis can bound.

An index is affine in iterators and elements of integer tensors, with floor division
and modulo by constants, minima, maxima and choices.
"""

from __future__ import annotations

from tuner.workload.dtypes import INTEGERS
from tuner.workload.expression import Binary, Cast, Const, Read, Scalar, Select, Unary, Var
from tuner.workload.grammar import Node, fail
from tuner.workload.scalar_operators import BINARY_OPERATORS


def check_index(index: Scalar, node: Node) -> None:
    """Refuse an index that is not quasi-affine.

    Indices are affine in iterators and integer tensors, with floor division and modulo
    by constants, min, max and choices. Raises `WorkloadError` for anything else.
    """
    match index:
        case Var() | Const():
            return
        case Read():
            return  # its own indices were checked when it was built
        case Cast(dtype=dtype, arg=arg) if dtype in INTEGERS:
            check_index(arg, node)
        case Unary(op="neg", arg=arg):
            check_index(arg, node)
        case Binary(op="mul", lhs=lhs, rhs=rhs) if not (
            isinstance(lhs, Const) or isinstance(rhs, Const)
        ):
            raise fail("an index multiplies only by constants (it is affine)", node)
        case Binary(
            op="add" | "sub" | "mul" | "floordiv" | "floormod" | "min" | "max", lhs=lhs, rhs=rhs
        ):
            check_index(lhs, node)
            check_index(rhs, node)
        case Select(cond=cond, then=then, other=other):
            _check_condition(cond, node)
            check_index(then, node)
            check_index(other, node)
        case _:
            raise fail(
                "an index is made of iterators, constants, integer tensors, + - * // % min "
                "max clamp where",
                node,
            )


def _check_condition(condition: Scalar, node: Node) -> None:
    """Refuse a condition within an index that compares anything but indices."""
    match condition:
        case Const() | Read():
            return
        case Binary(op="and" | "or", lhs=lhs, rhs=rhs):
            _check_condition(lhs, node)
            _check_condition(rhs, node)
        case Unary(op="not", arg=arg):
            _check_condition(arg, node)
        case Binary(op=op, lhs=lhs, rhs=rhs) if BINARY_OPERATORS[op].is_comparison:
            check_index(lhs, node)
            check_index(rhs, node)
        case _:
            raise fail("a condition within an index compares integers", node)
