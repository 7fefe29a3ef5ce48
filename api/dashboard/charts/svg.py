"""Scales with their ticks, and SVG elements as text.

Colours come from classes alone: drawings follow the page's theme and need no inline
style, which the security policy forbids.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, exp, floor, log, log10

Point = tuple[float, float]
NAMESPACE = "http://www.w3.org/2000/svg"


# Beyond these the margins of a scale would be nothing, or infinite.
LEAST, MOST = 1e-150, 1e150


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Maps values from [low, high] to pixels from `start` to `end`, by value or by logarithm."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """The pixel of a value, clipped to the drawing."""
        if self.log:
            part = log(max(value, LEAST) / self.low) / log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return round(self.start + min(1.0, max(0.0, part)) * (self.end - self.start), 1)

    def ticks(self, count: int = 6) -> list[float]:
        """Round values inside the scale, about `count` at most."""
        return (
            log_ticks(self.low, self.high, count)
            if self.log
            else linear_ticks(self.low, self.high, count)
        )


def spanning(
    values: Iterable[float], *, start: float, end: float, log_scale: bool = False, pad: float = 0.04
) -> Scale:
    """A scale around the values, with a margin on both sides."""
    usable = [
        min(max(value, LEAST if log_scale else -MOST), MOST)
        for value in values
        if value > 0 or not log_scale
    ]
    low, high = (min(usable), max(usable)) if usable else (1.0, 2.0)
    if log_scale:
        room = max(pad * log(high / low), 0.02)
        return Scale(low=low * exp(-room), high=high * exp(room), start=start, end=end, log=True)
    room = max(pad * (high - low), 1e-12 + 0.01 * abs(high))
    return Scale(low=low - room, high=high + room, start=start, end=end)


def linear_ticks(low: float, high: float, count: int) -> list[float]:
    if high <= low:
        return [low]
    raw = (high - low) / max(1, count)
    power = 10.0 ** floor(log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw * 0.999)
    return [
        round(multiple * step, 12)
        for multiple in range(ceil(low / step - 1e-9), floor(high / step + 1e-9) + 1)
    ]


def log_ticks(low: float, high: float, count: int) -> list[float]:
    """Powers of ten and, where there is room, multiples of them; see `linear_ticks`.

    A range of less than a factor of three gets linear ticks.
    """
    if high / low < 3:
        return linear_ticks(low, high, count)
    for steps in ((1, 2, 3, 5), (1, 2, 5), (1, 3), (1,)):
        powers = range(floor(log10(low)), ceil(log10(high)) + 1)
        ticks = [
            step * 10.0**power
            for power in powers
            for step in steps
            if low <= step * 10.0**power <= high
        ]
        if len(ticks) <= count + 2:
            return ticks
    return ticks[:: ceil(len(ticks) / count)]


def element(name: str, content: str = "", **attributes: object) -> str:
    """An element with its attributes; `content` is markup.

    The attribute `class_` is written as `class`; other underscores become hyphens.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>"


def text(x: float, y: float, words: str, class_: str = "tick", anchor: str | None = None) -> str:
    return element(
        "text", escape(words), x=round(x, 1), y=round(y, 1), class_=class_, text_anchor=anchor
    )


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> str:
    return element("path", class_=class_, d=f"M{x1:g} {y1:g}L{x2:g} {y2:g}")


def polyline(points: Sequence[Point], class_: str) -> str:
    return (
        element("path", class_=class_, d="M" + "L".join(f"{x:g} {y:g}" for x, y in points))
        if points
        else ""
    )


def dots(points: Iterable[Point], class_: str) -> str:
    """All points as one path of empty strokes with round ends: a dozen bytes each."""
    path = "".join(f"M{x:g} {y:g}h0" for x, y in points)
    return element("path", class_=class_, d=path) if path else ""


def staircase(points: Sequence[Point], until: float) -> list[Point]:
    """Steps that keep each level until the next point."""
    steps: list[Point] = []
    for index, (x, y) in enumerate(points):
        if index:
            steps.append((x, points[index - 1][1]))
        steps.append((x, y))
    return [*steps, (until, points[-1][1])] if points else []


def drawing(
    width: float, height: float, content: Iterable[str], *, title: str, class_: str = "chart"
) -> str:
    """The SVG; `title` is what assistive technology reads."""
    inside = element("title", escape(title)) + "".join(content)
    box = f"0 0 {width:g} {height:g}"
    return element(
        "svg",
        inside,
        class_=class_,
        viewBox=box,
        role="img",
        width=f"{width:g}",
        height=f"{height:g}",
    )


def standalone(drawing: str, style: str, theme: str) -> str:
    """A drawing of a page as an image by itself: namespace, style and background inside.

    `theme` is "light" or "dark".
    """
    opening, _, inside = drawing.partition(">")
    root = opening.replace("<svg", f'<svg xmlns="{NAMESPACE}" data-theme="{theme}"', 1)
    paper = "svg { background: var(--surface); }"
    return f"{root}><style>{escape(style, quote=False)}\n{paper}</style>{inside}"
