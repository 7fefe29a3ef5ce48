"""The process of a GPU's lane that holds a workload's inputs and reference.

It forks and supervises the process that owns the device. Run as `python -m
tuner.measure.gpu.parent ORDINAL`; JSON messages on standard input and output. It never
calls the driver. So a broken device, a hang, or a race's fresh process costs a fork and
a context, and no reference is computed again.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Mapping

from tuner.errors import TunerError
from tuner.measure.assignment import Request, request_from_document, request_to_document
from tuner.measure.foreign.cases import TimedCases, slots_within
from tuner.measure.gpu.device import DeviceProcess, Exercises, start
from tuner.measure.gpu.session import failed
from tuner.measure.gpu.turns import turn
from tuner.measure.outcome import FailureKind
from tuner.measure.problem import FOREIGN_CASES, SCREENING_CASES, Problem
from tuner.measure.wire import Document, Late, WireError, receive, send
from tuner.workload.spec import from_document

START_S = 120.0  # of a device's process and its context; a cold driver takes many seconds
PROBE_S = 120.0  # of all kernels that measure limits; they take a second or two
REAP_S = 5.0  # for a process that closed its end to be gone
# Of the buffers of a round of foreign kernels: within the second-level cache of larger GPUs.
CACHED_BYTES = 16 << 20
CANDIDATES = 200  # measured by one process: loaded libraries and modules stay until its end


class DeviceSupervisor:
    """The workload, and the process that owns the device. Not thread-safe; close it."""

    def __init__(self, ordinal: int, closed: tuple[int, ...]) -> None:
        """`closed` are descriptors that the device's process must not hold."""
        self._ordinal, self._closed = ordinal, closed
        self._problem: Problem | None = None
        self._cases: set[str] = set()  # names of those made
        self._timed_cases: TimedCases | None = None  # of the problem, for foreign kernels
        self._process: DeviceProcess | None = None
        self._facts: Mapping[str, int | str] = {}  # of the device, once a process has told

    def answer(self, message: Document) -> Document:
        match message.get("do"):
            case "describe":
                return self._describe()
            case "probe":
                return self._probe(message["task"])
            case "prepare":
                return self._prepare(message)
            case "measure":
                return self._measure(
                    request_from_document(message["request"]), fresh=bool(message["fresh"])
                )
            case "examine":
                return self._examine(
                    message["contestant"],
                    timed=bool(message["timed"]),
                    timeout_s=float(message["timeout_s"]),
                )
        return failed(FailureKind.INFRASTRUCTURE, f"this process cannot {message.get('do')!r}")

    def close(self) -> None:
        self._end()

    def _describe(self) -> Document:
        """The device's facts, or {"refused"}: why it cannot be used."""
        process = start(self._ordinal, None, self._closed)
        try:
            return process.receive(START_S)
        except WireError as error:
            return {"refused": f"the driver did not answer: {error}"}
        finally:
            process.end()

    def _probe(self, task: Document) -> Document:
        """What a `ProbingTask` found, by a process of its own; no other one holds the device."""
        self._end()
        process = start(self._ordinal, None, self._closed)
        try:
            started = process.receive(START_S)
            if "refused" in started:
                return failed(FailureKind.INFRASTRUCTURE, str(started["refused"]))
            return process.probe(task, PROBE_S)
        except WireError as error:
            return failed(
                FailureKind.INFRASTRUCTURE, f"the process was lost while {process.stage}: {error}"
            )
        finally:
            process.end()

    def _prepare(self, message: Document) -> Document:
        self._end()
        if self._problem is not None and self._timed_cases is not None:
            self._problem.close()
            self._timed_cases.close()
        workload = from_document(message["workload"])
        self._problem, self._cases = Problem(workload, int(message["seed"])), set()
        slots = slots_within(CACHED_BYTES, workload.expression.nbytes)
        self._timed_cases = TimedCases(workload, slots)
        try:
            self._make(SCREENING_CASES)
        except MemoryError as error:
            return failed(
                FailureKind.OUT_OF_MEMORY,
                str(error) or "inputs and reference do not fit in the host's memory",
            )
        return {"ready": True}

    def _make(self, names: tuple[str, ...]) -> None:
        """Make the cases of these names.

        A process forked before lacks new cases, so it is ended.
        """
        if self._problem is not None and not self._cases.issuperset(names):
            self._end()
            self._problem.cases(names)
            self._cases.update(names)

    def _measure(self, request: Request, *, fresh: bool) -> Document:
        if self._problem is None:
            return failed(
                FailureKind.INFRASTRUCTURE, "nothing was prepared; prepare a workload first"
            )
        try:
            self._make(
                self._problem.promotion_cases
                if request.verification == "promotion"
                else SCREENING_CASES
            )
        except MemoryError as error:
            return failed(
                FailureKind.OUT_OF_MEMORY,
                str(error) or "inputs and reference do not fit in the host's memory",
            )
        if self._process is not None and (fresh or self._process.measured >= CANDIDATES):
            self._end()
        return self._asked(request_to_document(request), request.timeout_s)

    def _examine(self, contestant: Document, *, timed: bool, timeout_s: float) -> Document:
        """What an examination's contestant shows in a process of its own: `Session.examine`."""
        if self._problem is None or self._timed_cases is None:
            return failed(
                FailureKind.INFRASTRUCTURE, "nothing was prepared; prepare a workload first"
            )
        self._end()
        try:
            if timed:
                self._timed_cases.make()
                exercises = Exercises(rounds=self._timed_cases.rounds())
            else:
                names = (*self._problem.promotion_cases, *FOREIGN_CASES)
                exercises = Exercises(cases=self._problem.cases(names))
        except MemoryError as error:
            return failed(
                FailureKind.INFRASTRUCTURE,
                str(error) or "inputs and reference do not fit in the host's memory",
            )
        try:
            return self._asked(contestant, timeout_s, exercises)
        finally:
            self._end()

    def _asked(
        self, request: Document, timeout_s: float, exercises: Exercises | None = None
    ) -> Document:
        """The answer of the process that has the device, which is started where none runs."""
        process = self._process or start(self._ordinal, self._problem, self._closed, exercises)
        if self._process is None:
            try:
                started = process.receive(START_S)
                refused, self._facts = started.get("refused"), started.get("facts", {})
            except WireError as error:
                refused = f"its process did not start: {error}"
            if refused is not None:
                process.end()
                return failed(
                    FailureKind.INFRASTRUCTURE, f"gpu:{self._ordinal} cannot be used: {refused}"
                )
            self._process = process
        process.stage = "nothing"
        try:
            with turn(self._facts):
                answer = process.measure(request, timeout_s)
        except WireError as error:
            return self._lost(process, timeout_s, error)
        if answer.get("ended"):
            self._end()
        if "failed" in answer:
            kind, message = FailureKind(answer["failed"]["kind"]), answer["failed"]["message"]
            return failed(kind, f"{message} (while {process.stage})")
        return answer

    def _lost(self, process: DeviceProcess, timeout_s: float, error: WireError) -> Document:
        """The failure of a candidate under which the process hung or died.

        The next request gets another process.
        """
        self._process = None
        if isinstance(error, Late):
            process.end()
            message = f"no answer within {timeout_s:g} s while {process.stage}: {error}"
            return failed(FailureKind.RUN_TIMEOUT, message)
        status = process.end(grace_s=REAP_S)
        if status is None:
            return failed(FailureKind.RUN_CRASH, f"{error} while {process.stage}")
        ended = f"signal {-status}" if status < 0 else f"status {status}"
        # SIGKILL comes from outside: an operator, or the kernel out of memory.
        kind = FailureKind.INFRASTRUCTURE if status == -signal.SIGKILL else FailureKind.RUN_CRASH
        return failed(kind, f"the process ended with {ended} while {process.stage}")

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            process.end()


def main(ordinal: int, commands: int, answers: int) -> int:
    supervisor = DeviceSupervisor(ordinal, (commands, answers))
    try:
        while (message := receive(commands)) is not None:
            try:
                answer = supervisor.answer(message)
            except (TunerError, OSError, KeyError, TypeError) as error:
                answer = failed(FailureKind.INFRASTRUCTURE, f"{type(error).__name__}: {error}")
            send(answers, answer)
    except WireError:
        return 1  # whoever started this has gone
    finally:
        supervisor.close()
    return 0


def own_output() -> tuple[int, int]:
    """The messages' ends; what a library prints goes to standard error instead."""
    commands, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return commands, answers


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *own_output()))
