"""Softmax and normalisations; each is one node, whose stages a row's space keeps together."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import reshape
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import Elem, unary, where
from tuner.models.operators.values import Value


def softmax(x: Value, axes: Sequence[int], *, log: bool = False) -> Value:
    """Over the axes together, the greatest element subtracted first."""
    with x.builder.kernel("log_softmax" if log else "softmax"):
        top = reduce("max", "max", x, axes, keep=True)
        powers = elementwise("exp", lambda e, m: unary("exp", e - m), x, top)
        total = reduce("sum", "sum", powers, axes, keep=True)
        if log:
            return elementwise(
                "log_softmax", lambda e, m, s: e - m - unary("log", s), x, top, total
            )
        return elementwise("softmax", lambda e, s: e / s, powers, total)


def standardized(x: Value, axes: Sequence[int], epsilon: float) -> Value:
    """Mean 0 and variance 1 over the axes; the variance from differences to the mean."""
    count = prod(x.shape[axis] for axis in axes)
    total = reduce("sum", "sum", x, axes, keep=True)
    mean = elementwise("mean", lambda e: e * (1 / count), total)
    squares = elementwise("squares", lambda e, m: (e - m) * (e - m), x, mean)
    spread = reduce("variance", "sum", squares, axes, keep=True)
    scale = elementwise("rsqrt", lambda e: unary("rsqrt", e * (1 / count) + epsilon), spread)
    return elementwise("normalized", lambda e, m, s: (e - m) * s, x, mean, scale)


def statistics(x: Value, axes: Sequence[int], epsilon: float) -> tuple[Value, Value]:
    """The mean over the axes, and the reciprocal of the standard deviation, whose square
    has epsilon added; the axes stay, with extent 1."""
    count = prod(x.shape[axis] for axis in axes)
    with x.builder.kernel("mean"):
        total = reduce("sum", "sum", x, axes, keep=True)
        mean = elementwise("mean", lambda e: e * (1 / count), total)
    with x.builder.kernel("rstd"):
        squares = elementwise("squares", lambda e, m: (e - m) * (e - m), x, mean)
        spread = reduce("variance", "sum", squares, axes, keep=True)
        scale = elementwise("rsqrt", lambda e: unary("rsqrt", e * (1 / count) + epsilon), spread)
    return mean, scale


def _scaled(x: Value, scale: Value | None, bias: Value | None) -> Value:
    if scale is None and bias is None:
        return x
    if scale is None or bias is None:
        only = scale if bias is None else bias
        assert only is not None

        def one_of(e: Elem, other: Elem) -> Elem:
            return e * other if bias is None else e + other

        return elementwise("scale", one_of, x, only)
    return elementwise("scale", lambda e, g, b: e * g + b, x, scale, bias)


def layer_norm(
    x: Value, axes: Sequence[int], scale: Value | None, bias: Value | None, epsilon: float
) -> Value:
    with x.builder.kernel("layer_norm"):
        return _scaled(standardized(x, axes, epsilon), scale, bias)


def rms_norm(x: Value, axes: Sequence[int], scale: Value | None, epsilon: float) -> Value:
    """Each row divided by its root mean square."""
    count = prod(x.shape[axis] for axis in axes)
    with x.builder.kernel("rms_norm"):
        total = reduce("squares", "sum", x, axes, keep=True, function=lambda e: e * e)
        scale_of_row = elementwise(
            "rsqrt", lambda e: unary("rsqrt", e * (1 / count) + epsilon), total
        )
        return _scaled(elementwise("normalized", lambda e, s: e * s, x, scale_of_row), scale, None)


def channel(value: Value, rank: int) -> Value:
    """A vector of channels, to be broadcast over N, C, spatial."""
    return reshape(value, [1, value.elements, *(1,) * (rank - 2)])


def group_norm(
    x: Value, groups: int, scale: Value | None, bias: Value | None, epsilon: float
) -> Value:
    """Of x in N, C, spatial: each group of channels standardised; scale and bias a channel."""
    grouped = [x.shape[0], groups, x.shape[1] // groups, *x.shape[2:]]
    parts = reshape(x, grouped)

    def spread(vector: Value | None) -> Value | None:
        if vector is None:
            return None
        return reshape(vector, [1, groups, grouped[2], *(1,) * (x.rank - 2)])

    with x.builder.kernel("group_norm"):
        normal = standardized(parts, range(2, parts.rank), epsilon)
        result = _scaled(normal, spread(scale), spread(bias))
    return reshape(result, x.shape)


def batch_norm(
    x: Value, scale: Value, bias: Value, mean: Value, variance: Value, epsilon: float
) -> Value:
    """By stored statistics: a product and a sum a channel, computed in float64 where they
    are constants."""
    given = (scale, bias, mean, variance)
    if any(value.array is None for value in given):
        # A tensor of its own: a root for each channel, not for each element.
        scaling = elementwise(
            "batch_norm_factor",
            lambda g, v: g * unary("rsqrt", v + epsilon),
            scale,
            variance,
            dtype=x.computed_in,
        )
        return elementwise(
            "batch_norm",
            lambda e, f, b, m: (e - m) * f + b,
            x,
            *(channel(value, x.rank) for value in (scaling, bias, mean)),
        )
    gamma, beta, centre, spread = (np.asarray(value.array, np.float64) for value in given)
    factor = gamma / np.sqrt(spread + epsilon)
    offset = beta - centre * factor
    builder = x.builder
    return elementwise(
        "batch_norm",
        lambda e, f, o: e * f + o,
        x,
        channel(builder.constant(factor, x.computed_in), x.rank),
        channel(builder.constant(offset, x.computed_in), x.rank),
    )


def lp_normalize(x: Value, axis: int, p: int) -> Value:
    with x.builder.kernel("lp_normalize"):
        if p == 1:
            size = reduce("norm", "sum", x, [axis], keep=True, function=lambda e: unary("abs", e))
            return elementwise("divide", _divided, x, size)
        total = reduce("norm", "sum", x, [axis], keep=True, function=lambda e: e * e)
        return elementwise("divide", lambda e, s: _divided(e, unary("sqrt", s)), x, total)


def _divided(e: Elem, size: Elem) -> Elem:
    """0 where the norm is 0, as the operator has it."""
    return where(size.equals(0), 0, e / size)


def local_response(x: Value, *, size: int, alpha: float, beta: float, bias: float) -> Value:
    """Each element divided by a power of the squares' sum over neighbouring channels."""
    before = (size - 1) // 2
    with x.builder.kernel("local_response"):

        def squares(*places: Elem) -> Elem:
            n, c, *rest = places
            *outer, k = rest
            e = x.padded(n, c + k - before, *outer, pad=0)
            return e * e

        order = (0, *range(2, x.rank), 1) if x.order and x.order[-1] == 1 else None
        total = x.builder.reduce(
            "squares", "sum", x.shape, [size], squares, dtype=x.dtype, order=order
        )
        return elementwise(
            "local_response",
            lambda e, s: e * (s * (alpha / size) + bias) ** -beta,
            x,
            total,
        )
