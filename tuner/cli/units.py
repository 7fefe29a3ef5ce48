"""Numbers for people: times, counts and rates with the unit that suits their size."""

from __future__ import annotations

from math import log10


def seconds(value: float | None) -> str:
    """Three significant digits: 1.23 s, 45.6 ms, 7.89 µs; a dash where nothing was measured."""
    if value is None:
        return "-"
    for scale, unit in ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs")):
        if value >= scale * 0.9995:
            return f"{_three(value / scale)} {unit}"
    return f"{_three(value / 1e-9)} ns"


def duration(value: float) -> str:
    """Whole seconds of something a person waits for: 42 s, 3 min 05 s, 2 h 10 min."""
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}×"


def percent(fraction: float | None) -> str:
    return "-" if fraction is None else f"{100 * fraction:.0f}%"


def count(value: int) -> str:
    """All digits with separators up to a billion, beyond that as a power of ten."""
    return f"{value:,}" if value < 10**9 else f"about 10^{log10(value):.1f}"


def rate(gflops: float | None) -> str:
    return "-" if gflops is None else f"{_three(gflops)} GFLOP/s"


def _three(value: float) -> str:
    return f"{value:.2f}" if value < 9.995 else f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
