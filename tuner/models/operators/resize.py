"""Resampling: of each dimension that changes, a weighted sum of a few neighbours whose
places and weights are computed at import, in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.models.operators.movement import order_like
from tuner.models.operators.scalars import Elem, clamp, where
from tuner.models.operators.values import Value

Floats = NDArray[np.float64]
Coordinates = Callable[[Floats, int, int, float], Floats]


@dataclass(frozen=True, slots=True, kw_only=True)
class Taps:
    """Of each position of the result, the positions that it reads and their weights."""

    places: NDArray[np.int64]  # [result, taps]
    weights: Floats  # [result, taps]


def positions(extent: int) -> Floats:
    """Of the result's elements."""
    return np.arange(extent, dtype=np.float64)


def half_pixel(x: Floats, old: int, new: int, scale: float) -> Floats:
    return (x + 0.5) / scale - 0.5


def half_pixel_symmetric(x: Floats, old: int, new: int, scale: float) -> Floats:
    adjustment = new / (scale * old)
    return old / 2 * (1 - adjustment) + (x + 0.5) / scale - 0.5


def pytorch_half_pixel(x: Floats, old: int, new: int, scale: float) -> Floats:
    return half_pixel(x, old, new, scale) if new > 1 else np.zeros_like(x)


def align_corners(x: Floats, old: int, new: int, scale: float) -> Floats:
    size = scale * old  # not rounded, as the standard has it
    return x * (old - 1) / (size - 1) if size != 1 else np.zeros_like(x)


def asymmetric(x: Floats, old: int, new: int, scale: float) -> Floats:
    return x / scale


COORDINATES: Mapping[str, Coordinates] = {
    "half_pixel": half_pixel,
    "half_pixel_symmetric": half_pixel_symmetric,
    "pytorch_half_pixel": pytorch_half_pixel,
    "align_corners": align_corners,
    "asymmetric": asymmetric,
}


_ROUNDINGS: Mapping[str, Callable[[Floats], Floats]] = {
    "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
    "floor": np.floor,
    "ceil": np.ceil,
}


def nearest(sources: Floats, extent: int, rounding: str) -> Taps:
    rounded = _ROUNDINGS[rounding](sources)
    places = np.clip(rounded, 0, extent - 1).astype(np.int64)[:, None]
    return Taps(places=places, weights=np.ones(places.shape))


def linear(sources: Floats, extent: int, *, scale: float, antialias: bool, exclude: bool) -> Taps:
    stretch = max(1.0, 1 / scale) if antialias else 1.0
    return _filtered(sources, extent, stretch, 1, lambda x: np.maximum(1 - np.abs(x), 0), exclude)


def cubic(
    sources: Floats, extent: int, *, scale: float, antialias: bool, exclude: bool, a: float
) -> Taps:
    """Keys, "Cubic Convolution Interpolation for Digital Image Processing", 1981."""

    def kernel(x: Floats) -> Floats:
        x = np.abs(x)
        inner = (a + 2) * x**3 - (a + 3) * x**2 + 1
        outer = a * x**3 - 5 * a * x**2 + 8 * a * x - 4 * a
        return np.where(x <= 1, inner, np.where(x < 2, outer, 0))

    stretch = max(1.0, 1 / scale) if antialias else 1.0
    return _filtered(sources, extent, stretch, 2, kernel, exclude)


def _filtered(
    sources: Floats,
    extent: int,
    stretch: float,
    radius: int,
    kernel: Callable[[Floats], Floats],
    exclude: bool,
) -> Taps:
    """Neighbours within `radius * stretch`. Beyond the edge they are the edge's, or have no
    weight where `exclude`, and the others share it."""
    reach = int(np.ceil(radius * stretch))
    base = np.floor(sources).astype(np.int64)[:, None]
    places = base + np.arange(1 - reach, reach + 1)[None, :]
    weights = kernel((sources[:, None] - places) / stretch)
    if exclude:
        weights = np.where((places >= 0) & (places < extent), weights, 0)
    if exclude or stretch > 1:
        weights = weights / weights.sum(1, keepdims=True)
    return Taps(places=np.clip(places, 0, extent - 1), weights=weights)


def resample(
    x: Value,
    axis: int,
    taps: Taps,
    inside: NDArray[np.bool_] | None = None,
    outside: float = 0.0,
) -> Value:
    """One dimension resampled; where `inside` does not hold the result is `outside`."""
    builder = x.builder
    size, count = taps.places.shape
    shape = [size if number == axis else extent for number, extent in enumerate(x.shape)]
    repeat = _repeats(taps.places, x.shape[axis])
    places = builder.constant(taps.places, "int64")
    weights = builder.constant(taps.weights, x.computed_in)
    kept = None if inside is None or inside.all() else builder.constant(inside)

    def body(*i: Elem) -> Elem:
        total: Elem | None = None
        for tap in range(count):
            if not taps.weights[:, tap].any():
                continue
            indices = [*i]
            if repeat is not None:
                indices[axis] = i[axis] // repeat
            else:
                indices[axis] = clamp(places[i[axis], tap], 0, x.shape[axis] - 1)
            element = x[tuple(indices)]
            part = element if (taps.weights[:, tap] == 1).all() else element * weights[i[axis], tap]
            total = part if total is None else total + part
        assert total is not None
        return total if kept is None else where(kept[i[axis]], total, outside)

    order = order_like([x], x.shape)
    return builder.compute("resample", shape, body, dtype=x.dtype, order=order)


def _repeats(places: NDArray[np.int64], extent: int) -> int | None:
    """How often each element is repeated, where that is all that happens."""
    size, count = places.shape
    if count != 1 or size % extent:
        return None
    times = size // extent
    return times if np.array_equal(places[:, 0], np.arange(size) // times) else None
