"""Workloads of eight operators, drawn so that sizes and odd extents are as networks have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tuner.workload.spec import parse_spec
from tuner.workload.workload import Workload

MOST_FLOPS = 150e6  # a millisecond or two: more would only take time
LEAST_FLOPS = 20e3  # below it the call itself counts
Draw = Callable[[np.random.Generator], str]


def drawn(each: int, seed: int) -> list[Workload]:
    """`each` different workloads of every operator, the operators in turn."""
    rng = np.random.default_rng(seed)
    of_each = [_of(draw, each, rng) for draw in OPERATORS.values()]
    return [workload for row in zip(*of_each, strict=True) for workload in row]


def _of(draw: Draw, count: int, rng: np.random.Generator) -> list[Workload]:
    workloads: dict[str, Workload] = {}
    while len(workloads) < count:
        workload = parse_spec(draw(rng))
        if LEAST_FLOPS <= workload.expression.flops <= MOST_FLOPS:
            workloads.setdefault(workload.key, workload)
    return list(workloads.values())


def _extent(rng: np.random.Generator, low: int, high: int) -> int:
    """Log-uniform; half are multiples of 16, a quarter of 4, and a quarter are any number."""
    value = float(np.exp(rng.uniform(np.log(low), np.log(high))))
    step = int(rng.choice([16, 16, 4, 1]))
    return max(low, step * round(value / step), 1)


def _matmul(rng: np.random.Generator) -> str:
    m, n, k = (_extent(rng, low, 1024) for low in (1, 16, 16))
    return f"matmul:M={m},N={n},K={k},transpose_b={_either(rng)}"


def _dense(rng: np.random.Generator) -> str:
    m, n, k = (_extent(rng, low, 1024) for low in (1, 16, 16))
    act = rng.choice(["none", "relu", "gelu"])
    return f"dense:M={m},N={n},K={k},bias={_either(rng)},act={act}"


def _batch_matmul(rng: np.random.Generator) -> str:
    b, m, n, k = (
        _extent(rng, low, high) for low, high in ((2, 32), (16, 256), (16, 256), (16, 96))
    )
    return f"batch_matmul:B={b},M={m},N={n},K={k},transpose_b={_either(rng)}"


def _conv2d(rng: np.random.Generator) -> str:
    side, inner, outer = (_extent(rng, low, high) for low, high in ((7, 64), (3, 256), (8, 256)))
    window = int(rng.choice([1, 3, 3, 5]))
    return (
        f"conv2d:N=1,H={side},W={side},CI={inner},CO={outer},KH={window},KW={window},"
        f"stride={_stride(rng)},pad={window // 2},layout={_layout(rng)},act=relu"
    )


def _depthwise(rng: np.random.Generator) -> str:
    side, channels, window = _extent(rng, 7, 112), _extent(rng, 8, 512), int(rng.choice([3, 3, 5]))
    return (
        f"depthwise_conv2d:N=1,H={side},W={side},C={channels},KH={window},KW={window},"
        f"stride={_stride(rng)},pad={window // 2},layout={_layout(rng)}"
    )


def _max_pool2d(rng: np.random.Generator) -> str:
    side, channels, window = _extent(rng, 7, 112), _extent(rng, 8, 512), int(rng.choice([2, 3]))
    return (
        f"max_pool2d:N=1,H={side},W={side},C={channels},KH={window},KW={window},"
        f"stride={_stride(rng)},pad={window // 2},layout={_layout(rng)}"
    )


def _rows(operator: str) -> Draw:
    return lambda rng: f"{operator}:M={_extent(rng, 1, 2048)},N={_extent(rng, 32, 4096)}"


def _either(rng: np.random.Generator) -> str:
    return str(rng.choice(["true", "false"]))


def _stride(rng: np.random.Generator) -> int:
    return int(rng.choice([1, 1, 2]))


def _layout(rng: np.random.Generator) -> str:
    return str(rng.choice(["NHWC", "NCHW"]))


OPERATORS: Mapping[str, Draw] = {
    "matmul": _matmul,
    "dense": _dense,
    "batch_matmul": _batch_matmul,
    "conv2d": _conv2d,
    "depthwise_conv2d": _depthwise,
    "max_pool2d": _max_pool2d,
    "softmax": _rows("softmax"),
    "layer_norm": _rows("layer_norm"),
}
