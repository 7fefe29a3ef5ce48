"""Records the machines of a cluster as workers in the database.

Only the driver speaks Ray, and only the orchestrator writes to the database. The driver
therefore reports the machines that are present every few seconds.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from tuner.db import workers
from tuner.db.engine import Database
from tuner.db.errors import NotFound
from tuner.errors import DatabaseError

BEAT_S = 5.0  # between two heartbeats of a machine
LONGEST_ID = 32

Details = Mapping[str, int | str]


def worker_id(name: str) -> str:
    """The id of a machine: its name, shortened and with a hash if it is too long."""
    if len(name) <= LONGEST_ID:
        return name
    return f"{name[: LONGEST_ID - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


class ClusterHosts:
    """The machines of a cluster that this orchestrator has recorded. For one thread."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database = database
        self._clock = clock
        self._present: dict[str, float] = {}  # time of the last heartbeat by id

    def seen(self, hosts: Sequence[Details]) -> None:
        """Records the machines that are present now, and marks others lost.

        If the database is unavailable, the next call tries again.
        """
        now = self._clock()
        present = {worker_id(str(host["name"])): host for host in hosts}
        with suppress(DatabaseError):
            for name, host in present.items():
                if now - self._present.get(name, float("-inf")) >= BEAT_S:
                    self._note(name, host, joined=name in self._present)
                    self._present[name] = now
            for name in [host_id for host_id in self._present if host_id not in present]:
                with suppress(NotFound), self._database.write("neighbour") as session:
                    if workers.get(session, name).state != workers.QUARANTINED:
                        workers.set_state(session, name, workers.LOST, "it left the cluster")
                del self._present[name]

    def _note(self, name: str, host: Details, *, joined: bool) -> None:
        with self._database.write("neighbour") as session:
            if joined:
                workers.heartbeat(session, name)
                return
            new = workers.NewWorker(
                id=name,
                host=str(host["name"]),
                target=str(host["target"]),
                isolation=str(host["isolation"]),
                lanes=json.loads(str(host["lanes"])),
                versions=json.loads(str(host["versions"])),
                labels=json.loads(str(host["labels"])),
            )
            workers.join(session, new)
