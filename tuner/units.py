"""Formats numbers for people: times, counts, rates and moments with suitable units."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from math import isfinite, log10
from typing import Any

from tuner.errors import UsageError

SCALES = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
WRITTEN = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)\s*(ns|us|µs|ms|s)?\s*")
FACTORS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, None: 1.0}
DASH = "–"


def seconds(value: float | None) -> str:
    """A time with three significant digits: 1.23 s, 45.6 ms, 7.89 µs; a dash for None."""
    if value is None:
        return DASH
    if value == 0:
        return "0 s"
    scale, unit = next(
        ((scale, unit) for scale, unit in SCALES if value >= scale * 0.9995), SCALES[-1]
    )
    return f"{three(value / scale)} {unit}"


def three(value: float) -> str:
    """Three significant digits without an exponent."""
    size = abs(value)
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:,.0f}"


def read_seconds(text: str) -> float | None:
    """Seconds of a text such as `80 µs`, `1.2ms` or `0.004`; None for an empty one.

    Raises UsageError for a text that is no time.
    """
    if not text.strip():
        return None
    parsed = WRITTEN.fullmatch(text)
    if parsed is None:
        raise UsageError(
            f"{text[:40]!r} is not a time; write a number with a unit, such as 80 µs or 1.2 ms"
        )
    value = float(parsed[1]) * FACTORS[parsed[2]]
    if not isfinite(value):
        raise UsageError(
            f"{text[:40]!r} is too large for a time; write a number with a unit, such as 80 µs "
            f"or 1.2 ms"
        )
    return value


def duration(value: float | None) -> str:
    """A duration in whole seconds, minutes or hours: 42 s, 3 min 05 s, 2 h 10 min."""
    if value is None:
        return DASH
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return (
        f"{whole // 3600} h {whole % 3600 // 60:02d} min"
        if whole < 172_800
        else f"{whole // 86400} days"
    )


def ratio(value: float | None) -> str:
    """Three significant digits and a sign of multiplication: 1.23×."""
    return DASH if value is None else f"{three(value)}×"


def percent(fraction: float | None) -> str:
    """A fraction in percent, with a decimal below 9.5%: 4.2%, 57%."""
    if fraction is None:
        return DASH
    decimals = 1 if 0 < abs(fraction) < 0.095 else 0
    return f"{100 * fraction:.{decimals}f}%"


def count(value: int | None) -> str:
    """All digits with separators up to a billion, beyond that as a power of ten."""
    return DASH if value is None else f"{value:,}" if value < 10**9 else f"≈10^{log10(value):.1f}"


def rate(gflops: float | None) -> str:
    """10⁹ operations a second: 45.6 GFLOP/s."""
    return DASH if gflops is None else f"{three(gflops)} GFLOP/s"


def work(flops: int | None) -> str:
    """Arithmetic operations: 268 MFLOP."""
    if flops is None:
        return DASH
    scale, unit = next(
        ((s, u) for s, u in ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")) if flops >= s),
        (1.0, ""),
    )
    return f"{three(flops / scale)} {unit}FLOP"


def size(nbytes: float) -> str:
    """Bytes with a binary unit: 1.50 MiB."""
    for scale, unit in ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if nbytes >= scale:
            return f"{three(nbytes / scale)} {unit}"
    return f"{nbytes:.0f} B"


def moment(value: datetime | None) -> str:
    """A moment in UTC: 2026-01-31 12:00:00 UTC."""
    return DASH if value is None else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def local_moment(value: datetime | None) -> str:
    """A moment in local time: `2026-01-31 12:00:00`."""
    return DASH if value is None else value.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def local_day(value: datetime | None) -> str:
    """The day of a moment in local time: `2026-01-31`."""
    return DASH if value is None else value.astimezone().strftime("%Y-%m-%d")


def ago(value: datetime | None, now: datetime) -> str:
    """How long before `now`: `42 s ago`."""
    return DASH if value is None else f"{duration(max(0.0, (now - value).total_seconds()))} ago"


def value_text(value: Any) -> str:
    """A knob's value: lists as 4×8."""
    return "×".join(str(part) for part in value) if isinstance(value, tuple | list) else str(value)


def config_text(config: Mapping[str, Any]) -> str:
    """A config as knobs with their values; the empty one is the default schedule."""
    return (
        " ".join(f"{name}={value_text(value)}" for name, value in config.items())
        or "default schedule"
    )
