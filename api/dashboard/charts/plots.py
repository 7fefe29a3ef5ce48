"""The smaller drawings: sparkline, intervals, roofline, scatter plot, lanes and others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

from tuner import units
from tuner.api.dashboard.charts import svg
from tuner.api.dashboard.charts.svg import Scale
from tuner.measure.statistics import disturbed


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    name: str
    median_s: float
    low_s: float
    high_s: float
    own: bool = False  # the kernel itself

    @property
    def disturbed(self) -> bool:
        """Whether the interval is so wide that the median is in doubt."""
        return disturbed(self.median_s, (self.low_s, self.high_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Roof:
    """A limit in the roofline plot; `bytes_per_s` is None for the flat arithmetic limit."""

    name: str
    bytes_per_s: float | None
    flops: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Strip:
    """One lane: busy shares of each bin by kind, from the left."""

    name: str
    bins: Sequence[str]  # the kind that took most of each bin, empty for nothing known


def sparkline(records: Sequence[tuple[int, float]], end: int, *, title: str) -> str:
    """Best so far over trials, log scale, 120 × 24."""
    if not records:
        return ""
    x = Scale(low=0, high=max(end, 1), start=2, end=118)
    y = svg.spanning([value for _, value in records], start=21, end=3, log_scale=True, pad=0.0)
    steps = svg.staircase([(x(number), y(value)) for number, value in records], 118)
    return svg.drawing(120, 24, [svg.polyline(steps, "spark")], title=title, class_="sparkline")


def intervals(entries: Sequence[Interval]) -> str:
    """Medians with their 95% confidence intervals, one row each."""
    height, left = 26 * len(entries) + 34, 110
    values = [value for entry in entries for value in (entry.low_s, entry.high_s, entry.median_s)]
    wide = max(values) / min(values) > 5
    x = svg.spanning(values, start=left, end=550, log_scale=wide, pad=0.06)
    parts = []
    for value in x.ticks(4):
        parts += [svg.line(x(value), 6, x(value), height - 24, "grid")]
        parts += [svg.text(x(value), height - 8, units.seconds(value), anchor="middle")]
    for row, entry in enumerate(entries):
        y, kind = 20 + 26 * row, "own" if entry.own else "rival"
        parts.append(svg.text(left - 8, y + 4, entry.name[:16], "name", "end"))
        parts.append(
            svg.line(
                x(entry.low_s), y, max(x(entry.high_s), x(entry.low_s) + 1), y, f"interval {kind}"
            )
        )
        parts.append(svg.dots([(x(entry.median_s), y)], f"median {kind}"))
        parts.append(svg.text(600, y + 4, units.seconds(entry.median_s), "name", "middle"))
    words = ", ".join(f"{entry.name} {units.seconds(entry.median_s)}" for entry in entries)
    return svg.drawing(640, height, parts, title=f"Medians with 95% confidence intervals: {words}")


def roofline(roofs: Sequence[Roof], *, intensity: float, flops: float) -> str:
    """The kernel's arithmetic intensity (FLOP per byte) and rate (FLOP/s) under the limits."""
    flat = max(roof.flops for roof in roofs)
    slopes = [roof for roof in roofs if roof.bytes_per_s]
    corners = [flat / roof.bytes_per_s for roof in slopes if roof.bytes_per_s]
    x = svg.spanning([intensity / 3, intensity * 3, *corners], start=70, end=600, log_scale=True)
    lowest = min(flops / 4, *(roof.bytes_per_s * x.low for roof in slopes if roof.bytes_per_s))
    y = svg.spanning(
        [max(lowest, flat / 1e5), flat * 1.4], start=250, end=12, log_scale=True, pad=0.0
    )
    parts = []
    for value in y.ticks(5):
        parts += [
            svg.line(70, y(value), 600, y(value), "grid"),
            svg.text(62, y(value) + 4, units.three(value / 1e9), anchor="end"),
        ]
    for value in x.ticks(6):
        parts += [
            svg.line(x(value), 250, x(value), 254, "axis"),
            svg.text(x(value), 268, f"{value:g}", anchor="middle"),
        ]
    parts.append(svg.line(70, 250, 600, 250, "axis"))
    parts.append(svg.text(335, 288, "arithmetic intensity, FLOP per byte", "label", "middle"))
    parts.append(svg.text(70, 10, "GFLOP/s", "label", "end"))
    for roof in slopes:
        assert roof.bytes_per_s is not None
        corner = min(flat / roof.bytes_per_s, x.high)
        start = max(x.low, y.low / roof.bytes_per_s)
        parts.append(
            svg.line(
                x(start),
                y(roof.bytes_per_s * start),
                x(corner),
                y(roof.bytes_per_s * corner),
                "level roofline",
            )
        )
        parts.append(svg.text(x(start) + 6, y(roof.bytes_per_s * start) - 6, roof.name, "tick"))
    left = min(x.low if not corners else min(corners), x.high)
    parts.append(svg.line(x(left), y(flat), 600, y(flat), "level roofline"))
    parts.append(
        svg.text(598, y(flat) - 6, f"{units.three(flat / 1e9)} GFLOP/s, measured", "tick", "end")
    )
    parts.append(svg.line(x(intensity), y(flops), x(intensity), 250, "drop"))
    parts.append(svg.dots([(x(intensity), y(flops))], "median own"))
    parts.append(svg.text(x(intensity) + 9, y(flops) + 14, f"{units.three(flops / 1e9)}", "name"))
    title = (
        f"{units.three(flops / 1e9)} GFLOP/s at {intensity:.3g} FLOP per byte; the "
        f"arithmetic limit is {units.three(flat / 1e9)}"
    )
    return svg.drawing(640, 296, parts, title=title)


