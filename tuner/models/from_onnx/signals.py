"""Operators of ONNX that read between elements or between the samples of a signal."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from tuner.models.from_onnx.node import Convert, Node
from tuner.models.from_onnx.products import biased, geometry
from tuner.models.operators import contraction, elimination, grams, pooling, sampling, spectrum
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import reshape
from tuner.models.operators.scalars import constant, where
from tuner.models.operators.values import Value

_MODES: Mapping[str, sampling.Interpolation] = {
    "nearest": "nearest",
    "linear": "linear",
    "bilinear": "linear",  # before opset 20
    "cubic": "cubic",
    "bicubic": "cubic",
}
_PADDINGS: Mapping[str, sampling.Padding] = {
    "zeros": "zeros",
    "border": "border",
    "reflection": "reflection",
}


def grid_sample(node: Node) -> Value:
    return sampling.grid_sample(
        node[0],
        node[1],
        _MODES[str(node.attribute("mode", "linear"))],
        _PADDINGS[str(node.attribute("padding_mode", "zeros"))],
        align_corners=bool(node.attribute("align_corners", 0)),
    )


def roi_align(node: Node) -> Value:
    mode = "half_pixel" if node.opset >= 16 else "output_half_pixel"
    return sampling.roi_align(
        node[0],
        node[1],
        node[2],
        sizes=[node.attribute("output_height", 1), node.attribute("output_width", 1)],
        samples=node.attribute("sampling_ratio", 0),
        scale=node.attribute("spatial_scale", 1.0),
        half_pixel=node.attribute("coordinate_transformation_mode", mode) == "half_pixel",
        greatest=node.attribute("mode", "avg") == "max",
    )


def deform_conv(node: Node) -> Value:
    x, weight = node[0], node[1]
    strides, pads, dilations = geometry(node, x.shape[2:], weight.shape[2:])
    result = sampling.deformable_convolution(
        x,
        weight,
        node[2],
        node.optional(4),
        strides=strides,
        pads=pads,
        dilations=dilations,
        groups=node.attribute("group", 1),
        offset_groups=node.attribute("offset_group", 1),
    )
    return biased(result, node.optional(3))


def col2im(node: Node) -> Value:
    sizes, kernel = node.ints(1) or [], node.ints(2) or []
    strides, pads, dilations = geometry(node, sizes, kernel)
    return contraction.columns_to_image(
        node[0], sizes=sizes, kernel=kernel, strides=strides, pads=pads, dilations=dilations
    )


def max_unpool(node: Node) -> Value:
    x, kernel = node[0], list(node.attribute("kernel_shape", []))
    rank = len(kernel)
    strides, pads, _ = geometry(node, x.shape[2:], kernel)
    sizes = [
        (x.shape[2 + d] - 1) * strides[d] - pads[d] - pads[rank + d] + kernel[d]
        for d in range(rank)
    ]
    result = pooling.max_unpool(x, node[1], kernel=kernel, strides=strides, pads=pads, sizes=sizes)
    asked = node.ints(2)
    if asked is None:
        return result
    # Positions count in the shape without it, which is filled with zeros.
    return node.builder.compute(
        "unpool_shape",
        asked,
        lambda *i: result.padded(*i, pad=0),
        dtype=x.dtype,
    )


def dft(node: Node) -> Value:
    x = node[0]
    is_inverse = bool(node.attribute("inverse", 0))
    one_sided = bool(node.attribute("onesided", 0))
    # From opset 20 on the axis is an input.
    axis = node.attribute("axis", 1) if node.opset < 20 else int(node.scalar(2, -2))
    axis %= x.rank
    length = x.shape[axis]
    if is_inverse and one_sided:
        length = 2 * (length - 1)
    length = int(node.scalar(1, length))
    return spectrum.dft(x, axis, length, inverse=is_inverse, one_sided=one_sided)


def stft(node: Node) -> Value:
    x, window = node[0], node.optional(2)
    x = x if x.rank == 3 else reshape(x, [*x.shape, 1])
    length = window.shape[0] if window is not None else x.shape[1]
    return spectrum.stft(
        x,
        int(node.scalar(1, 1)),
        int(node.scalar(3, length)),
        window,
        one_sided=bool(node.attribute("onesided", 1)),
    )


def tf_idf(node: Node) -> Value:
    """Counts of n-grams in rows of integers, weighted by attributes."""
    pool = node.attribute("pool_int64s", None)
    if pool is None:
        raise node.refusal("counts strings; a model has tensors of numbers")
    x = node[0]
    shortest, longest = node.attribute("min_gram_length", 1), node.attribute("max_gram_length", 1)
    counts = [*node.attribute("ngram_counts", [0]), len(pool)]
    columns: list[int] = list(node.attribute("ngram_indexes", []))
    chosen, number = [], 0
    for size, (begin, end) in enumerate(pairwise(counts), start=1):
        for start in range(begin, end, size):
            if shortest <= size <= longest:
                gram = grams.Gram(numbers=tuple(pool[start : start + size]), column=columns[number])
                chosen.append(gram)
            number += 1
    width = max(columns) + 1
    rows = reshape(x, [1, *x.shape]) if x.rank == 1 else x
    skips = node.attribute("max_skip_count", 0)
    if not chosen:
        return node.builder.constant(np.zeros((*x.shape[:-1], width), np.float32))
    counted = grams.count_grams(rows, chosen, width, skips)
    return reshape(_weighted(node, counted), [*x.shape[:-1], width])


def _weighted(node: Node, counted: Value) -> Value:
    mode, weights = node.attribute("mode", "TF"), node.attribute("weights", None)
    if mode == "TF":
        return counted
    if mode == "IDF":
        counted = elementwise("occurs", lambda e: where(e > 0, constant(1, "float32"), 0), counted)
    if not weights:
        return counted
    factors: Any = np.array(weights, np.float32)
    return elementwise("weights", lambda e, w: e * w, counted, node.builder.constant(factors))


TABLE: Mapping[str, Convert] = {
    "Col2Im": col2im,
    "DFT": dft,
    "DeformConv": deform_conv,
    "Det": lambda node: elimination.determinant(node[0]),
    "GridSample": grid_sample,
    "MaxUnpool": max_unpool,
    "RoiAlign": roi_align,
    "STFT": stft,
    "TfIdfVectorizer": tf_idf,
}
