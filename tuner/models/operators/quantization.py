"""Integers that stand for real numbers: `real = scale * (integer - zero_point)`."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.models.operators.builder import Value
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import reshape
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import Elem, cast_to, clamp, maximum, minimum, unary
from tuner.workload.expression import INTEGER_RANGES, DType


def per_axis(vector: Value, x: Value, axis: int) -> Value:
    """A scalar, or a vector of one dimension of x, to be broadcast over x."""
    if vector.elements == 1:
        return reshape(vector, (1,) * x.rank)
    shape = [1] * x.rank
    shape[axis % x.rank] = vector.elements
    return reshape(vector, shape)


def quantize(x: Value, scale: Value, zero_point: Value | None, axis: int, dtype: DType) -> Value:
    """Rounded to the nearest integer, to even where two are, and saturated."""
    low, high = INTEGER_RANGES[dtype]
    given = [per_axis(scale, x, axis)]
    if zero_point is not None:
        given.append(per_axis(zero_point, x, axis))

    def body(e: Elem, s: Elem, *zero: Elem) -> Elem:
        rounded = unary("round", e / s)
        for z in zero:
            rounded = rounded + cast_to(rounded.dtype, z)
        return cast_to("int32", clamp(rounded, low, high))

    return elementwise("quantize", body, x, *given, dtype=dtype)


def dequantize(
    x: Value, scale: Value, zero_point: Value | None, axis: int, dtype: DType | None = None
) -> Value:
    given = [per_axis(scale, x, axis)]
    if zero_point is not None:
        given.append(per_axis(zero_point, x, axis))

    def body(e: Elem, s: Elem, *zero: Elem) -> Elem:
        for z in zero:
            e = e - z
        return cast_to(s.dtype, e) * s

    return elementwise("dequantize", body, x, *given, dtype=dtype or scale.dtype)


def dynamic_quantize(x: Value) -> tuple[Value, Value, Value]:
    """To uint8 by the least and greatest element, 0 included: integers, scale, zero point."""
    axes: Sequence[int] = range(x.rank)
    low = reduce("least", "min", x, axes, keep=False)
    high = reduce("greatest", "max", x, axes, keep=False)
    scale = elementwise("scale", lambda a, b: (maximum(b, 0) - minimum(a, 0)) / 255.0, low, high)
    zero = elementwise(
        "zero_point",
        lambda a, s: cast_to("int32", clamp(unary("round", -minimum(a, 0) / s), 0, 255)),
        low,
        scale,
        dtype="uint8",
    )
    return quantize(x, scale, zero, 0, "uint8"), scale, zero
