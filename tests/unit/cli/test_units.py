"""Numbers for people keep three digits and the unit that suits them."""

from __future__ import annotations

import pytest

from tuner.cli import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (1.234, "1.23 s"),
        (0.0456, "45.6 ms"),
        (0.9996, "1.00 s"),
        (7.894e-6, "7.89 µs"),
        (123.4e-9, "123 ns"),
        (9.996e-4, "1.00 ms"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.4, "0 s"), (59.6, "1 min 00 s"), (185, "3 min 05 s"), (7800, "2 h 10 min")],
)
def test_duration(value: float, text: str) -> None:
    assert units.duration(value) == text


@pytest.mark.parametrize(("value", "text"), [(1234, "1,234"), (3 * 10**12, "≈10^12.5")])
def test_count(value: int, text: str) -> None:
    assert units.count(value) == text


def test_ratio_percent_and_rate() -> None:
    assert (units.ratio(1.234), units.ratio(None)) == ("1.23×", "–")
    assert (units.percent(0.987), units.percent(None)) == ("99%", "–")
    assert (units.rate(123.4), units.rate(9.876)) == ("123 GFLOP/s", "9.88 GFLOP/s")
