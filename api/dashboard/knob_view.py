"""Knobs on the job's page: their importance and parallel coordinates.

Each value is a link to its trials.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

from starlette.datastructures import QueryParams

from tuner.api.dashboard.charts import parallel as drawing
from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.history import Analysis
from tuner.api.dashboard.importance import KnobImportance, ValueGroup
from tuner.api.dashboard.pages import with_query
from tuner.api.dashboard.trial_table import Selection
from tuner.api.routes.jobs import knob_filter
from tuner.db.trials import StoredTrial
from tuner.measure.outcome import Timed

SHOWN = 12  # knobs with a row of their own
VALUES = 16  # of one knob


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRow:
    group: ValueGroup
    href: str  # adds or removes the filter by this value
    picked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRow:
    knob: KnobImportance
    bar: str
    slices: str
    values: Sequence[ValueRow]
    hidden: int  # values not shown


def written(name: str, value: Any) -> str:
    """The filter `NAME=VALUE` of a knob."""
    return f"{name}={json.dumps(value) if not isinstance(value, str) else value}"


def toggled(params: QueryParams, name: str, value: Any) -> str:
    """The query with the filter by this value added, or removed if it is there."""
    here = written(name, value)
    others = [text for text in params.getlist("knob") if text.partition("=")[0] != name]
    was = any(
        knob_filter(text) == knob_filter(here)
        for text in params.getlist("knob")
        if text.partition("=")[0] == name
    )
    return with_query(params, knob=others if was else [*others, here], cursor=None)


def knob_rows(analysis: Analysis, params: QueryParams, chosen: Selection) -> Sequence[KnobRow]:
    knobs = dict(chosen.where.knobs)
    rows = []
    for knob in analysis.knobs[:SHOWN]:
        groups = sorted(
            sorted(knob.groups, key=lambda group: group.best_s)[:VALUES], key=knob.groups.index
        )
        values = [
            ValueRow(
                group=group,
                href=toggled(params, knob.knob, group.value),
                picked=knobs.get(knob.knob) == group.value,
            )
            for group in groups
        ]
        drawn: list[Mapping[str, float]] = [
            {"best_s": group.best_s, "median_s": group.median_s} for group in groups
        ]
        hidden = len(knob.groups) - len(groups)
        rows.append(
            KnobRow(
                knob=knob,
                bar=plots.bar(knob.share),
                slices=plots.slices(drawn),
                values=values,
                hidden=hidden,
            )
        )
    return rows


def parallel(analysis: Analysis, params: QueryParams, chosen: Selection) -> str | None:
    """Parallel coordinates as SVG; None with fewer than two knobs that vary."""
    axes = axes_of(analysis)
    if len(axes) < 2:
        return None
    lines = drawing.sample_lines(
        axes, [stored.trial.config for stored in matching(analysis, chosen)]
    )
    return drawing.draw(
        axes,
        lines,
        href=lambda name, value: toggled(params, name, value),
        chosen=dict(chosen.where.knobs),
    )


def static_parallel(analysis: Analysis, trials: Sequence[StoredTrial]) -> str | None:
    """Parallel coordinates of these trials without links: a file has no table to filter."""
    axes = axes_of(analysis)
    if len(axes) < 2:
        return None
    lines = drawing.sample_lines(axes, [stored.trial.config for stored in trials])
    return drawing.draw(axes, lines, href=None, chosen={})


def axes_of(analysis: Analysis) -> Sequence[drawing.Axis]:
    """The knobs that explain most, each with its values."""
    return [
        drawing.Axis(name=knob.knob, values=[group.value for group in knob.groups])
        for knob in analysis.knobs[: drawing.MOST_AXES]
    ]


def matching(analysis: Analysis, chosen: Selection) -> Sequence[StoredTrial]:
    """The analysed trials that the filter by knobs and time selects, the fastest first."""
    where = chosen.where
    low = 0.0 if where.min_median_s is None else where.min_median_s
    high = inf if where.max_median_s is None else where.max_median_s
    return [
        stored
        for stored in analysis.trials
        if isinstance(stored.trial.outcome, Timed)
        and low <= stored.trial.outcome.median_s <= high
        and all(
            stored.trial.config.get(name) == value for name, value in chosen.where.knobs.items()
        )
    ]
