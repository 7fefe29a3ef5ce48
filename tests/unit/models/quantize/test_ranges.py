"""Ranges of tensors, and the scales and zero points of their integers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tuner.models.quantize.ranges import METHODS, Histogram, Method, Range

FINITE = st.floats(-1e30, 1e30, allow_subnormal=False)


@given(FINITE, FINITE)
def test_zero_is_an_integer_and_the_range_is_covered(a: float, b: float) -> None:
    scale, zero = Range(low=min(a, b), high=max(a, b)).scale_and_zero()
    step = float(scale)
    assert step > 0 and 0 <= zero <= 255
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    if high - low > 1e-30:
        assert (0 - int(zero)) * step <= low + 0.51 * step
        assert (255 - int(zero)) * step >= high - 0.51 * step


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=200), st.integers(1, 9))
def test_max_covers_all_in_whatever_parts_it_comes(numbers: list[float], parts: int) -> None:
    histogram = Histogram()
    for part in np.array_split(np.array(numbers, np.float32), parts):
        histogram.add(part)
    seen = histogram.range("max", 99.9)
    assert seen.low == min(0.0, float(np.float32(min(numbers))))
    assert seen.high == max(0.0, float(np.float32(max(numbers))))


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=60), st.sampled_from(METHODS))
@example([5e-324, -1e6], "entropy")
def test_no_method_covers_more_than_was_seen(numbers: list[float], method: Method) -> None:
    histogram = Histogram()
    for number in numbers:  # from tiny to large, so that bins are joined
        histogram.add(np.array([number]))
    chosen, whole = histogram.range(method, 99.0), histogram.range("max", 99.0)
    assert whole.low <= chosen.low <= 0 <= chosen.high <= whole.high


@pytest.mark.parametrize("share", [90.0, 99.0, 99.9])
def test_a_percentile_keeps_its_share(share: float) -> None:
    numbers = np.random.default_rng(0).standard_normal(50_000)
    histogram = Histogram()
    for part in np.split(numbers, 10):
        histogram.add(part)
    chosen = histogram.range("percentile", share)
    kept = np.mean((numbers >= chosen.low) & (numbers <= chosen.high)) * 100
    assert kept == pytest.approx(share, abs=0.3)
    assert histogram.range("percentile", 100.0) == histogram.range("max", 100.0)


def test_entropy_drops_outliers_and_keeps_even_numbers() -> None:
    rng = np.random.default_rng(0)
    even, rare = Histogram(), Histogram()
    even.add(rng.uniform(-1, 1, 20_000))
    rare.add(np.concatenate([rng.standard_normal(20_000), [60.0]]))
    assert even.range("entropy", 100.0).high > 0.95
    assert 2.0 < rare.range("entropy", 100.0).high < 15.0


def test_zeros_alone_have_a_range() -> None:
    histogram = Histogram()
    histogram.add(np.zeros(10, np.float32))
    for method in METHODS:
        assert histogram.range(method, 99.0) == Range(low=0.0, high=0.0)
    scale, zero = Range(low=0.0, high=0.0).scale_and_zero()
    assert (float(scale), int(zero)) == (1.0, 0)
