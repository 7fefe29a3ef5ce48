"""Old trials and events let go of, a little at a time: no transaction is long enough to keep others waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from db import jobs, retention
from db.engine import Database, Session
from tuner.errors import DatabaseError
from tuner.settings import Settings

BATCH = 1000  # rows in one transaction
EVERY_S = 3600.0  # between two rounds of a service
PAUSE_S = 0.02  # between two transactions, in which others have their turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """What stays. None keeps everything."""

    days: int | None = None  # since the job ended
    trials: int | None = None  # of the newest finished jobs, together
    events: int | None = None

    @property
    def everything(self) -> bool:
        return self.days is None and self.trials is None and self.events is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pruned:
    jobs: int  # that lost something
    trials: int
    events: int
    keys: int  # expired idempotency keys


def kept_by(settings: Settings) -> Keep:
    """Zero stands for everything."""
    return Keep(days=settings.keep_days or None, trials=settings.keep_trials or None, events=settings.keep_events or None)


def prune(database: Database, keep: Keep, *, stop: threading.Event | None = None) -> Pruned:
    """Until nothing is left to go, or `stop` is set: what is deleted by then stays so."""
    stop = stop or threading.Event()
    with database.read() as session:
        before = None if keep.days is None else session.now() - timedelta(days=keep.days)
        with_trials = retention.jobs_with_trials(session, before=before, most=keep.trials)
        with_events = retention.jobs_with_events(session, before=before, most=keep.events)
    trials = {job: _drained(database, retention.drop_trials, job, stop) for job in with_trials}
    events = {job: _drained(database, retention.drop_events, job, stop) for job in with_events}
    with database.write("prune") as session:
        keys = jobs.forget_expired_keys(session)
    touched = {job for counts in (trials, events) for job, count in counts.items() if count}
    return Pruned(jobs=len(touched), trials=sum(trials.values()), events=sum(events.values()), keys=keys)


def _drained(database: Database, drop: Callable[[Session, str, int], int], job: str, stop: threading.Event) -> int:
    total = 0
    while not stop.is_set():
        with database.write("prune") as session:
            count = drop(session, job, BATCH)
        total += count
        if count < BATCH:
            break
        stop.wait(PAUSE_S)
    return total


def prune_now_and_then(database: Database, keep: Keep, stop: threading.Event, on_error: Callable[[str], None]) -> None:
    """What a service does beside its work: a round at its start and one every hour, until `stop` is set."""
    while not keep.everything:
        try:
            prune(database, keep, stop=stop)
        except DatabaseError as error:
            on_error(str(error))
        if stop.wait(EVERY_S):
            return
