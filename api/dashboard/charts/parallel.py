"""Parallel coordinates as SVG: an axis for each knob, a line for each trial.

The fastest trials are on top. Each value may be a link that filters the trials.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any

from tuner import units
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


def sample_lines(axes: Sequence[Axis], configs: Sequence[Mapping[str, Any]]) -> list[Line]:
    """Lines of configs that are sorted by speed, the fastest first.

    Keeps the fastest and an even spread of the others, so that the drawing shows both the
    best configs and their surroundings.
    """
    fastest = MOST_LINES // 4
    step = max(1, len(configs) // (MOST_LINES - fastest))
    return [
        Line(values=[config.get(axis.name) for axis in axes], rank=index / max(1, len(configs)))
        for index, config in enumerate(configs)
        if index < fastest or index % step == 0
    ]


def draw(
    axes: Sequence[Axis],
    lines: Sequence[Line],
    *,
    href: Callable[[str, Any], str] | None,
    chosen: dict[str, Any],
) -> str:
    """The drawing as SVG.

    `href(knob, value)` is the link of a value, None for a drawing without links. `chosen`
    are the values of the present filter.
    """
    step = (WIDTH - 220) / max(1, len(axes) - 1)
    xs = [90 + step * index for index in range(len(axes))]
    places = [
        {value: _place(index, len(axis.values)) for index, value in enumerate(axis.values)}
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
        for index, value in enumerate(axis.values):
            picked = chosen.get(axis.name) == value
            if index % skip and not picked:
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


def _place(index: int, count: int) -> float:
    return round(
        (TOP + BOTTOM) / 2 if count == 1 else BOTTOM - (BOTTOM - TOP) * index / (count - 1), 1
    )


def _short(name: str) -> str:
    return name if len(name) <= 20 else "…" + name[-19:]
