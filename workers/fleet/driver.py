"""The Ray driver process: carries out the pipeline's decisions and replaces lost workers.

Run as `python -m tuner.workers.fleet.driver FD SESSION` in an empty directory. Ray ends
its driver's process when the cluster's head is lost, which here costs the orchestrator
only a channel. The end of the channel means that the orchestrator is gone; all then stops.
"""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

import ray
from ray.exceptions import RayError, RayTaskError

from tuner.workers.fleet import cluster, session
from tuner.workers.fleet.actors import ActorFactory, Worker, preparing
from tuner.workers.fleet.affinity import confine_family
from tuner.workers.fleet.calls import (
    CallReturned,
    Events,
    Message,
    MessageReceived,
    WorkerCalls,
    on_this_clock,
)
from tuner.workers.fleet.channel import parent_channel
from tuner.workers.fleet.control_dispatch import ControlDispatch
from tuner.workers.fleet.hosts import Hosts, described
from tuner.workers.fleet.lane_calibration import LaneCalibration
from tuner.workers.fleet.messages import (
    Abandon,
    ControlReply,
    ControlRequest,
    Finished,
    FleetPlan,
    HostPlan,
    Measured,
    Span,
    Submit,
)
from tuner.workers.fleet.notices import (
    FleetReady,
    FleetRefused,
    HostsPresent,
    LaneShared,
    Notice,
    WaitingForHosts,
    WorkerLost,
    WorkerRefused,
    WorkersPresent,
)
from tuner.workers.fleet.pipeline import Pipeline
from tuner.workers.fleet.roster import Roster

# Workers replaced in a row without any batch coming back, after which the machine is at fault.
MAX_SILENT_REPLACEMENTS = 12
CLOSE_TIMEOUT_S = 2.0
LOOK_S = 2.0  # between two looks at which hosts of a cluster there are
READY_TIMEOUT_S = 110.0  # for the first answer of every worker; a second or two on an idle machine
SHARED_S = 0.01  # waits of a lane for its cores that come of another run of tuner
SPANS_KEPT = 64  # spans wait for a report to travel with, but not more of them


