"""What is still to be expected: near zero when converged, near the truth on known
distributions, never past the roofline."""

from __future__ import annotations

from math import exp

import numpy as np
import pytest

from tuner.search.expectation import Expectation, expect


def gain(seconds: list[float], trials: int = 100, floor_s: float | None = None) -> float:
    expectation = expect(seconds, trials=trials, seconds_per_trial=0.5, floor_s=floor_s)
    assert expectation is not None
    return expectation.gain


@pytest.mark.parametrize("count", [0, 5, 15])
def test_too_few_trials_say_nothing(count: int) -> None:
    assert expect([1e-3] * count + [None] * 40, trials=100, seconds_per_trial=1.0) is None


def test_equal_times_promise_nothing() -> None:
    assert gain([2e-3] * 50) == 0.0


def test_a_search_that_still_falls_promises_more_than_one_that_stopped() -> None:
    rng = np.random.default_rng(0)
    noise = rng.exponential(0.3, 200)
    falling = [exp(-0.01 * trial + noise[trial]) for trial in range(200)]
    settled = [exp(-0.01 * min(trial, 40) + noise[trial]) for trial in range(200)]
    assert gain(falling) > 2 * gain(settled) > 0


def test_random_draws_promise_about_what_further_draws_bring() -> None:
    """Bounded times, as kernels have: uniform logs."""
    said, true = [], []
    for seed in range(200):
        logs = np.random.default_rng(seed).uniform(0, 2, 200)
        said.append(gain(np.exp(logs[:100]).tolist()))
        true.append(exp(logs[:100].min() - logs.min()) - 1)
    assert 0.5 * np.mean(true) < np.mean(said) < 2.5 * np.mean(true)


def test_the_roofline_bounds_the_promise() -> None:
    times = np.exp(-0.01 * np.arange(100)).tolist()
    assert gain(times, floor_s=times[-1] / 1.01) == pytest.approx(0.01)
    assert gain(times, floor_s=times[-1] * 1.5) == 0.0


def test_failures_lower_the_promise() -> None:
    times = np.exp(np.random.default_rng(1).uniform(0, 2, 100)).tolist()
    with_failures: list[float | None] = [value for time in times for value in (time, None)]
    expectation = expect(with_failures, trials=100, seconds_per_trial=1.0)
    assert expectation is not None and expectation.gain < gain(times)


def test_it_reads_as_a_sentence() -> None:
    assert str(Expectation(trials=100, gain=0.004, seconds=50.0)) == "next 100 trials: +0.4%, 50 s"
