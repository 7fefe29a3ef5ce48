"""Lists of a job's trials: filtered, sorted by number or by median, page by page, each page a walk of an index or two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from sqlalchemy import ColumnElement, or_

from db import knob_walk
from db.engine import Session
from db.knob_walk import Place, Walk
from db.models import TrialRow
from db.pages import Page, checked_limit, decode, encode
from db.trials import OK, StoredTrial, stored
from tuner.errors import UsageError
from tuner.measure.outcome import FailureKind
from tuner.spaces.space import Value

Sort = Literal["number", "-number", "median_s", "-median_s"]
SORTS = ("number", "-number", "median_s", "-median_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFilter:
    outcome: Sequence[str] = ()  # ok or failure kinds; "failed" for every kind; empty for all
    position: int | None = None  # one task
    min_median_s: float | None = None  # leaves failures out
    max_median_s: float | None = None  # leaves failures out
    knobs: Mapping[str, Value] = field(default_factory=dict)  # each with exactly this value


def list_page(
    session: Session,
    job_id: str,
    *,
    where: TrialFilter | None = None,
    sort: Sort = "number",
    cursor: str | None = None,
    limit: int = 50,
) -> Page[StoredTrial]:
    """Trials of a job, by number within tasks or by median; by median the failures follow after all timed ones, in either order.

    A filter by knobs looks at 50,000 trials for a page: one that hardly any trial passes may give a short page, or an empty one,
    whose cursor goes on from there. Raises UsageError for an unknown sort or outcome, a limit out of range, or a cursor of
    another listing.
    """
    limit = checked_limit(limit)
    if sort not in SORTS:
        raise UsageError(f"unknown sort {sort!r}; trials are sorted by {', '.join(SORTS)}")
    where = where or TrialFilter()
    _outcomes(where.outcome)  # refused here, whichever of the walks below will be needed
    types: list[type | tuple[type, ...]] = [(float, int, type(None)), int, int]
    at = None if cursor is None else decode(_listing(sort), cursor, types)
    rows: list[TrialRow] = []
    for walk in _walks(job_id, where, sort, at):
        found, reached = knob_walk.rows(session, walk, where.knobs, limit + 1 - len(rows))
        rows += found
        if len(rows) > limit or reached is not None:
            break
    items = tuple(stored(row) for row in rows[:limit])
    if len(rows) > limit:
        last = rows[limit - 1]
        return Page(items=items, next=encode(_listing(sort), [last.median_s, last.position, last.number]))
    return Page(items=items, next=None if reached is None else encode(_listing(sort), reached))


def _listing(sort: str) -> str:
    return f"trials by {sort}"


def _walks(job_id: str, where: TrialFilter, sort: Sort, at: Place | None) -> Iterator[Walk]:
    """What is walked for a page after the place `at`; by median first timed trials, then failures, where either may pass."""
    everything, backwards = (TrialRow.job_id == job_id, *_conditions(where)), sort.startswith("-")
    if sort.endswith("number"):
        yield Walk(where=everything, by_median=False, backwards=backwards, after=at)
        return
    wanted, filtering = set(where.outcome), where.min_median_s is not None or where.max_median_s is not None
    if (at is None or at[0] is not None) and (not wanted or OK in wanted):
        timed = _conditions(replace(where, outcome=()))  # whatever has a median is ok
        timed = [TrialRow.job_id == job_id, *timed, TrialRow.median_s.is_not(None)]
        yield Walk(where=tuple(timed), by_median=True, backwards=backwards, after=at)
    if not filtering and wanted != {OK}:
        after = at if at is not None and at[0] is None else None  # the failures begin after the last timed one
        yield Walk(where=(*everything, TrialRow.median_s.is_(None)), by_median=False, backwards=False, after=after)


def _conditions(where: TrialFilter) -> list[ColumnElement[bool]]:
    """All but the knobs."""
    found: list[ColumnElement[bool]] = []
    if where.outcome:
        found.append(_outcomes(where.outcome))
    if where.position is not None:
        found.append(TrialRow.position == where.position)
    if where.min_median_s is not None:
        found.append(TrialRow.median_s >= where.min_median_s)
    if where.max_median_s is not None:
        found.append(TrialRow.median_s <= where.max_median_s)
    return found


def _outcomes(wanted: Sequence[str]) -> ColumnElement[bool]:
    known = {OK, "failed", *(kind.value for kind in FailureKind)}
    for outcome in wanted:
        if outcome not in known:
            raise UsageError(f"unknown outcome {outcome!r}; it is one of {', '.join(sorted(known))}")
    exact = TrialRow.outcome.in_([outcome for outcome in wanted if outcome != "failed"])
    return or_(exact, TrialRow.outcome != OK) if "failed" in wanted else exact
