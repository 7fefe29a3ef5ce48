"""The table of a job's trials, filtered and sorted by the query in the address."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import nan
from typing import Annotated, Any, cast

from fastapi import Depends, Query

from tuner import units
from tuner.api.dashboard.history import last_rank
from tuner.api.dashboard.job_view import JobView
from tuner.api.routes.jobs import knob_filter
from tuner.db import charts, trial_pages
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
    top: str  # the fastest percent of the timed trials
    sort: str
    cursor: str | None


def trial_query(
    outcome: Annotated[list[str] | None, Query(max_length=12)] = None,
    knob: Annotated[
        list[Annotated[str, Query(max_length=200)]] | None, Query(max_length=16)
    ] = None,
    min: Annotated[str, Query(max_length=40)] = "",
    max: Annotated[str, Query(max_length=40)] = "",
    top: Annotated[str, Query(max_length=20)] = "",
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
        top=top,
        sort=sort,
        cursor=cursor or None,
    )


FilterQuery = Annotated[TrialQuery, Depends(trial_query)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """A filter as written and as read."""

    query: TrialQuery
    where: TrialFilter
    top_percent: float | None  # see `within`
    error: str | None  # why the filter cannot be read; it then filters nothing


def selection(query: TrialQuery) -> Selection:
    try:
        where = TrialFilter(
            outcome=tuple(query.outcome),
            min_median_s=units.read_seconds(query.min),
            max_median_s=units.read_seconds(query.max),
            knobs=dict(knob_filter(text) for text in query.knob),
        )
        top_percent = read_percent(query.top)
    except UsageError as error:
        return Selection(query=query, where=TrialFilter(), top_percent=None, error=str(error))
    return Selection(query=query, where=where, top_percent=top_percent, error=None)


def read_percent(text: str) -> float | None:
    """The percentage of a text, None of an empty one. Raises UsageError."""
    if not text.strip():
        return None
    try:
        percent = float(text.strip().removesuffix("%"))
    except ValueError:
        percent = nan
    if not 0 < percent <= 100:
        raise UsageError(f"top is {text!r}; give a percentage above 0 and up to 100, such as 5")
    return percent


def within(session: Session, view: JobView, chosen: Selection) -> Selection:
    """The selection with its share of the fastest trials as a limit of their times."""
    if chosen.top_percent is None:
        return chosen
    rank = last_rank(view.task.trials_ok, chosen.top_percent)
    limit_s = charts.median_of_rank(session, view.job.id, view.position, rank)
    limits = [limit for limit in (limit_s, chosen.where.max_median_s) if limit is not None]
    where = replace(chosen.where, max_median_s=min(limits, default=None))
    return replace(chosen, where=where)


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
    chosen = within(session, view, chosen)
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
