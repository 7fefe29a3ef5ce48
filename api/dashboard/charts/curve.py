"""The best-so-far curve of a task, with its trials as points.

Points are thinned to one for each small cell of the drawing, failures to one for each
column. All records are kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner import units
from tuner.api.dashboard.charts import svg
from tuner.api.dashboard.charts.svg import Scale

WIDTH, HEIGHT = 1120, 360
LEFT, RIGHT, TOP, BOTTOM = 64, 118, 14, 50
STRIP = 12  # height of the failures' marks, above the axis
CELL = 3.0  # pixels: trials nearer than this to another are drawn once
MOST_POINTS = 4000
MOST_ROWS = 200  # of the table of improvements
MOST_DOTS = 80  # with more improvements only the line is drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """A horizontal line to compare with."""

    name: str
    seconds: float
    kind: str  # default, rival or roofline


@dataclass(frozen=True, slots=True, kw_only=True)
class Axes:
    """How the drawing's axes are scaled, and which trials it shows."""

    x_log: bool = False
    y_log: bool = True
    top_percent: float | None = None  # only so many of the timed trials, the fastest

    def x_shares(self, values: NDArray[np.float64], end: float) -> NDArray[np.float64]:
        """Places on the x axis as shares of its length, for thinning."""
        if self.x_log:
            return np.asarray(np.log1p(values) / np.log1p(max(end, 1.0)), np.float64)
        return values / max(end, 1.0)

    def y_values(self, medians_s: NDArray[np.float64]) -> NDArray[np.float64]:
        return np.log(medians_s) if self.y_log else medians_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A task's history, ready to be drawn. `positions` are the trial's place on the x axis: its
    number, or seconds since the start."""

    total: int  # trials recorded
    failed: int
    axis: str  # trial or time
    end: float  # of the x axis
    numbers: NDArray[np.int64]  # of the points kept
    positions: NDArray[np.float64]
    medians_s: NDArray[np.float64]
    record_numbers: NDArray[np.int64]
    record_positions: NDArray[np.float64]
    record_medians_s: NDArray[np.float64]
    failure_positions: NDArray[np.float64]
    levels: Sequence[Level] = field(default_factory=tuple)
    axes: Axes = field(default_factory=Axes)


DEFAULT = Axes()


def record_mask(medians_s: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which trials, in order, were faster than all previous ones; shape (n,)."""
    before = (
        np.concatenate([[np.inf], np.minimum.accumulate(medians_s)[:-1]])
        if len(medians_s)
        else medians_s
    )
    return np.asarray(medians_s < before, np.bool_)


def thinned(
    numbers: NDArray[np.int64],
    medians_s: NDArray[np.float64],
    *,
    end: float,
    keep: NDArray[np.bool_],
    axes: Axes = DEFAULT,
) -> NDArray[np.int64]:
    """Indexes of the points to draw: one of each cell of the drawing, and all in `keep`."""
    if len(numbers) == 0:
        return np.zeros(0, np.int64)
    values = axes.y_values(medians_s)
    span = max(float(np.ptp(values)), 1e-12)
    shares = axes.x_shares(numbers.astype(np.float64), end)
    columns = np.floor(shares * (WIDTH - LEFT - RIGHT) / CELL).astype(np.int64)
    rows = np.floor((values - values.min()) / span * (HEIGHT - TOP - BOTTOM) / CELL).astype(
        np.int64
    )
    _, first = np.unique(columns * 100_000 + rows, return_index=True)
    if len(first) > MOST_POINTS:
        first = first[np.linspace(0, len(first) - 1, MOST_POINTS).astype(np.int64)]
    return np.union1d(first, np.flatnonzero(keep)).astype(np.int64)


def first_of_columns(
    numbers: NDArray[np.int64], end: float, axes: Axes = DEFAULT
) -> NDArray[np.int64]:
    """Numbers of failures, one for each column of the drawing."""
    shares = axes.x_shares(numbers.astype(np.float64), end)
    columns = np.floor(shares * (WIDTH - LEFT - RIGHT) / 2.0)
    _, first = np.unique(columns, return_index=True)
    return numbers[first]


def points_json(curve: Curve) -> list[list[Any]]:
    """x, y, number and median of each point drawn, by number, for the page's script."""
    x, y = scales(curve)
    kept = zip(curve.positions, curve.medians_s, curve.numbers, strict=True)
    return [
        [x(float(position)), y(float(value)), int(number), float(f"{value:.4g}")]
        for position, value, number in kept
    ]


