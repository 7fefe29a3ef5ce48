"""A graph drawn beside the rows of a table: a node a row, its edges as rails between rows.

Each value has a lane from the row that computes it to the last row that reads it, as
branches have in a drawing of commits. So a graph of hundreds of nodes stays readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.api.dashboard.charts import svg

LANE, HEIGHT = 12, 30  # pixels: between lanes, of a row
RADIUS = 4.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Rail:
    """What a row shows of the lanes."""

    node: int  # lane of the row's node
    goes_on: bool  # whether a later row reads it
    read: tuple[int, ...]  # lanes that come from above and end in the node, or pass it too
    passing: tuple[int, ...]  # lanes that reach the next row, without the node's own


def rails(after: Sequence[Sequence[int]]) -> list[Rail]:
    """The rails of a graph, whose nodes each come `after` earlier ones, given by position."""
    last = {source: row for row, sources in enumerate(after) for source in sources}
    lanes: list[int | None] = []  # the node whose value is in the lane
    drawn = []
    for row, sources in enumerate(after):
        read = tuple(lane for lane, owner in enumerate(lanes) if owner in sources)
        for lane in read:
            if last[lanes[lane] or 0] == row:
                lanes[lane] = None
        passing = tuple(lane for lane, owner in enumerate(lanes) if owner is not None)
        free = next((lane for lane in (*read, *range(len(lanes))) if lanes[lane] is None), None)
        if free is None:
            free = len(lanes)
            lanes.append(None)
        lanes[free] = row if row in last else None
        drawn.append(Rail(node=free, goes_on=row in last, read=read, passing=passing))
    return drawn


def width(drawn: Sequence[Rail]) -> int:
    """Pixels that all rows need."""
    most = max((max((rail.node, *rail.read, *rail.passing)) for rail in drawn), default=0)
    return (most + 1) * LANE + 4


def draw(rail: Rail, pixels: int, *, heavy: bool = False) -> str:
    """The row's drawing, decoration beside its words; `heavy` fills the node."""
    middle, x = HEIGHT / 2, _x(rail.node)
    paths = [f"M{_x(lane):g} 0V{HEIGHT}" for lane in rail.passing]
    paths += [
        f"M{_x(lane):g} 0C{_x(lane):g} {middle * 0.7:g} {x:g} {middle * 0.3:g} {x:g} {middle:g}"
        for lane in rail.read
    ]
    if rail.goes_on:
        paths.append(f"M{x:g} {middle:g}V{HEIGHT}")
    edges = svg.element("path", class_="edge", d="".join(paths)) if paths else ""
    node = svg.element(
        "circle", cx=f"{x:g}", cy=f"{middle:g}", r=RADIUS, class_="node heavy" if heavy else "node"
    )
    return svg.element(
        "svg", edges + node, class_="rail", width=pixels, height=HEIGHT, aria_hidden="true"
    )


def _x(lane: int) -> float:
    return lane * LANE + LANE / 2 + 2
