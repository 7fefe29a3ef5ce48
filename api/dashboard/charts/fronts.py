"""The Pareto front of time and another objective, over a workload's kernels."""

from __future__ import annotations

from collections.abc import Sequence

from tuner import units
from tuner.api.dashboard.charts import svg
from tuner.db.kernels import Kernel
from tuner.measure.objective import TIME, Objective, front

LEFT, RIGHT, TOP, BOTTOM = 80, 480, 14, 170


def draw(kernels: Sequence[Kernel], objective: Objective, own: str) -> str | None:
    """Time against a figure in bytes: the front as a line, the kernel `own` (its id) marked.

    None where fewer than two kernels have the figure.
    """
    measured = [each for each in kernels if objective.figure(each.figures) is not None]
    if len(measured) < 2:
        return None
    best = front(measured, (TIME, objective), lambda each: each.figures)
    sizes = [_size(each, objective) for each in measured]
    x = svg.spanning([each.median_s for each in measured], start=LEFT, end=RIGHT, log_scale=True)
    y = svg.spanning([0.0, *sizes], start=BOTTOM, end=TOP)
    parts = [svg.line(LEFT, BOTTOM, RIGHT, BOTTOM, "axis")]
    for value in y.ticks(3):
        parts.append(svg.line(LEFT, y(value), RIGHT, y(value), "grid"))
        parts.append(svg.text(LEFT - 8, y(value) + 4, units.size(value), anchor="end"))
    for value in x.ticks(4):
        parts.append(svg.text(x(value), BOTTOM + 16, units.seconds(value), anchor="middle"))
    parts.append(svg.text((LEFT + RIGHT) / 2, BOTTOM + 32, TIME.title, "label", "middle"))
    steps = [(x(each.median_s), y(_size(each, objective))) for each in best]
    parts.append(svg.polyline(svg.staircase(steps, RIGHT), "spark"))
    for each in measured:
        place = [(x(each.median_s), y(_size(each, objective)))]
        parts.append(svg.dots(place, "median own" if each.id == own else "median rival"))
    words = ", ".join(
        f"{units.seconds(each.median_s)} with {units.size(_size(each, objective))}" for each in best
    )
    title = f"{objective.title} against time; the front: {words}"
    return svg.drawing(RIGHT + 20, BOTTOM + 42, parts, title=title)


def _size(kernel: Kernel, objective: Objective) -> float:
    return float(objective.figure(kernel.figures) or 0.0)
