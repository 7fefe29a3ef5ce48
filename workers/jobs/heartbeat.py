"""The lease's heartbeat: a thread that prolongs it while the orchestrator is busy, and
brings back what it learns."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from types import TracebackType

from tuner.db import leases
from tuner.db.engine import Database
from tuner.db.errors import StaleLease
from tuner.db.leases import Lease
from tuner.errors import DatabaseError

BEAT_S = 1.0  # how soon a request to cancel is seen; a beat costs one short transaction


class Heartbeat:
    """Use as a context manager. `check` is called by the orchestrator between its steps.

    A database that cannot be reached is tried again for as long as the lease lives;
    should somebody else have taken the job by then, writes are refused by the fencing
    token anyway.
    """

    def __init__(self, database: Database, lease: Lease, *, lifetime_s: float) -> None:
        self._database, self._lease, self._lifetime_s = database, lease, lifetime_s
        self._stop = threading.Event()
        self._cancelled = threading.Event()
        self._lost: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f"heartbeat {lease.job_id}"
        )

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for the job to be cancelled."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raises StaleLease, or the DatabaseError that kept the lease from being
        renewed, once the lease is gone."""
        if self._lost is not None:
            raise self._lost

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join(timeout=self._lifetime_s)

    def _run(self) -> None:
        renewed = time.monotonic()
        while not self._stop.wait(min(BEAT_S, self._lifetime_s / 3)):
            try:
                with self._database.write("renew") as session:
                    _, cancelling = leases.renew(
                        session, self._lease, lifetime=timedelta(seconds=self._lifetime_s)
                    )
                renewed = time.monotonic()
                if cancelling:
                    self._cancelled.set()
            except StaleLease as error:
                self._lost = error
                return
            except DatabaseError as error:
                if time.monotonic() - renewed > self._lifetime_s:
                    self._lost = error
                    return
