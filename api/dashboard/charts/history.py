"""A kernel's races over time: what it is raced against, as multiples of its own time.

Each library has a line, which breaks where its version changes. Above 1 the kernel wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

from tuner import units
from tuner.api.dashboard.charts import svg
from tuner.api.dashboard.charts.svg import Scale
from tuner.db.races import StoredRace
from tuner.measure.regression import Contest

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 1120, 300, 64, 150, 14, 46
LINES = 6  # looks of lines; a seventh contender begins anew
MOST_RACES = 400  # the last that are drawn

Point = tuple[datetime, Contest]


def draw(races: Sequence[StoredRace]) -> str | None:
    """The drawing as SVG; None where no race has an opponent."""
    races = races[-MOST_RACES:]
    points = [
        (race.raced_at, contest)
        for race in races
        if race.record is not None
        for contest in race.record.contests
    ]
    if not points:
        return None
    moments = [moment.timestamp() for moment, _ in points]
    end = max(*moments, min(moments) + 1.0)
    x = Scale(low=min(moments), high=end, start=LEFT, end=WIDTH - RIGHT)
    ends = [value for _, contest in points for value in contest.ratio.ci95]
    y = svg.spanning([1.0, *ends], start=HEIGHT - BOTTOM, end=TOP, log_scale=True)
    parts = _axes(x, y)
    names = sorted({contest.contender for _, contest in points})
    heights: list[float] = []
    for index, name in enumerate(names):
        of_name = [point for point in points if point[1].contender == name]
        parts += _line(of_name, x, y, f"side-{index % LINES}")
        height = y(of_name[-1][1].ratio.value) + 4
        while any(abs(height - other) < 12 for other in heights):
            height += 12
        heights.append(height)
        parts.append(
            svg.text(
                WIDTH - RIGHT + 8, height, _label(of_name[-1][1]), f"name side-{index % LINES}"
            )
        )
    return svg.drawing(WIDTH, HEIGHT, parts, title=summary(races))


def summary(races: Sequence[StoredRace]) -> str:
    """The drawing in words."""
    timed = [race.record for race in races if race.record is not None]
    if not timed:
        return f"{len(races)} races, none of which the kernel finished."
    last = ", ".join(
        f"{contest.contender} {contest.version} takes {units.ratio(contest.ratio.value)} its time"
        for contest in timed[-1].contests
    )
    return f"{len(races)} races; in the last one {last or 'nothing took part beside it'}."


def _label(contest: Contest) -> str:
    return f"{contest.contender} {contest.version}"[:24]


def _axes(x: Scale, y: Scale) -> list[str]:
    floor = HEIGHT - BOTTOM
    parts = []
    for value in y.ticks(6):
        parts.append(svg.line(LEFT, y(value), WIDTH - RIGHT, y(value), "grid"))
        parts.append(svg.text(LEFT - 8, y(value) + 4, f"{value:g}×", anchor="end"))
    parts.append(svg.line(LEFT, y(1.0), WIDTH - RIGHT, y(1.0), "level default"))
    parts.append(svg.line(LEFT, floor, WIDTH - RIGHT, floor, "axis"))
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        moment = datetime.fromtimestamp(x.low + share * (x.high - x.low)).astimezone()
        place = LEFT + share * (WIDTH - RIGHT - LEFT)
        parts.append(svg.text(place, floor + 18, units.moment(moment)[:16], anchor=anchor))
    parts.append(
        svg.text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, "others / kernel", "label", "middle")
    )
    return parts


def _line(points: Sequence[Point], x: Scale, y: Scale, look: str) -> list[str]:
    """The points of a contender with their intervals, joined within each version."""
    parts = []
    for _, group in groupby(points, key=lambda point: point[1].version):
        of_version = list(group)
        places = [(x(moment.timestamp()), y(contest.ratio.value)) for moment, contest in of_version]
        parts.append(svg.polyline(places, f"spark {look}"))
        parts.append(svg.dots(places, f"record {look}"))
    whiskers = "".join(
        f"M{x(moment.timestamp()):g} {y(contest.ratio.ci95[0]):g}V{y(contest.ratio.ci95[1]):g}"
        for moment, contest in points
    )
    parts.append(svg.element("path", class_=f"whisker {look}", d=whiskers))
    return parts
