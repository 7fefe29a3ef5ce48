"""Upsampling of ATen."""

from __future__ import annotations

from tuner.models.from_torch.call import Call, Convert
from tuner.models.operators import resize
from tuner.models.operators.values import Value


def upsample(mode: str) -> Convert:
    def convert(call: Call) -> Value:
        x = call.value("input") if "input" in call.arguments else call.value("self")
        aligned = bool(call.get("align_corners"))
        spatial = x.rank - 2
        factors = _factors(call, spatial)
        for d in range(spatial):
            axis, old = 2 + d, x.shape[2 + d]
            new = call.shape[axis]
            scale = factors[d] or new / old
            x = _resampled(x, axis, new, scale, mode, aligned=aligned)
        return x

    return convert


def _factors(call: Call, spatial: int) -> list[float | None]:
    given = call.get("scale_factors")
    if given is None:
        names = ("scales_d", "scales_h", "scales_w")[-spatial:]
        given = [call.get(name, call.get("scales")) for name in names]
    return list(given)


def _resampled(x: Value, axis: int, new: int, scale: float, mode: str, *, aligned: bool) -> Value:
    old = x.shape[axis]
    outputs = resize.positions(new)
    if mode == "nearest":
        sources = resize.asymmetric(outputs, old, new, scale)
        return resize.resample(x, axis, resize.nearest(sources, old, "floor"))
    coordinates = resize.align_corners if aligned else resize.half_pixel
    sources = coordinates(outputs, old, new, scale)
    if mode == "cubic":
        taps = resize.cubic(sources, old, scale=scale, antialias=False, exclude=False, a=-0.75)
    else:
        taps = resize.linear(sources, old, scale=scale, antialias=False, exclude=False)
    return resize.resample(x, axis, taps)
