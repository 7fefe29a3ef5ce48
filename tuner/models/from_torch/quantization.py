"""Integers that stand for real numbers in programs of PyTorch's pt2e quantisation: the
operators of `quantized_decomposed`, between which a program is one of floats.

`real = scale * (integer - zero_point)`. What a real number was made of is noted on it, so
that products behind it are of the integers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuner.models.from_torch.call import Call, Convert, Results
from tuner.models.operators import quantization as ops
from tuner.models.operators.elementwise import cast, elementwise
from tuner.models.operators.movement import reshape
from tuner.models.operators.scalars import Elem, clamp, unary, where
from tuner.models.operators.values import Value
from tuner.workload.dtypes import INTEGER_RANGES, DType

_LIBRARY = "quantized_decomposed"
# Of constants these are not computed ahead: products want the integers.
KEPT = frozenset(
    f"{_LIBRARY}.dequantize_{form}"
    for form in ("per_tensor.default", "per_tensor.tensor", "per_channel.default")
)


def quantize(call: Call) -> Value:
    """To the nearest integer, to even where two are, and saturated at the call's bounds."""
    dtype = _narrow(call, call.dtype)
    scale, zero, layout = _parameters(call, dtype)
    integers = ops.quantize(call.value("input"), scale, zero, layout, dtype)
    low, high = int(call["quant_min"]), int(call["quant_max"])
    if (low, high) == INTEGER_RANGES[dtype]:
        return integers
    return elementwise("saturated", lambda e: clamp(e, low, high), integers, dtype=dtype)


def dequantize(call: Call) -> Value:
    x = call.value("input")
    scale, zero, layout = _parameters(call, _narrow(call, x.dtype))
    return ops.dequantize(x, scale, zero, layout, call.dtype)


def fake_quantize(call: Call) -> Results:
    """The nearest of the numbers that integers between two bounds stand for, by one scale and
    zero point or by those of each index along an axis, and which are not cut to the bounds."""
    x, low, high = call.value("self"), int(call["quant_min"]), int(call["quant_max"])
    axis = call.get("axis")

    def parameter(value: Value) -> Value:
        shape = [1] * x.rank
        if axis is not None:
            shape[axis] = value.elements
        return cast(reshape(value, shape), x.dtype)

    given = [call.value(name, x.dtype) for name in ("scale", "zero_point")]
    scale, zero = (parameter(value) for value in given)
    enabled = call.get("fake_quant_enabled")
    switches = [] if enabled is None else [reshape(enabled, [1] * x.rank)]

    def steps(e: Elem, s: Elem, z: Elem) -> Elem:
        return unary("round", e * (1 / s)) + z  # as PyTorch computes it

    def body(e: Elem, s: Elem, z: Elem, *on: Elem) -> Elem:
        near = (clamp(steps(e, s, z), low, high) - z) * s
        return where(on[0].differs(0), near, e) if on else near

    def inside(e: Elem, s: Elem, z: Elem) -> Elem:
        return (steps(e, s, z) >= low) & (steps(e, s, z) <= high)

    return (
        elementwise("fake_quantize", body, x, scale, zero, *switches),
        elementwise("inside", inside, x, scale, zero, dtype="bool"),
    )


def _narrow(call: Call, dtype: DType) -> DType:
    if dtype not in ("int8", "uint8", "int32"):
        raise call.refusal(f"has integers of {dtype}; int8, uint8 and int32 are taken")
    return dtype


def _parameters(call: Call, dtype: DType) -> tuple[Value, Value | None, ops.Layout]:
    """The scale and zero point of all, or of each index along an axis."""
    many = "scales" in call.arguments
    scale, zero = (call[name + "s" * many] for name in ("scale", "zero_point"))
    if not isinstance(scale, Value):
        scale = call.builder.constant(np.float32(scale), "float32")
    if isinstance(zero, Value):
        if zero.array is None:
            raise call.refusal("has a zero point that is computed; one that is known is taken")
        zero = zero.array
    if zero is not None:
        zero = call.builder.constant(np.asarray(zero), dtype)
    return scale, zero, ops.Layout(axis=call["axis"] if many else 0)


TABLE: Mapping[str, Convert] = {
    **dict.fromkeys(sorted(KEPT), dequantize),
    "aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default": fake_quantize,
    "aten.fake_quantize_per_channel_affine_cachemask.default": fake_quantize,
    "aten.fake_quantize_per_tensor_affine_cachemask.default": fake_quantize,
    f"{_LIBRARY}.quantize_per_channel.default": quantize,
    f"{_LIBRARY}.quantize_per_tensor.default": quantize,
    f"{_LIBRARY}.quantize_per_tensor.tensor": quantize,
}
