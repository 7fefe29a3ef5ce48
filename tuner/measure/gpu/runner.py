"""The driver's side of a GPU lane.

One process holds the workload and, through a child of its own, the device. The job goes
on whatever a candidate does: a sticky error of CUDA ends only the process in which it
happened.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tuner.errors import TunerError
from tuner.measure.assignment import Lane, Request, request_to_document
from tuner.measure.foreign.examination import Contestant
from tuner.measure.gpu.parent import PROBE_S, START_S
from tuner.measure.gpu.probing import ProbingTask, task_to_document
from tuner.measure.outcome import Conditions, Failed, FailureKind, Outcome, Timed
from tuner.measure.runner import parent_environment
from tuner.measure.wire import Document, WireError, receive, send
from tuner.runtime.cuda_driver import VISIBLE
from tuner.workload.spec import to_document
from tuner.workload.workload import Workload

PREPARE_S = 600.0  # of inputs and the float64 reference of a large workload
MARGIN_S = 10.0  # killing and reaping a process whose kernel the driver must stop first
# Variables of the environment that say which devices a process may use.
DEVICES = (VISIBLE, "CUDA_DEVICE_ORDER")


class GpuRunnerError(TunerError):
    """The runner cannot work: no driver, no device, or it does not start."""

    code = "gpu_runner"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLane:
    """A GPU as a lane."""

    ordinal: int = 0  # of the device among those this process may use
    called: str = ""  # in a cluster, where each machine has a first GPU; of a slice
    visible: str = ""  # the only device that its processes may use; empty: those of this one

    @property
    def name(self) -> str:
        return self.called or f"gpu:{self.ordinal}"


def gpu_lane(lane: Lane) -> GpuLane:
    """The GPU of a fleet's lane."""
    return GpuLane(ordinal=lane.gpu or 0, called=lane.name, visible=lane.visible)


def device_environment(lane: GpuLane) -> dict[str, str]:
    """The environment of a process that is to use the lane's device."""
    devices = {name: os.environ[name] for name in DEVICES if name in os.environ}
    if lane.visible:
        devices[VISIBLE] = lane.visible
    return {**parent_environment(os.environ), **devices}


