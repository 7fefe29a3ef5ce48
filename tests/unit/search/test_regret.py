"""Bounds on what the first candidates of a search lose."""

from __future__ import annotations

from itertools import pairwise
from math import inf
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.search.first import DIGITS, coverage, of_tables
from tuner.app.replay.tables import open_tables
from tuner.errors import UsageError
from tuner.search.regret import (
    HORIZON,
    LEAST,
    RegretBounds,
    recorded_curves,
    regret_curve,
)

TABLES = Path(__file__).parents[2] / "tables"
times = st.lists(st.none() | st.floats(1e-6, 1e-2), min_size=1, max_size=2 * HORIZON)


def made_up(rng: np.random.Generator, count: int) -> list[tuple[float, ...]]:
    """Searches of a made-up machine, of some of which every candidate is slow."""
    scales = np.exp(rng.normal(0.0, 1.5, count))
    draws = rng.exponential(scales[:, None], (count, HORIZON)) + 1.0
    return [regret_curve(row.tolist(), 1.0) for row in draws]


@given(times)
def test_a_curve_never_rises_and_is_what_was_lost(seconds: list[float | None]) -> None:
    timed = [value for value in seconds if value is not None]
    best = min(timed, default=1e-3)
    curve = regret_curve(seconds, best)
    assert len(curve) == HORIZON and min(curve) >= 0.0
    assert all(later <= earlier for earlier, later in pairwise(curve))
    if seconds[0] is not None:
        assert curve[0] == pytest.approx(min(seconds[0] / best - 1, 9.0))
    if timed and len(seconds) <= HORIZON:
        assert curve[-1] == 0.0


def test_a_curve_counts_failures_as_candidates() -> None:
    curve = regret_curve([None, 3.0, None, 2.0, 2.5], 2.0)
    assert curve[:5] == (9.0, 0.5, 0.5, 0.0, 0.0) and curve[-1] == 0.0
    assert regret_curve([inf, 1.1], 1.0)[0] == 9.0


@pytest.mark.parametrize(("seconds", "best_s"), [([], 1.0), ([1.0], 0.0), ([1.0], -1.0)])
def test_no_curve_of_nothing(seconds: list[float], best_s: float) -> None:
    with pytest.raises(UsageError, match="one candidate or more"):
        regret_curve(seconds, best_s)


@pytest.mark.parametrize("searches", [LEAST, 26, 60])
def test_new_searches_keep_their_bound_as_often_as_it_says(searches: int) -> None:
    """Of searches from the same distribution, whatever it is, at least 0.9 keep it, and
    at most 1/(k+1) more: the theorem of split conformal prediction."""
    rng, kept = np.random.default_rng(7), []
    for _ in range(60):
        bounds = RegretBounds(made_up(rng, searches))
        for candidates in (1, 8):
            bound = bounds.after(candidates)
            assert bound is not None and bound.median <= bound.within
            new = made_up(rng, 20)
            kept.append(np.mean([curve[candidates - 1] <= bound.within for curve in new]))
    assert 0.885 <= np.mean(kept) <= 0.9 + 1 / (searches + 1) + 0.015


def test_bounds_only_fall_and_end_at_the_horizon() -> None:
    bounds = RegretBounds(made_up(np.random.default_rng(3), 30))
    withins = [bounds.after(count) for count in range(1, HORIZON + 1)]
    assert all(
        later is not None and earlier is not None and later.within <= earlier.within
        for earlier, later in pairwise(withins)
    )
    assert bounds.after(0) is None and bounds.after(HORIZON + 1) is None


def test_the_fewest_candidates_for_a_bound() -> None:
    curves = [tuple([0.5] * 3 + [0.1] * 5 + [0.02] * (HORIZON - 8)) for _ in range(LEAST)]
    bounds = RegretBounds(curves)
    assert [bounds.candidates_for(aim) for aim in (0.6, 0.5, 0.3, 0.1, 0.02)] == [1, 1, 4, 4, 9]
    assert bounds.candidates_for(0.001) == 9, "the lowest there is"


def test_too_few_searches_teach_nothing() -> None:
    with pytest.raises(UsageError, match=f"it takes {LEAST} or more"):
        RegretBounds(made_up(np.random.default_rng(0), LEAST - 1))


@pytest.mark.parametrize("candidates", [1, 4, 8])
def test_recorded_searches_keep_their_bounds(candidates: int) -> None:
    """Each left out of what its bound is learned from. docs/explanation/search.md has
    24 of 26, and 2.4% lost by half of the first candidates."""
    kept, half, _ = coverage(recorded_curves(), candidates)
    assert 0.85 <= kept <= 0.95
    assert half <= 0.08


@pytest.mark.slow
def test_the_recorded_curves_are_those_of_the_tables() -> None:
    """Each loss is reached with the candidate that the file says, or its neighbour.

    NumPy and BLAS round by what a CPU has: estimates that are nearly equal may change
    places (with AVX2 one of the 26 curves falls a candidate earlier than with AVX-512).
    """
    paths = [*sorted((TABLES / "large").glob("*.npz")), *sorted((TABLES / "parts").glob("*.npz"))]
    curves = list(of_tables(open_tables(paths)).values())
    for curve, recorded in zip(curves, recorded_curves(), strict=True):
        again = [inf, *(round(value, DIGITS) for value in curve)]
        again.append(again[-1])
        for place, loss in enumerate(recorded):
            assert again[place + 2] <= loss <= again[place]
