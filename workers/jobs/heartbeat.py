"""The heartbeat of a lease: a thread that renews it and notices requests to cancel."""

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
    """Renews a lease while inside the context; the orchestrator calls `check` between steps.

    An unavailable database is tried again as long as the lease lives. If another
    orchestrator has taken the job by then, the fencing token refuses writes.
    """

    def __init__(self, database: Database, lease: Lease, *, lifetime_s: float) -> None:
        self._database = database
        self._lease = lease
        self._lifetime_s = lifetime_s
        self._stop = threading.Event()
        self._cancelled = threading.Event()
        self._lost: Exception | None = None
        self._thread = threading.Thread(
            target=self._run, daemon=True, name=f"heartbeat {lease.job_id}"
        )

    @property
    def cancelled(self) -> bool:
        """Whether the job is to be cancelled."""
        return self._cancelled.is_set()

    def check(self) -> None:
        """Raises StaleLease once the lease is lost, or the DatabaseError that caused it."""
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
