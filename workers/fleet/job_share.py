"""One fleet for several jobs: a thread receives the driver's messages and sorts them by job.

Each job has a `JobChannel`, which behaves as a fleet of its own would. The driver decides
by the policy whose candidates go first. All jobs' candidates wait there, so that changing
from one job to another costs no message.
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
from tuner.workers.fleet.handle import (
    STOP_TIMEOUT_S,
    DriverLost,
    Fleet,
    FleetError,
    Inbound,
    await_reply,
)
from tuner.workers.fleet.messages import (
    Control,
    ControlReply,
    Finished,
    FleetPlan,
    Problem,
    Report,
    Span,
    Submit,
)
from tuner.workers.fleet.notices import HostsPresent, Notice
from tuner.workers.fleet.policy import JobShare

LISTEN_S = 0.2  # how soon the listener sees that the fleet is closed
OnHosts = Callable[[Sequence[Mapping[str, int | str]]], None]
OfJob = TypeVar("OfJob", Report, Span)


class SharedFleet:
    """A fleet that several jobs share, each in a thread of its own. Thread-safe.

    `close` it after the last job has ended.
    """

    def __init__(self, fleet: Fleet, *, on_hosts: OnHosts) -> None:
        """`on_hosts` is called every few seconds with the machines of a cluster."""
        self._fleet = fleet
        self._on_hosts = on_hosts
        self._lock = threading.Lock()  # guards sending, and the channels
        self._channels: dict[str, JobChannel] = {}  # by job
        self._requesters: dict[int, JobChannel] = {}  # by number of a control request
        self._closed = threading.Event()
        self._ready = threading.Event()
        self._restarting = False
        self._waiting = ""  # what it waits for before it is first ready
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
        """Why the fleet cannot be used any more; every job that shares it gets this error."""
        return self._broken

    def start(self) -> None:
        """Starts the fleet without waiting for it."""
        self._fleet.start()
        self._listener.start()

    def wait_ready(
        self, check: Callable[[], None], on_waiting: Callable[[str], None] = lambda text: None
    ) -> None:
        """Waits until builders and runners answer. Raises FleetError.

        Calls `check`, which may raise, a few times a second, and `on_waiting` once if no
        machine of the cluster serves the target, so that it may wait forever.
        """
        announced = False
        while not self._ready.wait(LISTEN_S):
            check()
            self._raise_if_broken()
            if self._waiting and not announced:
                announced = True
                on_waiting(self._waiting)
        self._raise_if_broken()

    @contextmanager
    def joined(self, job_share: JobShare) -> Iterator[JobChannel]:
        """A job's channel, from its first candidate to its last.

        This process is kept off the lanes meanwhile.
        """
        channel = JobChannel(self, job_share)
        with self._lock:
            channel.lost = self._restarting
            self._channels[job_share.job] = channel
        try:
            with self._confinement.within(self._fleet.plan.builder_cores):
                yield channel
        finally:
            channel.leave()
            with self._lock:
                del self._channels[job_share.job]

    def close(self) -> None:
        """Closes the fleet; jobs that still have a channel get an error. Idempotent."""
        self._closed.set()
        self._fleet.close()
        self._put_all(FleetError("the fleet was closed"))
        if self._listener.is_alive() and self._listener is not threading.current_thread():
            # It takes longer while it starts another driver, and ends by itself then.
            self._listener.join(timeout=STOP_TIMEOUT_S)

    # -- for the channels --

    def send(self, channel: JobChannel, message: Submit) -> None:
        with self._lock:
            # After a loss the job submits all again, once its channel has reported it.
            if not channel.lost:
                self._fleet.submit(message)

    def abandon(self, channel: JobChannel, *, leaves: bool) -> None:
        with self._lock:
            if not channel.lost and not self._closed.is_set():
                self._fleet.abandon(channel.job_share.job, leaves=leaves)

    def send_control(self, channel: JobChannel, problem: Problem, what: Control) -> int:
        """Sends a control request; returns the number of its reply."""
        with self._lock:
            number = self._fleet.send_control(problem, what) if not channel.lost else 0
            self._requesters[number] = channel
            return number

    def unpacked(self, answer: ControlReply) -> ControlReply:
        return self._fleet.unpacked(answer)

    # -- the listener --

    def _listen(self) -> None:
        try:
            self._fleet.wait_ready(check=self._stop_if_closed, on_waiting=self._waits)
            self._ready.set()
            while not self._closed.is_set():
                message = self._fleet.receive(LISTEN_S)
                if message is not None:
                    self._deliver(message)
        # Whatever ended the listener: without a message, jobs would wait forever.
        except Exception as error:
            if isinstance(error, FleetError):
                self._broken = error
            else:
                self._broken = FleetError(f"{type(error).__name__}: {error}")
            self._ready.set()
            self._put_all(self._broken)

    def _put_all(self, message: Inbound | FleetError) -> None:
        with self._lock:
            for channel in self._channels.values():
                channel.put(message)

    def _stop_if_closed(self) -> None:
        if self._closed.is_set():
            raise FleetError("the fleet was closed while it started")

    def _waits(self, text: str) -> None:
        self._waiting = text

    def _deliver(self, message: Inbound) -> None:
        match message:
            case Finished():
                self._deliver_results(message)
            case ControlReply(number=number):
                with self._lock:
                    requester = self._requesters.pop(number, None)
                if requester is not None:
                    requester.put(message)
            case HostsPresent(hosts=hosts):
                self._on_hosts(hosts)
            case Notice():
                self._put_all(message)
            case DriverLost():
                self._restart(message)

    def _deliver_results(self, results: Finished) -> None:
        """Sorts results by job; one of the jobs gets the calibrations, to store them."""
        reports = _by_job(results.reports)
        spans = _by_job(results.spans)
        with self._lock:
            channels = {
                job: self._channels[job] for job in {*reports, *spans} if job in self._channels
            }
            recorder = next(iter(self._channels.values()), None)
        if results.calibrations and recorder is not None:
            recorder.put(Finished(reports=(), spans=(), calibrations=results.calibrations))
        for job, channel in channels.items():
            channel.put(
                Finished(reports=tuple(reports.get(job, ())), spans=tuple(spans.get(job, ())))
            )

    def _restart(self, lost: DriverLost) -> None:
        # From here on a channel sends nothing until it has reported the loss.
        with self._lock:
            for channel in self._channels.values():
                channel.lost = True
            self._requesters.clear()
            self._restarting = True
        self._fleet.restart(check=self._stop_if_closed)
        with self._lock:
            self._restarting = False
            for channel in self._channels.values():
                channel.put(lost)

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
        self.lost = False  # the driver was lost, and the job does not know it yet

    @property
    def plan(self) -> FleetPlan:
        return self._shared.plan

    @property
    def slots(self) -> tuple[int, int]:
        """The numbers of builders and lanes."""
        return self._shared.slots

    def set_demand(
        self, *, trials_left: int, seconds_left: float | None, memory_bytes: int
    ) -> None:
        """Sets what the job still needs, from the next submission on."""
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
        """Ends the job's use of the fleet."""
        self._shared.abandon(self, leaves=True)

    def restart(self) -> None:
        """Continues after the loss of the driver: the job submits again what was in flight."""
        self.lost = False

    def receive(self, timeout_s: float) -> Inbound | None:
        """The next message for this job, None if none came in time.

        Raises FleetError once the fleet cannot be used any more.
        """
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
        what: Control,
        *,
        timeout_s: float,
        check: Callable[[], None] | None = None,
    ) -> ControlReply:
        """Sends a control request and waits for the reply.

        No candidate of the job may be in flight.
        """
        number = self._shared.send_control(self, problem, what)
        return await_reply(self, number, timeout_s=timeout_s, check=check)

    def unpacked(self, answer: ControlReply) -> ControlReply:
        """The reply with the files of its builds on this machine."""
        return self._shared.unpacked(answer)


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


def _by_job(items: Sequence[OfJob]) -> Mapping[str, list[OfJob]]:
    grouped: dict[str, list[OfJob]] = {}
    for item in items:
        grouped.setdefault(item.job, []).append(item)
    return grouped
