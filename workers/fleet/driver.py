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
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Literal

import ray
from ray.exceptions import RayActorError, RayError

from tuner.workers.fleet import cluster, session
from tuner.workers.fleet.actors import ActorFactory, Worker, borrowed_builders, preparing
from tuner.workers.fleet.affinity import confine_family
from tuner.workers.fleet.calibration import Calibrator
from tuner.workers.fleet.channel import parent_channel
from tuner.workers.fleet.control_requests import ControlRequests
from tuner.workers.fleet.hosts import Hosts, described
from tuner.workers.fleet.messages import (
    Abandon,
    BuildFinalists,
    Calibrated,
    ControlReply,
    ControlRequest,
    Finished,
    FleetPlan,
    Problem,
    RunRace,
    Span,
    Submit,
)
from tuner.workers.fleet.notices import (
    FleetReady,
    FleetRefused,
    HostsPresent,
    LaneDrift,
    Notice,
    WaitingForHosts,
    WorkerLost,
    WorkerRefused,
    WorkersPresent,
)
from tuner.workers.fleet.pipeline import Pipeline

Message = Submit | Abandon | ControlRequest
# workers replaced in a row without a single batch coming back: then it is the machine
# that fails
MAX_SILENT_REPLACEMENTS = 12
CLOSE_TIMEOUT_S = 2.0
LOOK_S = 2.0  # between two looks at which hosts of a cluster there are
START_ATTEMPTS = 3  # for a worker that dies before it has answered once
READY_TIMEOUT_S = 110.0  # for the first answer of every worker; a second or two on an idle machine
SPANS_KEPT = 64  # spans wait for a report to travel with, but not more of them


@dataclass(frozen=True, slots=True)
class MessageReceived:
    """A message of the orchestrator, or None when the channel has ended."""

    message: Message | None


@dataclass(frozen=True, slots=True)
class CallReturned:
    """An actor's call ended."""

    worker: str
    generation: int
    future: Future[Any]
    control: (
        ControlRequest | None
    )  # answered by this call; None: a batch of the pipeline, or what `about` says
    about: Literal["work", "calibration", "description", "preparation", "foresight"] = "work"
    problem: str = ""  # that a lane was prepared for


