"""The orchestrator's handle on the fleet: starts, watches and replaces the driver process.

The driver runs Ray with builders and runners. It may die, since Ray ends it when it loses
the head. The fleet then starts another one, and work in flight is submitted again.
"""

from __future__ import annotations

import math
import os
import queue
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from tuner.errors import TunerError
from tuner.scratch import hold
from tuner.workers.fleet import session
from tuner.workers.fleet.channel import Child, spawn
from tuner.workers.fleet.messages import (
    Abandon,
    BuildFinalists,
    Built,
    Control,
    ControlReply,
    ControlRequest,
    ControlValue,
    Finished,
    FleetPlan,
    Library,
    Problem,
    Submit,
)
from tuner.workers.fleet.notices import (
    FleetReady,
    FleetRefused,
    Notice,
    WaitingForHosts,
    WorkersPresent,
)
from tuner.workers.fleet.shipping import packed_contestant, unpacked

START_TIMEOUT_S = 120.0  # 3 s for Ray, 2 s for the compiler, on a busy machine many times that
STOP_TIMEOUT_S = 12.0  # a driver that has not left by then is killed, and Ray's processes with it
MAX_RESTARTS = 3  # of the driver in a row without a finished trial in between


class FleetError(TunerError):
    """The fleet cannot be started or keeps dying; the text has the end of its log."""

    code = "fleet"


@dataclass(frozen=True, slots=True)
class DriverLost:
    """The driver process ended without being asked to."""

    generation: int
    reason: str


Inbound = Finished | Notice | ControlReply | DriverLost


class ReplyChannel(Protocol):
    """A fleet, or a job's channel to one, that control requests were sent to."""

    def receive(self, timeout_s: float) -> Inbound | None:
        """The next message, None if none came in time."""
        ...

    def restart(self) -> None:
        """Continues after the loss of the driver."""
        ...

    def unpacked(self, answer: ControlReply) -> ControlReply:
        """The reply with the files of its builds on this machine."""
        ...


def await_reply(
    channel: ReplyChannel, number: int, *, timeout_s: float, check: Callable[[], None] | None
) -> ControlReply:
    """Waits for the reply to the control request `number`.

    A lost driver or worker, and no reply in time, give a reply with an error. Calls
    `check`, which may raise, a few times a second.
    """
    deadline = time.monotonic() + timeout_s
    while (left_s := deadline - time.monotonic()) > 0:
        if check is not None:
            check()
        message = channel.receive(min(left_s, 0.25))
        if isinstance(message, ControlReply) and message.number == number:
            return channel.unpacked(message)
        if isinstance(message, DriverLost):
            channel.restart()
            return ControlReply(number=number, value=(), error=message.reason)
    return ControlReply(number=number, value=(), error=f"no answer within {timeout_s:g} s")


