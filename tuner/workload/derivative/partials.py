"""The derivative of one right-hand side by each element that it reads.

The chain rule is followed from the root down to the reads. Where only one side of a
choice counts, the whole derivative stands under the condition, so that what the other
side would give (a logarithm of 0) is never computed.

At a kink `max(x, y)` and `min(x, y)` of two tensors share the derivative equally;
against a constant x has none there, as relu at zero.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tuner.workload.derivative.algebra import (
    ZERO,
    chosen,
    is_number,
    negative,
    over,
    plus,
    real,
    times,
)
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
    reads,
)

Guard = tuple[Scalar, bool]  # a condition, and whether it holds
_ONE = real(1)
_SLOPE_OF_ERF = 2 / math.sqrt(math.pi)  # at 0


def _square(x: Scalar) -> Scalar:
    return times(x, x)


def _beside_one(op: BinaryOp, x: Scalar) -> Scalar:
    return Binary(op, _ONE, _square(x))


# (w, x, f(x)) -> w * f'(x). Operators without a row have steps, or conditions as operands.
SLOPES: Mapping[UnaryOp, Callable[[Scalar, Scalar, Scalar], Scalar]] = {
    "neg": lambda w, x, y: negative(w),
    "abs": lambda w, x, y: times(
        w,
        Select(
            Binary("gt", x, ZERO), _ONE, Select(Binary("lt", x, ZERO), real(-1), ZERO)
        ),
    ),
    "exp": lambda w, x, y: times(w, y),
    "log": lambda w, x, y: over(w, x),
    "sqrt": lambda w, x, y: times(over(w, y), real(0.5)),
    "rsqrt": lambda w, x, y: times(times(w, times(y, _square(y))), real(-0.5)),
    "erf": lambda w, x, y: times(
        times(w, Unary("exp", negative(_square(x)))), real(_SLOPE_OF_ERF)
    ),
    "sin": lambda w, x, y: times(w, Unary("cos", x)),
    "cos": lambda w, x, y: negative(times(w, Unary("sin", x))),
    "tan": lambda w, x, y: times(w, _beside_one("add", y)),
    "asin": lambda w, x, y: times(w, Unary("rsqrt", _beside_one("sub", x))),
    "acos": lambda w, x, y: negative(times(w, Unary("rsqrt", _beside_one("sub", x)))),
    "atan": lambda w, x, y: over(w, _beside_one("add", x)),
    "sinh": lambda w, x, y: times(w, Unary("cosh", x)),
    "cosh": lambda w, x, y: times(w, Unary("sinh", x)),
    "tanh": lambda w, x, y: times(w, _beside_one("sub", y)),
    "asinh": lambda w, x, y: times(w, Unary("rsqrt", _beside_one("add", x))),
    "acosh": lambda w, x, y: times(
        w, Unary("rsqrt", Binary("sub", _square(x), _ONE))
    ),
    "atanh": lambda w, x, y: over(w, _beside_one("sub", x)),
    # rounding to another dtype, as conversions between floats
    "bfloat16": lambda w, x, y: w,
    "float16": lambda w, x, y: w,
    "float32": lambda w, x, y: w,
}  # fmt: skip


def varies(node: Scalar, differentiable: Callable[[str], bool]) -> bool:
    """Whether a scalar depends on a differentiable tensor by other ways than steps."""
    match node:
        case Read(tensor=tensor):
            return differentiable(tensor)
        case Unary(op=op, arg=arg):
            return op in SLOPES and varies(arg, differentiable)
        case Cast(dtype=dtype, arg=arg):
            return "float" in dtype and varies(arg, differentiable)
        case Binary(op="add" | "sub" | "mul" | "div" | "max" | "min" | "pow", lhs=lhs, rhs=rhs):
            return varies(lhs, differentiable) or varies(rhs, differentiable)
        case Select(then=then, other=other):
            return varies(then, differentiable) or varies(other, differentiable)
        case _:
            return False


def partials(
    body: Scalar,
    weight: Scalar,
    differentiable: Callable[[str], bool],
    *,
    guards: tuple[Guard, ...] = (),
    result: Read | None = None,
) -> dict[Read, Scalar]:
    """For each read of a differentiable tensor the weight times the derivative of the body by it.

    Equal reads count as one. Reads by which the derivative is zero everywhere are left
    out, as are those in conditions and indices. The weight counts where the guards hold.
    `result` reads the value of the whole body, where that is kept.
    """
    sweep = _Sweep(differentiable, body, result)
    sweep.visit(body, weight, guards)
    return {read: value for read, value in sweep.sums.items() if not is_number(value, 0)}


class _Sweep:
    def __init__(
        self, differentiable: Callable[[str], bool], body: Scalar, result: Read | None
    ) -> None:
        self.differentiable, self.body, self.result = differentiable, body, result
        self.sums: dict[Read, Scalar] = {}

    def visit(self, node: Scalar, weight: Scalar, guards: tuple[Guard, ...]) -> None:
        """Adds what a node passes on; `weight` is the derivative by it under the guards."""
        if not varies(node, self.differentiable):
            return
        match node:
            case Read():
                self._add(node, weight, guards)
            case Cast(arg=arg):
                self.visit(arg, weight, guards)
            case Unary(op="log", arg=arg) if (x := _exponent_beside_one(arg)) is not None:
                self.visit(x, times(weight, _logistic(x)), guards)
            case Unary(op=op, arg=arg):
                self.visit(arg, SLOPES[op](weight, arg, self._value(node)), guards)
            case Select(cond=cond, then=then, other=other):
                self.visit(then, weight, (*guards, (cond, True)))
                self.visit(other, weight, (*guards, (cond, False)))
            case Binary():
                self._binary(node, weight, guards)

    def _add(self, read: Read, value: Scalar, guards: tuple[Guard, ...]) -> None:
        for cond, holds in reversed(guards):
            value = chosen(cond, *((value, ZERO) if holds else (ZERO, value)))
        self.sums[read] = plus(self.sums.get(read, ZERO), value)

    def _value(self, node: Scalar) -> Scalar:
        """The node's value: that of the result where it is kept, else computed again."""
        return self.result if self.result is not None and node == self.body else node

    def _binary(self, node: Binary, weight: Scalar, guards: tuple[Guard, ...]) -> None:
        lhs, rhs = node.lhs, node.rhs
        match node.op:
            case "add":
                self.visit(lhs, weight, guards)
                self.visit(rhs, weight, guards)
            case "sub":
                self.visit(lhs, weight, guards)
                self.visit(rhs, negative(weight), guards)
            case "mul":
                self.visit(lhs, times(weight, rhs), guards)
                self.visit(rhs, times(weight, lhs), guards)
            case "div":
                self._quotient(node, weight, guards)
            case "max" | "min":
                self._extreme(node, weight, guards)
            case "pow":
                self._power(node, weight, guards)

    def _quotient(self, node: Binary, weight: Scalar, guards: tuple[Guard, ...]) -> None:
        divisor = node.rhs
        self.visit(node.lhs, over(weight, divisor), guards)
        x = _exponent_beside_one(divisor)
        if x is None:
            slope = over(times(weight, self._value(node)), divisor)
            self.visit(divisor, negative(slope), guards)
        else:
            self.visit(x, negative(times(times(weight, self._value(node)), _logistic(x))), guards)

    def _extreme(self, node: Binary, weight: Scalar, guards: tuple[Guard, ...]) -> None:
        """`max` and `min`: the greater, the lesser operand alone has a derivative."""
        pairs = ((node.lhs, node.rhs), (node.rhs, node.lhs))
        strict, loose = _COMPARED[node.op]
        for operand, other in pairs:
            if not any(True for _ in reads(other)):
                # The result is beyond the constant exactly where the operand is.
                value = self._value(node)
                beyond = operand if value is node else value
                self.visit(operand, weight, (*guards, (Binary(strict, beyond, other), True)))
                continue
            shared = Select(Binary("eq", operand, other), real(0.5), _ONE)
            guard = (Binary(loose, operand, other), True)
            self.visit(operand, times(weight, shared), (*guards, guard))

    def _power(self, node: Binary, weight: Scalar, guards: tuple[Guard, ...]) -> None:
        base, exponent = node.lhs, node.rhs
        if isinstance(exponent, Const):
            power = float(exponent.value)
            below = base if power == 2 else Binary("pow", base, real(power - 1))
            slope = _ONE if power == 1 else times(below, exponent)
            self.visit(base, times(weight, slope), guards)
            return
        below = Binary("pow", base, Binary("sub", exponent, _ONE))
        guard = (Binary("ne", exponent, ZERO), True)
        self.visit(base, times(times(weight, exponent), below), (*guards, guard))
        # Any positive power of 0 is 0, though its logarithm is infinite.
        guard = (Binary("ne", base, ZERO), True)
        value = times(weight, self._value(node))
        self.visit(exponent, times(value, Unary("log", base)), (*guards, guard))


_COMPARED: Mapping[BinaryOp, tuple[BinaryOp, BinaryOp]] = {
    "max": ("gt", "ge"),
    "min": ("lt", "le"),
}


def _exponent_beside_one(node: Scalar) -> Scalar | None:
    """The x of 1 + exp(x), whose derivative is a quotient of infinities where exp overflows."""
    match node:
        case Binary(op="add", lhs=Const(value=1), rhs=Unary(op="exp", arg=x)):
            return x
        case Binary(op="add", lhs=Unary(op="exp", arg=x), rhs=Const(value=1)):
            return x
        case _:
            return None


def _logistic(x: Scalar) -> Scalar:
    """exp(x) / (1 + exp(x)), which is finite for every x."""
    return Binary("div", _ONE, Binary("add", _ONE, Unary("exp", negative(x))))
