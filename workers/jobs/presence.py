"""Keeps an orchestrator's machine among the recorded workers while it serves."""

from __future__ import annotations

import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from tuner.db import runners, targets, workers
from tuner.db.engine import Database
from tuner.db.errors import NotFound
from tuner.errors import DatabaseError
from tuner.measure.assignment import Lane
from tuner.measure.sandbox.isolation import DEFAULT_LEVEL
from tuner.target.target import Target
from tuner.workers.jobs.revalidation import note_change, queue
from tuner.workers.jobs.timeline import versions, worker_id

BEAT_S = 5.0


class Presence:
    """Joins, sends heartbeats from a thread, and leaves."""

    def __init__(self, database: Database, target: Target, lanes: Sequence[Lane]) -> None:
        self._database = database
        self._target = target
        self._lanes = lanes
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True, name="presence")

    def join(self) -> None:
        """Records this machine as a worker. Idempotent.

        Raises DatabaseError, after which it may be called again.
        """
        if self._thread.is_alive():
            return
        new = workers.NewWorker(
            id=worker_id(self._target),
            host=socket.gethostname(),
            target=self._target.key,
            isolation=DEFAULT_LEVEL,
            lanes=[{"name": lane.name, "cores": list(lane.cores)} for lane in self._lanes],
            versions=versions(),
            labels={runners.ANSWERS_RUNS: "yes"},
        )
        with self._database.write("join") as session:
            targets.remember(session, self._target)
            before = note_change(session, new)
            workers.join(session, new)
            queue(session, self._target.key, before)
        self._thread.start()

    def leave(self) -> None:
        """Records that this machine stopped serving. Idempotent, also if joining failed."""
        self._over.set()
        if not self._thread.is_alive():
            return
        self._thread.join(timeout=BEAT_S)
        with suppress(DatabaseError, NotFound), self._database.write("left") as session:
            worker = workers.get(session, worker_id(self._target))
            if worker.state == workers.ACTIVE and worker.target == self._target.key:
                workers.set_state(session, worker.id, workers.LOST, "its orchestrator ended")

    def _beat(self) -> None:
        while not self._over.wait(BEAT_S):
            # If the database is unavailable, the next beat tries again.
            with suppress(DatabaseError, NotFound), self._database.write("beat") as session:
                workers.heartbeat(session, worker_id(self._target))
                workers.mark_lost(session, workers.SILENT)  # those that ended without leaving
