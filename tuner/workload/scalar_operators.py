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

from tuner.workload.dtypes import INTEGER_RANGES, DType
from tuner.workload.expression import BinaryOp, Const, Reducer, UnaryOp
from tuner.workload.intervals import ANY, BOOL, Interval

Array: TypeAlias = NDArray[Any]


# --- rules that rows share


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


def _of_slope(slope: Callable[[Array], Array]) -> Callable[[Array, Array, Array], Array]:
    """|f(x)| + |f'(x)| m for a function with this derivative."""

    def size(x: Array, m: Array, value: Array) -> Array:
        return np.asarray(np.abs(value) + np.abs(slope(x)) * m)

    return size


def _of_step(distance: Callable[[Array], Array]) -> Callable[[Array, Array, Array], Array]:
    """|f(x)| of a function with steps. Beside a step, where the rounding of float32 may
    decide on which side the operand lies, either value is right."""

    def size(x: Array, m: Array, value: Array) -> Array:
        undecided = distance(np.asarray(x, np.float64)) <= 2.0**-20 * m
        return np.asarray(np.abs(value) + undecided * 2.0**24)

    return size


def _to_whole(x: Array) -> Array:
    return np.asarray(np.abs(x - np.rint(x)))


def _to_half(x: Array) -> Array:
    return np.asarray(np.abs(np.abs(x - np.trunc(x)) - 0.5))


_ERF = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x), np.float64)


def _nearest_bfloat16(x: Array) -> Array:
    """Each float32 rounded to the nearest number of 8 significant bits, ties to even."""
    fraction, exponent = np.frexp(x)
    return np.asarray(np.ldexp(np.rint(np.ldexp(fraction, 8)), exponent - 8))


# --- unary operators


@dataclass(frozen=True, slots=True, kw_only=True)
class UnaryOperator:
    """A scalar operator of one operand, in whose dtype its result is."""

    # of arrays of a carrier's dtype: float64, int64, uint32, uint64 or bool
    evaluate: Callable[[Array], Array]
    # the same of one float64 by libm, for constants; None: constants are not folded
    of_constant: Callable[[float], float] | None = None
    # values for operands in an interval
    values: Callable[[Interval], Interval] = _any
    # (operand, its magnitude, value) -> |f(x)| + |f'(x)| * magnitude
    magnitude: Callable[[Array, Array, Array], Array] = _of_operand
    is_function: bool = False  # of floating-point values, called by its name in the notation
    is_approximated: bool = False  # a polynomial or libm computes it, no instruction does
    is_instruction: bool = False  # costs no more than an addition
    is_curved: bool = False  # so much that its tangent is no bound at a distance of 1


def _step(
    evaluate: Callable[[Array], Array],
    of_constant: Callable[[float], float],
    distance: Callable[[Array], Array],
) -> UnaryOperator:
    return UnaryOperator(
        evaluate=evaluate,
        of_constant=lambda x: float(of_constant(x)),
        magnitude=_of_step(distance),
        is_function=True,
        is_instruction=True,
    )


def _function(
    evaluate: Callable[[Array], Array],
    of_constant: Callable[[float], float],
    slope: Callable[[Array], Array],
) -> UnaryOperator:
    """A function that libm computes; `slope` is the size of its derivative."""
    return UnaryOperator(
        evaluate=evaluate,
        of_constant=of_constant,
        magnitude=_of_slope(slope),
        is_function=True,
        is_approximated=True,
        is_curved=True,
    )


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
        is_curved=True,
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
        is_curved=True,
    ),
    "erf": UnaryOperator(
        evaluate=_erf,
        of_constant=math.erf,
        magnitude=_of_error_function,
        is_function=True,
        is_approximated=True,
        is_curved=True,
    ),
    "isnan": UnaryOperator(
        evaluate=np.isnan,
        values=_truth,
        magnitude=lambda x, m, value: value.astype(np.float64),
        is_instruction=True,
    ),  # a truth value
    "floor": _step(np.floor, math.floor, _to_whole),
    "ceil": _step(np.ceil, math.ceil, _to_whole),
    "trunc": _step(np.trunc, math.trunc, _to_whole),
    "round": _step(np.rint, round, _to_half),  # to even where two are as near
    # The greatest slope: where their own is 0 they bend most.
    "sin": _function(np.sin, math.sin, np.ones_like),
    "cos": _function(np.cos, math.cos, np.ones_like),
    "tan": _function(np.tan, math.tan, lambda x: 1 + np.tan(x) ** 2),
    "asin": _function(np.arcsin, math.asin, lambda x: 1 / np.sqrt(1 - x * x)),
    "acos": _function(np.arccos, math.acos, lambda x: 1 / np.sqrt(1 - x * x)),
    "atan": _function(np.arctan, math.atan, lambda x: 1 / (1 + x * x)),
    "sinh": _function(np.sinh, math.sinh, np.cosh),
    "cosh": _function(np.cosh, math.cosh, np.sinh),
    "asinh": _function(np.arcsinh, math.asinh, lambda x: 1 / np.sqrt(1 + x * x)),
    "acosh": _function(np.arccosh, math.acosh, lambda x: 1 / np.sqrt(x * x - 1)),
    "atanh": _function(np.arctanh, math.atanh, lambda x: 1 / (1 - x * x)),
    "bfloat16": UnaryOperator(evaluate=_nearest_bfloat16),
    "float16": UnaryOperator(evaluate=lambda x: x.astype(np.float16).astype(np.float64)),
    "float32": UnaryOperator(evaluate=lambda x: x.astype(np.float32).astype(np.float64)),
}  # fmt: skip


# --- binary operators


@dataclass(frozen=True, slots=True, kw_only=True)
class BinaryOperator:
    """A scalar operator of two operands of one dtype, in which its result is, or bool."""

    # of arrays of a carrier's dtype: float64, int64, uint32, uint64 or bool
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
    "bitand": BinaryOperator(
        evaluate=np.bitwise_and, values=Interval.__and__, is_integral=True
    ),
    "bitor": BinaryOperator(evaluate=np.bitwise_or, is_integral=True),
    "xor": BinaryOperator(evaluate=np.bitwise_xor, values=Interval.__xor__, is_integral=True),
    "shl": BinaryOperator(evaluate=np.left_shift, is_integral=True),
    "shr": BinaryOperator(evaluate=np.right_shift, is_integral=True),
}  # fmt: skip


# --- reductions


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
