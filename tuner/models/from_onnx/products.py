"""Matrix products, convolutions, pooling, resampling and quantised operators of ONNX."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.models.from_onnx.node import (
    Convert,
    ElementType,
    Node,
    Results,
    dtype_of,
    element_type,
    rounding_of,
)
from tuner.models.operators import contraction, integer_products, pooling, quantization, resize
from tuner.models.operators.elementwise import cast, elementwise
from tuner.models.operators.movement import transpose
from tuner.models.operators.normalization import channel
from tuner.models.operators.values import Value


def matmul(node: Node) -> Value:
    integers = integer_products.real_matmul(node[0], node[1])
    return contraction.matmul(node[0], node[1]) if integers is None else integers


def gemm(node: Node) -> Value:
    a, b, c = node[0], node[1], node.optional(2)
    a = transpose(a, [1, 0]) if node.attribute("transA", 0) else a
    b = transpose(b, [1, 0]) if node.attribute("transB", 0) else b
    alpha, beta = node.attribute("alpha", 1.0), node.attribute("beta", 1.0)
    if alpha == beta == 1 and ((integers := integer_products.real_matmul(a, b, c)) is not None):
        return integers
    product = contraction.matmul(a, b)
    if alpha != 1:
        product = elementwise("alpha", lambda e: e * alpha, product)
    if c is None:
        return product
    return elementwise("beta", lambda e, z: e + (z if beta == 1 else z * beta), product, c)


def einsum(node: Node) -> Value:
    values = [node[place] for place in range(len(node.inputs))]
    return contraction.einsum(str(node.attribute("equation", "")), *values)


# --- windows


def geometry(
    node: Node, extents: Sequence[int], kernel: Sequence[int]
) -> tuple[list[int], list[int], list[int]]:
    """Strides, padding (in front, then behind) and dilations, automatic padding resolved.

    Raises ModelRefused for a window that has not the dimensions that it moves over.
    """
    rank = len(extents)
    strides = list(node.attribute("strides", None) or [1] * rank)
    dilations = list(node.attribute("dilations", None) or [1] * rank)
    pads = list(node.attribute("pads", None) or [0] * (2 * rank))
    named = {"kernel_shape": kernel, "strides": strides, "dilations": dilations}
    for name, numbers in {**named, "pads": pads[::2]}.items():
        if len(numbers) != rank:
            raise node.refusal(
                f"has a window of {len(numbers)} dimensions ({name}) over {list(extents)}, the "
                f"{rank} behind batch and channels; give its input all of these dimensions, or "
                f"export the model with a batch"
            )
    automatic = str(node.attribute("auto_pad", "NOTSET"))
    if automatic == "VALID":
        pads = [0] * (2 * rank)
    elif automatic in ("SAME_UPPER", "SAME_LOWER"):
        for d in range(rank):
            size = -(-extents[d] // strides[d])
            span = dilations[d] * (kernel[d] - 1) + 1
            total = max((size - 1) * strides[d] + span - extents[d], 0)
            less, more = total // 2, total - total // 2
            front = less if automatic == "SAME_UPPER" else more
            pads[d], pads[rank + d] = front, total - front
    return strides, pads, dilations


def biased(result: Value, bias: Value | None) -> Value:
    if bias is None:
        return result
    return elementwise("bias", lambda e, b: e + b, result, channel(bias, result.rank))


def conv(node: Node) -> Value:
    x, weight, bias = node[0], node[1], node.optional(2)
    how = _convolved(node, x, weight)
    integers = integer_products.real_convolution(x, weight, bias, how)
    if integers is not None:
        return integers
    return biased(contraction.convolution(x, weight, **how), bias)


def _convolved(node: Node, x: Value, weight: Value) -> integer_products.Geometry:
    strides, pads, dilations = geometry(node, x.shape[2:], weight.shape[2:])
    groups = node.attribute("group", 1)
    return {"strides": strides, "pads": pads, "dilations": dilations, "groups": groups}


def conv_transpose(node: Node) -> Value:
    x, weight = node[0], node[1]
    rank, kernel = x.rank - 2, weight.shape[2:]
    strides = list(node.attribute("strides", None) or [1] * rank)
    dilations = list(node.attribute("dilations", None) or [1] * rank)
    extra = list(node.attribute("output_padding", None) or [0] * rank)
    pads = list(node.attribute("pads", None) or [0] * (2 * rank))
    full = [
        strides[d] * (x.shape[2 + d] - 1) + extra[d] + (kernel[d] - 1) * dilations[d] + 1
        for d in range(rank)
    ]
    sizes = node.attribute("output_shape", None)
    automatic = str(node.attribute("auto_pad", "NOTSET"))
    if sizes is None and automatic in ("SAME_UPPER", "SAME_LOWER"):
        sizes = [x.shape[2 + d] * strides[d] for d in range(rank)]
    if sizes is None:
        sizes = [full[d] - pads[d] - pads[rank + d] for d in range(rank)]
    else:
        sizes = list(sizes)[-rank:]
        for d in range(rank):
            total = max(full[d] - sizes[d], 0)
            pads[d] = total - total // 2 if automatic != "SAME_UPPER" else total // 2
    result = contraction.convolution_transpose(
        x,
        weight,
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=node.attribute("group", 1),
        sizes=sizes,
    )
    return biased(result, node.optional(2))


def window_of(node: Node) -> pooling.Window:
    x, kernel = node[0], list(node.attribute("kernel_shape", []))
    strides, pads, dilations = geometry(node, x.shape[2:], kernel)
    ceil = bool(node.attribute("ceil_mode", 0))
    return pooling.window(x.shape[2:], kernel, strides, pads, dilations, ceil=ceil)


def max_pool(node: Node) -> Results:
    window, x = window_of(node), node[0]
    if len(node.outputs) < 2:
        return quantization.chosen(x, lambda value: pooling.max_pool(value, window))
    pooled = pooling.max_pool(x, window)
    column_major = bool(node.attribute("storage_order", 0))
    return pooled, pooling.max_pool_positions(node[0], window, column_major=column_major)


def average_pool(node: Node) -> Value:
    counted = bool(node.attribute("count_include_pad", 0))
    return pooling.average_pool(node[0], window_of(node), count_padding=counted)


def lp_pool(node: Node) -> Value:
    return pooling.lp_pool(node[0], window_of(node), node.attribute("p", 2))


def global_pool(greatest: bool) -> Convert:
    if not greatest:
        return lambda node: pooling.global_pool(node[0], greatest=False)
    return lambda node: quantization.chosen(
        node[0], lambda value: pooling.global_pool(value, greatest=True)
    )


def global_lp_pool(node: Node) -> Value:
    x = node[0]
    rank = x.rank - 2
    window = pooling.window(
        x.shape[2:], x.shape[2:], [1] * rank, [0] * (2 * rank), [1] * rank, ceil=False
    )
    return pooling.lp_pool(x, window, node.attribute("p", 2))


# --- resampling


def resample(node: Node) -> Value:
    x = node[0]
    mode = str(node.attribute("mode", "nearest"))
    if node.op == "Upsample" or node.opset < 11:
        scales = node.attribute("scales", None) or node.known(1)
        sizes, policy = None, "stretch"
        coordinates, rounding = "asymmetric", "floor"
    else:
        scales, sizes = node.known(2), node.ints(3)
        policy = str(node.attribute("keep_aspect_ratio_policy", "stretch"))
        coordinates = str(node.attribute("coordinate_transformation_mode", "half_pixel"))
        rounding = str(node.attribute("nearest_mode", "round_prefer_floor"))
    axes = [axis % x.rank for axis in node.attribute("axes", None) or range(x.rank)]
    factors, extents = _factors(node, x, axes, scales, sizes, policy)
    if not all(0 < factor < math.inf for factor in factors):
        raise node.refusal(f"scales by {factors}, which is not above 0")
    if 0 in extents:
        shape = list(x.shape)
        for axis, extent in zip(axes, extents, strict=True):
            shape[axis] = extent
        return node.builder.constant(np.empty(shape), x.dtype)
    roi = node.known(1) if coordinates == "tf_crop_and_resize" else None
    for place, axis in enumerate(axes):
        old, new, scale = x.shape[axis], extents[place], factors[place]
        if old == new and scale == 1 and roi is None:
            continue
        outputs = np.arange(new, dtype=np.float64)
        inside = None
        if roi is not None:
            begin, end = (float(roi[place + side * len(axes)]) for side in (0, 1))
            sources = (
                begin * (old - 1) + outputs * (end - begin) * (old - 1) / (new - 1)
                if new > 1
                else np.full(1, 0.5 * (begin + end) * (old - 1))
            )
            inside = (sources >= 0) & (sources <= old - 1)
        elif coordinates in resize.COORDINATES:
            sources = resize.COORDINATES[coordinates](outputs, old, new, scale)
        else:
            raise node.refusal(f"maps coordinates by {coordinates!r}")
        taps = _taps(node, mode, sources, old, scale, rounding)
        outside = float(node.attribute("extrapolation_value", 0.0))
        x = resize.resample(x, axis, taps, inside, outside)
    return x


def _factors(
    node: Node,
    x: Value,
    axes: Sequence[int],
    scales: Any,
    sizes: Sequence[int] | None,
    policy: str,
) -> tuple[list[float], list[int]]:
    if sizes:
        ratios = [size / x.shape[axis] for size, axis in zip(sizes, axes, strict=True)]
        if policy == "stretch":
            return ratios, list(sizes)
        scale = min(ratios) if policy == "not_larger" else max(ratios)
        return [scale] * len(axes), [math.floor(x.shape[axis] * scale + 0.5) for axis in axes]
    if scales is None or not len(scales):
        raise node.refusal("has neither scales nor sizes")
    factors = [float(scale) for scale in scales]
    return factors, [
        math.floor(x.shape[axis] * factor) for axis, factor in zip(axes, factors, strict=True)
    ]


def _taps(
    node: Node, mode: str, sources: resize.Floats, extent: int, scale: float, rounding: str
) -> resize.Taps:
    antialias = bool(node.attribute("antialias", 0))
    exclude = bool(node.attribute("exclude_outside", 0))
    if mode == "nearest":
        return resize.nearest(sources, extent, rounding)
    if mode in ("linear", "bilinear"):
        return resize.linear(sources, extent, scale=scale, antialias=antialias, exclude=exclude)
    if mode == "cubic":
        a = float(node.attribute("cubic_coeff_a", -0.75))
        return resize.cubic(sources, extent, scale=scale, antialias=antialias, exclude=exclude, a=a)
    raise node.refusal(f"resamples by {mode!r}; known are nearest, linear and cubic")


# --- integers for real numbers


def quantize(node: Node) -> Value:
    zero, number = node.optional(2), node.attribute("output_dtype", 0)
    to = ElementType(dtype="uint8")
    if zero is not None:
        to = ElementType(dtype=zero.dtype, format=zero.format)
    elif number:
        to = element_type(number, "a quantised result")
    precision = node.attribute("precision", 0)
    return quantization.quantize(
        node[0],
        node[1],
        zero,
        _layout(node),
        to.dtype,
        format=to.format,
        rounding=rounding_of(node),
        precision=dtype_of(precision, "the precision of a quotient") if precision else None,
    )


def dequantize(node: Node) -> Value:
    number = node.attribute("output_dtype", 0)
    dtype = dtype_of(number, "a dequantised result") if number else None
    return quantization.dequantize(node[0], node[1], node.optional(2), _layout(node), dtype)


def _layout(node: Node) -> quantization.Layout:
    return quantization.Layout(
        axis=node.attribute("axis", 1), block=node.attribute("block_size", 0)
    )


def dynamic_quantize(node: Node) -> Results:
    return quantization.dynamic_quantize(node[0])


def matmul_integer(node: Node) -> Value:
    return integer_products.matmul(node[0], node.optional(2), node[1], node.optional(3))


def conv_integer(node: Node) -> Value:
    x, weight = node[0], node[1]
    how = _convolved(node, x, weight)
    sums = integer_products.convolution(x, node.optional(2), weight, node.optional(3), how)
    return cast(sums, "int32")


def qlinear_conv(node: Node) -> Value:
    x, x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero = (node[i] for i in range(8))
    how, bias = _convolved(node, x, weight), node.optional(8)
    summed = integer_products.convolution(x, x_zero, weight, w_zero, how, bias)
    return _requantized(summed, (x_scale, w_scale), y_scale, y_zero, 1)


def qlinear_matmul(node: Node) -> Value:
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (node[i] for i in range(8))
    product = integer_products.matmul(a, a_zero, b, b_zero)
    return _requantized(product, (a_scale, b_scale), y_scale, y_zero, -1)


def _requantized(
    x: Value, scales: tuple[Value, Value], scale: Value, zero: Value, axis: int
) -> Value:
    real = integer_products.rescaled(x, *scales, axis)
    return quantization.quantize(real, scale, zero, quantization.Layout(axis=axis), zero.dtype)


TABLE: Mapping[str, Convert] = {
    "AveragePool": average_pool,
    "Conv": conv,
    "ConvInteger": conv_integer,
    "ConvTranspose": conv_transpose,
    "DequantizeLinear": dequantize,
    "DynamicQuantizeLinear": dynamic_quantize,
    "Einsum": einsum,
    "Gemm": gemm,
    "GlobalAveragePool": global_pool(greatest=False),
    "GlobalLpPool": global_lp_pool,
    "GlobalMaxPool": global_pool(greatest=True),
    "LpPool": lp_pool,
    "MatMul": matmul,
    "MatMulInteger": matmul_integer,
    "MaxPool": max_pool,
    "QLinearConv": qlinear_conv,
    "QLinearMatMul": qlinear_matmul,
    "QuantizeLinear": quantize,
    "Resize": resample,
    "Upsample": resample,
}
