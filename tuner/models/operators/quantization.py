"""Integers that stand for real numbers: `real = scale * (integer - zero_point)`.

Quotients and scales are rounded to the dtype in which the standard computes them, since a
result that lies between two integers depends on it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.models.operators.elementwise import decoded, elementwise
from tuner.models.operators.formats import INTEGER_LIMITS, Format, Rounding
from tuner.models.operators.movement import reshape
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import Elem, cast_to, clamp, maximum, minimum, unary, where
from tuner.models.operators.values import Clipped, Integers, Scaled, Value
from tuner.workload.dtypes import FLOATS, INTEGER_RANGES, DType
from tuner.workload.expression import UnaryOp

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
    if format is None and _made_so(x.integers, scale, zero_point, dtype):
        assert x.integers is not None
        return x.integers.value
    is_integer = format is None or format.name in INTEGER_LIMITS
    nearest = _NEAREST.get(precision or (scale.dtype if scale.format is None else x.dtype))
    # What an operator computes is not defined to the last digit, so that a product with the
    # reciprocal of the scale is as good as the quotient, and faster.
    inverse = None if x.builder.is_input(x) else _reciprocal(scale)
    if inverse is not None and format is None:
        x = _without_bounds(x, scale, zero_point, dtype)
        if zero_point is None or zero_point.elements == 1:
            x, inverse, layout = _at_once(x, inverse, layout)
    spread = [layout.spread(parameter(scale if inverse is None else inverse), x)]
    if zero_point is not None and is_integer and known(zero_point) != 0:  # a float's is 0
        spread.append(layout.spread(parameter(zero_point), x))

    def body(e: Elem, s: Elem, *zero: Elem) -> Elem:
        real, factor = _real(e), _like(_real(decoded(scale, s)), _real(e))
        quotient = real / factor if inverse is None else real * factor
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


def _without_bounds(x: Value, scale: Value, zero: Value | None, dtype: DType) -> Value:
    """What the numbers were before they were clipped, where the integers end there too."""
    clipped, origin = x.made, 0 if zero is None else known(zero)
    if not isinstance(clipped, Clipped) or origin is None or scale.array is None:
        return x
    steps = scale.array.reshape(-1).astype(np.float64)
    low, high = INTEGER_RANGES[dtype]
    ends = np.rint(np.float32(clipped.low / steps)), np.rint(np.float32(clipped.high / steps))
    if (ends[0] + origin > low).any() or (ends[1] + origin < high).any():
        return x
    return clipped.value


def _at_once(x: Value, inverse: Value, layout: Layout) -> tuple[Value, Value, Layout]:
    """The factor of x and that of its rounding as one, where each is known."""
    scaled = x.made
    if not isinstance(scaled, Scaled) or inverse.elements != 1:
        return x, inverse, layout
    product = np.asarray(scaled.factor.array, np.float64) * np.asarray(inverse.array).reshape(-1)
    factor = x.builder.constant(product.astype(np.float32))
    return scaled.value, factor, Layout(axis=scaled.axis)


def parameter(vector: Value) -> Value:
    """Scales or zero points as a tensor, so that layers that differ in nothing else are one
    kernel."""
    return vector if vector.format is not None else vector.builder.stored(vector)


def known(zero: Value) -> int | None:
    """The zero point of all, where it is one that is known."""
    return Integers(value=zero, scale=zero, zero=zero, axis=None).origin


def _reciprocal(scale: Value) -> Value | None:
    """Of scales that are known and far from the ends of float32."""
    array = None if scale.dtype != "float32" or scale.format is not None else scale.array
    if array is None or not ((array > 2.0**-120) & (array < 2.0**120)).all():
        return None
    return scale.builder.constant((1 / array.astype(np.float64)).astype(np.float32))


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
    spread = [layout.spread(parameter(scale), x)]
    is_integer = x.format is None or x.format.name in INTEGER_LIMITS
    if zero_point is not None and is_integer and known(zero_point) != 0:  # a float's is 0
        spread.append(layout.spread(parameter(zero_point), x))

    def body(e: Elem, s: Elem, *zero: Elem) -> Elem:
        number, factor = decoded(x, e), _real(decoded(scale, s))
        for z in zero:
            number = number - z
        return cast_to(factor.dtype, number) * factor

    kept = "float32" if scale.format is not None else scale.dtype
    real = elementwise("dequantize", body, x, *spread, dtype=dtype or kept)
    return replace(real, made=_integers(x, scale, zero_point, layout, real.dtype))


def _integers(
    x: Value, scale: Value, zero: Value | None, layout: Layout, dtype: DType
) -> Integers | None:
    """What the real numbers are made of, where its scales are known."""
    vectors = [vector for vector in (scale, zero) if vector is not None]
    if (
        x.dtype not in ("int8", "uint8", "int32")
        or any(value.format is not None for value in (x, *vectors))
        or any(vector.array is None for vector in vectors)
        or (scale.dtype, dtype) != ("float32", "float32")
        or layout.block
        or len({vector.elements for vector in vectors}) > 1
    ):
        return None
    axis = None if scale.elements == 1 else layout.axis % x.rank
    scale, *zeros = (reshape(vector, [vector.elements]) for vector in vectors)
    return Integers(value=x, scale=scale, zero=zeros[0] if zeros else None, axis=axis)


def _made_so(integers: Integers | None, scale: Value, zero: Value | None, dtype: DType) -> bool:
    """Whether rounding gives back what the numbers were made of, which it does by the same
    scale and zero point: the two roundings of float32 are far below half a step."""
    if integers is None or integers.axis is not None or scale.elements != 1:
        return False
    if scale.array is None or integers.scale.array is None or integers.value.dtype != dtype:
        return False
    origin = Integers(value=integers.value, scale=scale, zero=zero, axis=None).origin
    same = float(scale.array.reshape(-1)[0]) == float(integers.scale.array.reshape(-1)[0])
    return same and origin is not None and origin == integers.origin


def chosen(x: Value, choose: Callable[[Value], Value]) -> Value:
    """An operator that chooses the greatest of some numbers, on the integers that they are
    made of where there are such: a greater integer is a greater number."""
    integers = x.integers
    if x.array is not None or integers is None or integers.axis is not None:
        return choose(x)
    steps = np.asarray(integers.scale.array)
    if not (steps > 0).all():
        return choose(x)
    picked = choose(integers.value)
    return dequantize(picked, integers.scale, integers.zero, Layout())


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


def block_quantize(x: Value, block: int) -> tuple[Value, Value]:
    """Rows to int8 from -127 to 127, each `block` elements by their greatest absolute value,
    the last ones perhaps of fewer: integers, and the scales of blocks.

    A block whose numbers are all below 1e-30 is zero: 127 divided by less may be infinite.
    """
    *lead, extent = x.shape
    blocks = -(-extent // block)

    def size(*places: Elem) -> Elem:
        *row, number, within = places
        column = number * block + within
        if extent % block == 0:
            return unary("abs", x[(*row, column)])
        return where(column < extent, unary("abs", x.guarded(*row, column)), 0)

    greatest = x.builder.reduce("greatest", "max", [*lead, blocks], [block], size)

    def rounded(*places: Elem) -> Elem:
        *row, column = places
        most = greatest[(*row, column // block)]
        factor = where(most < 1e-30, 0.0, unary("float32", 127.0 / most))
        steps = unary("round", unary("float32", x[places] * factor))
        return cast_to("int32", clamp(steps, -127, 127))

    integers = x.builder.compute("rounded", x.shape, rounded, dtype="int8")
    return integers, elementwise("scale", lambda e: e * (1 / 127), greatest)
