"""Queries of the dashboard's charts, answered from indexes.

They serve jobs of 100,000 trials and databases of a million. `ix_trials_median` and
`ix_trials_outcome` hold all that a best-so-far curve needs; rows are read only for the few
points shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Float, Select, cast, exists, func, or_, select

from tuner.db.engine import Session
from tuner.db.jobs import STATES
from tuner.db.kernels import IS_PROMOTED
from tuner.db.pages import Page, checked_limit, decode, page
from tuner.db.tables import JobRow, KernelRow, LaneSpanRow, TaskRow, TrialRow, WorkloadRow
from tuner.db.trials import OK, StoredTrial, stored
from tuner.errors import UsageError

TRIALS = TrialRow.__table__.c
CHUNK = 500  # numbers in one IN: below every database's limit on parameters
# Trials of a job that a sparkline samples: the first, the fastest, and some between.
PREFIX, FASTEST, BETWEEN = 256, 1500, 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Timings:
    """Every timed trial of a task by number."""

    numbers: NDArray[np.int64]  # shape (n,), increasing
    medians_s: NDArray[np.float64]  # shape (n,)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaneTotal:
    worker: str
    lane: str
    kind: str  # build, wait, check, time or idle
    started_at: datetime
    ended_at: datetime


def timings(session: Session, job_id: str, position: int) -> Timings:
    """The timed trials of a task, from the index by median alone."""
    here = (TRIALS.job_id == job_id, TRIALS.position == position, TRIALS.median_s.is_not(None))
    pairs = _pairs(session, select(TRIALS.number, TRIALS.median_s).where(*here))
    numbers, medians = pairs[:, 0].astype(np.int64), pairs[:, 1]
    order = np.argsort(numbers, kind="stable")
    return Timings(numbers=numbers[order], medians_s=medians[order])


def median_of_rank(session: Session, job_id: str, position: int, rank: int) -> float | None:
    """The median, in seconds, of a task's trial of this rank by speed; the fastest is 0.

    None where fewer were timed.
    """
    here = (TRIALS.job_id == job_id, TRIALS.position == position, TRIALS.median_s.is_not(None))
    query = select(TRIALS.median_s).where(*here).order_by(TRIALS.median_s).offset(rank).limit(1)
    return session.scalars(query).first()


def failures(session: Session, job_id: str, position: int) -> tuple[tuple[int, str], ...]:
    """Number and kind of every failed trial of a task, from the index by outcome alone."""
    query = select(TRIALS.number, TRIALS.outcome).where(
        TRIALS.job_id == job_id, TRIALS.position == position, TRIALS.outcome != OK
    )
    return tuple((row[0], row[1]) for row in session.connection().execute(query))


def moments(
    session: Session, job_id: str, position: int, numbers: Iterable[int]
) -> dict[int, datetime]:
    """When these trials were recorded."""
    recorded: dict[int, datetime] = {}
    for chunk in _chunks(numbers):
        query = select(TrialRow.number, TrialRow.created_at).where(
            TrialRow.job_id == job_id, TrialRow.position == position, TrialRow.number.in_(chunk)
        )
        recorded |= {row[0]: row[1] for row in session.execute(query)}
    return recorded


def some_trials(
    session: Session, job_id: str, position: int, numbers: Iterable[int]
) -> tuple[StoredTrial, ...]:
    """These trials of a task, whole, by number."""
    rows: list[TrialRow] = []
    for chunk in _chunks(numbers):
        query = select(TrialRow).where(
            TrialRow.job_id == job_id, TrialRow.position == position, TrialRow.number.in_(chunk)
        )
        rows += session.scalars(query).all()
    return tuple(stored(row) for row in sorted(rows, key=lambda row: row.number))


def records(
    session: Session, job_id: str, position: int = 0, *, count: int = 0
) -> tuple[tuple[int, float], ...]:
    """Numbers and medians at which the best improved, by number.

    Exact for tasks of up to 1500 timed trials. Of larger ones, with `count` trials, it
    is taken from the first 256, the 1500 fastest and 300 between them, so that a list
    of large jobs costs milliseconds: its end is exact, its middle an upper bound.
    """
    here = (
        TrialRow.job_id == job_id,
        TrialRow.position == position,
        TrialRow.median_s.is_not(None),
    )
    columns = (TrialRow.number, TrialRow.median_s)
    queries = (
        select(*columns).where(*here, TrialRow.number < PREFIX),
        select(*columns).where(*here).order_by(TrialRow.median_s).limit(FASTEST),
        *(
            [
                select(*columns).where(
                    *here, TrialRow.number.in_(range(PREFIX, count, count // BETWEEN))
                )
            ]
            if count > FASTEST
            else []
        ),
    )
    rows: set[tuple[int, float]] = {
        (row[0], row[1])
        for query in queries
        for row in session.execute(query)
        if row[1] is not None
    }
    improvements: list[tuple[int, float]] = []
    for number, median_s in sorted(rows):
        if not improvements or median_s < improvements[-1][1]:
            improvements.append((number, median_s))
    return tuple(improvements)


def default_medians(
    session: Session, tasks: Sequence[tuple[str, int]]
) -> dict[tuple[str, int], float]:
    """Median of the default schedule (trial 0) of each (job, position) where it was timed."""
    medians: dict[tuple[str, int], float] = {}
    jobs = sorted({job for job, _ in tasks})
    for start in range(0, len(jobs), CHUNK):
        query = select(TrialRow.job_id, TrialRow.position, TrialRow.median_s).where(
            TrialRow.job_id.in_(jobs[start : start + CHUNK]),
            TrialRow.position.in_(sorted({position for _, position in tasks})),
            TrialRow.number == 0,
        )
        medians |= {
            (row[0], row[1]): row[2] for row in session.execute(query) if row[2] is not None
        }
    return {key: medians[key] for key in tasks if key in medians}


def find_jobs(
    session: Session,
    *,
    state: Sequence[str] = (),
    text: str = "",
    owner: str | None = None,
    cursor: str | None = None,
    limit: int = 25,
) -> Page[str]:
    """Ids of jobs, the newest first, whose id or a workload's spec contains `text`.

    With an `owner`, only that api key's and the shared ones that lookups queued.
    """
    limit = checked_limit(limit)
    unknown = set(state) - set(STATES)
    if unknown:
        raise UsageError(f"unknown state {sorted(unknown)[0]!r}; jobs are {', '.join(STATES)}")
    query = select(JobRow.id).order_by(JobRow.id.desc()).limit(limit + 1)
    if state:
        query = query.where(JobRow.state.in_(state))
    if text:
        named = (
            select(TaskRow.job_id)
            .join(WorkloadRow, WorkloadRow.key == TaskRow.workload_key)
            .where(TaskRow.job_id == JobRow.id, WorkloadRow.spec.icontains(text, autoescape=True))
        )
        query = query.where(or_(exists(named), JobRow.id.contains(text, autoescape=True)))
    if owner is not None:
        query = query.where(or_(JobRow.owner == owner, JobRow.kind == "prepare"))
    if cursor is not None:
        query = query.where(JobRow.id < decode("jobs found", cursor, [str])[0])
    ids = session.scalars(query).all()
    return page(ids, limit, "jobs found", [(job_id,) for job_id in ids])


def biggest_wins(session: Session, *, limit: int = 8) -> tuple[str, ...]:
    """Ids of the promoted kernels that beat their default schedule by the largest factor."""
    gain = KernelRow.default_median_s / cast(KernelRow.median_s, Float)
    query = select(KernelRow.id).where(
        IS_PROMOTED, KernelRow.default_median_s.is_not(None), KernelRow.median_s > 0
    )
    return tuple(session.scalars(query.order_by(gain.desc(), KernelRow.id).limit(limit)))


def latest_span(session: Session) -> datetime | None:
    """When the last span of any lane began."""
    return session.scalars(select(func.max(LaneSpanRow.started_at))).one()


def lane_spans(
    session: Session, *, since: datetime, until: datetime, limit: int = 20_000
) -> tuple[LaneTotal, ...]:
    """Spans that began within [since, until), the last `limit` of them, in order of time."""
    columns = (
        LaneSpanRow.worker_id,
        LaneSpanRow.lane,
        LaneSpanRow.kind,
        LaneSpanRow.started_at,
        LaneSpanRow.ended_at,
    )
    query = select(*columns).where(LaneSpanRow.started_at >= since, LaneSpanRow.started_at < until)
    rows = session.execute(query.order_by(LaneSpanRow.started_at.desc()).limit(limit)).all()
    return tuple(
        LaneTotal(worker=row[0], lane=row[1], kind=row[2], started_at=row[3], ended_at=row[4])
        for row in reversed(rows)
    )


def _pairs(session: Session, query: Select[Any]) -> NDArray[np.float64]:
    """Two columns of numbers, shape (n, 2).

    Reads the driver's tuples, without an object for each of a hundred thousand rows.
    """
    with session.connection().execute(query) as result:
        assert result.cursor is not None
        rows = result.cursor.fetchall()
    return np.fromiter(chain.from_iterable(rows), np.float64, 2 * len(rows)).reshape(-1, 2)


def _chunks(numbers: Iterable[int]) -> Iterable[list[int]]:
    every = sorted({int(number) for number in numbers})
    return (every[start : start + CHUNK] for start in range(0, len(every), CHUNK))