class Fleet:
    """One driver process at a time.

    Not thread-safe, except that messages may be sent while another thread receives.
    """

    def __init__(self, plan: FleetPlan, *, driver: str = "tuner.workers.fleet.driver") -> None:
        """`plan.storage` is set to a directory of the session.

        `driver` is the module that the driver process runs.
        """
        self.plan = plan
        self._driver = driver
        self.generation = 0
        self._child: Child | None = None
        self._session: Path | None = None
        # All sessions so far: processes of a killed driver may write late, so that their
        # directories are removed at the end.
        self._sessions: list[Path] = []
        self._held: list[int] = []  # descriptors that say that these are in use
        self._inbox: queue.SimpleQueue[Inbound] = queue.SimpleQueue()
        self._restarts = 0
        self._controls = 0
        self._pids: tuple[dict[str, int | str], ...] = ()
        self._slots = (1, 1)

    @property
    def workers(self) -> tuple[dict[str, int | str], ...]:
        """Name and process ids of each worker at its start; empty until the fleet is ready."""
        return self._pids

    @property
    def slots(self) -> tuple[int, int]:
        """The numbers of builders and lanes, which change in a cluster."""
        if self.plan.address is None:
            return len(self.plan.builder_cores) + len(self.plan.lent_cores), len(self.plan.lanes)
        return self._slots

    def start(self) -> None:
        """Starts the driver without waiting for it."""
        self._session = session.make_session()
        self._sessions.append(self._session)
        self._held.append(hold(self._session))
        self.plan = replace(self.plan, storage=str(self._session / "build"))
        with (self._session / "driver.log").open("wb") as log:
            self._child = spawn(
                self._driver,
                str(self._session),
                directory=self._session / "empty",
                environment=session.driver_environment(
                    self._session, local=self.plan.address is None
                ),
                output=log,
                flags=("-P",),
            )
        self.generation += 1
        self._child.connection.send(self.plan)
        threading.Thread(
            target=self._listen, args=(self._child, self.generation), daemon=True, name="fleet"
        ).start()

    def wait_ready(
        self,
        *,
        timeout_s: float = START_TIMEOUT_S,
        check: Callable[[], None] | None = None,
        on_waiting: Callable[[str], None] = lambda text: None,
    ) -> None:
        """Waits until builders and runners answer. Raises FleetError.

        Calls `check`, which may raise, a few times a second. While no machine of a
        cluster serves the target it waits without a limit, and calls `on_waiting`.
        """
        deadline, waits = time.monotonic() + timeout_s, False
        while True:
            if check is not None:
                check()
            if time.monotonic() > deadline:
                raise FleetError(
                    f"builders and runners did not answer within {timeout_s:g} s{self._log_tail()}"
                )
            with suppress(queue.Empty):
                message = self._inbox.get(timeout=0.2)
                if isinstance(message, DriverLost) and message.generation == self.generation:
                    if self._restarts >= (MAX_RESTARTS if waits else 1):
                        raise FleetError(f"Ray did not start: {message.reason}{self._log_tail()}")
                    # Ray was lost meanwhile, or cannot start at all: two tries tell.
                    self._restarts += 1
                    deadline, waits = time.monotonic() + timeout_s, False
                    self._kill()
                    self.start()
                if isinstance(message, WaitingForHosts):
                    deadline, waits = math.inf, True
                    on_waiting(message.message)
                if isinstance(message, WorkersPresent):
                    deadline = time.monotonic() + timeout_s  # a machine joined and is starting
                if isinstance(message, FleetRefused):
                    raise FleetError(message.message)
                self._note(message)
                if isinstance(message, FleetReady):
                    self._pids = tuple(dict(worker) for worker in message.workers)
                    self._note_isolation()
                    return

    def _note_isolation(self) -> None:
        """Sets the plan's isolation to the level in force on this machine's lanes.

        Hosts of a cluster have their own.
        """
        level = next(
            (str(worker["isolation"]) for worker in self._pids if "isolation" in worker), None
        )
        if level is not None and self.plan.address is None:
            self.plan = replace(self.plan, limits=replace(self.plan.limits, isolation=level))

    def restart(self, *, check: Callable[[], None] = lambda: None) -> None:
        """Replaces a lost driver.

        Raises FleetError when that has happened too often, and what `check` raises. A
        cluster whose head was lost takes a while to come back, and what killed the driver
        may also kill the next one, so that starting is tried several times.
        """
        while True:
            self._restarts += 1
            tail = self._log_tail()
            if self._restarts > MAX_RESTARTS:
                raise FleetError(
                    f"the driver of the fleet was lost {self._restarts} times in a row{tail}"
                )
            check()
            self._kill()
            self.start()
            with suppress(FleetError):
                self.wait_ready(check=check)
                return

    def submit(self, message: Submit) -> None:
        self._send(message)

    def abandon(self, job: str = "", *, leaves: bool = False) -> None:
        """Forgets a job's candidates; with `leaves` the job itself."""
        self._send(Abandon(job=job, leaves=leaves))

    def receive(self, timeout_s: float) -> Inbound | None:
        """The next message, None when none came in time."""
        try:
            message = (
                self._inbox.get(timeout=timeout_s) if timeout_s > 0 else self._inbox.get_nowait()
            )
        except queue.Empty:
            return None
        if isinstance(message, DriverLost) and message.generation != self.generation:
            return None
        if isinstance(message, Finished) and message.reports:
            self._restarts = 0
        self._note(message)
        return message

    def _note(self, message: Inbound) -> None:
        if isinstance(message, WorkersPresent):
            builders = sum(int(worker["builds"]) for worker in message.workers)
            self._slots = builders, len(message.workers) - builders

    def request_control(
        self,
        problem: Problem,
        what: Control,
        *,
        timeout_s: float,
        check: Callable[[], None] | None = None,
    ) -> ControlReply:
        """Sends a control request to the idle fleet and waits for the reply."""
        number = self.send_control(problem, what)
        return await_reply(self, number, timeout_s=timeout_s, check=check)

    def send_control(self, problem: Problem, what: Control) -> int:
        """Sends a control request without waiting; returns the number of its reply."""
        self._controls += 1
        if self.plan.address is not None and not isinstance(what, BuildFinalists):
            what = replace(
                what,
                contestants=tuple(packed_contestant(contestant) for contestant in what.contestants),
            )
        self._send(ControlRequest(number=self._controls, problem=problem, what=what))
        return self._controls

    def unpacked(self, answer: ControlReply) -> ControlReply:
        """The reply with the files of its builds on this machine."""
        return replace(answer, value=tuple(self._unpacked(part) for part in answer.value))

    def _unpacked(self, value: ControlValue) -> ControlValue:
        """A build with its files on this machine, in a folder of their own."""
        if isinstance(value, Built) and isinstance(value.result, Library) and value.result.files:
            folder = Path(tempfile.mkdtemp(dir=self.plan.storage))
            return replace(value, result=unpacked(value.result, folder))
        return value

    def close(self) -> None:
        """Stops the driver and all it started, within STOP_TIMEOUT_S; idempotent."""
        child, self._child = self._child, None
        self.generation += 1
        if child is not None:
            child.stop(grace_s=STOP_TIMEOUT_S)
        for folder, held in zip(self._sessions, self._held, strict=True):
            session.remove_session(folder)
            os.close(held)
        self._session = None
        self._sessions, self._held = [], []

    def _kill(self) -> None:
        if self._child is not None:
            self._child.kill()
        if self._session is not None:
            session.remove_session(self._session)

    def _send(self, message: Submit | Abandon | ControlRequest) -> None:
        if self._child is None:
            raise FleetError("the fleet is closed")
        with suppress(OSError):  # a lost driver is seen by the listener, which says so
            self._child.connection.send(message)

    def _listen(self, child: Child, generation: int) -> None:
        try:
            while True:
                self._inbox.put(child.connection.recv())
        except (EOFError, OSError):
            pass
        status = child.process.wait()
        ended = f"killed by {signal.Signals(-status).name}" if status < 0 else f"exit code {status}"
        self._inbox.put(DriverLost(generation, f"the driver process ended ({ended})"))

    def _log_tail(self) -> str:
        if self._session is None:
            return ""
        try:
            lines = (
                (self._session / "driver.log")
                .read_text(errors="replace")
                .strip()
                .splitlines()[-15:]
            )
        except OSError:
            return ""
        return "; its log ends with:\n" + "\n".join(lines) if lines else ""
