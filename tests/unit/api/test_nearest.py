"""The neighbour whose schedule is replayed: nearest by ratio of extents, and never of
another dtype or layout."""

from __future__ import annotations

from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.api.nearest import distance, nearest

BASE = {"M": 128, "N": 128, "dtype": "float32", "bias": True}


@pytest.mark.parametrize(
    ("change", "away"),
    [
        ({}, 0.0),
        ({"M": 256}, 1.0),
        ({"M": 64}, 1.0),
        ({"M": 256, "N": 32}, 3.0),
        ({"dtype": "float16"}, inf),
        ({"bias": False}, inf),
        ({"M": 0}, inf),
        ({"K": 1}, inf),
    ],
)
def test_distance(change: dict[str, object], away: float) -> None:
    assert distance(BASE, {**BASE, **change}) == away


def test_nearest_takes_the_smallest_ratio_and_nothing_incomparable() -> None:
    candidates = [
        ("far", {**BASE, "M": 1024}),
        ("near", {**BASE, "M": 192}),
        ("other", {**BASE, "dtype": "int8"}),
    ]
    assert nearest(BASE, candidates) == "near"
    assert nearest({**BASE, "dtype": "float64"}, candidates) is None


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_distance_is_symmetric(first: int, second: int) -> None:
    assert distance({"M": first}, {"M": second}) == pytest.approx(
        distance({"M": second}, {"M": first})
    )
