"""The driver's side of a runner process.

It starts the process, gives it work, and gets an answer in time or replaces it.
Whatever happens over there becomes an outcome here. Only a runner that died or fell
silent is `infrastructure`.
"""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tuner.errors import TunerError, UsageError
from tuner.measure.assignment import (
    Assignment,
    Placement,
    Request,
    assignment_to_document,
    outcome_from_document,
    placement_to_document,
    request_to_document,
)
from tuner.measure.core_turns import CoreTurns
from tuner.measure.execution import Execution
from tuner.measure.foreign.guest import Invitation, invitation_to_document
from tuner.measure.outcome import Failed, FailureKind, Outcome
from tuner.measure.sandbox.process_limit import end_group
from tuner.measure.wire import Document, WireError, receive, send
from tuner.runtime.hidden_features import HIDDEN_FEATURES

ANSWER_MARGIN_S = 1.0  # beyond the child's timeout: killing, reaping, answering
# Variables of the environment that runners get; never tokens or URLs.
_PASSED_ON = ("PATH", "LANG", "LC_ALL", "TMPDIR", "LD_LIBRARY_PATH", "PYTHONHOME")


class RunnerError(TunerError):
    """The runner process cannot be started, or cannot prepare its workload."""

    code = "runner"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunnerOptions:
    """Time limits of a runner process, and when it is replaced."""

    start_timeout_s: float = 60.0  # importing NumPy on a busy machine
    prepare_timeout_s: float = 300.0  # inputs and float64 reference of the workload, once
    arrays_timeout_s: float = 30.0  # reading a caller's arrays, writing the outputs
    measures: int = 5000  # after which the process is replaced, its workload prepared again
    # Or once it holds so much more memory than when its workload was prepared.
    growth_bytes: int = 256 << 20
    python: str = sys.executable
    cpu_without: tuple[str, ...] = ()  # CPU features that libraries must treat as missing


