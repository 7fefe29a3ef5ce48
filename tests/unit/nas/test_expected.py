"""The expectation of a mixture's latency, and what is no mixture."""

from __future__ import annotations

import math

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tuner.errors import UsageError  # noqa: E402
from tuner.nas import ExpectedLatency  # noqa: E402

TIMES = ((1e-6, 4e-6, 0.0), (2e-6, 3e-6))


def test_it_is_the_mean_of_all_architectures_weighted_by_their_probability() -> None:
    weights = [torch.softmax(torch.tensor(row), 0) for row in ((0.3, -1.0, 2.0), (0.1, 0.9))]
    networks = sum(
        float(weights[0][first] * weights[1][second]) * (TIMES[0][first] + TIMES[1][second])
        for first in range(3)
        for second in range(2)
    )
    expected = ExpectedLatency(TIMES, fixed_s=5e-6)(weights)
    assert expected.shape == () and float(expected) == pytest.approx(networks + 5e-6, rel=1e-6)


def test_gradients_by_probabilities_are_the_times() -> None:
    weights = [torch.full((len(row),), 1 / len(row), requires_grad=True) for row in TIMES]
    ExpectedLatency(TIMES)(weights).backward()
    for weight, times in zip(weights, TIMES, strict=True):
        np.testing.assert_allclose(weight.grad.numpy(), times, rtol=1e-6)


def test_gradients_by_logits_are_right_to_finite_differences() -> None:
    logits = torch.tensor([0.2, -0.7, 1.1], dtype=torch.float64, requires_grad=True)
    latency = ExpectedLatency([[1.0, 4.0, 0.5]])
    assert torch.autograd.gradcheck(lambda x: latency([torch.softmax(x, 0)]), (logits,))


def test_batches_are_evaluated_at_once() -> None:
    first, second = torch.softmax(torch.randn(5, 3), -1), torch.softmax(torch.randn(2), -1)
    latency = ExpectedLatency(TIMES)
    together = latency([first, second])
    assert together.shape == (5,)
    for row, seconds in zip(first, together, strict=True):
        assert float(seconds) == pytest.approx(float(latency([row, second])), rel=1e-6)


def test_a_choice_is_drawn_exactly() -> None:
    drawn = [torch.tensor([0.0, 1.0, 0.0]), torch.tensor([1.0, 0.0])]
    assert float(ExpectedLatency(TIMES)(drawn)) == pytest.approx(6e-6, rel=1e-6)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_rounded_distributions_are_distributions(dtype: str) -> None:
    weights = torch.softmax(torch.randn(64, 9), -1).to(getattr(torch, dtype))
    assert ExpectedLatency([[1.0] * 9])([weights]).shape == (64,)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([[0.5, 0.5, 0.3], [0.5, 0.5]], r"layer 0: the probabilities sum to 1\.3"),
        ([[0.5, 0.5, 0.0], [1.5, -0.5]], "layer 1.*least of -0.5"),
        ([[math.nan, 0.5, 0.5], [0.5, 0.5]], "layer 0"),
        ([[0.5, 0.5], [0.5, 0.5]], r"layer 0 has 3 choices.*\(2,\)"),
        ([[0.2, 0.3, 0.5]], "1 layers' probabilities were given for 2"),
    ],
)
def test_what_is_no_mixture_is_refused(weights: list[list[float]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ExpectedLatency(TIMES)([torch.tensor(row) for row in weights])


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ([], "no layers"),
        ([[1.0], []], "layer 1 has no choices"),
        ([[1.0, -1.0]], "choice 1 of layer 0 takes -1.0 s"),
        ([[math.inf]], "takes inf s"),
    ],
)
def test_impossible_times_are_refused(times: list[list[float]], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        ExpectedLatency(times)


def test_one_hot_choices_are_floats() -> None:
    with pytest.raises(UsageError, match=r"torch\.int64; convert them to torch\.float32"):
        ExpectedLatency([[1.0, 2.0]])([torch.tensor([0, 1])])


def test_it_moves_with_its_model() -> None:
    latency = ExpectedLatency(TIMES)
    assert set(latency.state_dict()) == {"times_0", "times_1"}
