"""Operators that derivatives are made of, as regions: what PyTorch gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from torch.fx.experimental.proxy_tensor import make_fx  # noqa: E402

from tests.support.torch_regions import evaluate_traced  # noqa: E402
from tuner.torch.partition import partition  # noqa: E402

aten = torch.ops.aten
EVERY = [True, True, True]


def randn(*shape: int) -> Any:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def check(function: Callable[..., Any], *inputs: Any) -> None:
    torch.testing.assert_close(
        evaluate_traced(function, *inputs), function(*inputs), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize(
    ("spatial", "stride", "padding", "dilation", "groups"),
    [(1, 2, 1, 1, 1), (2, 1, 1, 1, 1), (2, 2, 0, 1, 2), (2, 3, 2, 2, 4), (3, 1, 0, 1, 1)],
)
def test_gradients_of_convolutions(
    transposed: bool, spatial: int, stride: int, padding: int, dilation: int, groups: int
) -> None:
    x, bias = randn(2, 4, *(9,) * spatial), [8]
    weight = randn(*((4, 8 // groups) if transposed else (8, 4 // groups)), *(3,) * spatial)
    given = [stride] * spatial, [padding] * spatial, [dilation] * spatial
    more = (transposed, [0] * spatial, groups)
    result = aten.convolution(x, weight, None, *given, *more)
    gradient = randn(*result.shape)
    check(
        lambda g, x, w: aten.convolution_backward(g, x, w, bias, *given, *more, EVERY),
        gradient,
        x,
        weight,
    )
    check(
        lambda g, x, w: aten.convolution_backward(
            g, x, w, None, *given, *more, [False, True, False]
        )[1],
        gradient,
        x,
        weight,
    )


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation", "groups"),
    [
        (3, 1, 1, 1, 1),
        (3, 2, 1, 1, 1),
        (3, 2, 1, 1, 8),
        (5, 3, 0, 1, 2),
        (3, 2, 2, 2, 4),
        (1, 2, 0, 1, 1),
    ],
)
def test_gradients_of_convolutions_with_channels_last(
    kernel: int, stride: int, padding: int, dilation: int, groups: int
) -> None:
    """Of images with odd sides, as close to those of float64 as those that lie otherwise."""
    x, weight = randn(2, 8, 9, 7), randn(16, 8 // groups, kernel, kernel)
    given = [stride] * 2, [padding] * 2, [dilation] * 2, False, [0, 0], groups

    def gradients(g: Any, x: Any, w: Any) -> Any:
        return aten.convolution_backward(g, x, w, None, *given, [True, True, False])[:2]

    gradient = randn(*aten.convolution(x, weight, None, *given).shape)
    x, gradient = (each.to(memory_format=torch.channels_last) for each in (x, gradient))
    exact = gradients(gradient.double(), x.double(), weight.double())
    got = evaluate_traced(gradients, gradient, x, weight)
    for ours, right in zip(got, exact, strict=True):
        torch.testing.assert_close(ours.double(), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "ceil"), [(2, 2, 0, False), (3, 1, 1, False), (3, 2, 1, True)]
)
def test_gradients_of_pooling(kernel: int, stride: int, padding: int, ceil: bool) -> None:
    x = randn(2, 3, 7, 8)
    window = [kernel, kernel], [stride, stride], [padding, padding]
    pooled, places = aten.max_pool2d_with_indices(x, *window, [1, 1], ceil)
    gradient = randn(*pooled.shape)
    check(
        lambda g, x, i: aten.max_pool2d_with_indices_backward(g, x, *window, [1, 1], ceil, i),
        gradient,
        x,
        places,
    )
    check(lambda g, x: aten.avg_pool2d_backward(g, x, *window, ceil, True, None), gradient, x)
    check(lambda g, x: aten.avg_pool2d_backward(g, x, *window, ceil, False, None), gradient, x)


def test_statistics_of_normalisations() -> None:
    x = randn(2, 6, 4, 5) + 3
    check(lambda x: aten.native_layer_norm(x, [4, 5], None, None, 1e-5), x)
    check(lambda x: aten.native_group_norm(x, None, None, 2, 6, 20, 3, 1e-5), x)
    check(lambda x: aten.var_mean(x, [1, 3], correction=0, keepdim=True), x)
    check(lambda x: aten.var_mean(x, [1, 3], correction=1, keepdim=False), x)


@pytest.mark.parametrize(("dtype", "sums"), [(torch.float32, 2), (torch.bfloat16, 3)])
def test_a_mean_that_is_not_rounded_is_summed_once(dtype: Any, sums: int) -> None:
    """For the variance and as a result."""
    x = randn(4, 6).to(dtype) + 3
    module = make_fx(lambda x: aten.var_mean(x, [1], correction=1), tracing_mode="fake")(x)
    (region,) = partition(module.graph).regions
    stages = [stage for node in region.graph.expressions for stage in node.stages]
    assert sum(stage.reducer is not None for stage in stages) == sums
