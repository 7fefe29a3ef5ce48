"""A lane that is a GPU: one process that owns the device, replaced when a candidate breaks, hangs or outlives it.

The job goes on: a sticky error of CUDA ends the process in which it happened and nothing else.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tuner.errors import TunerError
from tuner.measure.gpu_messages import GpuRequest, gpu_request_to_document
from tuner.measure.outcome import Conditions, Failed, FailureKind, Outcome, Timed
from tuner.measure.wire import Document, WireError, receive, send
from tuner.workload.spec import to_document
from tuner.workload.workload import Workload

START_S = 120.0  # of the process and its context; a cold driver takes many seconds
PREPARE_S = 600.0  # of inputs and the float64 reference of a large workload
CANDIDATES = 200  # measured by one process: loaded libraries and modules stay until its end


class GpuRunnerError(TunerError):
    """The runner cannot work at all: no driver, no device, or it does not start."""

    code = "gpu_runner"


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuLane:
    ordinal: int = 0  # of the device among those this process may use

    @property
    def name(self) -> str:
        return f"gpu:{self.ordinal}"


class GpuRunner:
    """One device's runner. Not thread-safe; close it, or use it as a context."""

    def __init__(self, lane: GpuLane | None = None) -> None:
        self.lane = lane or GpuLane()
        self.facts: Mapping[str, int | str] = {}  # of the device, once started
        self._process: subprocess.Popen[bytes] | None = None
        self._prepared: Document | None = None
        self._measured = 0

    def __enter__(self) -> GpuRunner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> None:
        """Starts the process where none runs. Raises GpuRunnerError with the reason."""
        if self._process is not None and self._process.poll() is None:
            return
        self.close()
        command = [sys.executable, "-P", "-m", "tuner.measure.gpu_child", str(self.lane.ordinal)]
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, bufsize=0, cwd="/", env=environment)
        self._measured = 0
        try:
            answer = self._receive(START_S)
        except WireError as error:
            self.close()
            raise GpuRunnerError(f"the runner of {self.lane.name} did not start: {error}") from error
        if "refused" in answer:
            self.close()
            raise GpuRunnerError(f"{self.lane.name} cannot be used: {answer['refused']}")
        self.facts = answer["facts"]

    def prepare(self, workload: Workload, seed: int = 0) -> None:
        """The workload of all following requests. Raises GpuRunnerError."""
        self._prepared = {"do": "prepare", "workload": to_document(workload), "seed": seed}
        self._prepare()

    def _prepare(self) -> None:
        if self._prepared is None:
            raise GpuRunnerError(f"{self.lane.name} has no workload; prepare one first")
        self.start()
        try:
            answer = self._exchange(self._prepared, PREPARE_S)
        except WireError as error:
            self.close()
            raise GpuRunnerError(f"{self.lane.name} could not make the workload's inputs: {error}") from error
        if "failed" in answer:
            raise GpuRunnerError(f"{self.lane.name} could not make the workload's inputs: {answer['failed']['message']}")

    def measure(self, request: GpuRequest) -> Outcome:
        """Checks and times one library. Failures are outcomes; raises GpuRunnerError where no process can be had at all."""
        if self._process is None or self._process.poll() is not None or self._measured >= CANDIDATES:
            self.close()
            self._prepare()
        self._measured += 1
        stage = "nothing"
        message = {"do": "measure", "request": gpu_request_to_document(request)}
        assert self._process is not None and self._process.stdin is not None
        try:
            send(self._process.stdin.fileno(), message)
            while "stage" in (answer := self._receive(request.timeout_s)):
                stage = str(answer["stage"])
        except WireError as error:
            return self._lost(request, stage, error)
        if answer.get("ended"):
            self.close()
        return self._outcome(request, answer, stage)

    def _lost(self, request: GpuRequest, stage: str, error: WireError) -> Failed:
        """The process hung or died under the candidate; the next request starts another one."""
        process = self._process
        status = None if process is None else process.poll()
        self.close()
        if status is None:
            message = f"no answer within {request.timeout_s:g} s while {stage}: {error}"
            return Failed(kind=FailureKind.RUN_TIMEOUT, message=message)
        return Failed(kind=FailureKind.RUN_CRASH, message=f"the process ended with status {status} while {stage}")

    def _outcome(self, request: GpuRequest, answer: Document, stage: str) -> Outcome:
        if "failed" in answer:
            found = answer["failed"]
            return Failed(kind=FailureKind(found["kind"]), message=f"{found['message']} (while {stage})")
        timed = answer["timed"]
        conditions = Conditions(
            lane=self.lane.name,
            isolation="process",
            cache=request.plan.cache,
            frequency_hz=timed["frequency_hz"],
            abandoned=bool(timed["abandoned"]),
        )
        return Timed(
            samples_s=tuple(float(one) for one in timed["samples_s"]),
            max_rel_error=float(timed["max_rel_error"]),
            conditions=conditions,
            artifact=hashlib.sha256(Path(request.library).read_bytes()).hexdigest(),
        )

    def close(self) -> None:
        """Ends the process and with it all that is on the device; idempotent."""
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                stream.close()

    def _exchange(self, message: Document, timeout_s: float) -> Document:
        assert self._process is not None and self._process.stdin is not None
        send(self._process.stdin.fileno(), message)
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> Document:
        assert self._process is not None and self._process.stdout is not None
        answer = receive(self._process.stdout.fileno(), timeout_s=timeout_s)
        if answer is None:
            self._process.wait(timeout=10)
            raise WireError("the process ended")
        return answer
