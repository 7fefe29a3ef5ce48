"""Operators of each element by itself, with NumPy's broadcasting."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

from tuner.models.operators.formats import Format, Rounding
from tuner.models.operators.movement import broadcast_shape, expand, order_like
from tuner.models.operators.scalars import (
    Elem,
    Operand,
    bitwise,
    cast_to,
    clamp,
    constant,
    maximum,
    minimum,
    unary,
    where,
)
from tuner.models.operators.scalars import bitcast as bitcast_of
from tuner.models.operators.values import Value
from tuner.workload.dtypes import DTYPE_BYTES, FLOATS, INTEGER_RANGES, DType
from tuner.workload.expression import Unary

Function = Callable[..., Elem]


def elementwise(name: str, function: Function, *values: Value, dtype: DType | None = None) -> Value:
    """`function` of the values' elements; of dtype `dtype`, by default the first value's."""
    shape = broadcast_shape(*(value.shape for value in values))
    spread = [expand(value, shape) for value in values]
    return values[0].builder.compute(
        name,
        shape,
        lambda *i: function(*(value.number(i) for value in spread)),
        dtype=dtype or values[0].dtype,
        order=order_like(sorted(values, key=lambda value: -value.elements), shape),
    )


def compare(name: str, function: Function, *values: Value) -> Value:
    return elementwise(name, function, *values, dtype="bool")


def cast(x: Value, dtype: DType) -> Value:
    if x.format is not None:
        return elementwise("cast", lambda e: cast_to(dtype, decoded(x, e)), x, dtype=dtype)
    if x.dtype == dtype:
        return x
    return elementwise("cast", lambda e: cast_to(dtype, e), x, dtype=dtype)


def encode(x: Value, to: Format, rounding: Rounding) -> Value:
    """The numbers in a format that kernels do not compute with."""
    if x.format == to:
        return x

    def body(e: Elem) -> Elem:
        return to.encoded(decoded(x, e), rounding)

    return replace(elementwise("encode", body, x, dtype=to.storage), format=to)


def decoded(x: Value, e: Elem) -> Elem:
    """The number of an element of x."""
    return e if x.format is None else x.format.decoded(e)


def bitcast(x: Value, dtype: DType, to: Format | None = None) -> Value:
    """The numbers with the same bits. A bool has those of 0 or 1."""
    if "bool" in (x.dtype, dtype):
        plain = cast(x, "uint8") if x.dtype == "bool" else bitcast(x, "uint8")
        return cast(plain, "bool") if dtype == "bool" else bitcast(plain, dtype, to)
    if DTYPE_BYTES[x.dtype] != DTYPE_BYTES[dtype]:
        raise ValueError(f"takes the bits of {x.dtype} for {dtype}, which is not as wide")
    if x.dtype == dtype:
        return replace(x, format=to)

    def body(e: Elem) -> Elem:
        return bitcast_of(dtype, e, x.dtype)

    return replace(elementwise("bitcast", body, x, dtype=dtype), format=to)


def invert(e: Elem) -> Elem:
    """Each bit of an integer the other way round."""
    low, high = INTEGER_RANGES[e.dtype]
    return bitwise("xor", e, -1 if low else high)


# --- activations


def sigmoid(e: Elem) -> Elem:
    """1 / (1 + exp(-x)), which neither overflows nor loses small results."""
    return 1 / (1 + unary("exp", -e))


def gelu(e: Elem) -> Elem:
    return 0.5 * e * (1 + unary("erf", e * math.sqrt(0.5)))


def gelu_tanh(e: Elem) -> Elem:
    """Hendrycks and Gimpel, "Gaussian Error Linear Units", 2016."""
    inner = math.sqrt(2 / math.pi) * (e + 0.044715 * e * e * e)
    return 0.5 * e * (1 + unary("tanh", inner))


def silu(e: Elem) -> Elem:
    return e * sigmoid(e)


def softplus(e: Elem) -> Elem:
    """log(1 + exp(x)) without overflow."""
    return maximum(e, 0) + unary("log", 1 + unary("exp", -unary("abs", e)))


def mish(e: Elem) -> Elem:
    return e * unary("tanh", softplus(e))


def relu(e: Elem) -> Elem:
    return maximum(e, 0)


def hard_sigmoid(e: Elem, alpha: float = 0.2, beta: float = 0.5) -> Elem:
    return clamp(e * alpha + beta, 0, 1)


def hard_swish(e: Elem) -> Elem:
    return e * hard_sigmoid(e, 1 / 6, 0.5)


def leaky_relu(e: Elem, alpha: float) -> Elem:
    return where(e < 0, e * alpha, e)


def elu(e: Elem, alpha: float = 1.0, gamma: float = 1.0) -> Elem:
    return gamma * where(e > 0, e, alpha * (unary("exp", minimum(e, 0)) - 1))


def celu(e: Elem, alpha: float = 1.0) -> Elem:
    return where(e > 0, e, alpha * (unary("exp", minimum(e, 0) / alpha) - 1))


def softsign(e: Elem) -> Elem:
    return e / (1 + unary("abs", e))


def shrink(e: Elem, bias: float, lambd: float) -> Elem:
    return where(e < -lambd, e + bias, where(e > lambd, e - bias, 0))


def sign(e: Elem) -> Elem:
    """Of a NaN itself."""
    return where(e > 0, 1, where(e < 0, -1, e))


def is_nan(e: Elem) -> Elem:
    return Elem(Unary("isnan", e.node), "bool") if e.dtype in FLOATS else constant(False, "bool")


def is_inf(e: Elem, *, negative: bool = True, positive: bool = True) -> Elem:
    infinite = constant(False, "bool")
    if e.dtype in FLOATS and positive:
        infinite = infinite | e.equals(math.inf)
    if e.dtype in FLOATS and negative:
        infinite = infinite | e.equals(-math.inf)
    return infinite


def log1p(e: Elem) -> Elem:
    """log(1 + x), with the digits of small x: 1 + x is rounded, and by how much is known;
    Goldberg, "What Every Computer Scientist Should Know About Floating-Point", 1991."""
    rounded = 1 + e
    exact = unary("log", rounded) * (e / (rounded - 1))
    return where(rounded.equals(1) | is_inf(e, negative=False), e, exact)


def expm1(e: Elem) -> Elem:
    """exp(x) - 1, with the digits of small x, by the hyperbolic tangent of half of it."""
    half = unary("tanh", e * 0.5)
    return where(unary("abs", e) < 1, 2 * half / (1 - half), unary("exp", e) - 1)


def is_negative(e: Elem) -> Elem:
    """Whether a number has a minus sign, as -0 has."""
    return (e < 0) | (e.equals(0) & (1 / e < 0)) if e.dtype in FLOATS else e < 0


def copysign(e: Elem, other: Elem) -> Elem:
    size = unary("abs", e)
    return where(is_negative(other), -size, size)


def hypot(left: Elem, right: Elem) -> Elem:
    """The length of a vector of two, whose squares may be beyond every number."""
    x, y = unary("abs", left), unary("abs", right)
    longer = maximum(x, y)
    ratio = minimum(x, y) / longer
    length = longer * unary("sqrt", 1 + ratio * ratio)
    return where(longer.equals(0) | is_inf(longer), longer, length)


def other_than_nan(function: Callable[[Elem, Elem], Elem]) -> Callable[[Elem, Elem], Elem]:
    """Of two numbers; of one of them where the other is NaN."""

    def body(left: Elem, right: Elem) -> Elem:
        return where(is_nan(left), right, where(is_nan(right), left, function(left, right)))

    return body


def atan2(y: Elem, x: Elem) -> Elem:
    """The angle of a point, from -pi to pi, as C has it for zeros and infinities."""

    apart = where(is_negative(y).differs(is_negative(x)), constant(-1, y.dtype), 1)
    ratio = where(is_inf(y) & is_inf(x), apart, where(y.equals(0), y, y / x))
    angle = unary("atan", ratio)
    is_left = is_negative(x)
    return where(
        is_left, angle + where(is_negative(y), constant(-math.pi, y.dtype), math.pi), angle
    )


def same(left: Elem, right: Elem) -> Elem:
    """Whether both are equal, or both NaN."""
    return left.equals(right) | (is_nan(left) & is_nan(right))


def after(left: Elem, right: Elem) -> Elem:
    """Whether the left one is greater. NaN is greater than every number, as sorting has it."""
    return (left > right) | (is_nan(left) & ~is_nan(right))


def reciprocal(e: Elem) -> Elem:
    return 1 / e


def divide(left: Elem, right: Elem) -> Elem:
    """Of integers towards zero, as C does; what divides by zero is zero."""
    if left.dtype in FLOATS:
        return left / right
    nonzero = where(right.equals(0), 1, right)
    quotient = left // nonzero
    inexact = (quotient * nonzero).differs(left)
    truncated = where(inexact & (quotient < 0), quotient + 1, quotient)
    return where(right.equals(0), 0, truncated)


def remainder(left: Elem, right: Elem) -> Elem:
    """With the divisor's sign, as Python's `%`; of integers 0 where the divisor is."""
    nonzero = right if left.dtype in FLOATS else where(right.equals(0), 1, right)
    return left % nonzero


def truncated_remainder(left: Elem, right: Elem) -> Elem:
    """With the dividend's sign, as C's `fmod` and `%`."""
    if left.dtype not in FLOATS:
        return left - divide(left, right) * right
    size = unary("abs", left) % unary("abs", right)
    return where(left < 0, -size, size)


def power(base: Elem, exponent: Elem) -> Elem:
    """Small whole exponents that are constant as products."""
    value: Operand | None = exponent.constant
    if value == 2:
        return base * base
    if value == 3:
        return base * base * base
    if value == 1:
        return base
    if value == 0.5 and base.dtype in FLOATS:
        return unary("sqrt", base)
    return base**exponent