class RunnerProcess:
    """One runner process on one lane. Not thread-safe; close it."""

    def __init__(self, options: RunnerOptions | None = None) -> None:
        self._options = options or RunnerOptions()
        self._process: subprocess.Popen[bytes] | None = None
        self._assignment: Assignment | None = None
        self._prepared_promotion = False
        self._isolation: str | None = None
        self._measured = 0  # since it was prepared
        self._prepared_bytes = 0  # that it held then
        self._turns = CoreTurns()
        self.waited_s = 0.0  # in all, for the lane's cores while other runs of tuner had them

    @property
    def isolation(self) -> str | None:
        """The level in force, as it is recorded with trials; None before `prepare`."""
        return self._isolation

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    @property
    def resident_bytes(self) -> int:
        """Memory of the process; 0 where none runs."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text(encoding="ascii").split()[1])
        except (OSError, IndexError):
            return 0
        return pages * resource.getpagesize()

    def start(self) -> None:
        """Start the process where none runs. Raises RunnerError."""
        if self._process is not None and self._process.poll() is None:
            return
        self._discard()
        self._process = subprocess.Popen(
            [self._options.python, "-P", "-m", "tuner.measure.parent"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env=parent_environment(os.environ)
            | {HIDDEN_FEATURES: ",".join(self._options.cpu_without)},
            start_new_session=True,
        )
        try:
            self._receive(self._options.start_timeout_s)
        except WireError as error:
            self._discard()
            raise RunnerError(f"the runner process did not start: {error}") from error

    def prepare(self, assignment: Assignment, *, cores: Sequence[int] = ()) -> None:
        """Give the workload and lane for all following requests.

        Inputs and reference are made on `cores`, or on the lane's. Raises UsageError
        for an invalid assignment (threads, isolation, workload), RunnerError when the
        runner fails.
        """
        self.start()
        self._assignment, self._prepared_promotion = None, False
        message = {"do": "prepare", **assignment_to_document(assignment), "cores": list(cores)}
        try:
            with self._turns.turn(cores or assignment.lane.cores, alone=False):
                answer = self._exchange(message, self._options.prepare_timeout_s)
        except WireError as error:
            self._discard()
            raise RunnerError(
                f"the runner process failed to prepare {assignment.workload.spec}: {error}"
            ) from error
        if "refused" in answer:
            raise UsageError(str(answer["refused"]))
        if "failed" in answer:
            raise RunnerError(
                f"the runner process failed to prepare {assignment.workload.spec}: "
                f"{answer['failed']['message']}"
            )
        self._assignment, self._isolation = assignment, str(answer.get("isolation", ""))
        self._measured, self._prepared_bytes = 0, self.resident_bytes

    def isolate(self, level: str) -> str:
        """The name of the level as it would be in force here.

        Raises UsageError where it cannot be had, RunnerError when the runner fails.
        """
        return str(self._short({"do": "isolate", "isolation": level}, "isolation"))

    def calibrate(self, cores: Sequence[int]) -> tuple[float, ...]:
        """Seconds of the calibration kernel on each of the cores.

        See tuner.measure.calibration. Raises RunnerError.
        """
        self._revive()
        with self._turns.turn(cores, alone=True):
            seconds = self._short({"do": "calibrate", "cores": list(cores)}, "seconds")
        return tuple(float(each) for each in seconds)

    def measure(self, request: Request) -> Outcome:
        """The outcome, within the request's timeout and a second after the lane is its own.

        A workload's first promotion prepares its reference besides.
        """
        if self._assignment is None:
            raise RunnerError("a runner needs a workload before a candidate; call prepare first")
        try:
            self._recycle()
            self._revive()
            extra_s = self._options.prepare_timeout_s if self._needs_preparation(request) else 0.0
            message = {"do": "measure", "request": request_to_document(request)}
            with self._turns.turn(self._assignment.lane.cores, alone=True) as waited_s:
                self.waited_s += waited_s
                answer = self._exchange(message, request.timeout_s + ANSWER_MARGIN_S + extra_s)
            outcome = outcome_from_document(answer)
        except (WireError, RunnerError, KeyError, TypeError, ValueError) as error:
            self._discard()
            return Failed(
                kind=FailureKind.INFRASTRUCTURE,
                message=f"the runner was lost while measuring {request.name}: {error}",
            )
        self._measured += 1
        if request.verification == "promotion" and not self._prepared_promotion:
            self._promotion_is_prepared()
        return outcome

    def prepare_promotion(self) -> None:
        """Make the inputs and reference of a promotion before they are needed.

        Raises RunnerError.
        """
        if self._assignment is None:
            raise RunnerError("a runner needs a workload before its promotion; call prepare first")
        try:
            self._revive()
            with self._turns.turn(self._assignment.lane.cores, alone=False):
                message = {"do": "prepare promotion"}
                answer = self._exchange(message, self._options.prepare_timeout_s)
        except WireError as error:
            self._discard()
            raise RunnerError(
                f"the runner process was lost while it prepared a promotion: {error}"
            ) from error
        if "failed" in answer:
            raise RunnerError(
                f"the runner process could not prepare a promotion: {answer['failed']['message']}"
            )
        self._promotion_is_prepared()

    def execute(self, placement: Placement, execution: Execution) -> Failed | None:
        """Run a kernel or a model once on a caller's arrays.

        It may take the execution's timeout and what moving its arrays takes. Returns
        the failure, or None when the outputs are written. The assignment of
        measurements ends: prepare comes before the next. Raises UsageError for arrays
        that it does not take, RunnerError when the runner process does not start.
        """
        message = {"do": "execute", "execution": asdict(execution)}
        timeout_s = execution.timeout_s + self._options.arrays_timeout_s
        return self._apart(placement, message, timeout_s, "ran the function")

    def host(self, placement: Placement, invitation: Invitation) -> Failed | None:
        """Have a guest play rounds with its judge, until the judge ends them.

        As `execute`, it ends the assignment of measurements. Returns why the guest ended
        by itself, or None.
        """
        message = {"do": "host", "invitation": invitation_to_document(invitation)}
        return self._apart(placement, message, invitation.timeout_s, "had a guest")

    def _apart(
        self, placement: Placement, message: Document, timeout_s: float, what: str
    ) -> Failed | None:
        """Do what has a placement of its own."""
        self.start()
        self._assignment, self._prepared_promotion = None, False
        try:
            with self._turns.turn(placement.lane.cores, alone=False):
                answer = self._exchange(
                    {**message, **placement_to_document(placement)}, timeout_s + ANSWER_MARGIN_S
                )
        except WireError as error:
            self._discard()
            return Failed(
                kind=FailureKind.INFRASTRUCTURE,
                message=f"the runner was lost while it {what}: {error}",
            )
        if "refused" in answer:
            raise UsageError(str(answer["refused"]))
        if "failed" in answer:
            return Failed(
                kind=FailureKind(answer["failed"]["kind"]), message=str(answer["failed"]["message"])
            )
        return None

    def close(self) -> None:
        """End the runner process and its children. Idempotent."""
        self._discard()
        self._assignment = None

    def __enter__(self) -> RunnerProcess:
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _short(self, message: Document, field: str) -> Any:
        """The answer's `field`, of a command that needs no workload."""
        try:
            self.start() if self._assignment is None else self._revive()
            answer = self._exchange(message, self._options.start_timeout_s)
        except WireError as error:
            self._discard()
            raise RunnerError(
                f"the runner process was lost while asked to {message['do']}: {error}"
            ) from error
        if "refused" in answer:
            raise UsageError(str(answer["refused"]))
        if field not in answer:
            raise RunnerError(
                f"the runner process could not {message['do']}: {answer['failed']['message']}"
            )
        return answer[field]

    def _promotion_is_prepared(self) -> None:
        self._prepared_promotion = True
        self._prepared_bytes = self.resident_bytes

    def _needs_preparation(self, request: Request) -> bool:
        return request.verification == "promotion" and not self._prepared_promotion

    def _recycle(self) -> None:
        """End a process that has measured enough or has grown too much."""
        options = self._options
        if (
            self._measured >= options.measures
            or self.resident_bytes > self._prepared_bytes + options.growth_bytes
        ):
            self._discard()

    def _revive(self) -> None:
        """Start a fresh process where the last one is gone, with the same assignment."""
        if self._process is not None and self._process.poll() is None:
            return
        assignment = self._assignment
        if assignment is not None:
            self.prepare(assignment)

    def _exchange(self, message: Document, timeout_s: float) -> Document:
        process = self._process
        if process is None or process.stdin is None:
            raise WireError("no process")
        send(process.stdin.fileno(), message)
        return self._receive(timeout_s)

    def _receive(self, timeout_s: float) -> Document:
        process = self._process
        if process is None or process.stdout is None:
            raise WireError("no process")
        answer = receive(process.stdout.fileno(), timeout_s=timeout_s)
        if answer is None:
            raise WireError(f"it ended with status {process.wait(timeout=ANSWER_MARGIN_S)}")
        return answer

    def _discard(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                # A parent that still reads ends now, with its children and scratch folder.
                pipe.close()
        try:
            process.wait(timeout=ANSWER_MARGIN_S)
        except subprocess.TimeoutExpired:
            with suppress(ProcessLookupError):
                # Its own session. Children are in sessions of their own, and stay.
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        if process.returncode != 0:
            end_group(process.pid)


def parent_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a runner process.

    One thread for each library that NumPy may use, this package importable, no secrets.
    """
    passed_on = {name: environment[name] for name in _PASSED_ON if name in environment}
    threads = (
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "MKL_NUM_THREADS",
        "BLIS_NUM_THREADS",
        "VECLIB_MAXIMUM_THREADS",
    )
    path = os.pathsep.join(entry for entry in sys.path if entry)
    return {
        **passed_on,
        **dict.fromkeys(threads, "1"),
        "PYTHONPATH": path,
        "PYTHONDONTWRITEBYTECODE": "1",
    }