def scatter(predicted: Sequence[float], medians_s: Sequence[float]) -> str:
    """The model's scores against measured times; for a good model they fall to the right."""
    x = svg.spanning(predicted, start=56, end=480)
    y = svg.spanning(medians_s, start=200, end=10, log_scale=True)
    parts = []
    for value in y.ticks(4):
        parts += [
            svg.line(56, y(value), 480, y(value), "grid"),
            svg.text(50, y(value) + 4, units.seconds(value), anchor="end"),
        ]
    for value in x.ticks(5):
        parts.append(svg.text(x(value), 216, f"{value:g}", anchor="middle"))
    parts.append(
        svg.dots(((x(p), y(m)) for p, m in zip(predicted, medians_s, strict=True)), "point")
    )
    parts.append(svg.text(268, 234, "predicted score (higher: faster)", "label", "middle"))
    return svg.drawing(
        490, 240, parts, title=f"Predicted score against measured median of {len(predicted)} trials"
    )


def correlations(values: Sequence[tuple[int, float]]) -> str:
    """Rank correlation of each batch, from -1 to 1."""
    x = svg.spanning([batch for batch, _ in values], start=40, end=480)
    y = Scale(low=-1, high=1, start=200, end=10)
    parts = []
    for level in (-1.0, -0.5, 0.0, 0.5, 1.0):
        parts.append(svg.line(40, y(level), 480, y(level), "axis" if level == 0 else "grid"))
        parts.append(svg.text(34, y(level) + 4, f"{level:g}", anchor="end"))
    points = [(x(batch), y(value)) for batch, value in values]
    parts += [svg.polyline(points, "spark"), svg.dots(points, "record")]
    for value in x.ticks(6):
        if value == int(value) and value >= 0:
            parts.append(svg.text(x(value), 216, f"{value:g}", anchor="middle"))
    parts.append(svg.text(260, 234, "batch", "label", "middle"))
    return svg.drawing(
        490,
        240,
        parts,
        title=f"Rank correlation of {len(values)} batches, last {values[-1][1]:.2f}",
    )


def bar(fraction: float) -> str:
    """A horizontal bar, 140 × 12; decoration beside its number."""
    width = round(140 * min(1.0, max(0.0, fraction)), 1)
    inside = (
        '<rect class="track" width="140" height="12" rx="2"/><rect class="bar" '
        f'width="{width:g}" height="12" rx="2"/>'
    )
    return svg.element(
        "svg",
        inside,
        class_="bar",
        viewBox="0 0 140 12",
        width="140",
        height="12",
        aria_hidden="true",
    )


