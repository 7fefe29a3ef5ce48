"""Intervals cover what they claim on simulated timings; the default stays unless
something surely beats it."""

from __future__ import annotations

from math import inf
from statistics import median

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.statistics import (
    decide,
    disturbed,
    median_ci95,
    race_median_ci95,
    ratio_of_medians,
    student_cdf,
    student_quantile,
)

TIMES = st.lists(st.floats(1e-9, 1e3), min_size=1, max_size=200)
Rounds = list[list[float]]


@given(TIMES)
def test_interval_encloses_the_sample_median(samples: list[float]) -> None:
    low, high = median_ci95(samples)
    assert min(samples) <= low <= median(samples) <= high <= max(samples)


@given(TIMES, st.floats(1e-3, 1e3))
def test_interval_scales_with_the_unit(samples: list[float], unit: float) -> None:
    low, high = median_ci95(samples)
    assert median_ci95([sample * unit for sample in samples]) == pytest.approx(
        (low * unit, high * unit)
    )


@pytest.mark.parametrize("count", [6, 10, 25, 50, 101])
def test_coverage_of_the_median_on_skewed_samples(count: int) -> None:
    rng = np.random.default_rng(count)
    hits = 0
    for _ in range(2000):
        low, high = median_ci95(rng.lognormal(0.0, 0.7, count).tolist())
        hits += low <= 1.0 <= high  # the median of this lognormal is 1
    assert 0.94 <= hits / 2000 <= 0.995


def test_order_statistics_are_the_textbook_ones() -> None:
    """For n = 10 the 2nd and 9th (97.9%), for n = 20 the 6th and 15th (95.9%)."""
    assert median_ci95(list(range(1, 11))) == (2, 9)
    assert median_ci95(list(range(1, 21))) == (6, 15)
    assert median_ci95([3.0, 1.0]) == (1.0, 3.0)
    with pytest.raises(ValueError, match="no samples"):
        median_ci95([])


QUANTILES = [(1, 12.7062), (2, 4.3027), (3, 3.1824), (4, 2.7764), (9, 2.2622), (30, 2.0423)]


@pytest.mark.parametrize(("freedom", "quantile"), QUANTILES)
def test_student_quantiles_are_those_of_the_tables(freedom: int, quantile: float) -> None:
    assert student_quantile(0.975, freedom) == pytest.approx(quantile, abs=1e-4)
    assert student_cdf(0.0, freedom) == pytest.approx(0.5)


def simulated(
    rng: np.random.Generator,
    seconds: float,
    rounds: int,
    *,
    process: float = 0.02,
    sample: float = 0.01,
) -> Rounds:
    return [
        (
            seconds * np.exp(rng.normal(0, process)) * np.exp(np.abs(rng.normal(0, sample, 20)))
        ).tolist()
        for _ in range(rounds)
    ]


@pytest.mark.parametrize("rounds", [3, 5, 9])
def test_coverage_of_the_ratio_when_processes_differ(rounds: int) -> None:
    rng, hits = np.random.default_rng(rounds), 0
    for _ in range(1000):
        low, high = ratio_of_medians(
            simulated(rng, 0.8e-3, rounds), simulated(rng, 1e-3, rounds)
        ).ci95
        hits += low <= 0.8 <= high
    assert 0.93 <= hits / 1000 <= 0.97


def test_what_slows_whole_rounds_cancels() -> None:
    drift = [1.0, 1.7, 0.8, 1.2, 2.5]
    first = [[0.9 * factor] * 5 for factor in drift]
    second = [[1.0 * factor] * 5 for factor in drift]
    ratio = ratio_of_medians(first, second)
    assert ratio.value == pytest.approx(0.9) and ratio.surely_faster
    assert ratio.ci95 == pytest.approx((0.9, 0.9))


def test_one_round_proves_nothing() -> None:
    ratio = ratio_of_medians([[0.1, 0.1]], [[1.0, 1.0]])
    assert ratio.ci95 == (0.0, inf) and not ratio.surely_faster
    with pytest.raises(ValueError, match="paired"):
        ratio_of_medians([[1.0]], [])


