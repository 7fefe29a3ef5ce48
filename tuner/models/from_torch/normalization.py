"""Softmax and normalisations of ATen."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.models.from_torch.call import Call, Convert, Results
from tuner.models.operators import elementwise as maps
from tuner.models.operators import movement, normalization
from tuner.models.operators.values import Value


def softmax(log: bool) -> Convert:
    def convert(call: Call) -> Value:
        x = call.value("self", call.dtype)
        return normalization.softmax(x, [call["dim"] % x.rank], log=log)

    return convert


def layer_norm(call: Call) -> Results:
    x, weight, bias = call.value("input"), call.get("weight"), call.get("bias")
    axes = range(x.rank - len(call["normalized_shape"]), x.rank)
    result = normalization.layer_norm(x, axes, weight, bias, call["eps"])
    return (result, *_statistics(call, x, axes))


def group_norm(call: Call) -> Results:
    x, groups = call.value("input"), call["group"]
    result = normalization.group_norm(x, groups, call.get("weight"), call.get("bias"), call["eps"])
    parts = movement.reshape(x, [x.shape[0], groups, x.elements // (x.shape[0] * groups)])
    return (result, *_statistics(call, parts, [2]))


def _statistics(call: Call, x: Value, axes: Sequence[int]) -> Sequence[Value | None]:
    """What only derivatives read of a normalisation: mean and reciprocal deviation."""
    if not call.used & {1, 2}:
        return None, None
    results = normalization.statistics(maps.cast(x, call.dtypes[1]), axes, call["eps"])
    return [movement.reshape(value, call.shapes[1]) for value in results]


def batch_norm(call: Call) -> Results:
    x = call.value("input")
    channels = x.shape[1]
    weight = call["weight"] or call.builder.constant([1.0] * channels, x.dtype)
    bias = call["bias"] or call.builder.constant([0.0] * channels, x.dtype)
    mean_value, spread = call.value("running_mean"), call.value("running_var")
    result = normalization.batch_norm(x, weight, bias, mean_value, spread, call["eps"])
    return (result, None, None)


def own_batch_norm(call: Call) -> Results:
    """By the statistics of the input itself, over all but its channels."""
    x = call.value("input")
    axes = [axis for axis in range(x.rank) if axis != 1]
    scale, shift = (
        None if call[name] is None else normalization.channel(call.value(name), x.rank)
        for name in ("weight", "bias")
    )
    return (normalization.layer_norm(x, axes, scale, shift, call["eps"]), None, None)


def rms_norm(call: Call) -> Value:
    x = call.value("input")
    axes = range(x.rank - len(call["normalized_shape"]), x.rank)
    epsilon = call.get("eps")
    return normalization.rms_norm(x, axes, call.get("weight"), epsilon or 1.1920929e-07)