def scales(curve: Curve) -> tuple[Scale, Scale]:
    low = 0.0 if curve.axis == "time" else -0.5
    if curve.axes.x_log:
        # Whatever is left of the first trial but the default lies on the axis.
        positive = curve.positions[curve.positions > 0]
        low = 0.9 * float(positive.min()) if len(positive) else 0.5
    x = Scale(
        low=low,
        high=max(curve.end, low, 1.0) * 1.01,
        start=LEFT,
        end=WIDTH - RIGHT,
        log=curve.axes.x_log,
    )
    values = [*curve.medians_s.tolist(), *(level.seconds for level in shown_levels(curve))]
    y = svg.spanning(values, start=HEIGHT - BOTTOM - STRIP - 4, end=TOP, log_scale=curve.axes.y_log)
    return x, y


def shown_levels(curve: Curve) -> Sequence[Level]:
    """The lines to compare with; of a part of the trials, those that are not slower than it."""
    if curve.axes.top_percent is None or not len(curve.medians_s):
        return curve.levels
    slowest = float(curve.medians_s.max())
    return [level for level in curve.levels if level.seconds <= slowest]


def draw(curve: Curve) -> str:
    """The whole drawing as SVG."""
    x, y = scales(curve)
    parts = [*_axes(curve, x, y)]
    failures = "".join(
        f"M{x(float(position)):g} {HEIGHT - BOTTOM - STRIP + 2}v{STRIP - 4}"
        for position in curve.failure_positions
    )
    if failures:
        parts.append(svg.element("path", class_="fail", d=failures))
    parts.append(
        svg.dots(
            (
                (x(float(a)), y(float(m)))
                for a, m in zip(curve.positions, curve.medians_s, strict=True)
            ),
            "point",
        )
    )
    records = [
        (x(float(a)), y(float(m)))
        for a, m in zip(curve.record_positions, curve.record_medians_s, strict=True)
    ]
    parts.append(svg.polyline(svg.staircase(records, x(curve.end)), "best"))
    if len(records) <= MOST_DOTS:
        parts.append(svg.dots(records, "record"))
    parts += _levels(curve, y)
    return svg.drawing(WIDTH, HEIGHT, parts, title=summary(curve))


def summary(curve: Curve) -> str:
    """The curve in words."""
    if len(curve.record_medians_s) == 0:
        return f"No trial of {curve.total} was timed so far; {curve.failed} failed."
    first, best = float(curve.record_medians_s[0]), float(curve.record_medians_s[-1])
    top = curve.axes.top_percent
    part = "" if top is None else f"The fastest {top:g}% of the timed trials. "
    return (
        f"{part}Best so far over {curve.total} trials, {curve.failed} failed: from "
        f"{units.seconds(first)} "
        f"to {units.seconds(best)} at trial {int(curve.record_numbers[-1])}, "
        f"{len(curve.record_numbers)} improvements."
    )


def _axes(curve: Curve, x: Scale, y: Scale) -> list[str]:
    parts = []
    for value in y.ticks(6):
        parts += [svg.line(LEFT, y(value), WIDTH - RIGHT, y(value), "grid")]
        parts += [svg.text(LEFT - 8, y(value) + 4, units.seconds(value), anchor="end")]
    floor = HEIGHT - BOTTOM
    parts.append(svg.line(LEFT, floor, WIDTH - RIGHT, floor, "axis"))
    for value in x.ticks(8):
        if value < 0 or (curve.axis == "trial" and value != int(value)):
            continue
        label = units.duration(value) if curve.axis == "time" else f"{value:,.0f}"
        parts += [
            svg.line(x(value), floor, x(value), floor + 4, "axis"),
            svg.text(x(value), floor + 18, label, anchor="middle"),
        ]
    name = "time since the start" if curve.axis == "time" else "trial"
    parts.append(svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, name, "label", "middle"))
    parts.append(svg.text(LEFT - 8, floor - 2, "failed", "label", "end"))
    return parts


def _levels(curve: Curve, y: Scale) -> list[str]:
    """Lines with their names at the right, moved apart where they would overlap."""
    parts, last = [], -100.0
    for level in sorted(shown_levels(curve), key=lambda level: -level.seconds):
        height = y(level.seconds)
        parts.append(svg.line(LEFT, height, WIDTH - RIGHT, height, f"level {level.kind}"))
        last = max(height, last + 24)
        parts.append(svg.text(WIDTH - RIGHT + 6, last - 1, level.name, f"level-name {level.kind}"))
        parts.append(svg.text(WIDTH - RIGHT + 6, last + 10, units.seconds(level.seconds), "tick"))
    return parts


def records_table(curve: Curve, default_s: float | None) -> list[dict[str, Any]]:
    """The last records as rows, the latest first: the drawing as an accessible table."""
    rows = zip(
        curve.record_numbers.tolist(),
        curve.record_positions.tolist(),
        curve.record_medians_s.tolist(),
        strict=True,
    )
    records = [
        {
            "number": n,
            "position": position,
            "median_s": m,
            "speedup": default_s / m if default_s else None,
        }
        for n, position, m in rows
    ]
    return records[: -MOST_ROWS - 1 : -1]