def test_one_that_ended_earlier_is_compared_by_its_rounds() -> None:
    drift = [1.0, 3.0, 0.5, 7.0]
    ratio = ratio_of_medians(
        [[20 * factor] * 2 for factor in drift[:3]], [[1.0 * factor] * 5 for factor in drift]
    )
    assert ratio.value == pytest.approx(20)


def test_the_fastest_that_surely_wins_is_promoted() -> None:
    rng = np.random.default_rng(1)
    field = {
        "default": simulated(rng, 1e-3, 5),
        "a": simulated(rng, 0.5e-3, 5),
        "b": simulated(rng, 0.7e-3, 5),
    }
    decision = decide(field, default="default")
    assert decision.winner == "a" and "a takes 0.5" in decision.reason


def test_all_rounds_say_who_is_fastest_where_the_default_ran_one() -> None:
    disturbed = [[2e-3] * 5, [1e-3] * 5, [1e-3] * 5, [1e-3] * 5, [1e-3] * 5]
    lucky = [[1.5e-3] * 5, [1.3e-3] * 5, [1.3e-3] * 5, [1.3e-3] * 5, [1.3e-3] * 5]
    gone = [[1.8e-3] * 5, [1.4e-3] * 5, [1.4e-3] * 5]
    decision = decide(
        {"default": [[1.0] * 2], "fast": disturbed, "lucky": lucky, "gone": gone},
        default="default",
        hopeless=True,
    )
    assert decision.winner == "fast"


def test_the_default_stays_against_its_equals() -> None:
    """With nothing to find, something is promoted in at most a few of a hundred races."""
    rng, promoted = np.random.default_rng(2), 0
    for _ in range(300):
        field = {"default": simulated(rng, 1e-3, 5), "same": simulated(rng, 1e-3, 5)}
        promoted += decide(field, default="default").winner == "same"
    assert promoted / 300 <= 0.05


def test_the_incumbent_stays_until_surely_beaten_and_falls_when_slower_than_the_default() -> None:
    rng = np.random.default_rng(3)
    base, held = simulated(rng, 1e-3, 5), simulated(rng, 0.5e-3, 5)
    close = [
        [sample * factor for sample in entry]
        for entry, factor in zip(held, (0.9, 1.1, 0.95, 1.05, 0.9), strict=True)
    ]
    kept = decide(
        {"default": base, "held": held, "close": close}, default="default", incumbent="held"
    )
    assert kept.winner == "held" and "not surely faster" in kept.reason
    stale = decide(
        {"default": base, "held": simulated(rng, 2e-3, 5)}, default="default", incumbent="held"
    )
    assert stale.winner == "default"


def test_too_few_rounds_or_no_default_decide_nothing() -> None:
    with pytest.raises(ValueError, match="at least 3"):
        decide({"default": [[1.0]] * 2}, default="default")
    with pytest.raises(ValueError, match="did not race"):
        decide({"a": [[1.0]] * 3}, default="default")
    assert decide({"default": [[1.0]] * 3}, default="default").winner == "default"


def test_a_contenders_interval_covers_its_processes() -> None:
    seconds, (low, high) = race_median_ci95([[1.0, 1.1], [1.3, 1.3], [1.0, 1.0]])
    assert low <= seconds <= high and low <= 1.0 and high >= 1.3


def test_thousands_of_samples_have_an_interval() -> None:
    low, high = median_ci95([float(sample) for sample in range(3000)])
    assert 1440 < low < 1500 < high < 1560


@pytest.mark.parametrize(
    ("low_us", "high_us", "marked"), [(142, 149, False), (139, 153, False), (149, 299, True)]
)
def test_a_race_with_an_interval_wider_than_a_tenth_is_marked(
    low_us: float, high_us: float, marked: bool
) -> None:
    assert disturbed(146e-6, (low_us * 1e-6, high_us * 1e-6)) is marked
