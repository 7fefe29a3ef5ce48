"""Numbers for people: times, counts and rates, written as the dashboard writes them."""

from tuner.api.dashboard.units import (
    DASH,
    config_text,
    count,
    duration,
    percent,
    rate,
    ratio,
    seconds,
    value_text,
)

__all__ = [
    "DASH",
    "config_text",
    "count",
    "duration",
    "percent",
    "rate",
    "ratio",
    "seconds",
    "value_text",
]
