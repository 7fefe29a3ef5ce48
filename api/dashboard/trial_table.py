"""The table of a job's trials: which the query in the address selects, in which order,
from which place on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, cast

from fastapi import Depends, Query

from tuner.api.dashboard import units
from tuner.api.dashboard.job_view import JobView
from tuner.api.routes.jobs import knob_filter
from tuner.db import trial_pages
from tuner.db.engine import Session
from tuner.db.trial_pages import Sort, TrialFilter
from tuner.db.trials import StoredTrial
from tuner.errors import UsageError
from tuner.measure.outcome import Failed, FailureKind

ROWS = 50
OUTCOMES = ("ok", "failed", *(kind.value for kind in FailureKind))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The filter as the address has it."""

    outcome: Sequence[str]
    knob: Sequence[str]
    min: str
    max: str
    sort: str
    cursor: str | None


def wanted(
    outcome: Annotated[list[str] | None, Query(max_length=12)] = None,
    knob: Annotated[
        list[Annotated[str, Query(max_length=200)]] | None, Query(max_length=16)
    ] = None,
    min: Annotated[str, Query(max_length=40)] = "",
    max: Annotated[str, Query(max_length=40)] = "",
    sort: Annotated[str, Query(max_length=20)] = "number",
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> Wanted:
    chosen = [one for one in outcome or () if one]
    return Wanted(
        outcome=chosen,
        knob=[one for one in knob or () if one],
        min=min,
        max=max,
        sort=sort,
        cursor=cursor or None,
    )


FilterQuery = Annotated[Wanted, Depends(wanted)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    wanted: Wanted
    where: TrialFilter
    error: str | None  # what in the filter cannot be read; then nothing is filtered by it


def selection(found: Wanted) -> Selection:
    try:
        where = TrialFilter(
            outcome=tuple(found.outcome),
            min_median_s=units.read_seconds(found.min),
            max_median_s=units.read_seconds(found.max),
            knobs=dict(knob_filter(text) for text in found.knob),
        )
    except UsageError as error:
        return Selection(wanted=found, where=TrialFilter(), error=str(error))
    return Selection(wanted=found, where=where, error=None)


def at(where: TrialFilter, position: int) -> TrialFilter:
    return TrialFilter(
        outcome=where.outcome,
        position=position,
        min_median_s=where.min_median_s,
        max_median_s=where.max_median_s,
        knobs=where.knobs,
    )


def outcome_of(one: StoredTrial) -> str:
    outcome = one.trial.outcome
    return outcome.kind.value if isinstance(outcome, Failed) else "ok"


def table(session: Session, view: JobView, chosen: Selection) -> Mapping[str, Any]:
    """What the template of the table needs. A filter that cannot be read shows its
    error above all trials."""
    error = chosen.error
    where = at(chosen.where, view.position)
    try:
        found = trial_pages.list_page(
            session,
            view.job.id,
            where=where,
            sort=cast(Sort, chosen.wanted.sort),
            cursor=chosen.wanted.cursor,
            limit=ROWS,
        )
    except UsageError as refused:
        error, found = (
            str(refused),
            trial_pages.list_page(
                session, view.job.id, where=at(TrialFilter(), view.position), limit=ROWS
            ),
        )
    columns = dict.fromkeys(name for one in found.items for name in one.trial.config)
    return {
        "trials": found.items,
        "next_cursor": found.next,
        "wanted": chosen.wanted,
        "filter_error": error,
        "outcomes": OUTCOMES,
        "outcome_of": outcome_of,
        "knob_columns": list(columns),
    }
