"""The best-so-far curve as lines of text for a terminal, with time on a log scale."""

from __future__ import annotations

from collections.abc import Sequence
from math import log

from tuner import units
from tuner.api.dashboard.charts.curve import Curve
from tuner.api.dashboard.charts.svg import log_ticks

MARK, POINT, LEVEL = "█", "·", "╌"
MARGIN = 11  # columns of the labels


def plot(curve: Curve, *, width: int = 100, height: int = 16) -> list[str]:
    """The curve in `height` rows and an axis of at most `width` columns.

    If nothing was timed, it is one line of words.
    """
    columns = max(20, width - MARGIN - 2)
    if len(curve.record_medians_s) == 0:
        return ["no trial was timed yet"]
    values = [*curve.medians_s.tolist(), *(level.seconds for level in curve.levels)]
    low, high = min(values), max(values)
    span = max(log(high / low), 1e-9)

    def row(seconds: float) -> int:
        return min(height - 1, max(0, round((height - 1) * (1 - log(seconds / low) / span))))

    def column(number: float) -> int:
        return min(columns - 1, int(number / max(curve.end, 1.0) * (columns - 1)))

    cells = [[" "] * columns for _ in range(height)]
    labels: dict[int, str] = {row(tick): units.seconds(tick) for tick in log_ticks(low, high, 5)}
    for level in curve.levels:
        cells[row(level.seconds)] = [LEVEL] * columns
        labels[row(level.seconds)] = level.name[:MARGIN]
    for position, seconds in zip(curve.positions.tolist(), curve.medians_s.tolist(), strict=True):
        cells[row(seconds)][column(position)] = POINT
    _staircase(
        cells,
        [
            (column(position), row(s))
            for position, s in zip(
                curve.record_positions.tolist(), curve.record_medians_s.tolist(), strict=True
            )
        ],
    )
    lines = [
        f"{labels.get(index, ''):>{MARGIN}} │{''.join(cell)}".rstrip()
        for index, cell in enumerate(cells)
    ]
    end = f"{curve.end:,.0f}" if curve.axis == "trial" else units.duration(curve.end)
    lines.append(f"{'':>{MARGIN}} └{'─' * columns}")
    lines.append(f"{'':>{MARGIN}}  0{end:>{columns - 1}}")
    return lines


def _staircase(cells: list[list[str]], steps: Sequence[tuple[int, int]]) -> None:
    """Draws each record's level until the next one, and the drop to it."""
    width = len(cells[0])
    for index, (x, y) in enumerate(steps):
        until, below = steps[index + 1] if index + 1 < len(steps) else (width - 1, y)
        for place in range(x, until + 1):
            cells[y][place] = MARK
        for place in range(min(y, below), max(y, below) + 1):
            cells[place][until] = MARK
