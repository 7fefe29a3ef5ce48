"""Importance finds the knob that made the difference, and nothing in noise."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.api.dashboard.importance import importance, omega_squared


def test_the_knob_that_decides_has_almost_all_the_variance() -> None:
    rng = np.random.default_rng(0)
    configs = [
        {"tile": (int(rng.integers(4)), 8), "unroll": int(rng.integers(8)), "fixed": "same"}
        for _ in range(400)
    ]
    medians = [float(np.exp(config["tile"][0] + rng.normal(0, 0.1))) for config in configs]  # type: ignore[index]
    ranked = importance(configs, medians)
    assert [knob.knob for knob in ranked] == ["tile", "unroll"]
    assert ranked[0].share > 0.95 and ranked[1].share < 0.05
    assert [group.value for group in ranked[0].groups] == [(0, 8), (1, 8), (2, 8), (3, 8)]
    assert ranked[0].groups[0].best_s == pytest.approx(
        min(m for c, m in zip(configs, medians, strict=True) if c["tile"] == (0, 8))
    )


def test_many_values_of_pure_noise_explain_nothing() -> None:
    rng = np.random.default_rng(1)
    shares = [omega_squared(rng.integers(0, 100, 300), rng.normal(0, 1, 300)) for _ in range(30)]
    assert np.mean(shares) < 0.05  # η² would be about 0.33


def test_too_few_trials_say_nothing() -> None:
    assert importance([{"a": value} for value in range(11)], [1.0] * 11) == ()
    assert omega_squared(np.array([0, 1]), np.array([1.0, 2.0])) == 0.0


def test_knobs_of_mixed_kinds_are_ordered() -> None:
    configs = [{"k": value} for value in (3, 1, "none", (4, 8), 2, "pack") * 4]
    (knob,) = importance(configs, list(np.linspace(1, 2, 24)))
    assert [group.value for group in knob.groups] == [1, 2, 3, (4, 8), "none", "pack"]
