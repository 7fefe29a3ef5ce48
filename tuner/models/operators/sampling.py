"""Reading a tensor between its elements, at places that are computed: grids, regions of
interest, convolutions with offsets. x is N, C, spatial throughout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np

from tuner.models.operators.builder import Value
from tuner.models.operators.contraction import einsum
from tuner.models.operators.movement import reshape
from tuner.models.operators.scalars import (
    Elem,
    cast_to,
    clamp,
    constant,
    maximum,
    minimum,
    unary,
    where,
)

Interpolation = Literal["nearest", "linear", "cubic"]
Padding = Literal["zeros", "border", "reflection"]

_TAPS: Mapping[str, int] = {"nearest": 1, "linear": 2, "cubic": 4}  # a dimension
_CUBIC = -0.75  # of Keys's kernel


def grid_sample(
    x: Value,
    grid: Value,
    mode: Interpolation,
    padding: Padding,
    *,
    align_corners: bool,
    cubic_inside: bool = True,
) -> Value:
    """x at the places of a grid [N, result's spatial, dimensions], from -1 to 1, the last
    spatial dimension first.

    With `cubic_inside` places beyond the border are moved inside before cubic taps are
    chosen, as ONNX has it; else each tap is, as PyTorch has it.
    """
    rank = x.rank - 2
    dtype = x.computed_in
    # The grid's order is the reverse of the dimensions'.
    extents = x.builder.constant(np.array(x.shape[:1:-1], np.float64), dtype)

    def place(*i: Elem) -> Elem:
        extent = extents[i[-1]]
        value = cast_to(dtype, grid[i])
        middle = (value + 1) * (extent - 1 if align_corners else extent) * 0.5
        middle = middle if align_corners else middle - 0.5
        if mode == "nearest":
            middle = unary("round", middle)
        if padding == "zeros" or (mode == "cubic" and not cubic_inside):
            return middle
        return _inside(middle, extent, padding, align_corners=align_corners)

    places = x.builder.compute("grid", grid.shape, place, dtype=dtype)
    taps = _TAPS[mode]

    def body(*i: Elem) -> Elem:
        n, c, *rest = i
        outer, inner = rest[:rank], rest[rank:]
        weight = constant(1, dtype)
        indices = []
        for d in range(rank):
            middle = places[(n, *outer, rank - 1 - d)]
            if mode == "nearest":
                tap = middle
            else:
                tap = unary("floor", middle) + cast_to(dtype, inner[d] - (taps // 2 - 1))
                share = _share(unary("abs", middle - tap), mode)
                weight = share if d == 0 else weight * share
            extent = constant(x.shape[2 + d], dtype)
            if padding != "zeros":
                tap = _inside(tap, extent, padding, align_corners=align_corners)
            indices.append(_index(tap, x.shape[2 + d]))
        element = x.padded(n, c, *indices, pad=0)
        return element if mode == "nearest" else element * weight

    shape = [*x.shape[:2], *grid.shape[1:-1]]
    if mode == "nearest":
        return x.builder.compute("grid_sample", shape, body, dtype=x.dtype)
    return x.builder.reduce("grid_sample", "sum", shape, [taps] * rank, body, dtype=x.dtype)


def _share(distance: Elem, mode: Interpolation) -> Elem:
    """The weight of an element at this distance; Keys, "Cubic Convolution Interpolation for
    Digital Image Processing", 1981."""
    if mode == "linear":
        return 1 - distance
    a = _CUBIC
    near = ((a + 2) * distance - (a + 3)) * distance * distance + 1
    far = ((a * distance - 5 * a) * distance + 8 * a) * distance - 4 * a
    return where(distance <= 1, near, far)


def _inside(place: Elem, extent: Elem, padding: Padding, *, align_corners: bool) -> Elem:
    """A place moved to the nearest of the tensor, or mirrored at its borders."""
    if padding == "border":
        return clamp(place, 0, extent - 1)
    low = 0.0 if align_corners else -0.5
    span = maximum(extent - 1, 1) if align_corners else extent
    distance = unary("abs", place - low)
    times = unary("floor", distance / span)
    rest = distance - times * span
    is_even = (times - 2 * unary("floor", times * 0.5)).equals(0)
    mirrored = where(is_even, rest, span - rest) + low
    return clamp(mirrored, 0, extent - 1)


def _index(place: Elem, extent: int) -> Elem:
    """A whole number as an index: -1 for what lies in front of the tensor, and for NaN;
    `extent` for what lies behind."""
    bounded = where(place > -1, minimum(place, extent), -1)
    return clamp(cast_to("int64", bounded), -1, extent)


def roi_align(
    x: Value,
    regions: Value,
    batch: Value,
    *,
    sizes: Sequence[int],
    samples: int,
    scale: float,
    half_pixel: bool,
    greatest: bool,
) -> Value:
    """The mean (or the greatest) of bilinear samples in each cell of each region; He et al.,
    "Mask R-CNN", 2017.

    `regions` are [R, 4], x1, y1, x2, y2, in units of `1 / scale` elements; `batch` says
    which image each is of. Without a number of `samples` a cell has one per element that
    it covers, along each dimension.
    """
    dtype = x.computed_in
    offset = 0.5 if half_pixel else 0.0
    # Steps between samples are longer than half an element, so more lie outside.
    bounds = [samples or 2 * extent + 3 for extent in x.shape[2:]]

    def begin(r: Elem, d: int) -> Elem:
        return cast_to(dtype, regions[r, 1 - d]) * scale - offset

    def bin_size(r: Elem, d: int) -> Elem:
        size = cast_to(dtype, regions[r, 3 - d]) * scale - offset - begin(r, d)
        return (size if half_pixel else maximum(size, 1)) / sizes[d]

    def count(r: Elem, d: int) -> Elem:
        return constant(samples, dtype) if samples else unary("ceil", bin_size(r, d))

    def first(r: Elem, d: int, cell: Elem) -> Elem:
        """The first sample that may lie inside."""
        if samples:
            return constant(0, dtype)
        before = -1 - begin(r, d) - cast_to(dtype, cell) * bin_size(r, d)
        return maximum(unary("floor", before / bin_size(r, d) * count(r, d) - 0.5), 0)

    def body(*i: Elem) -> Elem:
        r, c, *rest = i
        cells, steps, taps = rest[:2], rest[2:4], rest[4:]
        image = clamp(cast_to("int64", batch[r]), 0, x.shape[0] - 1)
        weight = constant(1, dtype)
        is_sample, is_inside, are_more = (
            constant(True, "bool"),
            constant(True, "bool"),
            constant(False, "bool"),
        )
        indices = []
        for d in range(2):
            extent = x.shape[2 + d]
            step = cast_to(dtype, steps[d]) + first(r, d, cells[d])
            size = bin_size(r, d)
            place = begin(r, d) + cast_to(dtype, cells[d]) * size
            place = place + (step + 0.5) * size / count(r, d)
            is_inside = is_inside & (place >= -1) & (place <= extent)
            if not samples:
                is_sample = is_sample & (step < count(r, d))
                are_more = are_more | (first(r, d, cells[d]) > 0) | (count(r, d) > bounds[d])
            place = clamp(place, 0, extent - 1)
            low = unary("floor", place)
            share = place - low
            weight = weight * where(taps[d].equals(0), 1 - share, share)
            indices.append(clamp(_index(low, extent) + taps[d], 0, extent - 1))
        value = where(is_inside, x[(image, c, *indices)] * weight, 0)
        if not samples:
            missing = where(are_more, constant(0, dtype), -math.inf) if greatest else 0
            value = where(is_sample, value, missing)
        if greatest:
            return value
        total = maximum(count(r, 0) * count(r, 1), 1)
        return value / total

    return x.builder.reduce(
        "roi_align",
        "max" if greatest else "sum",
        [regions.shape[0], x.shape[1], *sizes],
        [*bounds, 2, 2],
        body,
        dtype=x.dtype,
    )


def deformable_convolution(
    x: Value,
    weight: Value,
    offset: Value,
    mask: Value | None,
    *,
    strides: Sequence[int],
    pads: Sequence[int],
    dilations: Sequence[int],
    groups: int,
    offset_groups: int,
) -> Value:
    """A convolution whose taps are moved by offsets and scaled by a mask; Zhu et al.,
    "Deformable ConvNets v2", 2019. Layouts are ONNX's.

    What the taps read is a tensor of its own, [N, C, kernel, result's spatial], so that it
    is interpolated once for all filters.
    """
    rank = x.rank - 2
    kernel, sizes = weight.shape[2:], offset.shape[2:]
    count = math.prod(kernel)
    dtype = x.computed_in
    offset = reshape(offset, [x.shape[0], offset_groups, *kernel, rank, *sizes])
    mask = None if mask is None else reshape(mask, [x.shape[0], offset_groups, *kernel, *sizes])
    per_offset = x.shape[1] // offset_groups

    def column(*i: Elem) -> Elem:
        n, c, *rest = i
        window, outer, taps = rest[:rank], rest[rank : 2 * rank], rest[2 * rank :]
        group = c // per_offset if offset_groups > 1 else constant(0, "int64")
        share = constant(1, dtype)
        indices = []
        for d in range(rank):
            base = outer[d] * strides[d] + window[d] * dilations[d] - pads[d]
            moved = cast_to(dtype, offset[(n, group, *window, d, *outer)])
            place = cast_to(dtype, base) + moved
            low = unary("floor", place)
            tap = low + cast_to(dtype, taps[d])
            share = share * where(taps[d].equals(0), 1 - (place - low), place - low)
            indices.append(_index(tap, x.shape[2 + d]))
        value = x.padded(n, c, *indices, pad=0) * share
        if mask is None:
            return value
        return value * cast_to(dtype, mask[(n, group, *window, *outer)])

    columns = x.builder.reduce(
        "deformed", "sum", [*x.shape[:2], *kernel, *sizes], [2] * rank, column, dtype=x.dtype
    )
    filters = weight.shape[0]
    flat = reshape(columns, [x.shape[0], groups, weight.shape[1] * count, math.prod(sizes)])
    factors = reshape(weight, [groups, filters // groups, weight.shape[1] * count])
    product = einsum("ngkp,gok->ngop", flat, factors)
    return reshape(product, [x.shape[0], filters, *sizes])
