"""The table of a job's trials, filtered and sorted by the query in the address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, cast

from fastapi import Depends, Query

from tuner import units
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
class TrialQuery:
    """The filter as written in the address."""

    outcome: Sequence[str]
    knob: Sequence[str]
    min: str
    max: str
    sort: str
    cursor: str | None


def trial_query(
    outcome: Annotated[list[str] | None, Query(max_length=12)] = None,
    knob: Annotated[
        list[Annotated[str, Query(max_length=200)]] | None, Query(max_length=16)
    ] = None,
    min: Annotated[str, Query(max_length=40)] = "",
    max: Annotated[str, Query(max_length=40)] = "",
    sort: Annotated[str, Query(max_length=20)] = "number",
    cursor: Annotated[str | None, Query(max_length=500)] = None,
) -> TrialQuery:
    """The filter of a request: a dependency of routes."""
    chosen = [kind for kind in outcome or () if kind]
    return TrialQuery(
        outcome=chosen,
        knob=[text for text in knob or () if text],
        min=min,
        max=max,
        sort=sort,
        cursor=cursor or None,
    )


FilterQuery = Annotated[TrialQuery, Depends(trial_query)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A filter as written and as read."""

    query: TrialQuery
    where: TrialFilter
    error: str | None  # why the filter cannot be read; it then filters nothing


def selection(query: TrialQuery) -> Selection:
    try:
        where = TrialFilter(
            outcome=tuple(query.outcome),
            min_median_s=units.read_seconds(query.min),
            max_median_s=units.read_seconds(query.max),
            knobs=dict(knob_filter(text) for text in query.knob),
        )
    except UsageError as error:
        return Selection(query=query, where=TrialFilter(), error=str(error))
    return Selection(query=query, where=where, error=None)


def of_task(where: TrialFilter, position: int) -> TrialFilter:
    """The filter, restricted to one task of the job."""
    return replace(where, position=position)


def outcome_of(stored: StoredTrial) -> str:
    outcome = stored.trial.outcome
    return outcome.kind.value if isinstance(outcome, Failed) else "ok"


def table(session: Session, view: JobView, chosen: Selection) -> Mapping[str, Any]:
    """The context of the table's template.

    A filter that cannot be read shows its error above all trials.
    """
    error = chosen.error
    where = of_task(chosen.where, view.position)
    try:
        rows = trial_pages.list_page(
            session,
            view.job.id,
            where=where,
            sort=cast(Sort, chosen.query.sort),
            cursor=chosen.query.cursor,
            limit=ROWS,
        )
    except UsageError as refused:
        error = str(refused)
        rows = trial_pages.list_page(
            session, view.job.id, where=of_task(TrialFilter(), view.position), limit=ROWS
        )
    columns = dict.fromkeys(name for stored in rows.items for name in stored.trial.config)
    return {
        "trials": rows.items,
        "next_cursor": rows.next,
        "query": chosen.query,
        "filter_error": error,
        "outcomes": OUTCOMES,
        "outcome_of": outcome_of,
        "knob_columns": list(columns),
    }
