"""Pooling of ATen, and its derivatives."""

from __future__ import annotations

import math

from tuner.models.from_torch.call import Call, Results
from tuner.models.operators import movement, pooling
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.values import Value


def _window(call: Call, x: Value) -> pooling.Window:
    spatial = len(call["kernel_size"])

    def spread(name: str, default: list[int]) -> list[int]:
        given = list(call.get(name) or default)
        return given * spatial if len(given) == 1 else given

    kernel = list(call["kernel_size"])
    return pooling.window(
        x.shape[-spatial:],
        kernel,
        spread("stride", kernel),
        spread("padding", [0]) * 2,
        spread("dilation", [1]),
        ceil=bool(call.get("ceil_mode")),
    )


def _batched(call: Call) -> tuple[Value, bool]:
    x = call.value("self")
    batched = x.rank == len(call["kernel_size"]) + 2
    return (x if batched else movement.unsqueeze(x, [0])), batched


def max_pool(call: Call) -> Results:
    """The greatest elements, and where each stands in its plane."""
    x, batched = _batched(call)
    window = _window(call, x)
    pooled = pooling.max_pool(x, window)
    places = pooling.max_pool_positions(x, window)
    plane = math.prod(x.shape[2:])
    places = elementwise("in_plane", lambda e: e % plane, places)
    results = (pooled, places)
    return results if batched else [movement.squeeze(value, [0]) for value in results]


def average_pool(call: Call) -> Value:
    x, batched = _batched(call)
    pooled = pooling.average_pool(
        x,
        _window(call, x),
        count_padding=bool(call.get("count_include_pad", True)),
        divisor=call.get("divisor_override"),
    )
    return pooled if batched else movement.squeeze(pooled, [0])


def max_pool_backward(call: Call) -> Value:
    gradient, x = call.value("grad_output"), call.value("self")
    window = _window(call, x)
    if x.rank != len(window.kernel) + 2:
        raise call.refusal("has no batch")
    places = call.value("indices")
    return pooling.pool_gradient(gradient, window, x.shape[2:], places)


def average_pool_backward(call: Call) -> Value:
    gradient, x = call.value("grad_output"), call.value("self")
    window = _window(call, x)
    if x.rank != len(window.kernel) + 2 or call.get("divisor_override"):
        raise call.refusal("has no batch, or a divisor of its own")
    weights = pooling.average_weights(
        x, window, count_padding=bool(call.get("count_include_pad", True))
    )
    scaled = elementwise("shares", lambda e, f: e * f, gradient, weights)
    return pooling.pool_gradient(scaled, window, x.shape[2:])


def adaptive_max(call: Call) -> Results:
    return pooling.adaptive_max(call.value("self"), call["output_size"])


def adaptive_average(call: Call) -> Value:
    """Windows that cover the input evenly: of a dimension that its result does not divide
    they overlap, and differ by one in size."""
    x = call.value("self")
    sizes = list(call["output_size"])
    for axis, size in enumerate(sizes, start=x.rank - len(sizes)):
        x = pooling.adaptive_average(x, axis, size)
    return x