def overlay(
    curves: Sequence[Sequence[tuple[int, float]]],
    ends: Sequence[int],
    *,
    regret: bool,
    x_log: bool = False,
    title: str,
) -> str:
    """Best-so-far records of two jobs in one drawing.

    As regret, they are relative to the better result of both.
    """
    floor = min((value for records in curves for _, value in records), default=1.0)
    shown = [
        [(n, value / floor if regret else value) for n, value in records] for records in curves
    ]
    # On a logarithmic axis trial 0, the default, lies on the left edge.
    low, high = (0.5 if x_log else 0.0), max([1, *ends]) * 1.01
    x = Scale(low=low, high=high, start=70, end=1090, log=x_log)
    y = svg.spanning(
        [value for records in shown for _, value in records], start=250, end=12, log_scale=True
    )
    parts = []
    for value in y.ticks(6):
        label = f"{100 * (value - 1):+.0f}%" if regret else units.seconds(value)
        parts += [
            svg.line(70, y(value), 1090, y(value), "grid"),
            svg.text(62, y(value) + 4, label, anchor="end"),
        ]
    for value in x.ticks(8):
        parts += [
            svg.line(x(value), 250, x(value), 254, "axis"),
            svg.text(x(value), 268, f"{value:,.0f}", anchor="middle"),
        ]
    parts += [svg.line(70, 250, 1090, 250, "axis"), svg.text(580, 288, "trial", "label", "middle")]
    for records, end, side in zip(shown, ends, "ab", strict=True):
        points = [(x(n), y(value)) for n, value in records]
        parts += [
            svg.polyline(svg.staircase(points, x(end)), f"best side-{side}"),
            svg.dots(points, f"record side-{side}"),
        ]
    return svg.drawing(1120, 296, parts, title=title)


def lanes(strips: Sequence[Strip], labels: Sequence[tuple[float, str]], *, title: str) -> str:
    """A row for each lane, coloured by the kind that took most of each bin.

    `labels` are pairs of a share of the width and a text.
    """
    left, width, height = 150, 950, 22 * len(strips) + 30
    parts = []
    for row, strip in enumerate(strips):
        y, step = 4 + 22 * row, width / max(1, len(strip.bins))
        parts.append(svg.text(left - 8, y + 13, strip.name[-24:], "name", "end"))
        parts.append(svg.element("rect", class_="lane", x=left, y=y, width=width, height=18))
        start = 0
        for stop in range(1, len(strip.bins) + 1):
            if stop == len(strip.bins) or strip.bins[stop] != strip.bins[start]:
                if strip.bins[start]:
                    x, wide = round(left + start * step, 1), round((stop - start) * step, 1)
                    parts.append(
                        svg.element(
                            "rect",
                            class_=f"span {strip.bins[start]}",
                            x=x,
                            y=y,
                            width=wide,
                            height=18,
                        )
                    )
                start = stop
    for share, label in labels:
        anchor = "start" if share == 0 else "end" if share == 1 else "middle"
        parts.append(svg.text(left + share * width, height - 6, label, anchor=anchor))
    return svg.drawing(1120, height, parts, title=title)


def slices(groups: Sequence[Mapping[str, float]]) -> str:
    """The fastest and the median trial of each value of a knob, over the range of all."""
    values = [value for group in groups for value in (group["best_s"], group["median_s"])]
    low, high = min(values), max(values)
    span = max(log(high / low), 1e-9)
    rows = []
    for row, group in enumerate(groups):
        best, middle = (4 + 190 * log(group[name] / low) / span for name in ("best_s", "median_s"))
        rows.append(svg.line(best, 9 + 20 * row, middle, 9 + 20 * row, "range"))
        rows.append(svg.dots([(round(best, 1), 9 + 20 * row)], "median own"))
        rows.append(svg.dots([(round(middle, 1), 9 + 20 * row)], "median rival"))
    content = "".join(rows)
    height = 20 * len(groups)
    box = f"0 0 200 {height}"
    return svg.element(
        "svg", content, class_="slices", viewBox=box, aria_hidden="true", width=200, height=height
    )
