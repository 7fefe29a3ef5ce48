"""Recorded calls of PyTorch as graphs: they compute what PyTorch does."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.traced_calls import call, evaluated
from tuner.models.errors import ModelRefused

torch = pytest.importorskip("torch")
F = torch.nn.functional

from tuner.trace.from_torch import bound_torch  # noqa: E402


def recorded(argument: Any) -> dict[str, Any]:
    """An argument as PyTorch's profiler has it."""
    if isinstance(argument, torch.Tensor):
        return {
            "shape": list(argument.shape),
            "strides": list(argument.stride()),
            "dtype": str(argument.dtype).removeprefix("torch."),
        }
    return {"value": argument}


def holds(operator: str, expected: Any, *arguments: Any) -> None:
    binding = bound_torch(call(operator, *map(recorded, arguments)))
    assert binding is not None
    tensors = [n for n, argument in enumerate(arguments) if isinstance(argument, torch.Tensor)]
    assert list(binding.inputs) == tensors
    result = evaluated(binding.graph, *(arguments[number].numpy() for number in tensors))
    if binding.result is None:
        result = result.reshape(tuple(expected.shape))
    else:  # its memory is the result's
        assert binding.result.shape == tuple(expected.shape)
        pairs = zip(expected.shape, binding.result.strides, expected.stride(), strict=True)
        assert all(mine == its for extent, mine, its in pairs if extent > 1)
        memory = torch.from_numpy(np.ascontiguousarray(result).reshape(-1))
        result = memory.as_strided(binding.result.shape, binding.result.strides).numpy()
    np.testing.assert_allclose(result, expected.numpy(), rtol=2e-5, atol=1e-6)


X, W, B = torch.rand(2, 3, 8), torch.rand(5, 8), torch.rand(5)
IMAGES, FILTERS = torch.rand(1, 2, 6, 7), torch.rand(3, 2, 3, 3)
CASES: dict[str, Callable[[], tuple[Any, ...]]] = {
    "aten::linear": lambda: (F.linear(X, W, B), X, W, B),
    "aten::matmul": lambda: (X @ W.t(), X, W.t()),
    "aten::addmm": lambda: (torch.addmm(B, X[0], W.t()), B, X[0], W.t(), 1, 1),
    "aten::add": lambda: (X + X, X, X, 1),
    "aten::add_": lambda: (X + X, X, X, 1),
    "aten::mul": lambda: (X * 2.5, X, torch.tensor(2.5, dtype=torch.float64)),
    "aten::gelu": lambda: (F.gelu(X), X, None),  # a text, which the profiler leaves out
    "aten::softmax": lambda: (torch.softmax(X, -1), X, -1, None),
    "aten::sum": lambda: (X.sum(1, dtype=torch.float64), X, [1], False, 7),
    "aten::layer_norm": lambda: (F.layer_norm(X, (8,)), X, [8], None, None, 1e-5, True),
    "aten::conv2d": lambda: (
        F.conv2d(IMAGES, FILTERS, padding=1),
        *(IMAGES, FILTERS, None, [1, 1], [1, 1], [1, 1], 1),
    ),
    "aten::embedding": lambda: (
        F.embedding(torch.tensor([3, 0, 4]), W),
        *(W, torch.tensor([3, 0, 4]), -1, False, False),
    ),
}


@pytest.mark.parametrize("operator", sorted(CASES))
def test_operators(operator: str) -> None:
    holds(operator, *CASES[operator]())


@pytest.mark.parametrize("kind", ["plain", "causal", "added", "boolean"])
def test_attention_is_one_kernel_with_any_mask(kind: str) -> None:
    from tuner.models.passes.fusion import fuse  # noqa: PLC0415

    q, k, v = (torch.rand(1, 6, 2, 4).transpose(1, 2) for _ in range(3))
    masks = {"added": torch.rand(6, 6), "boolean": torch.ones(6, 6, dtype=torch.bool).tril()}
    mask = masks.get(kind)
    expected = F.scaled_dot_product_attention(q, k, v, mask, is_causal=kind == "causal")
    given = (q, k, v, mask, 0.0, kind == "causal", None, False)
    holds("aten::scaled_dot_product_attention", expected, *given)
    described = call("aten::scaled_dot_product_attention", *map(recorded, given))
    binding = bound_torch(described)
    assert binding is not None and len(fuse(binding.graph).nodes) == 1


@pytest.mark.parametrize(
    ("operator", "arguments"),
    [
        ("aten::transpose", (X, 1, 2)),
        ("aten::view", (X, [6, 8])),
        ("aten::dropout", (X, 0.1, False)),
        ("aten::slice", (X, 0, 0, 1, 1)),
    ],
)
def test_views_compute_nothing(operator: str, arguments: tuple[Any, ...]) -> None:
    assert bound_torch(call(operator, *map(recorded, arguments))) is None


def test_operators_stay_the_objects_that_pytorchs_rules_name() -> None:
    before = torch.ops.aten.transpose.int
    bound_torch(call("aten::transpose", *map(recorded, (X, 1, 2))))
    assert torch.ops.aten.transpose.int is before


@pytest.mark.parametrize(
    ("operator", "arguments", "says"),
    [
        ("aten::add", (X[:, 0], X[:, 1], 1), "with gaps"),
        ("aten::bernoulli", (X, None), "random"),
        ("aten::nothing_like_it", (X,), "cannot be traced again"),
        ("aten::exp", (torch.zeros(3, dtype=torch.float8_e4m3fn),), "float8_e4m3fn"),
    ],
)
def test_what_has_no_expression_says_why(
    operator: str, arguments: tuple[Any, ...], says: str
) -> None:
    with pytest.raises(ModelRefused, match=says):
        bound_torch(call(operator, *map(recorded, arguments)))


def test_complex_numbers_are_pairs_of_parts() -> None:
    z = torch.complex(X, X.flip(0))
    binding = bound_torch(call("aten::exp", recorded(z)))
    assert binding is not None
    result = evaluated(binding.graph, torch.view_as_real(z).numpy()).reshape(*X.shape, 2)
    np.testing.assert_allclose(result, torch.view_as_real(z.exp()).numpy(), rtol=2e-5, atol=1e-6)


def test_lists_of_tensors_have_no_recorded_dtype() -> None:
    entry = {"shape": [2], "strides": [1], "dtype": None}
    with pytest.raises(ModelRefused, match="not recorded"):
        bound_torch(call("aten::cat", {"list": [entry, entry]}, {"value": 0}))


def test_an_infinite_score_is_masked() -> None:
    q = torch.rand(1, 1, 3, 4)
    mask = torch.zeros(3, 3).masked_fill(torch.ones(3, 3).triu(1) > 0, -math.inf)
    expected = F.scaled_dot_product_attention(q, q, q, mask)
    holds("aten::scaled_dot_product_attention", expected, q, q, q, mask, 0.0, False, None, False)
