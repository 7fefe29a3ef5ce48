"""Traffic of a portfolio: how often each number of rows is called."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import isfinite
from pathlib import Path

from tuner.errors import UsageError, WorkloadError
from tuner.workload.spec import Portfolio

LARGEST_BYTES = 1 << 20


def read_traffic(path: Path) -> Mapping[int, float]:
    """Weights by number of rows, from a file of lines `ROWS` or `ROWS WEIGHT`.

    The weight is 1 by default, weights of equal rows add up, `#` begins a comment.
    Raises `UsageError` naming the line at fault.
    """
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise UsageError(
                f"{path} has {path.stat().st_size} bytes, the limit is {LARGEST_BYTES}; add up "
                f"equal rows"
            )
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the traffic in {path} cannot be read: {error}") from error
    weights: dict[int, float] = {}
    for number, line in enumerate(lines, 1):
        parts = line.partition("#")[0].replace(",", " ").split()
        if not parts:
            continue
        rows, weight = _parsed(parts)
        if rows < 1 or not isfinite(weight) or weight <= 0:
            raise UsageError(
                f"{path}, line {number}: {line.strip()[:60]!r} is no ROWS and a weight above 0, "
                f"e.g. 128 0.5"
            )
        weights[rows] = weights.get(rows, 0.0) + weight
    if not weights:
        raise UsageError(f"{path} names no number of rows; write lines such as 128 0.5")
    return weights


def with_traffic(portfolio: Portfolio, traffic: Mapping[int, float]) -> Portfolio:
    """The portfolio, weighted by this traffic.

    Raises `WorkloadError` for rows outside its range.
    """
    for name, (low, high) in portfolio.ranges.items():
        outside = sorted(rows for rows in traffic if not low <= rows <= high)
        if outside:
            raise WorkloadError(
                f"the traffic has {name}={outside[0]}, which is outside {low}..{high}",
                parameter=name,
            )
    return replace(portfolio, traffic=dict(traffic))


def _parsed(parts: list[str]) -> tuple[int, float]:
    """Rows and weight of a line; (0, 0), which is refused, where it has neither."""
    try:
        return (
            (int(parts[0]), float(parts[1]) if len(parts) > 1 else 1.0)
            if len(parts) <= 2
            else (0, 0.0)
        )
    except ValueError:
        return 0, 0.0
