"""Lists of a job's trials: filtered, sorted by number or by median, page by page, each page one walk of an index."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from sqlalchemy import ColumnElement, Select, case, func, literal, or_, select, tuple_, type_coerce

from db.engine import Session
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

    Raises UsageError for an unknown sort or outcome, a limit out of range, or a cursor of another listing.
    """
    limit = checked_limit(limit)
    if sort not in SORTS:
        raise UsageError(f"unknown sort {sort!r}; trials are sorted by {', '.join(SORTS)}")
    where = where or TrialFilter()
    _outcomes(where.outcome)  # refused here, whichever of the queries below will be needed
    everything = select(TrialRow).where(TrialRow.job_id == job_id)
    if sort.endswith("number"):
        rows = _by_number(session, _filtered(session, everything, where), sort, cursor, limit + 1)
    else:
        rows = _by_median(session, everything, where, sort, cursor, limit + 1)
    last = rows[limit - 1] if len(rows) > limit else None
    following = None if last is None else encode(_listing(sort), [last.median_s, last.position, last.number])
    return Page(items=tuple(stored(row) for row in rows[:limit]), next=following)


def _listing(sort: str) -> str:
    return f"trials by {sort}"


def _by_number(session: Session, query: Select[TrialRow], sort: Sort, cursor: str | None, count: int) -> list[TrialRow]:
    place = tuple_(TrialRow.position, TrialRow.number)
    backwards = sort.startswith("-")
    if cursor is not None:
        at = tuple_(*map(literal, decode(_listing(sort), cursor, [(float, type(None)), int, int])[1:]))
        query = query.where(place < at if backwards else place > at)
    columns = (TrialRow.position, TrialRow.number)
    query = query.order_by(*(column.desc() if backwards else column.asc() for column in columns)).limit(count)
    return list(session.scalars(query))


def _by_median(
    session: Session, everything: Select[TrialRow], where: TrialFilter, sort: Sort, cursor: str | None, count: int
) -> list[TrialRow]:
    """First the timed ones, then the failures, each only where the filter may let some through."""
    backwards = sort.startswith("-")
    at = None if cursor is None else decode(_listing(sort), cursor, [(float, int, type(None)), int, int])
    rows: list[TrialRow] = []
    wanted, filtering = set(where.outcome), where.min_median_s is not None or where.max_median_s is not None
    if (at is None or at[0] is not None) and (not wanted or OK in wanted):
        timed = _filtered(session, everything, replace(where, outcome=())).where(TrialRow.median_s.is_not(None))  # all are ok
        if at is not None:
            place, here = tuple_(TrialRow.median_s, TrialRow.position, TrialRow.number), tuple_(*map(literal, at))
            timed = timed.where(place < here if backwards else place > here)
        columns = (TrialRow.median_s, TrialRow.position, TrialRow.number)
        rows += session.scalars(
            timed.order_by(*(column.desc() if backwards else column.asc() for column in columns)).limit(count)
        )
    if at is not None and at[0] is not None:
        at = None  # the failures begin after the last timed one
    if len(rows) < count and not filtering and wanted != {OK}:
        failed = _filtered(session, everything, where).where(TrialRow.median_s.is_(None))
        if at is not None:
            failed = failed.where(tuple_(TrialRow.position, TrialRow.number) > tuple_(*map(literal, at[1:])))
        rows += session.scalars(failed.order_by(TrialRow.position, TrialRow.number).limit(count - len(rows)))
    return rows


def _filtered(session: Session, query: Select[TrialRow], where: TrialFilter) -> Select[TrialRow]:
    if where.outcome:
        query = query.where(_outcomes(where.outcome))
    if where.position is not None:
        query = query.where(TrialRow.position == where.position)
    if where.min_median_s is not None:
        query = query.where(TrialRow.median_s >= where.min_median_s)
    if where.max_median_s is not None:
        query = query.where(TrialRow.median_s <= where.max_median_s)
    return query.where(*_knobs_are(session, where.knobs))


def _outcomes(wanted: Sequence[str]) -> ColumnElement[bool]:
    known = {OK, "failed", *(kind.value for kind in FailureKind)}
    for outcome in wanted:
        if outcome not in known:
            raise UsageError(f"unknown outcome {outcome!r}; it is one of {', '.join(sorted(known))}")
    exact = TrialRow.outcome.in_([outcome for outcome in wanted if outcome != "failed"])
    return or_(exact, TrialRow.outcome != OK) if "failed" in wanted else exact


def _knobs_are(session: Session, knobs: Mapping[str, Value]) -> list[ColumnElement[bool]]:
    plain: dict[str, Any] = {name: list(value) if isinstance(value, tuple) else value for name, value in knobs.items()}
    config = TrialRow.config
    if session.on_postgresql and plain:
        # One containment costs half of a comparison for each knob, and its estimated selectivity (0.001) lets the planner walk
        # the ordered index up to the page's end. It takes lists for sets: those are compared too, by a CASE, which the planner
        # takes for a coin.
        lists = [(name, value) for name, value in plain.items() if isinstance(value, list)]
        equal = [case((config.op("->")(name) == type_coerce(value, config.type), True), else_=False) for name, value in lists]
        return [config.op("@>", is_comparison=True)(type_coerce(plain, config.type)), *equal]
    for name in plain:
        if '"' in name:
            raise UsageError(f"unknown knob {name!r}; `tuner space` lists the knobs")
    wanted = {name: json.dumps(it, separators=(",", ":")) if isinstance(it, list) else it for name, it in plain.items()}
    return [func.json_extract(config, f'$."{name}"') == value for name, value in wanted.items()]
