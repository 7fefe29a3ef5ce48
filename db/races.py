"""Queries about races of promoted kernels: which are due, their series, what was lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, insert, select, update

from tuner.db.engine import Session
from tuner.db.kernels import CANARY, IS_PROMOTED, settle_disturbed
from tuner.db.pages import Page, checked_limit, decode, page
from tuner.db.tables import ContestRow, KernelRow, RaceRow, RegressionRow
from tuner.errors import UsageError
from tuner.measure.cache import WARM
from tuner.measure.regression import (
    BASE,
    DEFAULT,
    FAILURE,
    Contest,
    Evidence,
    Progress,
    RaceRecord,
    State,
    advanced,
    evidence,
)
from tuner.measure.statistics import Ratio, disturbed

OPEN = (State.SUSPECTED, State.RAISED)
STATES = tuple(state.value for state in State)
# Races until there is a base to compare with, and between a suspicion and its confirmation.
BASE_AFTER, CONFIRM_AFTER = timedelta(days=1), timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRace:
    """One race of a kernel; `record` is None where the kernel failed in it."""

    raced_at: datetime
    libraries: Mapping[str, str]  # installed then: version by name
    record: RaceRecord | None
    error: str | None  # why the kernel failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Regression:
    """What a kernel lost."""

    id: int
    kernel: str  # id
    kind: str
    contender: str  # that it lost to, or empty
    version: str  # of the contender
    state: str
    factor: float | None  # its time by what it was, or by the contender's
    suspected_at: datetime
    raised_at: datetime | None
    ended_at: datetime | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Due:
    """A promoted kernel that is to be raced again, the most urgent first."""

    kernel: str  # id
    workload: str  # key
    threads: int


def record(
    session: Session, kernel: str, race: RaceRecord | str, libraries: Mapping[str, str]
) -> tuple[Regression, ...]:
    """Stores a race and what follows from it; returns the regressions that it changed.

    A text instead of a race says why the kernel failed. Where the kernel's own time was
    disturbed and the race was not, that of the race takes its place.
    """
    before = [stored.record for stored in series(session, kernel) if stored.record is not None]
    row: dict[str, Any] = {
        "kernel_id": kernel,
        "raced_at": session.now(),
        "libraries": dict(libraries),
        "error": race if isinstance(race, str) else None,
    }
    if isinstance(race, RaceRecord):
        low, high = race.ci95_s
        row |= {"median_s": race.median_s, "ci95_low_s": low, "ci95_high_s": high}
    race_id = session.scalars(insert(RaceRow).values(**row).returning(RaceRow.id)).one()
    facts: tuple[Evidence, ...] = (FAILURE,)
    if isinstance(race, RaceRecord):
        if race.contests:
            contests = [_columns(race_id, contest) for contest in race.contests]
            session.execute(insert(ContestRow), contests)
        facts = evidence(before, race)
        if not race.disturbed:
            default_s = {
                contest.contender: contest.median_s
                for contest in race.contests
                if not contest.disturbed
            }.get(DEFAULT)
            settle_disturbed(session, kernel, race.median_s, race.ci95_s, default_s)
    changed = (_advance(session, kernel, fact) for fact in facts)
    return tuple(regression for regression in changed if regression is not None)


def series(session: Session, kernel: str) -> tuple[StoredRace, ...]:
    """All races of a kernel since it was promoted, in order of time."""
    rows = session.scalars(
        select(RaceRow).where(RaceRow.kernel_id == kernel).order_by(RaceRow.id)
    ).all()
    contests: dict[int, list[Contest]] = {row.id: [] for row in rows}
    query = (
        select(ContestRow)
        .join(RaceRow, RaceRow.id == ContestRow.race_id)
        .where(RaceRow.kernel_id == kernel)
        .order_by(ContestRow.race_id, ContestRow.contender)
    )
    for row in session.scalars(query):
        contests[row.race_id].append(_contest(row))
    return tuple(_stored(row, contests[row.id]) for row in rows)


def due(
    session: Session, target: str, *, every: timedelta, libraries: Mapping[str, str]
) -> tuple[Due, ...]:
    """The promoted kernels of a target that are to be raced again now.

    First those suspected of something, then those never raced, then by age. A kernel is
    due `every` so often, sooner while it has no base or its own time is disturbed, and at
    once where `libraries` are not those of its last race. One marked stale is timed by a
    job of its own, and one of cold caches is not raced: rivals run with warm ones.
    """
    now = session.now()
    latest = (
        select(
            RaceRow.kernel_id.label("kernel_id"),
            func.max(RaceRow.id).label("race_id"),
            func.count().label("races"),
        )
        .group_by(RaceRow.kernel_id)
        .subquery()
    )
    query = (
        select(
            KernelRow.id,
            KernelRow.workload_key,
            KernelRow.threads,
            KernelRow.median_s,
            KernelRow.ci95_low_s,
            KernelRow.ci95_high_s,
            latest.c.races,
            RaceRow.raced_at,
            RaceRow.libraries,
        )
        .outerjoin(latest, latest.c.kernel_id == KernelRow.id)
        .outerjoin(RaceRow, RaceRow.id == latest.c.race_id)
        .where(KernelRow.target_key == target, IS_PROMOTED, KernelRow.stale.is_(None))
        .where(KernelRow.cache == WARM)
        .order_by(KernelRow.id)
    )
    unsettled = _unsettled(session)
    # As soon as those that are suspected: who has a canary is to be raced with it.
    canaries = _with_canaries(session, target)
    urgent: list[tuple[tuple[int, datetime], Due]] = []
    for row in session.execute(query):
        each = Due(kernel=row.id, workload=row.workload_key, threads=row.threads)
        if row.raced_at is None:
            urgent.append(((1, now), each))
            continue
        soon = row.id in unsettled or (row.workload_key, row.threads) in canaries
        wait = CONFIRM_AFTER if soon else every
        in_doubt = disturbed(row.median_s, (row.ci95_low_s, row.ci95_high_s))
        if row.races < BASE or in_doubt:
            wait = min(wait, BASE_AFTER)
        if now - row.raced_at >= wait or dict(row.libraries) != dict(libraries):
            urgent.append(((0 if row.id in unsettled else 2, row.raced_at), each))
    return tuple(each for _, each in sorted(urgent, key=lambda pair: pair[0]))


def _unsettled(session: Session) -> set[str]:
    """Kernels that are suspected of a loss, or whose loss the last race contradicts."""
    query = select(RegressionRow.kernel_id).where(
        RegressionRow.state.in_(OPEN),
        (RegressionRow.state == State.SUSPECTED) | (RegressionRow.contrary > 0),
    )
    return set(session.scalars(query))


def _with_canaries(session: Session, target: str) -> set[tuple[str, int]]:
    """(workload, threads) of the canaries of a target, with warm caches."""
    query = select(KernelRow.workload_key, KernelRow.threads).where(
        KernelRow.target_key == target, KernelRow.state == CANARY, KernelRow.cache == WARM
    )
    return {(row[0], row[1]) for row in session.execute(query)}


def list_regressions(
    session: Session,
    *,
    state: Sequence[str] = (State.RAISED,),
    kernel: str | None = None,
    cursor: str | None = None,
    limit: int = 50,
) -> Page[Regression]:
    """One page of regressions, the newest first: by default those raised and not resolved."""
    limit = checked_limit(limit)
    unknown = set(state) - set(STATES)
    if unknown:
        raise UsageError(
            f"unknown state {sorted(unknown)[0]!r}; regressions are {', '.join(STATES)}"
        )
    query = select(RegressionRow).order_by(RegressionRow.id.desc()).limit(limit + 1)
    if state:
        query = query.where(RegressionRow.state.in_(state))
    if kernel is not None:
        query = query.where(RegressionRow.kernel_id == kernel)
    if cursor is not None:
        query = query.where(RegressionRow.id < decode("regressions", cursor, [int])[0])
    rows = session.scalars(query).all()
    items = [_regression(row) for row in rows]
    return page(items, limit, "regressions", [(row.id,) for row in rows])


def unannounced(session: Session, limit: int = 100) -> tuple[Regression, ...]:
    """Regressions raised or resolved since they were last announced, the oldest first.

    One that was resolved before it was ever announced is left out.
    """
    raised = (RegressionRow.state == State.RAISED) & RegressionRow.announced.is_(None)
    resolved = (RegressionRow.state == State.RESOLVED) & (RegressionRow.announced == State.RAISED)
    query = select(RegressionRow).where(raised | resolved).order_by(RegressionRow.id).limit(limit)
    return tuple(_regression(row) for row in session.scalars(query))


def note_announced(session: Session, regression: Regression) -> None:
    session.execute(
        update(RegressionRow)
        .where(RegressionRow.id == regression.id)
        .values(announced=regression.state)
    )


def regressed(session: Session, kernel_ids: Sequence[str]) -> frozenset[str]:
    """Which of these kernels have a regression that is raised."""
    query = select(RegressionRow.kernel_id).where(
        RegressionRow.kernel_id.in_(kernel_ids), RegressionRow.state == State.RAISED
    )
    return frozenset(session.scalars(query))


def _advance(session: Session, kernel: str, fact: Evidence) -> Regression | None:
    """Moves a regression on by one race; None where nothing changed."""
    row = session.scalars(
        select(RegressionRow).where(
            RegressionRow.kernel_id == kernel,
            RegressionRow.kind == fact.kind,
            RegressionRow.contender == fact.contender,
            RegressionRow.state.in_(OPEN),
        )
    ).one_or_none()
    progress = None
    if row is not None:
        progress = Progress(state=State(row.state), agreeing=row.agreeing, contrary=row.contrary)
    after = advanced(progress, fact.lost)
    if after is None:
        return None
    now = session.now()
    if row is None:
        row = RegressionRow(
            kernel_id=kernel, kind=fact.kind, contender=fact.contender, suspected_at=now
        )
        session.add(row)
    if fact.lost:
        row.version, row.factor = fact.version, fact.factor
    if after.state is State.RAISED and row.raised_at is None:
        row.raised_at = now
    if after.state not in OPEN:
        row.ended_at = now
    row.state, row.agreeing, row.contrary = after.state, after.agreeing, after.contrary
    session.flush()
    return _regression(row)


def _columns(race_id: int, contest: Contest) -> dict[str, Any]:
    return {
        "race_id": race_id,
        "contender": contest.contender,
        "version": contest.version,
        "median_s": contest.median_s,
        "ci95_low_s": contest.ci95_s[0],
        "ci95_high_s": contest.ci95_s[1],
        "ratio": contest.ratio.value,
        "ratio_low": contest.ratio.ci95[0],
        "ratio_high": contest.ratio.ci95[1],
    }


def _contest(row: ContestRow) -> Contest:
    return Contest(
        contender=row.contender,
        version=row.version,
        median_s=row.median_s,
        ci95_s=(row.ci95_low_s, row.ci95_high_s),
        ratio=Ratio(value=row.ratio, ci95=(row.ratio_low, row.ratio_high)),
    )


def _stored(row: RaceRow, contests: Sequence[Contest]) -> StoredRace:
    raced = None
    if row.median_s is not None and row.ci95_low_s is not None and row.ci95_high_s is not None:
        raced = RaceRecord(
            median_s=row.median_s,
            ci95_s=(row.ci95_low_s, row.ci95_high_s),
            contests=tuple(contests),
        )
    return StoredRace(raced_at=row.raced_at, libraries=row.libraries, record=raced, error=row.error)


def _regression(row: RegressionRow) -> Regression:
    return Regression(
        id=row.id,
        kernel=row.kernel_id,
        kind=row.kind,
        contender=row.contender,
        version=row.version,
        state=row.state,
        factor=row.factor,
        suspected_at=row.suspected_at,
        raised_at=row.raised_at,
        ended_at=row.ended_at,
    )
