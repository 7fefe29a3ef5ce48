"""Numbers for people, both ways."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner import units
from tuner.errors import UsageError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0 s"),
        (1.234, "1.23 s"),
        (0.0456, "45.6 ms"),
        (0.9996, "1.00 s"),
        (7.891e-6, "7.89 µs"),
        (123.4e-9, "123 ns"),
        (9.996e-4, "1.00 ms"),
        (9.999e-4, "1.00 ms"),
        (2e-9, "2.00 ns"),
    ],
)
def test_seconds(value: float | None, text: str) -> None:
    assert units.seconds(value) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [("80 µs", 8e-5), ("80us", 8e-5), ("1.2ms", 1.2e-3), ("0.5", 0.5), ("", None), ("3e-3", 3e-3)],
)
def test_times_are_read(text: str, value: float | None) -> None:
    assert units.read_seconds(text) == (value if value is None else pytest.approx(value))


@pytest.mark.parametrize("text", ["soon", "-1 ms", "1 h", "1e999", "1 ms; drop"])
def test_what_is_no_time_is_refused_by_name(text: str) -> None:
    with pytest.raises(UsageError, match=r"not a time|too large"):
        units.read_seconds(text)


@given(st.floats(1e-9, 1e4))
def test_what_is_written_can_be_read(value: float) -> None:
    read = units.read_seconds(units.seconds(value).replace(",", ""))
    assert read == pytest.approx(value, rel=0.01)


def test_other_units() -> None:
    assert units.duration(7800) == "2 h 10 min" and units.duration(185) == "3 min 05 s"
    assert (
        units.percent(0.004) == "0.4%"
        and units.percent(0.45) == "45%"
        and units.percent(0.0) == "0%"
    )
    assert units.count(10**9) == "≈10^9.0" and units.count(12345) == "12,345"
    assert units.size(3 * 2**20) == "3.00 MiB" and units.work(268_435_456) == "268 MFLOP"
    assert (
        units.config_text({}) == "default schedule"
        and units.config_text({"t": (4, 8), "u": 2}) == "t=4×8 u=2"
    )


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


def test_moments_are_local() -> None:
    moment = datetime(2026, 1, 31, 12, 30, 5).astimezone()
    assert units.local_moment(moment) == "2026-01-31 12:30:05"
    assert units.local_day(moment) == "2026-01-31"
    assert units.local_moment(None) == units.local_day(None) == units.DASH
