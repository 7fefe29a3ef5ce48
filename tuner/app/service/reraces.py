"""The schedule that keeps served kernels good: races again, and says what was lost."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from tuner.db import kernels, races, targets, workloads
from tuner.db.engine import Database, Session
from tuner.db.races import Regression
from tuner.settings import Settings
from tuner.workers.jobs.reracing import queue

EVERY_S = 60.0  # between two looks at what is due
SEND_S = 10.0  # for one alarm to be taken


def race_now_and_then(
    database: Database,
    target: str,
    settings: Settings,
    stop: threading.Event,
    on_error: Callable[[str], None],
) -> None:
    """Queues what is due and announces what was lost, every minute until `stop` is set.

    `on_error` gets a message when something fails; the next minute tries again. Devices
    have no libraries to race against.
    """
    if not settings.rerace_days or settings.device:
        return
    every = timedelta(days=settings.rerace_days)
    while True:
        try:
            queue_due(database, target, every)
            if settings.alarm_webhook:
                announce(database, settings.alarm_webhook)
        # A failed look, such as at an address that no host has, must not be the last one.
        except Exception as error:
            on_error(f"{type(error).__name__}: {error}")
        if stop.wait(EVERY_S):
            return


def queue_due(database: Database, target: str, every: timedelta) -> None:
    """Queues a job for what is due on a target."""
    with database.write("reraces") as session:
        if targets.find(session, target) is not None:
            queue(session, target, every)


def announce(database: Database, url: str) -> int:
    """Posts each alarm that was raised or resolved since the last time; returns how many.

    One that the other end does not take is posted again the next time; one that it took
    just before this process died comes twice. Raises OSError or HTTPException.
    """
    with database.read() as session:
        alarms = [(each, alarm(session, each)) for each in races.unannounced(session)]
    for regression, document in alarms:
        body = json.dumps(document).encode()
        request = Request(url, data=body, headers={"Content-Type": "application/json"})
        try:
            with urlopen(request, timeout=SEND_S):
                pass
        except URLError as error:
            raise OSError(f"the alarm webhook {url} did not take an alarm: {error}") from error
        with database.write("announced") as session:
            races.note_announced(session, regression)
    return len(alarms)


def alarm(session: Session, regression: Regression) -> Mapping[str, Any]:
    """An alarm as JSON."""
    kernel = kernels.get(session, regression.kernel)
    return {
        "event": f"regression.{regression.state}",
        "regression": regression.id,
        "kind": regression.kind,
        "kernel": kernel.id,
        "workload": workloads.get(session, kernel.workload).spec,
        "target": targets.get(session, kernel.target).name,
        "threads": kernel.threads,
        "contender": regression.contender or None,
        "version": regression.version or None,
        "factor": regression.factor,
        "suspected_at": regression.suspected_at.isoformat(),
        "raised_at": None if regression.raised_at is None else regression.raised_at.isoformat(),
        "path": f"/kernels/{kernel.id}",
    }
