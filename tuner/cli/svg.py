"""Small plots as SVG text, without a plotting library: curves with bands, groups of bars."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, floor, log10

WIDTH, HEIGHT = 760, 320
LEFT, RIGHT, TOP, BOTTOM = 64, 170, 34, 44
# Distinguishable with red-green colour blindness.
COLOURS = ("#0b62a4", "#c8500a", "#3a7d34", "#7a4a9e", "#8a6d00", "#a3324f")


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """A line over x = 1, 2, …; None where there is no value."""

    middle: Sequence[float | None]
    lower: Sequence[float | None] = ()
    upper: Sequence[float | None] = ()


def curves(title: str, lines: Mapping[str, Curve], *, x: str, y: str, top: float) -> str:
    """A chart of lines, HEIGHT high. Values above `top` are drawn at the top."""
    length = max((len(line.middle) for line in lines.values()), default=1)

    def across(position: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * (position - 1) / max(1, length - 1)

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * min(value, top) / top

    parts = [_frame(title, x, y), *_ruler(top, up)]
    parts += [
        _text(across(position), HEIGHT - BOTTOM + 16, f"{position}", anchor="middle")
        for position in sorted({1, *(round(length * part / 4) for part in range(1, 5))})
        if position
    ]
    for place, (name, line) in enumerate(lines.items()):
        colour = COLOURS[place % len(COLOURS)]
        band = [
            (across(index + 1), up(low), up(high))
            for index, (low, high) in enumerate(zip(line.lower, line.upper, strict=True))
            if low is not None and high is not None
        ]
        if band:
            outline = [
                *((x, high) for x, _, high in band),
                *((x, low) for x, low, _ in reversed(band)),
            ]
            parts.append(f'<polygon points="{_points(outline)}" fill="{colour}" opacity="0.15"/>')
        path = [
            (across(index + 1), up(value))
            for index, value in enumerate(line.middle)
            if value is not None
        ]
        parts.append(
            f'<polyline points="{_points(path)}" fill="none" stroke="{colour}" stroke-width="1.8"/>'
        )
        parts += _legend(place, name, colour)
    return "\n".join(parts)


def bars(
    title: str, groups: Mapping[str, Mapping[str, float]], *, y: str, line: float | None = None
) -> str:
    """A chart of bars side by side, a group for each key.

    `line` is the height of a horizontal line to compare with.
    """
    names = list(dict.fromkeys(name for group in groups.values() for name in group))
    top = max((value for group in groups.values() for value in group.values()), default=1.0) * 1.05
    room = (WIDTH - LEFT - RIGHT) / max(1, len(groups))

    def up(value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / top

    parts = [_frame(title, "", y), *_ruler(top, up)]
    for place, (label, group) in enumerate(groups.items()):
        start = LEFT + room * place
        middle = start + room / 2
        parts.append(_text(middle, HEIGHT - BOTTOM + 12, label, anchor="end", slanted=True))
        width = 0.8 * room / max(1, len(names))
        for name, value in group.items():
            left = start + 0.1 * room + width * names.index(name)
            colour = COLOURS[names.index(name) % len(COLOURS)]
            box = (
                f'x="{left:.1f}" y="{up(value):.1f}" width="{width:.1f}" '
                f'height="{HEIGHT - BOTTOM - up(value):.1f}"'
            )
            parts.append(
                f"<rect {box} "
                f'fill="{colour}"><title>{escape(f"{label}, {name}: {value:.3g}")}</title></rect>'
            )
    for place, name in enumerate(names):
        parts += _legend(place, name, COLOURS[place % len(COLOURS)])
    if line is not None:
        parts.append(
            f'<path d="M{LEFT} {up(line):.1f}H{WIDTH - RIGHT}" stroke="#333" '
            f'stroke-dasharray="4 3"/>'
        )
    return "\n".join(parts)


def document(charts: Sequence[str]) -> str:
    """One SVG file with the charts one below the other."""
    height = HEIGHT * len(charts)
    placed = [
        f'<g transform="translate(0 {HEIGHT * place})">\n{chart}\n</g>'
        for place, chart in enumerate(charts)
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}"'
    )
    style = 'font-family="sans-serif" font-size="12" fill="#222"'
    return "\n".join(
        [
            f"{head} {style}>",
            f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>',
            *placed,
            "</svg>",
            "",
        ]
    )


def _frame(title: str, x: str, y: str) -> str:
    floor_y = HEIGHT - BOTTOM
    return "\n".join(
        [
            _text(LEFT, 20, title, weight="bold"),
            _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, x, anchor="middle"),
            f'<text transform="translate(14 {(TOP + floor_y) / 2:.0f}) rotate(-90)" '
            f'text-anchor="middle">{escape(y)}</text>',
            f'<path d="M{LEFT} {TOP}V{floor_y}H{WIDTH - RIGHT}" fill="none" stroke="#888"/>',
        ]
    )


def _ruler(top: float, up: Callable[[float], float]) -> list[str]:
    parts = []
    step = _step(top)
    for count in range(floor(top / step) + 1):
        value = count * step
        parts.append(f'<path d="M{LEFT} {up(value):.1f}H{WIDTH - RIGHT}" stroke="#ddd"/>')
        parts.append(_text(LEFT - 6, up(value) + 4, f"{value:g}", anchor="end"))
    return parts


def _step(top: float) -> float:
    """1, 2 or 5 times a power of ten, so that there are about five of them."""
    rough = top / 5
    power = float(10.0 ** floor(log10(rough)))
    return power * next(factor for factor in (1, 2, 5, 10) if factor >= ceil(rough / power))


def _legend(place: int, name: str, colour: str) -> list[str]:
    y = TOP + 8 + 18 * place
    x = WIDTH - RIGHT + 12
    return [
        f'<rect x="{x}" y="{y - 5}" width="14" height="5" fill="{colour}"/>',
        _text(x + 20, y, name),
    ]


def _points(path: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in path)


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    weight: str = "normal",
    slanted: bool = False,
) -> str:
    place = (
        f'transform="translate({x:.1f} {y:.1f}) rotate(-30)"'
        if slanted
        else f'x="{x:.1f}" y="{y:.1f}"'
    )
    return f'<text {place} text-anchor="{anchor}" font-weight="{weight}">{escape(words)}</text>'
