"""Lists of a job's trials: filtered, sorted by number or by median, page by page, each
page a walk of an index or two."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import ColumnElement, SQLColumnExpression, func, select

from tuner.db import trial_walks
from tuner.db.engine import Session
from tuner.db.models import TrialRow
from tuner.db.pages import Page, checked_limit, decode, encode
from tuner.db.trial_walks import Conditions, Place, Walk
from tuner.db.trials import OK, StoredTrial, stored
from tuner.errors import UsageError
from tuner.measure.outcome import FailureKind
from tuner.spaces.core.space import Value

Sort = Literal["number", "-number", "median_s", "-median_s"]
FAILURES = frozenset(kind.value for kind in FailureKind)
EVERYTHING = FAILURES | {OK}
# What is sorted in a few ms: whole rows, or what the index has of them.
FEW_ROWS, FEW_KEYS = 4_000, 20_000
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
    """Trials of a job, by number within tasks or by median; by median the failures
    follow after all timed ones, in either order.

    A filter by knobs looks at 50,000 trials for a page: one that hardly any trial
    passes may give a short page, or an empty one, whose cursor goes on from there.
    Raises UsageError for an unknown sort or outcome, a limit out of range, or a cursor
    of another listing.
    """
    limit = checked_limit(limit)
    if sort not in SORTS:
        raise UsageError(f"unknown sort {sort!r}; trials are sorted by {', '.join(SORTS)}")
    where = where or TrialFilter()
    types: list[type | tuple[type, ...]] = [(float, int, type(None)), int, int]
    at = None if cursor is None else decode(_listing(sort), cursor, types)
    rows, reached = list[TrialRow](), None
    for walk in _walks(session, job_id, where, sort, at):
        found, reached = trial_walks.rows(session, walk, where.knobs, limit + 1 - len(rows))
        rows += found
        if len(rows) > limit or reached is not None:
            break
    items = tuple(stored(row) for row in rows[:limit])
    if len(rows) > limit:
        last = rows[limit - 1]
        return Page(
            items=items, next=encode(_listing(sort), [last.median_s, last.position, last.number])
        )
    return Page(items=items, next=None if reached is None else encode(_listing(sort), reached))


def _listing(sort: str) -> str:
    return f"trials by {sort}"


def _walks(
    session: Session, job_id: str, where: TrialFilter, sort: Sort, at: Place | None
) -> Iterator[Walk]:
    """What is walked for a page after the place `at`; by median first timed trials,
    then failures, where either may pass.

    Each walk has conditions on columns of the index that has its order, and others,
    which cost the reading of a row.
    """
    here, backwards, wanted = _here(job_id, where), sort.startswith("-"), _wanted(where)
    medians = _medians(where, TrialRow.median_s)
    if sort.endswith("number"):
        if (
            medians
            and OK in wanted
            and _are_few(session, (*here, *medians), FEW_KEYS if where.knobs else FEW_ROWS)
        ):
            yield Walk(where=(*here, *medians), by_median=False, backwards=backwards, after=at)
        elif medians and OK in wanted:
            hidden = _medians(
                where, TrialRow.median_s + 0.0
            )  # or the index by medians would be read and sorted
            yield Walk(
                where=here, also=tuple(hidden), by_median=False, backwards=backwards, after=at
            )
        elif not medians:
            yield _numbered(here, where, wanted, backwards, at)
        return
    if (at is None or at[0] is not None) and OK in wanted:
        yield Walk(
            where=(*here, TrialRow.median_s.is_not(None), *medians),
            by_median=True,
            backwards=backwards,
            after=at,
        )
    if not medians and wanted != {OK}:
        after = (
            at if at is not None and at[0] is None else None
        )  # the failures begin after the last timed one
        yield _numbered(here, where, wanted - {OK}, False, after)


def _numbered(
    here: Conditions,
    where: TrialFilter,
    wanted: frozenset[str],
    backwards: bool,
    after: Place | None,
) -> Walk:
    """By number, those with one of the wanted outcomes."""
    also, outcomes = list[ColumnElement[bool]](), tuple[str, ...]()
    if OK not in wanted and (wanted == FAILURES or where.knobs):
        here = (
            *here,
            TrialRow.median_s.is_(None),
        )  # in the index by medians, whose other columns number the trials
    if wanted not in (EVERYTHING, FAILURES):
        outcomes = () if where.knobs else tuple(sorted(wanted))
        also = [TrialRow.outcome.in_(sorted(wanted))] if where.knobs else []
    return Walk(
        where=tuple(here),
        also=tuple(also),
        outcomes=outcomes,
        by_median=False,
        backwards=backwards,
        after=after,
    )


def _here(job_id: str, where: TrialFilter) -> tuple[ColumnElement[bool], ...]:
    task = () if where.position is None else (TrialRow.position == where.position,)
    return (TrialRow.job_id == job_id, *task)


def _medians(
    where: TrialFilter, median_s: SQLColumnExpression[float | None]
) -> list[ColumnElement[bool]]:
    least = [] if where.min_median_s is None else [median_s >= where.min_median_s]
    return least + ([] if where.max_median_s is None else [median_s <= where.max_median_s])


def _are_few(session: Session, conditions: Conditions, few: int) -> bool:
    """Whether so few trials are between the medians that they are better sorted by
    number than looked for by number."""
    counted = select(TrialRow.median_s).where(*conditions).limit(few + 1).subquery()
    return session.execute(select(func.count()).select_from(counted)).scalar_one() <= few


def _wanted(where: TrialFilter) -> frozenset[str]:
    """The outcomes that may pass. Raises UsageError for one that is none."""
    known = EVERYTHING | {"failed"}
    for outcome in where.outcome:
        if outcome not in known:
            raise UsageError(
                f"unknown outcome {outcome!r}; it is one of {', '.join(sorted(known))}"
            )
    if not where.outcome:
        return EVERYTHING
    return frozenset(where.outcome) - {"failed"} | (
        FAILURES if "failed" in where.outcome else frozenset()
    )
