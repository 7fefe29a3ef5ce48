"""Products of 8-bit integers, and of real numbers that such integers stand for.

Zero points are taken off the sums and not off the factors, which instructions such as
vpdpbusd take as they are: with z the zero point of x, the sum of (x - z) w is that of x w
less z times the sum of w, which is known ahead of constant weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tuner.models.operators import contraction
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.quantization import known, parameter, per_axis
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import Elem, cast_to
from tuner.models.operators.values import Integers, Scaled, Value
from tuner.workload.dtypes import DType

LONGEST = 2**31 // (255 * 255)  # reduction of which no sum of products leaves int32
EXACT = 1 << 24  # to which float32 holds every integer
_CLOSE = 2.0**-20  # of the scales of a bias and of the sums that it is added to

Geometry = Mapping[str, Any]  # strides, pads, dilations and groups of a convolution


# --- of integers


def convolution(
    x: Value,
    x_zero: Value | None,
    weight: Value,
    weight_zero: Value | None,
    geometry: Geometry,
    bias: Value | None = None,
) -> Value:
    """Sums of x in N, C, spatial, both factors counted from their zero points; `bias` is a
    vector of int32. They are int32, or float32 where that holds each of them."""
    origin, count = _known(x_zero), prod(weight.shape[1:])
    if origin is None or _known(weight_zero) != 0 or count > LONGEST or weight.array is None:
        sums = contraction.convolution(
            x, weight, **geometry, zero_point=x_zero, weight_zero_point=weight_zero, dtype="int32"
        )
        return _added(sums, bias, 1)
    array = np.asarray(weight.array, np.int64)
    offset = -origin * array.sum(tuple(range(1, array.ndim)))
    if bias is not None and bias.array is not None:
        offset, bias = offset + bias.array.reshape(-1), None
    # Lanes of a vector are of several groups, whose products few instructions sum. Sums that
    # are short enough to be exact in float32 a space may compute there by itself; of longer
    # ones only the weights tell that they are.
    greatest = 255 * np.abs(array).sum(tuple(range(1, array.ndim))) + np.abs(offset)
    dtype: DType = "int32"
    is_long = count * 255 * 255 > EXACT
    if geometry["groups"] > 1 and is_long and bias is None and greatest.max(initial=0) < EXACT:
        dtype, weight = "float32", weight.builder.constant(array.astype(np.float32))
    sums = contraction.convolution(x, weight, **geometry, pad=origin, dtype=dtype)
    if offset.any():
        sums = _added(sums, sums.builder.constant(offset.astype(dtype)), 1)
    return _added(sums, bias, 1)


def matmul(a: Value, a_zero: Value | None, b: Value, b_zero: Value | None) -> Value:
    """NumPy's `matmul` in int32, with zero points of one number, or of each row of a and
    each column of b."""
    if a.rank < 2 or b.rank < 2 or a.shape[-1] > LONGEST:
        left, right = _less(a, a_zero, -2), _less(b, b_zero, -1)
        return contraction.matmul(left, right, dtype="int32")
    k = a.shape[-1]
    product = contraction.matmul(a, b, dtype="int32")
    if _known(a_zero) != 0:
        assert a_zero is not None
        columns = reduce("columns", "sum", b, [b.rank - 2], keep=True, dtype="int32")
        product = _corrected(product, a_zero, -2, columns)
    if _known(b_zero) != 0:
        assert b_zero is not None
        rows = reduce("rows", "sum", a, [a.rank - 1], keep=True, dtype="int32")
        if _known(a_zero) != 0:
            assert a_zero is not None
            rows = elementwise(
                "rows", lambda e, z: e - z * k, rows, per_axis(a_zero, rows, -2), dtype="int32"
            )
        product = _corrected(product, b_zero, -1, rows)
    return product


def _corrected(product: Value, zero: Value, axis: int, sums: Value) -> Value:
    return elementwise(
        "corrected", lambda e, z, s: e - z * s, product, per_axis(zero, product, axis), sums
    )


def _less(x: Value, zero: Value | None, axis: int) -> Value:
    if zero is None:
        return x
    return elementwise("less_zero", lambda e, z: e - z, x, per_axis(zero, x, axis), dtype="int32")


def _added(sums: Value, bias: Value | None, axis: int) -> Value:
    if bias is None:
        return sums
    return elementwise("bias", lambda e, b: e + b, sums, per_axis(bias, sums, axis))


def _known(zero: Value | None) -> int | None:
    return 0 if zero is None else known(zero)


# --- of real numbers


def real_convolution(
    x: Value, weight: Value, bias: Value | None, geometry: Geometry
) -> Value | None:
    """The convolution of real numbers by the integers that they are made of; None where
    they are not, or would not fit."""
    left, right = _narrow(x), _narrow(weight)
    if left is None or right is None or left.axis is not None or right.axis not in (None, 0):
        return None
    if prod(weight.shape[1:]) > LONGEST:
        return None
    steps = _steps(bias, left, right)
    sums = convolution(left.value, left.zero, right.value, right.zero, geometry, steps)
    real = rescaled(sums, left.scale, right.scale, 1)
    return real if bias is None or steps is not None else _added(real, bias, 1)


def real_matmul(a: Value, b: Value, bias: Value | None = None) -> Value | None:
    """The product of matrices, likewise; the bias is broadcast."""
    left, right = _narrow(a), _narrow(b)
    if left is None or right is None or left.axis is not None or a.rank < 2 or b.rank < 2:
        return None
    if right.axis not in (None, b.rank - 1) or a.shape[-1] > LONGEST:
        return None
    sums = matmul(left.value, left.zero, right.value, right.zero)
    steps = _steps(bias, left, right)
    sums = _added(sums, steps, -1)
    real = rescaled(sums, left.scale, right.scale, -1)
    if bias is None or steps is not None:
        return real
    return elementwise("bias", lambda e, c: e + c, real, bias)


def rescaled(sums: Value, first: Value, second: Value, axis: int) -> Value:
    """Sums of products of integers as real numbers; the scales of the factors are one
    number or one for each index of the dimension."""
    scales = [first, second]
    if first.array is not None and second.array is not None and first.dtype == second.dtype:
        product = first.array.reshape(-1) * second.array.reshape(-1)
        scales = [sums.builder.constant(product)]
    factors = [per_axis(parameter(scale), sums, axis) for scale in scales]

    def body(e: Elem, *factors: Elem) -> Elem:
        scale = factors[0]
        for factor in factors[1:]:
            scale = scale * factor
        return cast_to(scale.dtype, e) * scale

    real = elementwise("rescaled", body, sums, *factors, dtype=first.dtype)
    if len(scales) == 2 or first.dtype != "float32":
        return real
    return replace(real, made=Scaled(value=sums, factor=scales[0], axis=axis))


def _narrow(x: Value) -> Integers | None:
    """What the numbers are made of, if it is of 8 bits."""
    return x.integers if x.integers and x.integers.value.dtype in ("int8", "uint8") else None


def _steps(bias: Value | None, left: Integers, right: Integers) -> Value | None:
    """A bias as integers in the scale of the sums, where it is made of such."""
    steps = None if bias is None else bias.integers
    if bias is None or bias.rank != 1 or steps is None or steps.origin != 0:
        return None
    expected = np.asarray(left.scale.array) * np.asarray(right.scale.array)
    same = np.allclose(np.asarray(steps.scale.array), expected, rtol=_CLOSE, atol=0)
    return steps.value if same and steps.value.dtype == "int32" else None
