"""Timelines of lanes and builders, written to the database in batches."""

from __future__ import annotations

import platform
import socket
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from importlib.metadata import version

from tuner.db import lanes, trials, workers
from tuner.db.engine import Database, Session
from tuner.db.lanes import Calibration, LaneSpan
from tuner.target.capability import is_declared
from tuner.target.target import Target
from tuner.version import __version__
from tuner.workers.fleet.messages import Calibrated, FleetPlan, Span
from tuner.workers.jobs.revalidation import note_change

PROTOCOL = "4"  # of the messages between orchestrator and workers; changed when they are
BATCH = 256  # spans in one statement
LONGEST_ID = 32  # of a worker
LANE = "lane"  # prefix of the reasons of states that calibrations set
MAX_AGE_S = 2.0  # after which a smaller batch is written, for the dashboard


def versions() -> dict[str, str]:
    """Versions of everything that decides how candidates are built and measured here."""
    installed = {name: version(name) for name in ("apache-tvm", "apache-tvm-ffi", "ray", "numpy")}
    return installed | {
        "python": platform.python_version(),
        "tuner": __version__,
        "protocol": PROTOCOL,
    }


def worker_id(target: Target) -> str:
    """The id of this machine as a runner of a target.

    Its GPUs, and the devices and itself under the name of a declared CPU, have ids of
    their own.
    """
    host = socket.gethostname()
    if target.on_device or is_declared(target):
        return f"{host[: LONGEST_ID - 9]}-{target.key[:8]}"
    return host[:LONGEST_ID]


def join(database: Database, target: Target, plan: FleetPlan) -> str:
    """Records this machine as a worker with its lanes; returns its id.

    The plan must be that of a fleet that is ready, since its runners determine the
    isolation that is available.
    """
    worker = workers.NewWorker(
        id=worker_id(target),
        host=socket.gethostname(),
        target=target.key,
        isolation=plan.limits.isolation,
        lanes=[{"name": lane.name, "cores": list(lane.cores)} for lane in plan.lanes],
        versions=versions(),
    )
    with database.write("join") as session:
        note_change(session, worker)
        return workers.join(session, worker).id


class Timeline:
    """Collects spans of one job; `flush` writes what is left.

    Moments come on the steady clock of this machine, so that a clock that is set changes
    no duration. They are dated when they come, by the clock that the database goes by.
    """

    def __init__(
        self,
        database: Database,
        *,
        worker: str,
        job: str,
        steady_s: Callable[[], float] = time.monotonic,
        epoch_s: Callable[[], float] = time.time,
    ) -> None:
        self._database = database
        self._worker = worker
        self._job = job
        self._steady_s = steady_s
        self._epoch_s = epoch_s
        self._waiting: list[LaneSpan] = []
        self._written = time.monotonic()
        self._resting: dict[str, str] = {}  # drained lanes, each with its reason

    def add(self, spans: Sequence[Span]) -> None:
        start_s = self._start_s()
        self._waiting += [self._row(span, start_s) for span in spans]
        if len(self._waiting) >= BATCH or time.monotonic() - self._written > MAX_AGE_S:
            self.flush()

    def calibrated(self, results: Sequence[Calibrated]) -> None:
        """Stores calibrations.

        Trials of a lane that has drifted become suspect, and the worker's state names the
        drained lanes.
        """
        self.flush()  # the spans tell which trials are this machine's
        start_s = self._start_s()
        with self._database.write("calibration") as session:
            for result in results:
                lanes.add_calibration(session, self._calibration(result, start_s))
                if result.suspect_since_s is not None:
                    ratio = result.median_s / result.expected_s
                    reason = (
                        f"{LANE} {result.lane} had drifted: its calibration was at "
                        f"{ratio:.2f} of its band's middle"
                    )
                    since = datetime.fromtimestamp(start_s + result.suspect_since_s, UTC)
                    # Lanes of a cluster have their machine in the name.
                    machine = None if "/" in result.lane else self._worker
                    trials.mark_suspect(session, result.lane, since, reason, machine=machine)
                self._resting.pop(result.lane, None)
                if result.drained:
                    ratio = result.median_s / result.expected_s
                    self._resting[result.lane] = (
                        f"{LANE} {result.lane} is drained, at {ratio:.2f} of its band"
                    )
            self._say_state(session)

    def _say_state(self, session: Session) -> None:
        now = workers.get(session, self._worker)
        ours = now.state == workers.DRAINING and (now.reason or "").startswith(LANE)
        if self._resting and (now.state == workers.ACTIVE or ours):
            workers.set_state(
                session, self._worker, workers.DRAINING, "; ".join(self._resting.values())
            )
        elif ours and not self._resting:
            workers.set_state(session, self._worker, workers.ACTIVE)

    def flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._written = time.monotonic()
        if waiting:
            with self._database.write("timeline") as session:
                lanes.add_spans(session, waiting)
                workers.heartbeat(session, self._worker)

    def _start_s(self) -> float:
        """When the steady clock began, in seconds since the epoch."""
        return self._epoch_s() - self._steady_s()

    def _calibration(self, result: Calibrated, start_s: float) -> Calibration:
        return Calibration(
            worker=self._worker,
            lane=result.lane,
            measured_at=datetime.fromtimestamp(start_s + result.at_s, UTC),
            median_s=result.median_s,
            expected_s=result.expected_s,
            in_band=result.in_band,
        )

    def _row(self, span: Span, start_s: float) -> LaneSpan:
        return LaneSpan(
            worker=self._worker,
            lane=span.worker,
            kind=span.activity,
            started_at=datetime.fromtimestamp(start_s + span.started_s, UTC),
            ended_at=datetime.fromtimestamp(start_s + span.ended_s, UTC),
            job=self._job,
            trial=span.number,
        )
