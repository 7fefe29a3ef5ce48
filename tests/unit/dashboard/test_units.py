"""Numbers for people, both ways."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.api.dashboard import units
from tuner.errors import UsageError


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0 s"),
        (1.234, "1.23 s"),
        (0.0456, "45.6 ms"),
        (7.891e-6, "7.89 µs"),
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
