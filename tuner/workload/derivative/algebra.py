"""Sums, products and choices of scalars that leave out zeros and ones.

Constants are written without regard to dtype: the notation gives a literal the type of
what it meets.
"""

from __future__ import annotations

from tuner.workload.expression import Binary, Cast, Const, Read, Scalar, Select, Unary

ZERO = Const(0.0, "float32")


def real(value: float) -> Const:
    return Const(float(value), "float32")


def is_number(node: Scalar, value: float) -> bool:
    return isinstance(node, Const) and node.value == value


def plus(left: Scalar, right: Scalar) -> Scalar:
    """The sum. Choices by one condition become one choice."""
    if is_number(left, 0):
        return right
    if is_number(right, 0):
        return left
    if left == right:
        return times(left, real(2))
    match left, right:
        case Select(cond=cond, then=a, other=b), Select(cond=other, then=c, other=d) if (
            cond == other
        ):
            return Select(cond, plus(a, c), plus(b, d))
        case _, Unary(op="neg", arg=arg):
            return Binary("sub", left, arg)
        case Unary(op="neg", arg=arg), _:
            return Binary("sub", right, arg)
    return Binary("add", left, right)


def negative(node: Scalar) -> Scalar:
    match node:
        case Const(value=value):
            return real(-value)
        case Unary(op="neg", arg=arg):
            return arg
        case Binary(op="mul" | "div" as op, lhs=Const(value=value), rhs=rhs):
            return Binary(op, real(-value), rhs)
        case Binary(op="mul" | "div" as op, lhs=lhs, rhs=Const(value=value)):
            return Binary(op, lhs, real(-value))
    return Unary("neg", node)


def times(left: Scalar, right: Scalar) -> Scalar:
    """The product, signs and constants of both gathered at its end."""
    if is_number(left, 0) or is_number(right, 0):
        return ZERO
    match left, right:
        case Const(value=a), Const(value=b):
            return real(a * b)
        case Const(), _:
            return times(right, left)
        case _, Const(value=value) if value in (1, -1):
            return left if value == 1 else negative(left)
        case Binary(op="mul", lhs=lhs, rhs=Const(value=a)), Const(value=b):
            return times(lhs, real(a * b))
        case Binary(op="mul", lhs=lhs, rhs=Const() as factor), _:
            return times(times(lhs, right), factor)
        case _, Binary(op="mul", lhs=lhs, rhs=Const() as factor):
            return times(times(left, lhs), factor)
        case Unary(op="neg", arg=arg), _:
            return negative(times(arg, right))
        case _, Unary(op="neg", arg=arg):
            return negative(times(left, arg))
        case _, Binary(op="div", lhs=Const(value=1), rhs=divisor):
            return over(left, divisor)
    return Binary("mul", left, right)


def over(left: Scalar, right: Scalar) -> Scalar:
    """The quotient."""
    match left:
        case Const(value=0):
            return ZERO
        case Unary(op="neg", arg=arg):
            return negative(over(arg, right))
        case Binary(op="mul", lhs=lhs, rhs=Const() as factor):
            return times(over(lhs, right), factor)
    return Binary("div", left, right)


def chosen(cond: Scalar, then: Scalar, other: Scalar) -> Scalar:
    return then if then == other else Select(cond, then, other)


def without_conversions(node: Scalar) -> Scalar:
    """The node below conversions between floats, which have the derivative 1."""
    while isinstance(node, Cast) and "float" in node.dtype:
        node = node.arg
    return node


def is_plain_product(node: Scalar) -> bool:
    """Whether it is a product of two reads, perhaps where a condition holds."""
    if isinstance(node, Select) and is_number(node.other, 0):
        node = node.then
    return (
        isinstance(node, Binary)
        and node.op == "mul"
        and isinstance(without_conversions(node.lhs), Read)
        and isinstance(without_conversions(node.rhs), Read)
    )
