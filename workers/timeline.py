"""The lanes' timelines: what each lane and builder did when, written to the database in batches under this machine's worker."""

from __future__ import annotations

import platform
import socket
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from db import lanes, workers
from db.engine import Database
from db.lanes import LaneSpan
from tuner import __version__
from tuner.measure.isolation import DEFAULT_LEVEL
from tuner.target.target import Target
from workers.messages import FleetPlan, Span

PROTOCOL = "1"  # of the messages between orchestrator and workers; changed when they are
BATCH = 256  # spans in one statement
MAX_AGE_S = 2.0  # after which fewer are written, so that a dashboard is not far behind


def versions() -> dict[str, str]:
    """Of what decides how candidates are built and measured here."""
    found = {name: version(name) for name in ("apache-tvm", "apache-tvm-ffi", "ray", "numpy")}
    return found | {"python": platform.python_version(), "tuner": __version__, "protocol": PROTOCOL}


def join(database: Database, target: Target, plan: FleetPlan) -> str:
    """Makes this machine known as a worker with its lanes; its id."""
    worker = workers.NewWorker(
        id=socket.gethostname()[:32],
        host=socket.gethostname(),
        target=target.key,
        isolation=DEFAULT_LEVEL,
        lanes=[{"name": lane.name, "cores": list(lane.cores)} for lane in plan.lanes],
        versions=versions(),
    )
    with database.write("join") as session:
        return workers.join(session, worker).id


class Timeline:
    """Collects spans of one job; `flush` writes what is left."""

    def __init__(self, database: Database, *, worker: str, job: str) -> None:
        self._database, self._worker, self._job = database, worker, job
        self._waiting: list[LaneSpan] = []
        self._written = time.monotonic()

    def add(self, spans: Sequence[Span]) -> None:
        self._waiting += [self._row(span) for span in spans]
        if len(self._waiting) >= BATCH or time.monotonic() - self._written > MAX_AGE_S:
            self.flush()

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._written = time.monotonic()
        if waiting:
            with self._database.write("timeline") as session:
                lanes.add_spans(session, waiting)
                workers.heartbeat(session, self._worker)

    def _row(self, span: Span) -> LaneSpan:
        return LaneSpan(
            worker=self._worker,
            lane=span.worker,
            kind=span.activity,
            started_at=datetime.fromtimestamp(span.started_s, UTC),
            ended_at=datetime.fromtimestamp(span.ended_s, UTC),
            job=self._job,
            trial=span.number,
        )
