"""Integers that stand for real numbers: `real = scale * (integer - zero_point)`.

Quotients and scales are rounded to the dtype in which the standard computes them, since a
result that lies between two integers depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tuner.models.operators.elementwise import decoded, elementwise
from tuner.models.operators.formats import INTEGER_LIMITS, Format, Rounding
from tuner.models.operators.movement import reshape
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import Elem, cast_to, clamp, maximum, minimum, unary, where
from tuner.models.operators.values import Value
from tuner.workload.expression import INTEGER_RANGES, DType, UnaryOp
from tuner.workload.terms import FLOATS

# The operator that gives the nearest number of a dtype.
_NEAREST: Mapping[DType, UnaryOp] = {
    "float32": "float32",
    "float16": "float16",
    "bfloat16": "bfloat16",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """Which elements share a scale: those of one index along an axis, or of a block."""

    axis: int = 0
    block: int = 0  # elements along the axis that share one; 0: no blocks

    def spread(self, parameter: Value, x: Value) -> Value:
        """Scales or zero points, to be broadcast over x."""
        if parameter.elements == 1:
            return reshape(parameter, (1,) * x.rank)
        axis = self.axis % x.rank
        if self.block:
            blocks = -(-x.shape[axis] // self.block)
            if parameter.shape != (*x.shape[:axis], blocks, *x.shape[axis + 1 :]):
                raise ValueError(
                    f"has scales of {list(parameter.shape)} for blocks of {self.block} along "
                    f"axis {axis} of {list(x.shape)}"
                )
            return x.builder.stored(parameter).view(
                x.shape, lambda *i: (*i[:axis], i[axis] // self.block, *i[axis + 1 :])
            )
        shape = [1] * x.rank
        shape[axis] = parameter.elements
        return reshape(parameter, shape)


def per_axis(vector: Value, x: Value, axis: int) -> Value:
    """A scalar, or a vector of one dimension of x, to be broadcast over x."""
    return Layout(axis=axis).spread(vector, x)


def quantize(
    x: Value,
    scale: Value,
    zero_point: Value | None,
    layout: Layout,
    dtype: DType,
    *,
    format: Format | None = None,
    rounding: Rounding | None = None,
    precision: DType | None = None,
) -> Value:
    """To the nearest integer, to even where two are, and saturated; or to a small float.

    The quotient is rounded to `precision`, by default the scale's dtype.
    """
    spread = [layout.spread(scale, x)]
    is_integer = format is None or format.name in INTEGER_LIMITS
    if zero_point is not None and is_integer:  # that of a float is 0
        spread.append(layout.spread(zero_point, x))
    nearest = _NEAREST.get(precision or (scale.dtype if scale.format is None else x.dtype))

    def body(e: Elem, s: Elem, *zero: Elem) -> Elem:
        quotient = _real(e) / _like(_real(decoded(scale, s)), _real(e))
        if nearest is not None:
            quotient = unary(nearest, quotient)
        if format is not None and not is_integer:
            return format.encoded(quotient, rounding or Rounding())
        rounded = unary("round", quotient)
        for z in zero:
            rounded = rounded + cast_to(rounded.dtype, z)
        low, high = INTEGER_RANGES[dtype] if format is None else INTEGER_LIMITS[format.name]
        return cast_to("int32", clamp(rounded, low, high))

    return replace(elementwise("quantize", body, x, *spread, dtype=dtype), format=format)


def _real(e: Elem) -> Elem:
    return e if e.dtype in FLOATS else cast_to("float32", e)


def _like(e: Elem, other: Elem) -> Elem:
    return cast_to(other.dtype, e)


def dequantize(
    x: Value,
    scale: Value,
    zero_point: Value | None,
    layout: Layout,
    dtype: DType | None = None,
) -> Value:
    spread = [layout.spread(scale, x)]
    is_integer = x.format is None or x.format.name in INTEGER_LIMITS
    if zero_point is not None and is_integer:  # that of a float is 0
        spread.append(layout.spread(zero_point, x))

    def body(e: Elem, s: Elem, *zero: Elem) -> Elem:
        number, factor = decoded(x, e), _real(decoded(scale, s))
        for z in zero:
            number = number - z
        return cast_to(factor.dtype, number) * factor

    kept = "float32" if scale.format is not None else scale.dtype
    return elementwise("dequantize", body, x, *spread, dtype=dtype or kept)


def dynamic_quantize(x: Value) -> tuple[Value, Value, Value]:
    """To uint8 by the least and greatest element, 0 included: integers, scale, zero point.

    Of zeros alone the scale is 0 by the standard's formula, and the integers are 0.
    """
    axes: Sequence[int] = range(x.rank)
    low = reduce("least", "min", x, axes, keep=False)
    high = reduce("greatest", "max", x, axes, keep=False)

    def step(a: Elem, b: Elem) -> Elem:
        return unary("float32", unary("float32", maximum(b, 0) - minimum(a, 0)) / 255.0)

    def divisor(s: Elem) -> Elem:
        return where(s.equals(0), 1, s)

    def origin(a: Elem, s: Elem) -> Elem:
        quotient = unary("float32", -minimum(a, 0) / divisor(s))
        return cast_to("int32", unary("round", clamp(quotient, 0, 255)))

    scale = elementwise("scale", step, low, high)
    zero = elementwise("zero_point", origin, low, scale, dtype="uint8")
    divisors = elementwise("divisor", divisor, scale)
    return quantize(x, divisors, zero, Layout(), "uint8"), scale, zero