class GpuRunner:
    """One device's runner. Not thread-safe; close it, or use it as a context."""

    def __init__(self, lane: GpuLane | None = None) -> None:
        self.lane = lane or GpuLane()
        self.facts: Mapping[str, int | str] = {}  # of the device, once started
        self._process: subprocess.Popen[bytes] | None = None
        self._prepared: Document | None = None
        self._promotion = False  # whether the inputs of a promotion are made

    def __enter__(self) -> GpuRunner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process where none runs. Raises GpuRunnerError with the reason."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tuner.measure.gpu.parent", str(self.lane.ordinal)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=device_environment(self.lane),
        )
        try:
            answer = self._exchange({"do": "describe"}, START_S + MARGIN_S)
        except WireError as error:
            self.close()
            raise GpuRunnerError(
                f"the runner of {self.lane.name} did not start: {error}"
            ) from error
        if "facts" not in answer:
            self.close()
            raise GpuRunnerError(
                f"{self.lane.name} cannot be used: {answer.get('refused', answer)}"
            )
        self.facts = answer["facts"]

    def probe(self, task: ProbingTask) -> Document:
        """What kernels that measure limits took: the answer of `Probing.run`.

        Raises GpuRunnerError where they do not run.
        """
        self.start()
        try:
            answer = self._exchange(
                {"do": "probe", "task": task_to_document(task)}, START_S + PROBE_S + MARGIN_S
            )
        except WireError as error:
            self.close()
            raise GpuRunnerError(f"the runner of {self.lane.name} was lost: {error}") from error
        if "failed" in answer:
            raise GpuRunnerError(f"{self.lane.name}: {answer['failed']['message']}")
        probed: Document = answer["probed"]
        return probed

    def prepare(self, workload: Workload, seed: int = 0) -> None:
        """Set the workload of all following requests. Raises GpuRunnerError."""
        self._prepared = {"do": "prepare", "workload": to_document(workload), "seed": seed}
        self._prepare()

    def _prepare(self) -> None:
        if self._prepared is None:
            raise GpuRunnerError(f"{self.lane.name} has no workload; prepare one first")
        self.start()
        self._promotion = False
        try:
            answer = self._exchange(self._prepared, PREPARE_S)
        except WireError as error:
            self.close()
            raise GpuRunnerError(
                f"{self.lane.name} could not make the workload's inputs: {error}"
            ) from error
        if "failed" in answer:
            raise GpuRunnerError(
                f"{self.lane.name} could not make the workload's inputs: "
                f"{answer['failed']['message']}"
            )

    def measure(self, request: Request, *, fresh: bool = False) -> Outcome:
        """Check and time one library; with `fresh`, in a new process and device context.

        Failures are outcomes. Raises GpuRunnerError where no process can be had at all.
        """
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._prepare()
        extra_s = 0.0 if request.verification != "promotion" or self._promotion else PREPARE_S
        limit_s = START_S + extra_s + request.timeout_s + MARGIN_S
        message = {"do": "measure", "request": request_to_document(request), "fresh": fresh}
        try:
            answer = self._exchange(message, limit_s)
        except WireError as error:
            self.close()
            return Failed(
                kind=FailureKind.INFRASTRUCTURE,
                message=f"the runner was lost while measuring {request.name}: {error}",
            )
        self._promotion = self._promotion or request.verification == "promotion"
        return self._outcome(request, answer)

    def examine(
        self, contestant: Contestant, *, timed: bool, timeout_s: float
    ) -> Document | Failed:
        """What a contestant of an examination shows in a new process: `Session.examine`.

        It is timed, else checked. Raises GpuRunnerError where no process can be had at all.
        """
        self.start()
        message = {
            "do": "examine",
            "contestant": asdict(contestant),
            "timed": timed,
            "timeout_s": timeout_s,
        }
        try:
            answer = self._exchange(message, START_S + PREPARE_S + timeout_s + MARGIN_S)
        except WireError as error:
            self.close()
            raise GpuRunnerError(
                f"the runner of {self.lane.name} was lost under a foreign kernel: {error}"
            ) from error
        if "failed" in answer:
            failure = answer["failed"]
            return Failed(kind=FailureKind(failure["kind"]), message=str(failure["message"]))
        return answer

    def _outcome(self, request: Request, answer: Document) -> Outcome:
        if "failed" in answer:
            return Failed(
                kind=FailureKind(answer["failed"]["kind"]), message=str(answer["failed"]["message"])
            )
        timed = answer["timed"]
        assert request.library is not None
        return Timed(
            samples_s=tuple(float(sample) for sample in timed["samples_s"]),
            max_rel_error=float(timed["max_rel_error"]),
            conditions=Conditions(
                lane=self.lane.name,
                isolation="process",
                cache=request.plan.cache,
                abandoned=bool(timed["abandoned"]),
                **_clocks(timed["clocks"]),
            ),
            artifact=hashlib.sha256(Path(request.library).read_bytes()).hexdigest(),
        )

    def close(self) -> None:
        """End the process, and with it all that is on the device. Idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()  # its child dies with it
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _exchange(self, message: Document, timeout_s: float) -> Document:
        assert (
            self._process is not None
            and self._process.stdin is not None
            and self._process.stdout is not None
        )
        send(self._process.stdin.fileno(), message)
        answer = receive(self._process.stdout.fileno(), timeout_s=timeout_s)
        if answer is None:
            raise WireError(f"it ended with status {self._process.wait(timeout=MARGIN_S)}")
        return answer


def _clocks(clocks: Document) -> Mapping[str, Any]:
    """Fields of the conditions from `SampledClocks` as JSON."""
    each = tuple(float(clock) for clock in clocks["sm_hz"])
    return {
        "frequency_hz": median(each) if each else None,
        "sample_frequencies_hz": each if len(set(each)) > 1 else (),
        "memory_frequency_hz": clocks["memory_hz"],
        "throttled": tuple(map(str, clocks["reasons"])),
        "discarded": int(clocks["discarded"]),
    }


class FreshProcesses:
    """A GPU's runner for a race: each measurement in a new process and context."""

    def __init__(self, runner: GpuRunner) -> None:
        self._runner = runner

    def measure(self, request: Request) -> Outcome:
        return self._runner.measure(request, fresh=True)
