"""Scales of the drawings hold any numbers that a database may have."""

from __future__ import annotations

from math import isfinite

import pytest

from tuner.api.dashboard.charts.svg import spanning

SMALL, LARGE = 5e-324, 1.7e308


@pytest.mark.parametrize("log_scale", [False, True])
@pytest.mark.parametrize(
    "values", [[SMALL], [LARGE], [SMALL, LARGE], [1.0, LARGE], [SMALL, 1.0], [1.0, 1.0], []]
)
def test_every_value_has_a_place(values: list[float], log_scale: bool) -> None:
    scale = spanning(values, start=0.0, end=100.0, log_scale=log_scale)
    assert all(0.0 <= scale(value) <= 100.0 for value in values)
    assert all(isfinite(tick) for tick in scale.ticks())
