"""Reading a tensor between its elements, at places that are computed: grids, regions of
interest, convolutions with offsets. x is N, C, spatial throughout."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

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
from tuner.models.operators.values import Value
from tuner.workload.expression import Reducer

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
        inside = _inside(middle, extent, padding, align_corners=align_corners)
        if mode != "cubic":
            return clamp(inside, 0, extent - 1)
        # Half an element around the tensor counts as inside, where taps are mirrored.
        low = 0.0 if align_corners else -0.5
        is_inside = (middle >= low) & (middle <= extent - 1 - low)
        return where(is_inside, middle, inside)

    places = x.builder.compute("grid", grid.shape, place, dtype=dtype)
    taps = _TAPS[mode]
    # Tables that all channels share: the places that are read, and their weights.
    shape = [*grid.shape, taps]

    def tap(*i: Elem) -> Elem:
        middle = places[i[:-1]]
        if mode == "nearest":
            return middle
        return unary("floor", middle) + cast_to(dtype, i[-1] - (taps // 2 - 1))

    def number(*i: Elem) -> Elem:
        whole, extent = tap(*i), extents[i[-2]]
        if padding != "zeros":
            inside = _inside(whole, extent, padding, align_corners=align_corners)
            whole = clamp(inside, 0, extent - 1)
        bounded = where(whole > -1, minimum(whole, extent), -1)  # NaN lies outside
        return cast_to("int64", bounded)

    numbers = x.builder.compute("taps", shape, number, dtype="int64")
    if mode != "nearest":
        shares = x.builder.compute(
            "weights",
            shape,
            lambda *i: _share(unary("abs", places[i[:-1]] - tap(*i)), mode),
            dtype=dtype,
        )

    def body(*i: Elem) -> Elem:
        n, c, *rest = i
        outer, inner = rest[:rank], rest[rank:] or [constant(0, "int64")] * rank
        indices = [numbers[(n, *outer, rank - 1 - d, inner[d])] for d in range(rank)]
        ends = x.shape[2:]
        if padding == "zeros":
            clamped = [clamp(k, -1, end) for k, end in zip(indices, ends, strict=True)]
            element = x.padded(n, c, *clamped, pad=0)
        else:
            inside = [clamp(k, 0, end - 1) for k, end in zip(indices, ends, strict=True)]
            element = x[(n, c, *inside)]
        if mode == "nearest":
            return element
        weight = shares[(n, *outer, rank - 1, inner[0])]
        for d in range(1, rank):
            weight = weight * shares[(n, *outer, rank - 1 - d, inner[d])]
        return element * weight

    result = [*x.shape[:2], *grid.shape[1:-1]]
    if mode == "nearest":
        return x.builder.compute("grid_sample", result, body, dtype=x.dtype)
    return x.builder.reduce("grid_sample", "sum", result, [taps] * rank, body, dtype=x.dtype)


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
    """A place moved to the nearest of the tensor, or mirrored at its borders, which lie
    half an element outside where corners are not aligned."""
    if padding == "border":
        return clamp(place, 0, extent - 1)
    low = 0.0 if align_corners else -0.5
    span = maximum(extent - 1, 1) if align_corners else extent
    distance = unary("abs", place - low)
    times = unary("floor", distance / span)
    rest = distance - times * span
    is_even = (times - 2 * unary("floor", times * 0.5)).equals(0)
    return where(is_even, rest, span - rest) + low


@dataclass(frozen=True, slots=True, kw_only=True)
class _Samples:
    """Of one dimension of regions: where samples read, [regions, cells, steps, 2], and
    their weights; zero for a step that is no sample, or outside."""

    numbers: Value
    shares: Value
    is_step: Value  # [regions, cells, steps]
    are_more: Value  # [regions, cells]: whether a cell has samples that are no step


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
    tables = [
        _samples(x, regions, d, sizes[d], samples, scale, half_pixel=half_pixel, is_max=greatest)
        for d in range(2)
    ]

    def body(*i: Elem) -> Elem:
        r, c, *rest = i
        cells, steps, taps = rest[:2], rest[2:4], rest[4:]
        image = clamp(cast_to("int64", batch[r]), 0, x.shape[0] - 1)
        places = [(r, cells[d], steps[d], taps[d]) for d in range(2)]
        numbers = [clamp(tables[d].numbers[places[d]], 0, x.shape[2 + d] - 1) for d in range(2)]
        weight = tables[0].shares[places[0]] * tables[1].shares[places[1]]
        value = x[(image, c, *numbers)] * weight
        if not greatest or samples:
            return value
        is_sample = tables[0].is_step[places[0][:3]] & tables[1].is_step[places[1][:3]]
        more = tables[0].are_more[r, cells[0]] | tables[1].are_more[r, cells[1]]
        return where(is_sample, value, where(more, constant(0, dtype), -math.inf))

    shape = [regions.shape[0], x.shape[1], *sizes]
    steps = [table.numbers.shape[2] for table in tables]
    reducer: Reducer = "max" if greatest else "sum"
    return x.builder.reduce("roi_align", reducer, shape, [*steps, 2, 2], body, dtype=x.dtype)


def _samples(
    x: Value,
    regions: Value,
    d: int,
    cells: int,
    samples: int,
    scale: float,
    *,
    half_pixel: bool,
    is_max: bool,
) -> _Samples:
    builder, dtype, extent = x.builder, x.computed_in, x.shape[2 + d]
    offset = 0.5 if half_pixel else 0.0
    # Steps between samples are longer than half an element, so more lie outside.
    bound = samples or 2 * extent + 3
    shape = [regions.shape[0], cells]

    def begin(r: Elem) -> Elem:
        return cast_to(dtype, regions[r, 1 - d]) * scale - offset

    def cell_size(r: Elem) -> Elem:
        size = cast_to(dtype, regions[r, 3 - d]) * scale - offset - begin(r)
        return (size if half_pixel else maximum(size, 1)) / cells

    sizes = builder.compute("cell", shape[:1], cell_size, dtype=dtype)

    def count(r: Elem) -> Elem:
        return constant(samples, dtype) if samples else unary("ceil", sizes[r])

    def first(r: Elem, cell: Elem) -> Elem:
        """The first sample that may lie inside."""
        if samples:
            return constant(0, dtype)
        before = -1 - begin(r) - cast_to(dtype, cell) * sizes[r]
        return maximum(unary("floor", before / sizes[r] * count(r) - 0.5), 0)

    firsts = builder.compute("first", shape, first, dtype=dtype)

    def step(r: Elem, cell: Elem, k: Elem) -> Elem:
        return cast_to(dtype, k) + firsts[r, cell]

    def place(r: Elem, cell: Elem, k: Elem) -> Elem:
        start = begin(r) + cast_to(dtype, cell) * sizes[r]
        return start + (step(r, cell, k) + 0.5) * sizes[r] / count(r)

    places = builder.compute("sample", [*shape, bound], place, dtype=dtype)

    def low(*i: Elem) -> Elem:
        return unary("floor", clamp(places[i], 0, extent - 1))

    def number(*i: Elem) -> Elem:
        return clamp(cast_to("int64", where(low(*i[:3]) > 0, low(*i[:3]), 0)) + i[3], 0, extent - 1)

    def is_step(r: Elem, cell: Elem, k: Elem) -> Elem:
        return step(r, cell, k) < count(r) if not samples else constant(True, "bool")

    def share(*i: Elem) -> Elem:
        middle = places[i[:3]]
        is_kept = (middle >= -1) & (middle <= extent) & is_step(*i[:3])
        rest = clamp(middle, 0, extent - 1) - low(*i[:3])
        weight = where(i[3].equals(0), 1 - rest, rest)
        return where(is_kept, weight / (1 if is_max else maximum(count(i[0]), 1)), 0)

    def are_more(r: Elem, cell: Elem) -> Elem:
        return (firsts[r, cell] > 0) | (count(r) > bound)

    return _Samples(
        numbers=builder.compute("taps", [*shape, bound, 2], number, dtype="int64"),
        shares=builder.compute("weights", [*shape, bound, 2], share, dtype=dtype),
        is_step=builder.compute("is_step", [*shape, bound], is_step, dtype="bool"),
        are_more=builder.compute("are_more", shape, are_more, dtype="bool"),
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

    What the taps read is a tensor of its own, [N, C, kernel, points of the result], so that
    it is interpolated once for all filters.
    """
    rank, builder, dtype = x.rank - 2, x.builder, x.computed_in
    kernel, sizes = weight.shape[2:], offset.shape[2:]
    count, points = math.prod(kernel), math.prod(sizes)
    tables = [x.shape[0], offset_groups, count, rank, points]
    offset = reshape(offset, tables)
    mask = None if mask is None else reshape(mask, [*tables[:3], points])
    per_offset = x.shape[1] // offset_groups
    # Where an undeformed tap reads, [kernel, dimension, point].
    grid = np.zeros((count, rank, points))
    for d in range(rank):
        taps = np.indices(kernel)[d].reshape(-1, 1) * dilations[d]
        grid[:, d] = taps + np.indices(sizes)[d].reshape(1, -1) * strides[d] - pads[d]
    bases = builder.constant(grid, dtype)
    places = builder.compute(
        "place", tables, lambda *i: cast_to(dtype, offset[i]) + bases[i[2:]], dtype=dtype
    )
    extents = builder.constant(np.array(x.shape[2:], np.float64), dtype)

    def number(*i: Elem) -> Elem:
        whole = unary("floor", places[i[:-1]]) + cast_to(dtype, i[-1])
        bounded = where(whole > -1, minimum(whole, extents[i[3]]), -1)  # NaN lies outside
        return cast_to("int64", bounded)

    def share(*i: Elem) -> Elem:
        rest = places[i[:-1]] - unary("floor", places[i[:-1]])
        return where(i[-1].equals(0), 1 - rest, rest)

    numbers = builder.compute("taps", [*tables, 2], number, dtype="int64")
    shares = builder.compute("weights", [*tables, 2], share, dtype=dtype)

    def column(*i: Elem) -> Elem:
        n, c, k, point, *taps = i
        group = c // per_offset if offset_groups > 1 else constant(0, "int64")
        indices = [
            clamp(numbers[n, group, k, d, point, taps[d]], -1, x.shape[2 + d]) for d in range(rank)
        ]
        value = x.padded(n, c, *indices, pad=0)
        for d in range(rank):
            value = value * shares[n, group, k, d, point, taps[d]]
        return value if mask is None else value * cast_to(dtype, mask[n, group, k, point])

    columns = builder.reduce(
        "deformed", "sum", [*x.shape[:2], count, points], [2] * rank, column, dtype=x.dtype
    )
    filters = weight.shape[0]
    flat = reshape(columns, [x.shape[0], groups, weight.shape[1] * count, points])
    factors = reshape(weight, [groups, filters // groups, weight.shape[1] * count])
    product = einsum("ngkp,gok->ngop", flat, factors)
    return reshape(product, [x.shape[0], filters, *sizes])