class Driver:
    def __init__(
        self, plan: FleetPlan, channel: Connection, actors: ActorFactory, alive: Callable[[], bool]
    ) -> None:
        """`alive` tells whether this machine's node is."""
        self._plan, self._channel, self._actors, self._alive = plan, channel, actors, alive
        self._next_watch = 0.0
        self._events: queue.SimpleQueue[MessageReceived | CallReturned] = queue.SimpleQueue()
        self._problems: dict[str, Problem] = {}
        self._controls = ControlRequests(self._send)
        self._shares = 0  # number of the control request whose builds all builders share
        self._silent = 0
        self._spans: list[Span] = []
        self._calibrator = Calibrator()
        self._calibrations: list[Calibrated] = []
        self._hosts = None if plan.address is None else Hosts(plan)
        self._next_look = 0.0
        self._due: dict[
            str, None
            # lanes whose calibration is to be timed as soon as their borrowers are out of
            # the way
        ] = {}
        self._lanes_due = False  # lanes may have to be prepared for a problem
        local = [] if self._hosts is not None else actors.make(plan, plan.limits)
        self._workers = {worker.name: worker for worker in local}
        self._borrowers = borrowed_builders(plan, local)
        self._pipeline = Pipeline(
            builders=self._builders,
            runners=self._runners,
            alternates=plan.alternates and bool(local),
            policy=plan.policy,
            lane_share=plan.lane_share,
            places={worker.name: worker.place for worker in local},
            prepares=preparing(local),
            borrowers=self._borrowers,
        )

    @property
    def _builders(self) -> list[str]:
        return [name for name, worker in self._workers.items() if worker.builds]

    @property
    def _runners(self) -> list[str]:
        return [name for name, worker in self._workers.items() if not worker.builds]

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
        waiting = any(worker.deadlines or worker.preparing for worker in self._workers.values())
        return bool(self._builders and self._runners) and not waiting and not self._pipeline.busy

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
        patient_until, told = time.monotonic() + READY_TIMEOUT_S, False
        while self._hosts is not None:
            self._watch()
            self._look()
            if self._workers:
                break
            if self._hosts.narrow and time.monotonic() > patient_until:
                names, threads = ", ".join(self._hosts.narrow), self._plan.threads
                raise RuntimeError(
                    f"a kernel of {threads} threads needs a lane of {threads} cores; {names} "
                    f"have none so long"
                )
            if not told:
                told = True
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
        descriptions = self._described(deadline)
        if self._hosts is None and (
            refusals := [str(one["refused"]) for one in descriptions if "refused" in one]
        ):
            self._send(FleetRefused(message=refusals[0]))
            raise RuntimeError(refusals[0])
        for worker in self._workers.values():
            worker.up = True
        for lane in self._runners:
            self._calibrator.add(lane, time.time())
        if self._hosts is None:
            # From here on nothing of ours but candidates and borrowers' compilers runs on
            # a lane, and these by turns.
            compilers = {
                int(one["compiler_pid"]) for one in descriptions if one["name"] in self._borrowers
            }
            confine_family(self._plan.builder_cores, besides=compilers)
        text = f"{len(self._builders)} builders, {len(self._runners)} lanes"
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

    def _described(self, deadline: float) -> tuple[dict[str, int | str], ...]:
        """What each worker says of itself. One that dies before it can is replaced, a few times."""
        found: dict[str, dict[str, int | str]] = {}
        for left in reversed(range(START_ATTEMPTS)):
            asked = {
                name: one.handle.describe.remote()
                for name, one in self._workers.items()
                if name not in found
            }
            for name, reference in asked.items():
                try:
                    found[name] = ray.get(reference, timeout=max(1.0, deadline - time.monotonic()))
                except RayActorError:
                    if not left:
                        raise
                    self._workers[name].replace()
        return tuple(found.values())

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
            for worker in [one for one in self._workers.values() if one.host == name]:
                self._retire(worker)
            self._send(WorkerLost(message=f"worker {name} is gone"))
        for host in seen.joined:
            made = self._actors.make(
                host, self._plan.limits, host=host.name, threads=self._plan.threads
            )
            self._workers |= {worker.name: worker for worker in made}
            builders, runners = (
                [one.name for one in made if one.builds],
                [one.name for one in made if not one.builds],
            )
            places = {worker.name: worker.place for worker in made}
            for lane in runners:
                self._calibrator.add(lane, time.time())
                self._inquire(lane, "describe", "description")
            self._pipeline.add(
                builders=builders,
                runners=runners,
                alternates=host.alternates,
                places=places,
                prepares=preparing(made),
            )
        if seen.gone or seen.joined:
            names: tuple[Mapping[str, int | str], ...] = tuple(
                {"name": name, "builds": int(worker.builds)}
                for name, worker in self._workers.items()
            )
            self._send(WorkersPresent(message=f"{len(names)} builders and lanes", workers=names))

    def _retire(self, worker: Worker, reason: str = "its machine is gone") -> None:
        del self._workers[worker.name]
        if worker.control is not None:
            self._controls.refuse(worker.control, f"{worker.name}: {reason}")
        self._calibrator.remove(worker.name)
        self._due.pop(worker.name, None)
        self._pipeline.retire(worker.name, reason)
        worker.end()

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
        due = [worker.deadlines[0] for worker in self._workers.values() if worker.deadlines]
        due += [self._next_watch] if self._hosts is None else [self._next_watch, self._next_look]
        if self._calibrator.next_s is not None and not self._alone:
            due.append(time.monotonic() + self._calibrator.next_s - time.time())
        try:
            return self._events.get(timeout=max(0.0, min(due) - time.monotonic()))
        except queue.Empty:
            return None

    def _take(self, message: Message) -> None:
        match message:
            case Submit(problem=problem, candidates=candidates, known=known, job_share=job_share):
                self._problems[problem.key], self._lanes_due = problem, True
                self._pipeline.submit(problem.key, candidates, known, job_share)
            case Abandon(job=job, leaves=leaves):
                self._pipeline.abandon(job, leaves=leaves)
            case ControlRequest():
                self._problems[message.problem.key] = message.problem
                self._controls.add(message)

    def _dispatch(self) -> None:
        """Hands out all work there is room for. A race waits for an idle fleet, and
        nothing builds while it is on; to build for a control request, a builder is kept free
        as soon as it has built what it holds."""
        control = self._controls.first
        self._pipeline.paused = self._alone
        self._pipeline.reserve(
            wanted=control is not None and isinstance(control.what, BuildFinalists)
        )
        while (
            measurement := self._pipeline.next_measurement()
        ):  # first: a lane may be waiting, a builder can
            worker, problem, wanted = measurement
            self._call(worker, "measure", problem, wanted)
        while build := self._pipeline.next_build():
            worker, problem, requests = build
            self._call(worker, "build", problem, requests)
        if control is None or (self._alone and not self._at_rest):
            return
        match control.what:
            case BuildFinalists():
                self._build_contestants(control)
            case RunRace() if not any(worker.control for worker in self._workers.values()):
                self._call(
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
        if self._at_rest and self._shares != control.number:
            self._shares = control.number
            self._foresee_race(control.problem.key)
        names = self._builders if self._shares == control.number else [self._pipeline.reserved]
        for name in names:
            if (
                name
                and not self._workers[name].deadlines
                and (request := self._controls.next_build())
            ):
                self._call(name, "build", control.problem.key, [request], control=control)

    @property
    def _racing_lane(self) -> str:
        """One in its band, if there is one."""
        return min(self._runners, key=self._calibrator.drained)

    def _foresee_race(self, problem: str) -> None:
        """Has the lane of the race that will follow make what it verifies by, while the
        contestants are built."""
        worker = self._workers[self._racing_lane]
        if worker.prepares:
            self._load(worker, problem)
            worker.deadlines.append(time.monotonic() + worker.limit_s(1, first=True))
            future = worker.handle.foresee_race.remote(problem).future()
            self._await(CallReturned(worker.name, worker.generation, future, None, "foresight"))

    def _calibrate(self) -> None:
        """Asks the lanes whose turn it is; the answer comes between two of a lane's
        batches, never within a race."""
        if self._alone:
            return
        self._due |= dict.fromkeys(self._calibrator.due(time.time()))
        for name in [
            one for one in self._due if self._pipeline.vacated(one)
        ]:  # the others' borrowers build what they hold first
            del self._due[name]
            self._inquire(name, "calibrate", "calibration")

    def _prepare_lanes(self) -> None:
        """Has lanes make ready what they will be given, while they measure something
        else; one workload at a time each."""
        if not self._lanes_due or self._alone:
            return
        self._lanes_due = False
        for name, key in self._pipeline.unprepared():
            worker = self._workers[name]
            if worker.up and not (
                worker.preparing or worker.calibrating
            ):  # first of all its band is learned
                future = worker.prepare(self._problems[key])
                self._await(CallReturned(name, worker.generation, future, None, "preparation", key))

    def _inquire(
        self, name: str, method: str, about: Literal["calibration", "description"]
    ) -> None:
        worker = self._workers[name]
        worker.calibrating = about == "calibration"
        future: Future[Any] = getattr(worker.handle, method).remote().future()
        worker.deadlines.append(time.monotonic() + worker.limit_s(1, first=about == "description"))
        self._await(CallReturned(name, worker.generation, future, None, about))

    def _call(
        self,
        name: str,
        method: str,
        problem: str,
        requests: Sequence[object],
        *,
        control: ControlRequest | None = None,
        limit_s: float = 0.0,
    ) -> None:
        worker = self._workers[name]
        worker.control, worker.control_since_s = control, time.time()
        first = self._load(worker, problem)
        future: Future[Any] = getattr(worker.handle, method).remote(problem, requests).future()
        worker.deadlines.append(
            time.monotonic() + worker.limit_s(len(requests), first=first) + limit_s
        )
        self._await(CallReturned(name, worker.generation, future, control))

    def _load(self, worker: Worker, problem: str) -> bool:
        """Tells a worker of a problem; whether it is new to it."""
        if problem in worker.loaded:
            return False
        worker.handle.load.remote(self._problems[problem])
        worker.loaded.add(problem)
        return True

    def _await(self, call: CallReturned) -> None:
        call.future.add_done_callback(lambda done: self._events.put(call))

    def _on_return(self, event: CallReturned) -> None:
        worker = self._workers.get(event.worker)
        if worker is None or event.generation != worker.generation:
            return  # of an actor that has been given up since
        error = event.future.exception()
        if error is not None:
            self._lose(worker, f"{type(error).__name__}: {error}", event.control)
            return
        worker.up = True
        if event.about == "preparation":
            worker.preparing, self._lanes_due = False, True
            self._pipeline.prepared(worker.name, event.problem)
            return
        worker.deadlines.pop(0)
        if worker.deadlines:  # the next call starts now
            worker.deadlines[0] = max(
                worker.deadlines[0], time.monotonic() + worker.limit_s(1, first=False)
            )
        if event.about == "foresight":
            return
        results = event.future.result()
        if event.about == "calibration":
            self._calibrated(worker, results)
            return
        if event.about == "description":
            self._described_later(worker, results)
            return
        self._silent, worker.control = 0, None
        if event.control is not None:
            others = any(other.control is event.control for other in self._workers.values())
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
        self._pipeline.shared(worker.name)
        before = self._calibrator.drained(worker.name)
        found = self._calibrator.note(worker.name, seconds, time.time()) if seconds else None
        if found is None:
            return
        self._calibrations.append(found)
        if found.drained is not before:
            self._pipeline.drain(worker.name, drained=found.drained)
            ratio = (
                f"its calibration kernel takes {found.median_s / found.expected_s:.2f} "
                f"times what it should"
            )
            said = (
                f"lane {worker.name} is drained: {ratio}"
                if found.drained
                else f"lane {worker.name} measures again"
            )
            self._send(LaneDrift(message=said))

    def _lose(self, worker: Worker, reason: str, control: ControlRequest | None) -> None:
        self._silent += 1
        if self._silent > MAX_SILENT_REPLACEMENTS:
            raise RuntimeError(
                f"{self._silent} workers were lost in a row, the last one with: {reason}"
            )
        started = worker.up
        worker.replace()
        self._inquire(worker.name, "describe", "description")
        if control is not None:
            self._controls.refuse(control, reason)
        self._pipeline.lost(worker.name, reason, started=started)
        self._send(WorkerLost(message=f"{worker.name}: {reason}"))

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for worker in self._workers.values():
            if worker.deadlines and worker.deadlines[0] <= now:
                self._lose(worker, "gave no answer in time", worker.control)

    def _flush(self) -> None:
        for library in self._pipeline.spent():
            Path(library.path).unlink(missing_ok=True)
        reports, spans = self._pipeline.collect()
        self._spans += spans
        if reports or self._calibrations or len(self._spans) >= SPANS_KEPT:
            finished = Finished(
                reports=tuple(reports),
                spans=tuple(self._spans),
                calibrations=tuple(self._calibrations),
            )
            self._send(finished)
            self._spans, self._calibrations = [], []

    def close(self) -> None:
        """Asks the workers to stop their children, for a bounded time; what is left
        dies with Ray."""
        refs = [worker.handle.close.remote() for worker in self._workers.values()]
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
