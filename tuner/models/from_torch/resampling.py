"""Upsampling of ATen."""

from __future__ import annotations

from tuner.models.from_torch.call import Call, Convert
from tuner.models.operators import resize
from tuner.models.operators.values import Value


def upsample(mode: str, *, antialias: bool = False) -> Convert:
    """With `antialias` what gets smaller is averaged, by the mode's filter."""

    def convert(call: Call) -> Value:
        x = call.value("input") if "input" in call.arguments else call.value("self")
        aligned = bool(call.get("align_corners"))
        if antialias and aligned:
            raise call.refusal("aligns the corners of an image that it filters")
        spatial = x.rank - 2
        factors = _factors(call, spatial)
        for d in range(spatial):
            axis, old = 2 + d, x.shape[2 + d]
            new = call.shape[axis]
            scale = factors[d] or new / old
            x = _resampled(x, axis, new, scale, mode, aligned=aligned, antialias=antialias)
        return x

    return convert


def _factors(call: Call, spatial: int) -> list[float | None]:
    given = call.get("scale_factors")
    if given is None:
        names = ("scales_d", "scales_h", "scales_w")[-spatial:]
        given = [call.get(name, call.get("scales")) for name in names]
    return list(given)


def _resampled(
    x: Value, axis: int, new: int, scale: float, mode: str, *, aligned: bool, antialias: bool
) -> Value:
    old = x.shape[axis]
    outputs = resize.positions(new)
    if mode == "nearest":
        sources = resize.asymmetric(outputs, old, new, scale)
        return resize.resample(x, axis, resize.nearest(sources, old, "floor"))
    coordinates = resize.align_corners if aligned else resize.half_pixel
    sources = coordinates(outputs, old, new, scale)
    # Filters of images that get smaller are those of Pillow, which has no weights beyond edges.
    if mode == "cubic":
        a = -0.5 if antialias else -0.75
        taps = resize.cubic(sources, old, scale=scale, antialias=antialias, exclude=antialias, a=a)
    else:
        taps = resize.linear(sources, old, scale=scale, antialias=antialias, exclude=antialias)
    return resize.resample(x, axis, taps)
