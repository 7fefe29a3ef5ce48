"""Parallel coordinates: one axis a knob, one line a trial, the fastest on top; each
value is a link that filters the trials."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from tuner.api.dashboard import units
from tuner.api.dashboard.charts import svg

MOST_AXES, MOST_LINES, MOST_VALUES = 8, 200, 14
SHARES = (0.04, 0.2, 0.5)  # of all trials, fastest first: each has its own look
WIDTH, TOP, BOTTOM = 1120, 34, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    name: str
    values: Sequence[Any]  # in order, each hashable


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    values: Sequence[Any]  # one for each axis
    rank: float  # 0 for the fastest of all, 1 for the slowest


def draw(
    axes: Sequence[Axis],
    lines: Sequence[Line],
    *,
    href: Callable[[str, Any], str] | None,
    chosen: dict[str, Any],
) -> str:
    """`href(knob, value)` is where a value leads, None for a drawing without links;
    `chosen` are the values filtered by now."""
    step = (WIDTH - 220) / max(1, len(axes) - 1)
    xs = [90 + step * at for at in range(len(axes))]
    places = [
        {value: _place(at, len(axis.values)) for at, value in enumerate(axis.values)}
        for axis in axes
    ]
    parts = []
    for line in sorted(lines, key=lambda line: -line.rank)[-MOST_LINES:]:
        points = [
            (x, place[value])
            for x, place, value in zip(xs, places, line.values, strict=True)
            if value in place
        ]
        parts.append(
            svg.polyline(
                [(round(x, 1), y) for x, y in points],
                f"trial q{sum(line.rank > share for share in SHARES)}",
            )
        )
    for x, place, axis in zip(xs, places, axes, strict=True):
        parts.append(svg.line(x, TOP, x, BOTTOM, "axis"))
        parts.append(svg.text(x, 16, _short(axis.name), "name", "middle"))
        skip = max(1, -(-len(axis.values) // MOST_VALUES))
        for at, value in enumerate(axis.values):
            picked = chosen.get(axis.name) == value
            if at % skip and not picked:
                continue
            label = svg.text(
                x + 7,
                place[value] + 4,
                units.value_text(value)[:18],
                "value picked" if picked else "value",
            )
            if href is None:
                parts.append(label)
                continue
            words = f"{axis.name}={units.value_text(value)}"
            link = (
                f'<a href="{escape(href(axis.name, value))}" data-update="trials analysis" '
                f'aria-label="filter {escape(words)}">'
            )
            parts.append(f"{link}{label}</a>")
    names = ", ".join(axis.name for axis in axes)
    box = {"viewBox": f"0 0 {WIDTH} {BOTTOM + 12}", "width": str(WIDTH), "height": str(BOTTOM + 12)}
    label = f"Parallel coordinates of {len(lines)} trials over {names}"
    return svg.element(
        "svg", "".join(parts), class_="chart parallel", role="group", aria_label=label, **box
    )


def _place(at: int, count: int) -> float:
    return round(
        (TOP + BOTTOM) / 2 if count == 1 else BOTTOM - (BOTTOM - TOP) * at / (count - 1), 1
    )


def _short(name: str) -> str:
    return name if len(name) <= 20 else "…" + name[-19:]
