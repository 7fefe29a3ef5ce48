"""The machines of a cluster among the workers: what the driver sees of them is written
down, so that everybody does.

Only the driver speaks Ray and only the orchestrator writes to the database, so the
driver tells who is there every few seconds.
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

BEAT_S = 5.0  # between two notes that a machine is still there
LONGEST_ID = 32

Details = Mapping[str, int | str]


def worker_id(name: str) -> str:
    """A name as it is, or its beginning with a hash of the whole where it is too long
    for the database."""
    return (
        name
        if len(name) <= LONGEST_ID
        else f"{name[: LONGEST_ID - 9]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    )


class ClusterHosts:
    """Called from one thread, with everybody who is there at the moment."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._database, self._clock = database, clock
        self._there: dict[str, float] = {}  # id -> when it was last noted

    def seen(self, hosts: Sequence[Details]) -> None:
        """Joins the new ones, notes that the others live, marks lost who is gone. A
        database that is away hears of it later."""
        now = self._clock()
        present = {worker_id(str(host["name"])): host for host in hosts}
        with suppress(DatabaseError):
            for name, host in present.items():
                if now - self._there.get(name, float("-inf")) >= BEAT_S:
                    self._note(name, host, joined=name in self._there)
                    self._there[name] = now
            for name in [host_id for host_id in self._there if host_id not in present]:
                with suppress(NotFound), self._database.write("neighbour") as session:
                    if workers.get(session, name).state != workers.QUARANTINED:
                        workers.set_state(session, name, workers.LOST, "it left the cluster")
                del self._there[name]

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
