"""What each catalogue operator means, said again in plain NumPy and without the notation."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
Params = Mapping[str, Any]

_erf = np.vectorize(math.erf, otypes=[np.float64])
ACTS: Mapping[str, Callable[[Array], Array]] = {
    "none": lambda v: v,
    "relu": lambda v: np.maximum(v, 0),
    "relu6": lambda v: np.clip(v, 0, 6),
    "leaky_relu": lambda v: np.where(v > 0, v, 0.01 * v),
    "gelu": lambda v: v * (1 + _erf(v / math.sqrt(2))) / 2,
    "silu": lambda v: v / (1 + np.exp(-v)),
    "sigmoid": lambda v: 1 / (1 + np.exp(-v)),
    "tanh": np.tanh,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "rsqrt": lambda v: v**-0.5,
    "erf": _erf,
    "abs": np.abs,
    "neg": lambda v: -v,
    "square": lambda v: v * v,
}


def finished(p: Params, result: Array, bias: Array | None) -> Array:
    return ACTS[p.get("act", "none")](result if bias is None else result + bias)


def channels_last(p: Params, x: Array) -> Array:
    return np.moveaxis(x, 1, -1) if p["layout"].startswith("NC") else x


def back(p: Params, y: Array) -> Array:
    return np.moveaxis(y, -1, 1) if p["layout"].startswith("NC") else y


def windows(
    p: Params, x: Array, kernel: tuple[int, ...], fill: float
) -> tuple[Array, tuple[int, ...]]:
    """x of shape (N, *space, C) padded, and the extents of the result."""
    dims = len(kernel)
    padded = np.pad(x, [(0, 0), *[(p["pad"], p["pad"])] * dims, (0, 0)], constant_values=fill)
    reach = [p.get("dilation", 1) * (k - 1) + 1 for k in kernel]
    return padded, tuple(
        (n - r) // p["stride"] + 1 for n, r in zip(padded.shape[1:-1], reach, strict=True)
    )


def patches(
    p: Params, x: Array, kernel: tuple[int, ...], fill: float = 0
) -> list[tuple[tuple[int, ...], Array]]:
    """For each kernel position the array (N, *out, C) it meets."""
    padded, out = windows(p, x, kernel, fill)
    parts = []
    for position in np.ndindex(*kernel):
        starts = [r * p.get("dilation", 1) for r in position]
        cut = tuple(
            slice(s, s + (n - 1) * p["stride"] + 1, p["stride"])
            for s, n in zip(starts, out, strict=True)
        )
        window: tuple[slice, ...] = (slice(None), *cut)
        parts.append((position, padded[window]))
    return parts


def convolved(p: Params, x: Array, w: Array, bias: Array | None = None) -> Array:
    kernel = tuple(p[name] for name in ("KD", "KH", "KW") if name in p)
    x = channels_last(p, x)
    if p["layout"].startswith("NC"):
        w = np.moveaxis(np.moveaxis(w, 0, -1), 0, -2)  # OI… to …IO
    groups, result = p["groups"], []
    for g in range(groups):
        ci, co = x.shape[-1] // groups, w.shape[-1] // groups
        part = x[..., g * ci : (g + 1) * ci]
        kernels = w[..., g * co : (g + 1) * co]
        result.append(
            np.asarray(
                sum(
                    np.asarray(patch @ kernels[position])
                    for position, patch in patches(p, part, kernel)
                )
            )
        )
    return back(p, finished(p, np.concatenate(result, -1), bias))


def depthwise(p: Params, x: Array, w: Array, bias: Array | None = None) -> Array:
    w = np.moveaxis(w, 0, -1)[0] if p["layout"] == "NCHW" else w[..., 0]
    total = sum(
        patch * w[position]
        for position, patch in patches(p, channels_last(p, x), (p["KH"], p["KW"]))
    )
    return back(p, finished(p, np.asarray(total), bias))


def transposed_convolution(p: Params, x: Array, w: Array, bias: Array | None = None) -> Array:
    x = channels_last(p, x)
    w = np.transpose(w, (2, 3, 1, 0)) if p["layout"] == "NCHW" else w
    n, h, width, _ = x.shape
    stride, pad = p["stride"], p["pad"]
    full = np.zeros(
        (n, (h - 1) * stride + p["KH"], (width - 1) * stride + p["KW"], w.shape[-1]),
        np.result_type(x, w),
    )
    for a, b, r, s in np.ndindex(h, width, p["KH"], p["KW"]):
        full[:, a * stride + r, b * stride + s] += x[:, a, b] @ w[r, s]
    return back(p, finished(p, full[:, pad : full.shape[1] - pad, pad : full.shape[2] - pad], bias))


def pooled(p: Params, x: Array, kind: str) -> Array:
    x = channels_last(p, x)
    kernel = (p["KH"], p["KW"])
    if kind == "max":
        return back(
            p,
            np.max(
                [patch for _, patch in patches(p, x.astype(np.float64), kernel, -np.inf)], axis=0
            ),
        )
    total = sum(patch for _, patch in patches(p, x, kernel))
    counted = sum(patch for _, patch in patches(p, np.ones_like(x), kernel))
    return back(p, np.asarray(total / (p["KH"] * p["KW"] if p["count_include_pad"] else counted)))


def normalised(p: Params, x: Array, gamma: Array, beta: Array) -> Array:
    return np.asarray(
        (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + p["eps"]) * gamma + beta
    )


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(e / e.sum(-1, keepdims=True))


def attended(p: Params, q: Array, k: Array, v: Array, mask: Array | None = None) -> Array:
    k, v = (np.repeat(x, p["H"] // x.shape[1], axis=1) for x in (k, v))
    scores = q @ k.swapaxes(-1, -2) / math.sqrt(p["D"])
    if p["softcap"]:
        scores = p["softcap"] * np.tanh(scores / p["softcap"])
    keys = k.shape[2]
    seen = np.ones((p["S"], keys), np.bool_)
    places, own = np.arange(keys), np.arange(p["S"])[:, None] + keys - p["S"]
    if p["causal"]:
        seen &= places <= own
    if p["window"]:
        seen &= places > own - p["window"]
    if mask is not None and p["mask"] == "add":
        scores = scores + mask[:, None]
    elif mask is not None:
        seen = seen & (mask[:, None] != 0)
    return np.asarray(softmax(np.where(seen, scores, -np.inf)) @ v)


def two_layers(p: Params, x: Array, *rest: Array) -> Array:
    """A gate and its bias come before those of the hidden layer."""
    count = 3 if p["gate"] else 2
    layers = [x @ weights.T for weights in rest[: count - 1]]
    if p["bias"]:
        layers = [layer + b for layer, b in zip(layers, rest[count:-1], strict=True)]
    hidden = ACTS[p["act"]](layers[0])
    if p["gate"]:
        hidden = hidden * layers[1]
    result = hidden @ rest[count - 1].T
    return np.asarray(result + rest[-1] if p["bias"] else result)


def batch_normalised(p: Params, x: Array, *stored: Array) -> Array:
    gamma, beta, mean, var = stored
    return back(p, (channels_last(p, x) - mean) / np.sqrt(var + p["eps"]) * gamma + beta)


def turned(flag: bool, x: Array) -> Array:
    return x.swapaxes(-1, -2) if flag else x


def quantised(p: Params, x: Array, w: Array, s: Array, *rest: Array) -> Array:
    """Weights unpacked one by one, then a product."""
    features, group = p["K"], p["group"] or p["K"]
    numbers = np.arange(features) // group
    real = w.astype(np.float64)
    if p["weight"] != "int8":
        real = halves(w)[:, :features].astype(np.float64)
        if p["weight"] == "uint4":
            zeros = rest[0] if p["zeros"] == "float32" else halves(rest[0])
            real -= zeros[:, numbers]
        else:
            real -= 8
    bias = rest[-1] if p["bias"] else None
    if p["activations"] == "int8":
        x = np.concatenate(
            [rounded(part) for part in np.split(x, range(group, features, group), 1)], 1
        )
    return finished(p, x @ (real * s[:, numbers]).T, bias)


def requantised(p: Params, sums: Array, s: Array, bias: Array | None = None) -> Array:
    """Sums with their channels last as bytes."""
    zero, limits = p["y_zero"], np.iinfo(p["result"])
    scaled = (sums if bias is None else sums + bias) * s.astype(np.float64)
    least = zero if p["relu"] else limits.min
    return np.asarray(np.clip(np.rint(scaled) + zero, least, limits.max))


def convolved_bytes(p: Params, x: Array, w: Array, *rest: Array) -> Array:
    """A convolution of what lies above the zero point, which stands in place of a border."""
    wide, plain = w.astype(np.int64), {**p, "bias": False, "act": "none"}
    above = convolved(plain, x.astype(np.int64) - p["x_zero"], wide)
    offset = p["x_zero"] * wide.sum((1, 2, 3) if p["layout"] == "NCHW" else (0, 1, 2))
    return back(p, requantised(p, channels_last(p, above) + offset, *rest))


def rounded(x: Array) -> Array:
    """Rows as multiples of a 127th of their greatest absolute value."""
    step = np.abs(x).max(1, keepdims=True).astype(np.float32)
    factor = np.float32(127) / np.where(step == 0, 1, step)
    nearest: Array = np.rint(x.astype(np.float32) * factor).astype(np.float64)
    return np.asarray(nearest * step / 127)


def halves(packed: Array) -> Array:
    """Of each byte the low four bits, then the high ones."""
    return np.stack([packed & 15, packed >> 4], -1).reshape(len(packed), -1)


def of_rows(pointers: Array, terms: Array, mode: str = "sum") -> Array:
    """Terms reduced row by row."""
    empty = {"max": -np.inf, "min": np.inf}.get(mode, 0.0)
    reductions: Mapping[str, Callable[..., Array]] = {"max": np.max, "min": np.min, "mean": np.mean}
    reduce = reductions.get(mode, np.sum)
    rows = [terms[low:high] for low, high in pairwise(pointers)]
    return np.array(
        [reduce(row, 0) if len(row) else np.full(terms.shape[1:], empty) for row in rows]
    )


def bagged(p: Params, pointers: Array, indices: Array, *rest: Array) -> Array:
    weights = rest[0][:, None] if p["mode"] == "weighted" else 1.0
    return of_rows(pointers, weights * rest[-1][indices], p["mode"])


def scattered(p: Params, indices: Array, x: Array) -> Array:
    start = {"max": -np.inf, "min": np.inf}.get(p["mode"], 0.0)
    result = np.full((p["M"], p["D"]), start)
    combine = {"max": np.maximum, "min": np.minimum}.get(p["mode"], np.add)
    for row, term in zip(indices, x, strict=True):
        result[row] = combine(result[row], term)
    return result


def active(
    p: Params, j: Array, x: Array, w: Array, bias: Array, offset: Array | float = 0
) -> Array:
    every = x @ w.T + bias
    logits = np.take_along_axis(every, j, 1) + offset
    return softmax(logits) if p["softmax"] else logits


def active_gradient(p: Params, first: Array, second: Array, *rest: Array) -> Array:
    if p["of"] == "inputs":
        j, g, (w,) = first, second, rest
        return np.array([of_sample @ w[row] for of_sample, row in zip(g, j, strict=True)])
    pointers, samples, (g, x) = first, second, rest
    return of_rows(pointers, g[:, None] * x[samples])


def signs(p: Params, x: Array, r: Array) -> Array:
    bits = (x @ r >= 0).reshape(len(x), p["T"], p["K"])
    return np.asarray((bits << np.arange(p["K"])).sum(-1))


def winners(p: Params, i: Array, others: Array, x: Array) -> Array:
    """Codes one by one: the place of the greatest element that is not 0, else of another."""
    codes = np.full((len(x), len(i)), -1)
    for b, h in np.ndindex(codes.shape):
        bin_ = x[b, i[h]]
        if bin_.any():
            codes[b, h] = np.argmax(np.where(bin_ != 0, bin_, -np.inf))
    result = np.zeros((len(x), p["T"]), np.int64)
    for b, h in np.ndindex(codes.shape):
        tried = [code for code in (codes[b, h], *codes[b, others[h]]) if code >= 0]
        result[b, h // p["K"]] |= (tried[0] if tried else 0) << 3 * (h % p["K"])
    return result


MEANING: Mapping[str, Callable[..., Array]] = {
    "matmul": lambda p, a, b: turned(p["transpose_a"], a) @ turned(p["transpose_b"], b),
    "batch_matmul": lambda p, a, b: turned(p["transpose_a"], a) @ turned(p["transpose_b"], b),
    "qdense": quantised,
    "qmatmul": lambda p, a, b, *rest: requantised(p, a.astype(np.int64) @ b, *rest),
    "qconv2d": convolved_bytes,
    "dense": lambda p, x, w, bias=None: finished(p, x @ w.T, bias),
    "conv1d": convolved,
    "conv2d": convolved,
    "conv3d": convolved,
    "conv2d_transpose": transposed_convolution,
    "depthwise_conv2d": depthwise,
    "max_pool2d": lambda p, x: pooled(p, x, "max"),
    "avg_pool2d": lambda p, x: pooled(p, x, "avg"),
    "global_avg_pool2d": lambda p, x: channels_last(p, x).mean((1, 2)),
    "softmax": lambda p, x: softmax(x),
    "log_softmax": lambda p, x: (
        x
        - x.max(1, keepdims=True)
        - np.log(np.exp(x - x.max(1, keepdims=True)).sum(1, keepdims=True))
    ),
    "layer_norm": normalised,
    "rms_norm": lambda p, x, gamma: x / np.sqrt((x * x).mean(1, keepdims=True) + p["eps"]) * gamma,
    "batch_norm": batch_normalised,
    "reduce_sum": lambda p, x: x.sum(p["axis"]),
    "reduce_max": lambda p, x: x.max(p["axis"]),
    "reduce_mean": lambda p, x: x.mean(p["axis"]),
    "transpose": lambda p, x: x.T,
    "elementwise": lambda p, x: ACTS[p["act"]](x),
    "bias_act": finished,
    "attention": attended,
    "mlp": two_layers,
    "embedding_bag": bagged,
    "segment_reduce": lambda p, pointers, x: of_rows(pointers, x, p["mode"]),
    "spmv": lambda p, pointers, j, a, x: of_rows(pointers, a * x[j]),
    "spmm": lambda p, pointers, j, a, x: of_rows(pointers, a[:, None] * x[j]),
    "sddmm": lambda p, r, j, a, b: (a[r] * b[j]).sum(1),
    "scatter_add": scattered,
    "gather_matmul": lambda p, i, a, b: a[i] @ turned(p["transpose_b"], b),
    "slide_layer": active,
    "slide_layer_gradient": active_gradient,
    "simhash": signs,
    "dwta_hash": winners,
    "embedding": lambda p, x, w: w[np.clip(x, 0, p["V"] - 1)],
}
