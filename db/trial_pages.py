"""Pages of a job's trials, filtered and sorted by number or by median.

Each page is read by one or two scans of an index (`db/trial_walks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from sqlalchemy import ColumnElement, SQLColumnExpression, func, select

from tuner.db import trial_walks
from tuner.db.engine import Session
from tuner.db.pages import Page, checked_limit, decode, encode
from tuner.db.tables import TrialRow
from tuner.db.trial_walks import Conditions, Place, Walk
from tuner.db.trials import OK, StoredTrial, stored
from tuner.errors import UsageError
from tuner.measure.outcome import FailureKind
from tuner.spaces.core.space import Value

Sort = Literal["number", "-number", "median_s", "-median_s"]
FAILURES = frozenset(kind.value for kind in FailureKind)
EVERYTHING = FAILURES | {OK}
# Numbers of whole rows, and of index entries, that are sorted within milliseconds.
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
    """One page of a job's trials, by number within tasks or by median.

    In an order by median the failures follow all timed trials, in either direction. A
    filter by knobs scans at most 50,000 trials for a page: if hardly any trial passes,
    the page may be short or empty, and its cursor continues from there.
    Raises UsageError for an unknown sort or outcome, a limit out of range, or a cursor
    of another listing.
    """
    limit = checked_limit(limit)
    if sort not in SORTS:
        raise UsageError(f"unknown sort {sort!r}; trials are sorted by {', '.join(SORTS)}")
    where = where or TrialFilter()
    types: list[type | tuple[type, ...]] = [(float, int, type(None)), int, int]
    start = None if cursor is None else decode(_listing(sort), cursor, types)
    rows: list[TrialRow] = []
    reached: Place | None = None
    for walk in _walks(session, job_id, where, sort, start):
        batch, reached = trial_walks.rows(session, walk, where.knobs, limit + 1 - len(rows))
        rows += batch
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
    session: Session, job_id: str, where: TrialFilter, sort: Sort, start: Place | None
) -> Iterator[Walk]:
    """The scans of a page that begins after the place `start`.

    In an order by median the timed trials come first, then the failures. The conditions
    in `where` of a scan are on columns of its index; those in `also` cost reading a row.
    """
    here = _here(job_id, where)
    backwards = sort.startswith("-")
    outcomes = _accepted(where)
    medians = _medians(where, TrialRow.median_s)
    if sort.endswith("number"):
        if (
            medians
            and OK in outcomes
            and _are_few(session, (*here, *medians), FEW_KEYS if where.knobs else FEW_ROWS)
        ):
            yield Walk(where=(*here, *medians), by_median=False, backwards=backwards, after=start)
        elif medians and OK in outcomes:
            # The addition keeps the planner from reading the index by medians and sorting.
            hidden = _medians(where, TrialRow.median_s + 0.0)
            yield Walk(
                where=here, also=tuple(hidden), by_median=False, backwards=backwards, after=start
            )
        elif not medians:
            yield _numbered(here, where, outcomes, backwards, start)
        return
    if (start is None or start[0] is not None) and OK in outcomes:
        yield Walk(
            where=(*here, TrialRow.median_s.is_not(None), *medians),
            by_median=True,
            backwards=backwards,
            after=start,
        )
    if not medians and outcomes != {OK}:
        # A start with a median is a timed trial: the failures then begin with the first.
        after = start if start is not None and start[0] is None else None
        yield _numbered(here, where, outcomes - {OK}, False, after)


def _numbered(
    here: Conditions,
    where: TrialFilter,
    accepted: frozenset[str],
    backwards: bool,
    after: Place | None,
) -> Walk:
    """A scan by number of the trials with an accepted outcome."""
    also: list[ColumnElement[bool]] = []
    outcomes: tuple[str, ...] = ()
    if OK not in accepted and (accepted == FAILURES or where.knobs):
        # Failures are ordered by number in the index by medians.
        here = (*here, TrialRow.median_s.is_(None))
    if accepted not in (EVERYTHING, FAILURES):
        outcomes = () if where.knobs else tuple(sorted(accepted))
        also = [TrialRow.outcome.in_(sorted(accepted))] if where.knobs else []
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
    """Whether at most `few` trials pass, so that sorting them beats a scan by number."""
    counted = select(TrialRow.median_s).where(*conditions).limit(few + 1).subquery()
    return session.execute(select(func.count()).select_from(counted)).scalar_one() <= few


def _accepted(where: TrialFilter) -> frozenset[str]:
    """The outcomes that the filter accepts. Raises UsageError for an unknown outcome."""
    valid = EVERYTHING | {"failed"}
    for outcome in where.outcome:
        if outcome not in valid:
            raise UsageError(
                f"unknown outcome {outcome!r}; it is one of {', '.join(sorted(valid))}"
            )
    if not where.outcome:
        return EVERYTHING
    return frozenset(where.outcome) - {"failed"} | (
        FAILURES if "failed" in where.outcome else frozenset()
    )
