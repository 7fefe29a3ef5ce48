"""Calls a second of instances that run side by side."""

from __future__ import annotations

import pytest

from tuner.app.races.throughput import together_per_s


def test_slow_calls_count_with_the_time_they_took() -> None:
    assert together_per_s([[0.1, 0.1, 0.7]]) == pytest.approx(1 / 0.3)


def test_instances_add_up() -> None:
    assert together_per_s([[0.1, 0.1], [0.2, 0.2]]) == pytest.approx(10 + 5)
