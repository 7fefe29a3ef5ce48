"""Integers that stand for real numbers in programs of PyTorch's pt2e quantisation: the
operators of `quantized_decomposed`, between which a program is one of floats.

`real = scale * (integer - zero_point)`. What a real number was made of is noted on it, so
that products behind it are of the integers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuner.models.from_torch.call import Call, Convert
from tuner.models.operators import quantization as ops
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.scalars import clamp
from tuner.models.operators.values import Value
from tuner.workload.expression import INTEGER_RANGES, DType

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
    f"{_LIBRARY}.quantize_per_channel.default": quantize,
    f"{_LIBRARY}.quantize_per_tensor.default": quantize,
    f"{_LIBRARY}.quantize_per_tensor.tensor": quantize,
}