class Driver:
    """The event loop over messages of the orchestrator and returns of workers."""

    def __init__(
        self, plan: FleetPlan, channel: Connection, actors: ActorFactory, alive: Callable[[], bool]
    ) -> None:
        """`alive` says whether this machine's Ray node lives."""
        self._plan = plan
        self._channel = channel
        self._alive = alive
        self._events: Events = queue.SimpleQueue()
        self._calls = WorkerCalls(self._events)
        self._hosts = None if plan.address is None else Hosts(plan)
        self._roster = Roster(plan, actors, local=self._hosts is None)
        self._pipeline = Pipeline(
            builders=self._roster.builders,
            runners=self._roster.runners,
            alternates=plan.alternates and len(self._roster) > 0,
            policy=plan.policy,
            lane_share=plan.lane_share,
            places={worker.name: worker.place for worker in self._roster},
            prepares=preparing([*self._roster]),
            borrowers=self._roster.borrowers,
        )
        self._calibration = LaneCalibration(self._pipeline)
        self._controls = ControlDispatch(
            self._send,
            roster=self._roster,
            pipeline=self._pipeline,
            calls=self._calls,
            calibration=self._calibration,
        )
        self._lanes_due = False  # lanes may have to be prepared for a problem
        self._shared: set[str] = set()  # lanes whose cores other runs use, and it was said
        self._silent = 0  # workers replaced since the last batch came back
        self._spans: list[Span] = []  # that wait for a report to travel with
        self._next_watch = 0.0
        self._next_look = 0.0

    def run(self) -> None:
        """Runs until the orchestrator's channel ends."""
        threading.Thread(target=self._listen, daemon=True).start()
        if not self._wait_for_hosts():
            return
        self._wait_ready()
        while True:
            self._watch()
            self._look()
            self._calibrate()
            self._prepare_lanes()
            self._dispatch()
            self._flush()
            event = self._next_event()
            if event is None:
                self._check_deadlines()
            elif isinstance(event, CallReturned):
                self._on_return(event)
            elif event.message is None:
                return
            else:
                self._take(event.message)

    def _wait_for_hosts(self) -> bool:
        """Waits without a limit until a machine of the cluster serves the target.

        Returns False if the orchestrator ends before. Raises RuntimeError if the machines
        that serve it have no lane with enough cores: other jobs would wait forever.
        """
        patient_until = time.monotonic() + READY_TIMEOUT_S
        announced = False
        while self._hosts is not None:
            self._watch()
            self._look()
            if len(self._roster):
                break
            if self._hosts.narrow and time.monotonic() > patient_until:
                names, threads = ", ".join(self._hosts.narrow), self._plan.threads
                raise RuntimeError(
                    f"a kernel of {threads} threads needs a lane of {threads} cores; {names} "
                    f"have none so long"
                )
            if not announced:
                announced = True
                text = (
                    f"waiting for a worker of this target to join {self._plan.address}; "
                    f"tuner worker starts one"
                )
                self._send(WaitingForHosts(message=text))
            event = self._next_event()
            if isinstance(event, MessageReceived):
                if event.message is None:
                    return False
                self._take(event.message)
        return True

    def _wait_ready(self) -> None:
        """Waits for a first answer of every worker, after which calls need no start-up."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        try:
            descriptions = self._roster.describe(deadline)
        except RayTaskError as error:
            if self._hosts is None:  # a machine of a cluster may have others beside it
                self._send(FleetRefused(message=str(error.cause)))
            raise
        if self._hosts is None and (
            refusals := [
                str(description["refused"])
                for description in descriptions
                if "refused" in description
            ]
        ):
            self._send(FleetRefused(message=refusals[0]))
            raise RuntimeError(refusals[0])
        for worker in [*self._roster]:
            worker.up = True
        for lane in self._roster.runners:
            self._calibration.add(lane)
        if self._hosts is None:
            # From here on, only candidates and borrowers' compilers run on lanes, alternately.
            compilers = {
                int(description["compiler_pid"])
                for description in descriptions
                if description["name"] in self._roster.borrowers
            }
            confine_family(self._plan.builder_cores, besides=compilers)
        text = f"{len(self._roster.builders)} builders, {len(self._roster.runners)} lanes"
        self._send(FleetReady(message=text, workers=descriptions))

    def _watch(self) -> None:
        """Checks now and then that the node lives; otherwise ends this process.

        Without the node no call ever returns, nor does the shutdown of Ray.
        """
        if time.monotonic() < self._next_watch:
            return
        self._next_watch = time.monotonic() + cluster.WATCH_S
        if not self._alive():
            print("this machine's Ray node is gone", file=sys.stderr, flush=True)
            os._exit(1)

    def _look(self) -> None:
        """Checks now and then which hosts of the cluster have joined or left."""
        if self._hosts is None or time.monotonic() < self._next_look:
            return
        seen = self._hosts.look()
        self._next_look = time.monotonic() + LOOK_S
        present = tuple(
            described(host, self._plan.limits.isolation, self._plan.target)
            for host in self._hosts.present
        )
        self._send(HostsPresent(message=f"{len(present)} machines", hosts=present))
        for reason in seen.refused:
            self._send(WorkerRefused(message=reason))
        for name in seen.gone:
            for worker in self._roster.on_host(name):
                self._retire(worker)
            self._send(WorkerLost(message=f"worker {name} is gone"))
        for host in seen.joined:
            self._join(host)
        if seen.gone or seen.joined:
            workers: tuple[Mapping[str, int | str], ...] = tuple(
                {"name": worker.name, "builds": int(worker.builds)} for worker in self._roster
            )
            message = f"{len(workers)} builders and lanes"
            self._send(WorkersPresent(message=message, workers=workers))

    def _join(self, host: HostPlan) -> None:
        """Starts the workers of a host that joined."""
        joined = self._roster.join(host)
        for worker in joined:
            if not worker.builds:
                self._calibration.add(worker.name)
                self._calls.describe(worker)
        self._pipeline.add(
            builders=[worker.name for worker in joined if worker.builds],
            runners=[worker.name for worker in joined if not worker.builds],
            alternates=host.alternates,
            places={worker.name: worker.place for worker in joined},
            prepares=preparing(joined),
        )

    def _retire(self, worker: Worker, reason: str = "its machine is gone") -> None:
        if worker.control is not None:
            self._controls.refuse(worker.control, f"{worker.name}: {reason}")
        self._calibration.remove(worker.name)
        self._pipeline.retire(worker.name, reason)
        self._roster.leave(worker)

    def _listen(self) -> None:
        try:
            while True:
                self._events.put(MessageReceived(self._channel.recv()))
        except (EOFError, OSError):
            self._events.put(MessageReceived(None))

    def _send(self, message: Finished | Notice | ControlReply) -> None:
        # The listener sees the end of the channel as well, and stops the loop.
        with suppress(BrokenPipeError, ConnectionResetError):
            self._channel.send(message)

    def _next_event(self) -> MessageReceived | CallReturned | None:
        """The next event; None if a deadline or a periodic check comes first."""
        due = [worker.deadlines[0] for worker in self._roster if worker.deadlines]
        due += [self._next_watch] if self._hosts is None else [self._next_watch, self._next_look]
        if self._calibration.next_s is not None and not self._controls.exclusive:
            due.append(self._calibration.next_s)
        try:
            return self._events.get(timeout=max(0.0, min(due) - time.monotonic()))
        except queue.Empty:
            return None

    def _take(self, message: Message) -> None:
        match message:
            case Submit(
                problem=problem,
                candidates=candidates,
                known_outcomes=known_outcomes,
                job_share=job_share,
            ):
                self._calls.know(problem)
                self._lanes_due = True
                self._pipeline.submit(problem.key, candidates, known_outcomes, job_share)
            case Abandon(job=job, leaves=leaves):
                self._pipeline.abandon(job, leaves=leaves)
            case ControlRequest():
                self._calls.know(message.problem)
                self._controls.add(message)

    def _dispatch(self) -> None:
        """Hands out all work that there is room for.

        A race waits for an idle fleet, and nothing builds during it. For the builds of a
        control request, a builder is kept free once it has built what it holds.
        """
        self._pipeline.paused = self._controls.exclusive
        self._pipeline.reserve(needed=self._controls.builds)
        # Measurements go first: a lane must not wait, a builder can.
        while measurement := self._pipeline.next_measurement():
            runner, problem, measure_requests = measurement
            self._calls.work(self._roster[runner], "measure", problem, measure_requests)
        while build := self._pipeline.next_build():
            builder, problem, build_requests = build
            items = sum(request.patience for request in build_requests)
            self._calls.work(self._roster[builder], "build", problem, build_requests, items=items)
        self._controls.dispatch()

    def _calibrate(self) -> None:
        """Starts the calibrations that are due; they run between batches, never in a race."""
        for lane in [] if self._controls.exclusive else self._calibration.due():
            self._calls.calibrate(self._roster[lane])

    def _prepare_lanes(self) -> None:
        """Prepares upcoming workloads on lanes while they measure others, one at a time each."""
        if not self._lanes_due or self._controls.exclusive:
            return
        self._lanes_due = False
        for name, problem in self._pipeline.unprepared():
            worker = self._roster[name]
            # A lane's band is learned before anything else.
            if worker.up and not (worker.preparing or worker.calibrating):
                self._calls.prepare(worker, problem)

    def _on_return(self, event: CallReturned) -> None:
        worker = self._roster.get(event.worker)
        if worker is None or event.generation != worker.generation:
            return  # of an actor that was replaced since
        error = event.future.exception()
        if error is not None:
            self._lose(worker, f"{type(error).__name__}: {error}")
            return
        worker.up = True
        if event.purpose == "preparation":
            worker.preparing, self._lanes_due = False, True
            self._pipeline.prepared(worker.name, event.problem)
            return
        worker.deadlines.pop(0)
        if worker.deadlines:  # the next call starts now
            worker.deadlines[0] = max(
                worker.deadlines[0], time.monotonic() + worker.limit_s(1, first=False)
            )
        if event.purpose == "foresight":
            return
        results = event.future.result()
        if event.purpose == "calibration":
            self._calibrated(worker, results)
            return
        if event.purpose == "description":
            self._described_later(worker, results)
            return
        self._silent = 0
        if event.control is not None:
            worker.control = None
            self._controls.returned(event.control, worker, results)
            return
        if worker.host is not None:
            results = on_this_clock(results, time.monotonic())
        if worker.builds:
            self._pipeline.built(event.worker, results)
        else:
            self._note_sharing(worker.name, results)
            self._pipeline.measured(event.worker, results)

    def _note_sharing(self, lane: str, results: Sequence[Measured]) -> None:
        """Says once that a lane waits for its cores."""
        if lane not in self._shared and any(result.waited_s > SHARED_S for result in results):
            self._shared.add(lane)
            text = (
                f"lane {lane} takes turns with another run of tuner that uses its cores, and is "
                f"slower for it; end one, or give each its own cores by the setting lanes"
            )
            self._send(LaneShared(message=text))

    def _described_later(self, worker: Worker, description: Mapping[str, int | str]) -> None:
        """Takes the description of a worker that joined or was replaced."""
        self._lanes_due = True
        if "refused" not in description:
            return
        reason = str(description["refused"])
        if self._hosts is None:
            raise RuntimeError(reason)  # no other lane can take its place
        self._send(WorkerRefused(message=f"{worker.name}: {reason}"))
        self._retire(worker, reason)

    def _calibrated(self, worker: Worker, seconds: Sequence[float]) -> None:
        worker.calibrating, self._lanes_due = False, True
        drift = self._calibration.note(worker.name, seconds)
        if drift is not None:
            self._send(drift)

    def _lose(self, worker: Worker, reason: str) -> None:
        self._silent += 1
        if self._silent > MAX_SILENT_REPLACEMENTS:
            raise RuntimeError(
                f"{self._silent} workers were lost in a row, the last one with: {reason}"
            )
        started, control = worker.up, worker.control
        worker.replace()
        self._calls.describe(worker)
        if control is not None:
            self._controls.refuse(control, reason)
        self._pipeline.lost(worker.name, reason, started=started)
        self._send(WorkerLost(message=f"{worker.name}: {reason}"))

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for worker in [*self._roster]:
            if worker.deadlines and worker.deadlines[0] <= now:
                self._lose(worker, "gave no answer in time")

    def _flush(self) -> None:
        for library in self._pipeline.spent():
            Path(library.path).unlink(missing_ok=True)
        reports, spans = self._pipeline.collect()
        self._spans += spans
        calibrations = self._calibration.collect()
        if reports or calibrations or len(self._spans) >= SPANS_KEPT:
            spans, self._spans = self._spans, []
            self._send(
                Finished(reports=tuple(reports), spans=tuple(spans), calibrations=calibrations)
            )

    def close(self) -> None:
        """Asks the workers to stop their children, for a limited time; the rest dies with Ray."""
        refs = [worker.handle.close.remote() for worker in self._roster]
        with suppress(RayError):
            ray.wait(refs, num_returns=len(refs), timeout=CLOSE_TIMEOUT_S)


def _runs(node: subprocess.Popen[bytes]) -> bool:
    return node.poll() is None


def main(descriptor: str, directory: str, actors: ActorFactory) -> None:
    channel = parent_channel(descriptor)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the orchestrator's to handle
    plan: FleetPlan = channel.recv()
    node = None
    try:
        if plan.address is None:
            alive = cluster.start(
                Path(directory),
                cpus=len(plan.builder_cores) + len(plan.lent_cores) + len(plan.lanes),
            )
        else:
            node = cluster.join(Path(directory), plan.address, resources={})
            alive = partial(_runs, node)
        driver = Driver(plan, channel, actors, alive)
        try:
            driver.run()
        finally:
            driver.close()
    finally:
        if plan.address is None:
            cluster.end()
        elif node is not None:
            cluster.leave(node)
    # After a failure the orchestrator reads the log, and removes the session itself.
    session.remove_session(Path(directory))
    if plan.address is None:
        os._exit(0)  # skips the exit handlers of Ray, which is gone


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], ActorFactory())
