"""The scalar operators and reductions: one row for everything that is known about each.

A new operator takes its name in `expression.UnaryOp` or `BinaryOp`, a row here, and a
builder in `tuner.lowering` (`scalars.BINARY_BUILDERS`, `math_functions.unary`). A test
compares the tables. Everything that evaluates, analyses, folds or parses operators
reads the rows.

Magnitudes are first-order error bounds of `evaluator`. They take the operands' values
and magnitudes, and the value of the operation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.workload.expression import (
    INTEGER_RANGES,
    BinaryOp,
    Const,
    DType,
    Reducer,
    UnaryOp,
)
from tuner.workload.intervals import ANY, BOOL, Interval

Array: TypeAlias = NDArray[Any]


# --- rules that rows share
# ------------------------------------------------------------------------------


def _any(*_operands: Interval) -> Interval:
    return ANY


def _truth(*_operands: Interval) -> Interval:
    return BOOL


def _of_operand(x: Array, m: Array, value: Array) -> Array:
    return m


def _of_value(a: Array, b: Array, m: Array, n: Array, value: Array) -> Array:
    return np.abs(value)


def _of_sum(a: Array, b: Array, m: Array, n: Array, value: Array) -> Array:
    return m + n


def _of_product(a: Array, b: Array, m: Array, n: Array, value: Array) -> Array:
    a, b = np.abs(a), np.abs(b)
    size: Array = m * b + a * n - a * b
    return size


def _of_quotient(a: Array, b: Array, m: Array, n: Array, value: Array) -> Array:
    a, b = np.abs(a), np.abs(b)
    size: Array = m / b + a * n / b**2 - a / b
    return size


def _of_power(a: Array, b: Array, m: Array, n: Array, value: Array) -> Array:
    a, b = np.abs(a), np.abs(b)
    size: Array = np.abs(value) * (1 + b * m / a + np.abs(np.log(a)) * n)
    return size


def _of_either(a: Array, b: Array, m: Array, n: Array, value: Array) -> Array:
    return np.maximum(m, n)


def _of_root(x: Array, m: Array, value: Array) -> Array:
    return value * (1 + m / np.abs(x)) / 2


def _of_error_function(x: Array, m: Array, value: Array) -> Array:
    slope = 2 / math.sqrt(math.pi) * np.exp(-(x.astype(np.float64) ** 2))
    return np.abs(value) + slope * m


_ERF = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x), np.float64)


def _nearest_bfloat16(x: Array) -> Array:
    """Each float32 rounded to the nearest number of 8 significant bits, ties to even."""
    fraction, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8))


# --- unary operators
# ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryOperator:
    """A scalar operator of one operand, in whose dtype its result is."""

    # of float64, int64 or bool arrays
    evaluate: Callable[[Array], Array]
    # the same of one float64 by libm, for constants; None: constants are not folded
    of_constant: Callable[[float], float] | None = None
    # values for operands in an interval
    values: Callable[[Interval], Interval] = _any
    # (operand, its magnitude, value) -> |f(x)| + |f'(x)| * magnitude
    magnitude: Callable[[Array, Array, Array], Array] = _of_operand
    is_function: bool = False  # of floating-point values, called by its name in the notation
    is_approximated: bool = False  # a polynomial or libm computes it, no instruction does


UNARY_OPERATORS: Mapping[UnaryOp, UnaryOperator] = {
    "neg": UnaryOperator(
        evaluate=np.negative, of_constant=lambda x: -x, values=lambda a: -a
    ),
    "abs": UnaryOperator(evaluate=np.abs, of_constant=abs, values=Interval.absolute),
    "not": UnaryOperator(evaluate=np.logical_not, values=_truth),
    "exp": UnaryOperator(
        evaluate=np.exp,
        of_constant=math.exp,
        magnitude=lambda x, m, value: value * (1 + m),
        is_function=True,
        is_approximated=True,
    ),
    "log": UnaryOperator(
        evaluate=np.log,
        of_constant=math.log,
        magnitude=lambda x, m, value: np.abs(value) + m / np.abs(x),
        is_function=True,
        is_approximated=True,
    ),
    "sqrt": UnaryOperator(
        evaluate=np.sqrt, of_constant=math.sqrt, magnitude=_of_root, is_function=True
    ),
    "rsqrt": UnaryOperator(
        evaluate=lambda x: 1 / np.sqrt(x),
        of_constant=lambda x: 1 / math.sqrt(x),
        magnitude=_of_root,
        is_function=True,
    ),
    "tanh": UnaryOperator(
        evaluate=np.tanh,
        of_constant=math.tanh,
        magnitude=lambda x, m, value: np.abs(value) + (1 - value**2) * m,
        is_function=True,
        is_approximated=True,
    ),
    "erf": UnaryOperator(
        evaluate=_erf,
        of_constant=math.erf,
        magnitude=_of_error_function,
        is_function=True,
        is_approximated=True,
    ),
    "bfloat16": UnaryOperator(evaluate=_nearest_bfloat16),
}  # fmt: skip


# --- binary operators
# ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryOperator:
    """A scalar operator of two operands of one dtype, in which its result is, or bool."""

    # of float64, int64 or bool arrays
    evaluate: Callable[[Array, Array], Array]
    symbol: str | None = None  # infix in the notation; None: a function or a word
    # values for operands in two intervals
    values: Callable[[Interval, Interval], Interval] = _any
    # (operands a and b, their magnitudes m and n, value) -> magnitude of the value
    magnitude: Callable[[Array, Array, Array, Array, Array], Array] = _of_value
    is_comparison: bool = False
    is_integral: bool = False  # integers give an integer or a truth value
    is_function: bool = False  # of floating-point values, called by its name in the notation
    is_rounded: bool = False  # of floating-point values, with one rounding
    is_expensive: bool = False  # takes many times as long as an addition
    folds: bool = False  # of two floating-point constants; comparisons in selections


def _comparison(evaluate: Callable[[Array, Array], Array], symbol: str) -> BinaryOperator:
    return BinaryOperator(
        evaluate=evaluate, symbol=symbol, values=_truth, is_comparison=True, is_integral=True
    )


BINARY_OPERATORS: Mapping[BinaryOp, BinaryOperator] = {
    "add": BinaryOperator(
        evaluate=np.add, symbol="+", values=Interval.__add__, magnitude=_of_sum,
        is_integral=True, is_rounded=True, folds=True,
    ),
    "sub": BinaryOperator(
        evaluate=np.subtract, symbol="-", values=Interval.__sub__, magnitude=_of_sum,
        is_integral=True, is_rounded=True, folds=True,
    ),
    "mul": BinaryOperator(
        evaluate=np.multiply, symbol="*", values=Interval.__mul__, magnitude=_of_product,
        is_integral=True, is_rounded=True, folds=True,
    ),
    "div": BinaryOperator(
        evaluate=np.true_divide, symbol="/", magnitude=_of_quotient, is_rounded=True,
        is_expensive=True,
    ),
    "floordiv": BinaryOperator(
        evaluate=np.floor_divide, symbol="//", values=Interval.__floordiv__, is_integral=True
    ),
    "floormod": BinaryOperator(
        evaluate=np.mod, symbol="%", values=Interval.__mod__, is_integral=True
    ),
    "max": BinaryOperator(
        evaluate=np.maximum, values=Interval.maximum, magnitude=_of_either, is_integral=True,
        folds=True,
    ),
    "min": BinaryOperator(
        evaluate=np.minimum, values=Interval.minimum, magnitude=_of_either, is_integral=True,
        folds=True,
    ),
    "pow": BinaryOperator(
        evaluate=np.power, magnitude=_of_power, is_function=True, is_expensive=True
    ),
    "lt": _comparison(np.less, "<"),
    "le": _comparison(np.less_equal, "<="),
    "gt": _comparison(np.greater, ">"),
    "ge": _comparison(np.greater_equal, ">="),
    "eq": _comparison(np.equal, "=="),
    "ne": _comparison(np.not_equal, "!="),
    "and": BinaryOperator(evaluate=np.logical_and, values=_truth, is_integral=True),
    "or": BinaryOperator(evaluate=np.logical_or, values=_truth, is_integral=True),
    "xor": BinaryOperator(evaluate=np.bitwise_xor, values=Interval.__xor__, is_integral=True),
}  # fmt: skip


# --- reductions
# ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """An associative operator by which a stage reduces its terms."""

    combine: BinaryOp
    ufunc: np.ufunc
    symbol: str  # of the assignment in the notation
    magnitudes: np.ufunc  # by which the magnitudes of terms are reduced
    is_idempotent: bool  # many equal terms give the same as one


REDUCTIONS: Mapping[Reducer, Reduction] = {
    "sum": Reduction(
        combine="add", ufunc=np.add, symbol="+=", magnitudes=np.add, is_idempotent=False
    ),
    "prod": Reduction(
        combine="mul", ufunc=np.multiply, symbol="*=", magnitudes=np.multiply,
        is_idempotent=False,
    ),
    "max": Reduction(
        combine="max", ufunc=np.maximum, symbol="max=", magnitudes=np.maximum,
        is_idempotent=True,
    ),
    "min": Reduction(
        combine="min", ufunc=np.minimum, symbol="min=", magnitudes=np.maximum,
        is_idempotent=True,
    ),
}  # fmt: skip


def identity(reducer: Reducer, dtype: DType) -> Const:
    """The value that a reduction starts from and that changes nothing when combined."""
    match reducer:
        case "sum":
            return Const(0, dtype)
        case "prod":
            return Const(1, dtype)
        case "max":
            low = INTEGER_RANGES[dtype][0] if dtype in INTEGER_RANGES else -math.inf
            return Const(low, dtype)
        case "min":
            high = INTEGER_RANGES[dtype][1] if dtype in INTEGER_RANGES else math.inf
            return Const(high, dtype)
