"""GraphNet's speedup score."""

from __future__ import annotations

import math

import pytest

torch = pytest.importorskip("torch")

from benchmarks.torch.scores import FAILED, Outcome, right_from, score  # noqa: E402


def test_what_is_wrong_or_fails_counts_a_tenth() -> None:
    outcomes = [
        Outcome(speedup=2.0, right_from=-5),
        Outcome(speedup=4.0, right_from=-3),
        FAILED,
    ]
    assert score(outcomes, -5) == pytest.approx((2.0 * 0.1 * 0.1) ** (1 / 3))
    assert score(outcomes, -3) == pytest.approx((2.0 * 4.0 * 0.1) ** (1 / 3))


def test_a_score_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one graph"):
        score([], -5)


@pytest.mark.parametrize(
    ("off", "least"), [(0.0, -5), (1e-6, -5), (1e-4, -3), (1e-2, -1), (0.5, math.inf)]
)
def test_tolerances_are_those_of_pytorch_and_wider(off: float, least: float) -> None:
    right = torch.tensor([1.0, 0.0])
    assert right_from([right + off], [right]) == least


def test_other_dtypes_and_counts_of_outputs_and_nan_are_wrong() -> None:
    right, nan = torch.ones(2), torch.full((2,), math.nan)
    assert right_from([right.double()], [right]) == math.inf
    assert right_from([right, right], [right]) == math.inf
    assert right_from([torch.tensor([1, 2])], [torch.tensor([1, 3])]) == math.inf
    assert right_from([nan], [nan]) == math.inf
