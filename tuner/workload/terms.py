"""Typed scalar trees: literals, the types they take, and constant arithmetic.

Literals take the type of the other operand. Types that mix are converted to the wider
one; floats and integers do not mix.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from lark import Token

from tuner.workload.dtypes import FLOATS, INTEGER_RANGES, INTEGERS, DType
from tuner.workload.expression import BinaryOp, Cast, Const, Scalar
from tuner.workload.grammar import Node, fail

LITERAL_INT, LITERAL_REAL = "integer literal", "real literal"


@dataclass(frozen=True, slots=True)
class Term:
    """A typed scalar tree."""

    node: Scalar  # a Const if the type is a literal's
    type: str  # the DType in which it is computed, or one of the two literal types

    @property
    def value(self) -> int | float:
        assert isinstance(self.node, Const)
        return self.node.value

    @property
    def literal(self) -> bool:
        return self.type in (LITERAL_INT, LITERAL_REAL)


def integer(value: int, node: Node) -> Term:
    if not -(2**63) <= value < 2**64:
        raise fail("the integer does not fit 64 bits", node)
    return Term(Const(value, "int64"), LITERAL_INT)


def real(value: float) -> Term:
    return Term(Const(value, "float64"), LITERAL_REAL)


def coerce(term: Term, dtype: DType, node: Node) -> Scalar:
    """The term's node converted to `dtype`.

    Raises `WorkloadError` for a conversion between floats and integers, and for a
    literal that does not fit.
    """
    if term.type == dtype:
        return term.node
    if term.literal and dtype in FLOATS:
        return Const(float(term.value), dtype)
    if term.type == LITERAL_INT and dtype in INTEGERS:
        low, high = INTEGER_RANGES[dtype]
        if not low <= term.value <= high:
            raise fail(f"{term.value} does not fit {dtype}, which holds {low} to {high}", node)
        return Const(int(term.value), dtype)
    for kind in (FLOATS, INTEGERS):
        if term.type in kind and dtype in kind:
            return Cast(dtype, term.node)
    raise fail(
        f"a value of type {term.type} where {dtype} is needed; convert it, e.g. f32(…) or i32(…)",
        node,
    )


def common_type(left: str, right: str, node: Node) -> str:
    """The type to which both operands of an operator are converted.

    Raises `WorkloadError` for types that do not mix.
    """
    if left == right:
        return left
    for first, second in ((left, right), (right, left)):
        if first == LITERAL_INT and (
            second in FLOATS or second in INTEGERS or second == LITERAL_REAL
        ):
            return second
        if first == LITERAL_REAL and second in FLOATS:
            return second
    if left in FLOATS and right in FLOATS:
        return max(left, right, key=FLOATS.index)
    if left in INTEGERS and right in INTEGERS:
        # Of uint64 and a signed integer NumPy makes a float.
        common = np.promote_types(left, right).name
        if common in INTEGERS:
            return common
    raise fail(f"{left} and {right} do not mix; convert one of them, e.g. f32(…) or i32(…)", node)


def identity_operand(op: BinaryOp, left: Term, right: Term) -> Term | None:
    """The other operand of an integer operation with an identity (x + 0, x * 1, x // 1).

    Thanks to it `stride=1` and `pad=0` make no difference to the tree.
    """
    if right.type == LITERAL_INT and (op, right.value) in (
        ("add", 0),
        ("sub", 0),
        ("mul", 1),
        ("floordiv", 1),
    ):
        return left
    if left.type == LITERAL_INT and (op, left.value) in (("add", 0), ("mul", 1)):
        return right
    if op == "floormod" and right.type == LITERAL_INT and right.value == 1:
        return Term(Const(0, "int64"), LITERAL_INT)
    return None


def number(token: Token) -> Term:
    """The literal of a number. Raises `WorkloadError` for one that 64 bits do not hold."""
    text = str(token)
    if text.isdigit():
        if len(text) > 20:
            raise fail("the integer does not fit 64 bits", token)
        return integer(int(text), token)
    value = float(text)
    if math.isinf(value):
        raise fail(f"{text} does not fit a float64; write inf for infinity", token)
    return real(value)


def fold_literals(op: BinaryOp, left: Term, right: Term, node: Node) -> Term:
    """The literal that arithmetic of two literals gives, an integer where both are.

    A quotient is a real. Raises `WorkloadError` at `node` where there is none.
    """
    a, b = left.value, right.value
    if op == "div" and b == 0:
        raise fail("division by zero", node)
    if op == "div":
        return real(a / b)
    results: Mapping[str, Callable[[], int | float]] = {
        "add": lambda: a + b,
        "sub": lambda: a - b,
        "mul": lambda: a * b,
        "floordiv": lambda: a // b,
        "floormod": lambda: a % b,
    }
    value = results[op]()
    if left.type == right.type == LITERAL_INT:
        return integer(int(value), node)
    if math.isnan(value):
        raise fail("the constant is not a number", node)
    return real(float(value))
