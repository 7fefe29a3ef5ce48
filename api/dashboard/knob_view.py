"""Knobs as the job's page shows them: importance with slices, parallel coordinates;
each value is a link to its trials."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from starlette.datastructures import QueryParams

from tuner.api.dashboard.charts import parallel as drawing
from tuner.api.dashboard.charts import plots
from tuner.api.dashboard.history import Analysis
from tuner.api.dashboard.importance import KnobImportance, ValueGroup
from tuner.api.dashboard.pages import with_query
from tuner.api.dashboard.trial_table import Selection
from tuner.api.routes.jobs import knob_filter

SHOWN = 12  # knobs with a row of their own
VALUES = 16  # of one knob


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueRow:
    group: ValueGroup
    href: str  # filters by the value, or no longer
    picked: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class KnobRow:
    knob: KnobImportance
    bar: str
    slices: str
    values: Sequence[ValueRow]
    hidden: int  # values not shown


def written(name: str, value: Any) -> str:
    """`NAME=VALUE` as the filter reads it."""
    return f"{name}={json.dumps(value) if not isinstance(value, str) else value}"


def toggled(params: QueryParams, name: str, value: Any) -> str:
    """The query with this value of the knob chosen, or with the knob free where it was."""
    here = written(name, value)
    others = [text for text in params.getlist("knob") if text.partition("=")[0] != name]
    was = any(
        knob_filter(text) == knob_filter(here)
        for text in params.getlist("knob")
        if text.partition("=")[0] == name
    )
    return with_query(params, knob=others if was else [*others, here], cursor=None)


def knob_rows(found: Analysis, params: QueryParams, chosen: Selection) -> Sequence[KnobRow]:
    knobs = dict(chosen.where.knobs)
    rows = []
    for knob in found.knobs[:SHOWN]:
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


def parallel(found: Analysis, params: QueryParams, chosen: Selection) -> str | None:
    """None with fewer than two knobs that vary."""
    axes = [
        drawing.Axis(name=knob.knob, values=[group.value for group in knob.groups])
        for knob in found.knobs[: drawing.MOST_AXES]
    ]
    if len(axes) < 2:
        return None
    knobs = dict(chosen.where.knobs)
    every = [
        one
        for one in found.trials
        if all(one.trial.config.get(name) == value for name, value in knobs.items())
    ]
    # The fastest and an even spread of the others, so that both the winners and their
    # surroundings show.
    quarter = drawing.MOST_LINES // 4
    step = max(1, len(every) // (drawing.MOST_LINES - quarter))
    kept = {index: one for index, one in enumerate(every) if index < quarter or index % step == 0}
    lines = [
        drawing.Line(
            values=[one.trial.config.get(axis.name) for axis in axes],
            rank=index / max(1, len(every)),
        )
        for index, one in kept.items()
    ]
    return drawing.draw(
        axes, lines, href=lambda name, value: toggled(params, name, value), chosen=knobs
    )
