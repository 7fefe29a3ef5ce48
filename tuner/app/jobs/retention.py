"""Deletes old trials, events, runs, timelines and sources, in transactions of limited size.

So no other user of the database has to wait long.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import TypeVar

from tuner.db import jobs, lanes, retention
from tuner.db.engine import Database, Session
from tuner.export.artifacts import ArtifactStore
from tuner.settings import Settings

Subject = TypeVar("Subject")

BATCH = 1000  # rows in one transaction
RUNS = BATCH // 3  # runs in one transaction; each has at most two artifacts
EVERY_S = 3600.0  # between two prunings by a service
PAUSE_S = 0.02  # between two transactions, so that others can write


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """What is kept. None keeps everything."""

    days: int | None = None  # since a job or a run ended, or a lane's span began
    trials: int | None = None  # of the newest finished jobs, together
    events: int | None = None

    @property
    def everything(self) -> bool:
        return self.days is None and self.trials is None and self.events is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    """How many rows were deleted."""

    jobs: int  # that lost trials or events
    trials: int
    events: int
    keys: int  # expired idempotency keys
    runs: int
    spans: int  # of lanes' timelines
    sources: int  # of foreign kernels


def kept_by(settings: Settings) -> Keep:
    """What the settings keep; a setting of 0 keeps everything."""
    return Keep(
        days=settings.keep_days or None,
        trials=settings.keep_trials or None,
        events=settings.keep_events or None,
    )


def prune(
    database: Database, keep: Keep, store: ArtifactStore, *, stop: threading.Event | None = None
) -> Pruned:
    """Deletes all that is not kept, or until `stop` is set.

    `store` has the artifacts of runs, which are deleted with them.
    """
    stop = stop or threading.Event()
    with database.read() as session:
        before = None if keep.days is None else session.now() - timedelta(days=keep.days)
        with_trials = retention.jobs_with_trials(session, before=before, most=keep.trials)
        with_events = retention.jobs_with_events(session, before=before, most=keep.events)

    def drained(drop: Callable[[Session, Subject, int], int], subject: Subject) -> int:
        return _drained(partial(_dropped, database, drop, subject), BATCH, stop)

    trials = {job: drained(retention.drop_trials, job) for job in with_trials}
    events = {job: drained(retention.drop_events, job) for job in with_events}
    with database.write("prune") as session:
        keys = jobs.forget_expired_keys(session)
    spans = 0 if before is None else drained(lanes.delete_spans_before, before)
    runs = (
        0
        if before is None
        else _drained(partial(_dropped_runs, database, store, before), RUNS, stop)
    )
    sources = (
        0
        if before is None
        else _drained(partial(_dropped_sources, database, store, before), BATCH, stop)
    )
    touched = {job for counts in (trials, events) for job, count in counts.items() if count}
    return Pruned(
        jobs=len(touched),
        trials=sum(trials.values()),
        events=sum(events.values()),
        keys=keys,
        runs=runs,
        spans=spans,
        sources=sources,
    )


def _drained(drop: Callable[[int], int], most: int, stop: threading.Event) -> int:
    """Calls `drop(most)` until it deletes fewer than `most`; returns the total."""
    total = 0
    while not stop.is_set():
        count = drop(most)
        total += count
        if count < most:
            break
        stop.wait(PAUSE_S)
    return total


def _dropped(
    database: Database, drop: Callable[[Session, Subject, int], int], subject: Subject, most: int
) -> int:
    with database.write("prune") as session:
        return drop(session, subject, most)


def _dropped_runs(database: Database, store: ArtifactStore, before: datetime, most: int) -> int:
    with database.write("prune") as session:
        count, forgotten = retention.drop_runs(session, before, most)
    # After the commit: a process that dies in between leaves files without rows, but
    # never rows without files.
    store.delete(forgotten, before=before)
    return count


def _dropped_sources(database: Database, store: ArtifactStore, before: datetime, most: int) -> int:
    with database.write("prune") as session:
        forgotten = retention.drop_sources(session, before, most)
    store.delete(forgotten, before=before)  # after the commit, as those of runs
    return len(forgotten)


def prune_now_and_then(
    database: Database,
    keep: Keep,
    store: ArtifactStore,
    stop: threading.Event,
    on_error: Callable[[str], None],
) -> None:
    """Prunes at the start and then every hour, until `stop` is set.

    `on_error` gets the message of a pruning that failed; the next one tries again.
    """
    while not keep.everything:
        try:
            prune(database, keep, store, stop=stop)
        # A failed pruning must not be the last one.
        except Exception as error:
            on_error(f"{type(error).__name__}: {error}")
        if stop.wait(EVERY_S):
            return
