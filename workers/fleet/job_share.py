"""One fleet for several jobs: a thread listens to the driver and hands each job what is its own.

Each job sees a `Share`, which behaves towards it as the fleet would if it had it alone.
Whose candidates go first is decided in the driver, by the policy: there all jobs'
candidates wait, so that changing from one to another costs no message.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import TypeVar

from tuner.workers.fleet.affinity import confined
from tuner.workers.fleet.handle import STOP_TIMEOUT_S, DriverLost, Fleet, FleetError, Inbound
from tuner.workers.fleet.messages import (
    BuildFinalists,
    ControlReply,
    Finished,
    FleetPlan,
    Problem,
    Report,
    RunRace,
    Span,
    Submit,
)
from tuner.workers.fleet.notices import HostsPresent, Notice
from tuner.workers.fleet.policy import JobShare

LISTEN_S = 0.2  # how soon the listener sees that the fleet is closed
OnHosts = Callable[[Sequence[Mapping[str, int | str]]], None]
OfJob = TypeVar("OfJob", Report, Span)


class SharedFleet:
    """Thread-safe: jobs run in threads of their own. `close` after the last of them has ended."""

    def __init__(self, fleet: Fleet, *, on_hosts: OnHosts) -> None:
        """`on_hosts` is told every few seconds which machines of a cluster are there."""
        self._fleet, self._on_hosts = fleet, on_hosts
        self._lock = threading.Lock()  # around what is sent, and around the shares
        self._shares: dict[str, JobChannel] = {}
        self._asked: dict[int, JobChannel] = {}
        self._closed, self._ready = threading.Event(), threading.Event()
        self._restarting = False
        self._waiting = ""  # for what, before it is ready for the first time
        self._broken: FleetError | None = None
        self._listener = threading.Thread(target=self._listen, daemon=True, name="shared fleet")
        self._confinement = _Confinement()

    @property
    def plan(self) -> FleetPlan:
        return self._fleet.plan

    @property
    def slots(self) -> tuple[int, int]:
        return self._fleet.slots

    @property
    def broken(self) -> FleetError | None:
        """Why the fleet is of no more use; every job that shares it is told the same."""
        return self._broken

    def start(self) -> None:
        """Starts the fleet without waiting for it."""
        self._fleet.start()
        self._listener.start()

    def wait_ready(
        self, check: Callable[[], None], on_waiting: Callable[[str], None] = lambda text: None
    ) -> None:
        """Until builders and runners answer; calls `check` a few times a second, which
        may raise. Raises FleetError.

        `on_waiting` is told once where that may take for ever: no machine of the
        cluster serves the target.
        """
        told = False
        while not self._ready.wait(LISTEN_S):
            check()
            self._raise_if_broken()
            if self._waiting and not told:
                told = True
                on_waiting(self._waiting)
        self._raise_if_broken()

    @contextmanager
    def joined(self, job_share: JobShare) -> Iterator[JobChannel]:
        """A job's share of the fleet, from its first candidate to its last; its process
        is kept off the lanes meanwhile."""
        share = JobChannel(self, job_share)
        with self._lock:
            share.lost = self._restarting
            self._shares[job_share.job] = share
        try:
            with self._confinement.within(self._fleet.plan.builder_cores):
                yield share
        finally:
            share.leave()
            with self._lock:
                del self._shares[job_share.job]

    def close(self) -> None:
        """Idempotent. A job that still had a share is told."""
        self._closed.set()
        self._fleet.close()
        with self._lock:
            for share in self._shares.values():
                share.put(FleetError("the fleet was closed"))
        if self._listener.is_alive() and self._listener is not threading.current_thread():
            self._listener.join(
                timeout=STOP_TIMEOUT_S
            )  # longer where it just starts another driver; it ends by itself then

    # -- for the shares
    # ------------------------------------------------------------------------------

    def send(self, share: JobChannel, message: Submit) -> None:
        with self._lock:
            # else it is submitted again with all that is in flight, once the share has
            # seen the loss
            if not share.lost:
                self._fleet.submit(message)

    def abandon(self, share: JobChannel, *, leaves: bool) -> None:
        with self._lock:
            if not share.lost and not self._closed.is_set():
                self._fleet.abandon(share.job_share.job, leaves=leaves)

    def send_control(
        self, share: JobChannel, problem: Problem, what: BuildFinalists | RunRace
    ) -> int:
        """The number under which the answer will come."""
        with self._lock:
            number = self._fleet.send_control(problem, what) if not share.lost else 0
            self._asked[number] = share
            return number

    def unpacked(self, answer: ControlReply) -> ControlReply:
        return self._fleet.unpacked(answer)

    # -- the listener
    # ------------------------------------------------------------------------------

    def _listen(self) -> None:
        try:
            self._fleet.wait_ready(check=self._stop_if_closed, on_waiting=self._waits)
            self._ready.set()
            while not self._closed.is_set():
                message = self._fleet.receive(LISTEN_S)
                if message is not None:
                    self._deliver(message)
        except (
            Exception
        ) as error:  # whatever ended the listener: jobs that nobody tells would wait for ever
            self._broken = (
                error
                if isinstance(error, FleetError)
                else FleetError(f"{type(error).__name__}: {error}")
            )
            self._ready.set()
            with self._lock:
                for share in self._shares.values():
                    share.put(self._broken)

    def _stop_if_closed(self) -> None:
        if self._closed.is_set():
            raise FleetError("the fleet was closed while it started")

    def _waits(self, text: str) -> None:
        self._waiting = text

    def _deliver(self, message: Inbound) -> None:
        match message:
            case Finished(reports=reports, spans=spans, calibrations=calibrations):
                told, done = _by_job(reports), _by_job(spans)
                with self._lock:
                    shares = {
                        job: self._shares[job] for job in {*told, *done} if job in self._shares
                    }
                    scribe = next(
                        iter(self._shares.values()), None
                    )  # what concerns the lanes is written by one of them
                if calibrations and scribe is not None:
                    scribe.put(Finished(reports=(), spans=(), calibrations=calibrations))
                for job, share in shares.items():
                    share.put(
                        Finished(reports=tuple(told.get(job, ())), spans=tuple(done.get(job, ())))
                    )
            case ControlReply(number=number):
                with self._lock:
                    asker = self._asked.pop(number, None)
                if asker is not None:
                    asker.put(message)
            case HostsPresent(hosts=hosts):
                self._on_hosts(hosts)
            case Notice():
                with self._lock:
                    for share in self._shares.values():
                        share.put(message)
            case DriverLost():
                self._restart(message)

    def _restart(self, lost: DriverLost) -> None:
        with self._lock:  # from here on nothing is sent until each share has seen the loss
            for share in self._shares.values():
                share.lost = True
            self._asked.clear()
            self._restarting = True
        self._fleet.restart(check=self._stop_if_closed)
        with self._lock:
            self._restarting = False
            for share in self._shares.values():
                share.put(lost)

    def _raise_if_broken(self) -> None:
        if self._broken is not None:
            raise FleetError(str(self._broken))


class JobChannel:
    """The fleet as one job sees it. Used by the job's thread alone."""

    def __init__(self, shared: SharedFleet, job_share: JobShare) -> None:
        self._shared = shared
        self._inbox: queue.SimpleQueue[Inbound | FleetError] = queue.SimpleQueue()
        self._deadline: float | None = None  # of the workload's budget of time
        self.job_share = job_share
        self.lost = False  # the driver was lost and this share has not seen it yet

    @property
    def plan(self) -> FleetPlan:
        return self._shared.plan

    @property
    def slots(self) -> tuple[int, int]:
        """How many builders and lanes there are."""
        return self._shared.slots

    def stands(self, *, trials_left: int, seconds_left: float | None, memory_bytes: int) -> None:
        """What the job has before it, from the next submission on."""
        self._deadline = None if seconds_left is None else time.monotonic() + seconds_left
        self.job_share = replace(self.job_share, trials_left=trials_left, memory_bytes=memory_bytes)

    def put(self, message: Inbound | FleetError) -> None:
        self._inbox.put(message)

    def submit(self, message: Submit) -> None:
        left = None if self._deadline is None else max(0.0, self._deadline - time.monotonic())
        self.job_share = replace(self.job_share, seconds_left=left)
        self._shared.send(self, replace(message, job_share=self.job_share))

    def abandon(self) -> None:
        """Forgets what is in flight."""
        self._shared.abandon(self, leaves=False)

    def leave(self) -> None:
        """The job needs the fleet no more."""
        self._shared.abandon(self, leaves=True)

    def restart(self) -> None:
        """The loss of the driver was seen: what was in flight is submitted again next."""
        self.lost = False

    def receive(self, timeout_s: float) -> Inbound | None:
        """The next message for this job, None when none came in time. Raises FleetError
        once the fleet is of no more use."""
        try:
            message = (
                self._inbox.get(timeout=timeout_s) if timeout_s > 0 else self._inbox.get_nowait()
            )
        except queue.Empty:
            return None
        if isinstance(message, FleetError):
            self._inbox.put(message)
            raise FleetError(str(message))
        if isinstance(message, Finished):
            left = max(0, self.job_share.trials_left - len(message.reports))
            self.job_share = replace(self.job_share, trials_left=left)
        return message

    def request_control(
        self,
        problem: Problem,
        what: BuildFinalists | RunRace,
        *,
        timeout_s: float,
        check: Callable[[], None] | None = None,
    ) -> ControlReply:
        """Puts a control request while no candidate of the job is in flight, and waits. A lost
        driver is an answer with an error."""
        number = self._shared.send_control(self, problem, what)
        deadline = time.monotonic() + timeout_s
        while (left := deadline - time.monotonic()) > 0:
            if check is not None:
                check()
            message = self.receive(min(left, 0.25))
            if isinstance(message, ControlReply) and message.number == number:
                return self._shared.unpacked(message)
            if isinstance(message, DriverLost):
                self.restart()
                return ControlReply(number=number, value=(), error=message.reason)
        return ControlReply(number=number, value=(), error=f"no answer within {timeout_s:g} s")


class _Confinement:
    """Keeps this process to the builders' cores from the first job that searches to the last."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._held = ExitStack()

    @contextmanager
    def within(self, cores: Sequence[int]) -> Iterator[None]:
        with self._lock:
            if self._inside == 0:
                self._held.enter_context(confined(cores))
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if self._inside == 0:
                    self._held.close()


def _by_job(found: Sequence[OfJob]) -> Mapping[str, list[OfJob]]:
    sorted_out: dict[str, list[OfJob]] = {}
    for one in found:
        sorted_out.setdefault(one.job, []).append(one)
    return sorted_out
