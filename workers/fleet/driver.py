"""The Ray driver, a process of its own: carries out what the pipeline decides, replaces
lost workers, reports what ended.

Run as `python -m tuner.workers.fleet.driver FD SESSION` in an empty directory. Ray ends
its driver's process when the cluster's head is lost: here that costs the orchestrator a
channel and nothing else. The channel's end means that the orchestrator is gone: all
stops.
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
from ray.exceptions import RayError

from tuner.workers.fleet import cluster, session
from tuner.workers.fleet.actors import ActorFactory, Worker, preparing
from tuner.workers.fleet.affinity import confine_family
from tuner.workers.fleet.calls import CallReturned, Events, Message, MessageReceived, WorkerCalls
from tuner.workers.fleet.channel import parent_channel
from tuner.workers.fleet.control_requests import ControlRequests
from tuner.workers.fleet.hosts import Hosts, described
from tuner.workers.fleet.lane_calibration import LaneCalibration
from tuner.workers.fleet.messages import (
    Abandon,
    BuildFinalists,
    ControlReply,
    ControlRequest,
    Finished,
    FleetPlan,
    RunRace,
    Span,
    Submit,
)
from tuner.workers.fleet.notices import (
    FleetReady,
    FleetRefused,
    HostsPresent,
    Notice,
    WaitingForHosts,
    WorkerLost,
    WorkerRefused,
    WorkersPresent,
)
from tuner.workers.fleet.pipeline import Pipeline
from tuner.workers.fleet.roster import Roster

# workers replaced in a row without a single batch coming back: then it is the machine
# that fails
MAX_SILENT_REPLACEMENTS = 12
CLOSE_TIMEOUT_S = 2.0
LOOK_S = 2.0  # between two looks at which hosts of a cluster there are
READY_TIMEOUT_S = 110.0  # for the first answer of every worker; a second or two on an idle machine
SPANS_KEPT = 64  # spans wait for a report to travel with, but not more of them


class Driver:
    """The event loop: what the orchestrator sends and what workers return, one at a time."""

    def __init__(
        self, plan: FleetPlan, channel: Connection, actors: ActorFactory, alive: Callable[[], bool]
    ) -> None:
        """`alive` tells whether this machine's node is."""
        self._plan, self._channel, self._alive = plan, channel, alive
        self._events: Events = queue.SimpleQueue()
        self._calls = WorkerCalls(self._events)
        self._controls = ControlRequests(self._send)
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
        self._building_for = 0  # number of the control request whose builds all builders share
        self._lanes_due = False  # lanes may have to be prepared for a problem
        self._silent = 0  # workers replaced since the last batch came back
        self._spans: list[Span] = []  # that wait for a report to travel with
        self._next_watch = 0.0
        self._next_look = 0.0

    @property
    def _alone(self) -> bool:
        """Whether a control request has the fleet to itself, or will next: a race, or builds
        on the very cores that measure."""
        control = self._controls.first
        return control is not None and (
            self._pipeline.alternates or isinstance(control.what, RunRace)
        )

    @property
    def _at_rest(self) -> bool:
        """Whether there are workers and none has anything to do."""
        return self._roster.idle and not self._pipeline.busy

    def run(self) -> None:
        """Until the orchestrator's channel ends."""
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
        """Until a machine of the cluster serves the target, however long that takes;
        false where the orchestrator ends before.

        Raises RuntimeError where those that serve it have no lane that is long enough:
        others would wait behind this for ever.
        """
        patient_until, announced = time.monotonic() + READY_TIMEOUT_S, False
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
        """Workers answer once; from then on messages cost no start-up."""
        deadline = time.monotonic() + READY_TIMEOUT_S
        descriptions = self._roster.describe(deadline)
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
            # From here on nothing of ours but candidates and borrowers' compilers runs on
            # a lane, and these by turns.
            compilers = {
                int(description["compiler_pid"])
                for description in descriptions
                if description["name"] in self._roster.borrowers
            }
            confine_family(self._plan.builder_cores, besides=compilers)
        text = f"{len(self._roster.builders)} builders, {len(self._roster.runners)} lanes"
        self._send(FleetReady(message=text, workers=descriptions))

    def _watch(self) -> None:
        """Now and then, whether the node lives. Without it no call ever ends, and
        shutting down Ray does not either."""
        if time.monotonic() < self._next_watch:
            return
        self._next_watch = time.monotonic() + cluster.WATCH_S
        if not self._alive():
            print("this machine's Ray node is gone", file=sys.stderr, flush=True)
            os._exit(1)

    def _look(self) -> None:
        """Now and then, which hosts of the cluster have come and gone; what a lost one
        held is tried again elsewhere."""
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
        if seen.gone or seen.joined:
            workers: tuple[Mapping[str, int | str], ...] = tuple(
                {"name": worker.name, "builds": int(worker.builds)} for worker in self._roster
            )
            message = f"{len(workers)} builders and lanes"
            self._send(WorkersPresent(message=message, workers=workers))

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
        with suppress(
            BrokenPipeError, ConnectionResetError
        ):  # the listener sees the end as well and stops the loop
            self._channel.send(message)

    def _next_event(self) -> MessageReceived | CallReturned | None:
        """The next thing that happened; None when a worker's time is up first."""
        due = [worker.deadlines[0] for worker in self._roster if worker.deadlines]
        due += [self._next_watch] if self._hosts is None else [self._next_watch, self._next_look]
        if self._calibration.next_s is not None and not self._alone:
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
        """Hands out all work there is room for. A race waits for an idle fleet, and
        nothing builds while it is on; to build for a control request, a builder is kept free
        as soon as it has built what it holds."""
        control = self._controls.first
        self._pipeline.paused = self._alone
        self._pipeline.reserve(
            needed=control is not None and isinstance(control.what, BuildFinalists)
        )
        # Measurements go first: a lane must not wait, a builder can.
        while measurement := self._pipeline.next_measurement():
            runner, problem, measure_requests = measurement
            self._calls.work(self._roster[runner], "measure", problem, measure_requests)
        while build := self._pipeline.next_build():
            builder, problem, build_requests = build
            self._calls.work(self._roster[builder], "build", problem, build_requests)
        if control is None or (self._alone and not self._at_rest):
            return
        match control.what:
            case BuildFinalists():
                self._build_contestants(control)
            case RunRace() if not any(worker.control for worker in self._roster):
                self._calls.work(
                    self._racing_lane,
                    "race",
                    control.problem.key,
                    [control.what],
                    control=control,
                    limit_s=control.what.limit_s,
                )

    def _build_contestants(self, control: ControlRequest) -> None:
        """Gives each builder one after the other where the fleet was at rest when it
        began with them, else the one kept free."""
        problem = control.problem.key
        if self._at_rest and self._building_for != control.number:
            self._building_for = control.number
            if self._racing_lane.prepares:
                # While the contestants are built, the lane makes what it verifies by.
                self._calls.foresee_race(self._racing_lane, problem)
        everybody = self._building_for == control.number
        names = self._roster.builders if everybody else [self._pipeline.reserved]
        for name in names:
            if (
                name
                and not self._roster[name].deadlines
                and (request := self._controls.next_build())
            ):
                self._calls.work(self._roster[name], "build", problem, [request], control=control)

    @property
    def _racing_lane(self) -> Worker:
        """One in its band, if there is one."""
        return self._roster[min(self._roster.runners, key=self._calibration.drained)]

    def _calibrate(self) -> None:
        """Asks the lanes whose time it is; the answer comes between two of a lane's
        batches, never within a race."""
        for lane in [] if self._alone else self._calibration.due():
            self._calls.calibrate(self._roster[lane])

    def _prepare_lanes(self) -> None:
        """Has lanes make ready what they will be given, while they measure something
        else; one workload at a time each."""
        if not self._lanes_due or self._alone:
            return
        self._lanes_due = False
        for name, problem in self._pipeline.unprepared():
            worker = self._roster[name]
            # Before anything else a lane's band is learned.
            if worker.up and not (worker.preparing or worker.calibrating):
                self._calls.prepare(worker, problem)

    def _on_return(self, event: CallReturned) -> None:
        worker = self._roster.get(event.worker)
        if worker is None or event.generation != worker.generation:
            return  # of an actor that has been given up since
        error = event.future.exception()
        if error is not None:
            self._lose(worker, f"{type(error).__name__}: {error}", event.control)
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
        self._silent, worker.control = 0, None
        if event.control is not None:
            others = any(other.control is event.control for other in self._roster)
            held = (
                ()
                if worker.builds
                else (self._pipeline.raced(worker.name, worker.control_since_s, time.time()),)
            )
            self._controls.part(event.control, results, last=not others, spans=held)
        elif worker.builds:
            self._pipeline.built(event.worker, results)
        else:
            self._pipeline.measured(event.worker, results)

    def _described_later(self, worker: Worker, said: Mapping[str, int | str]) -> None:
        """A worker of a machine that joined, or in the place of one that was lost."""
        self._lanes_due = True
        if "refused" not in said:
            return
        if self._hosts is None:
            raise RuntimeError(str(said["refused"]))  # no lane could take its place
        self._send(WorkerRefused(message=f"{worker.name}: {said['refused']}"))
        self._retire(worker, str(said["refused"]))

    def _calibrated(self, worker: Worker, seconds: Sequence[float]) -> None:
        worker.calibrating, self._lanes_due = False, True
        drift = self._calibration.note(worker.name, seconds)
        if drift is not None:
            self._send(drift)

    def _lose(self, worker: Worker, reason: str, control: ControlRequest | None) -> None:
        self._silent += 1
        if self._silent > MAX_SILENT_REPLACEMENTS:
            raise RuntimeError(
                f"{self._silent} workers were lost in a row, the last one with: {reason}"
            )
        started = worker.up
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
                self._lose(worker, "gave no answer in time", worker.control)

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
        """Asks the workers to stop their children, for a bounded time; what is left
        dies with Ray."""
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
    session.remove_session(
        Path(directory)
    )  # after a failure the orchestrator wants the log, and removes the rest
    if plan.address is None:
        os._exit(0)  # Ray would take leave of what is gone


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], ActorFactory())
