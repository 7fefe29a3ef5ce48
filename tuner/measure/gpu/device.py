"""The process that owns a device.

It is forked from the process that holds the workload, and replaced when a candidate
breaks or hangs the device. A CUDA context does not survive a fork, so only this side
calls the driver.
"""

from __future__ import annotations

import os
import signal
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from tuner.measure.assignment import request_from_document
from tuner.measure.check import Case
from tuner.measure.foreign.examination import contestant_from_document
from tuner.measure.gpu.probing import Probing, task_from_document
from tuner.measure.gpu.session import Session, attempt
from tuner.measure.problem import Problem
from tuner.measure.sandbox.fence import die_with
from tuner.measure.wire import Document, WireError, receive, send
from tuner.runtime.cuda_driver import CudaError, NoDriver, device_facts


class DeviceProcess:
    """The owner's handle of the process. Not thread-safe; end it."""

    def __init__(self, pid: int, commands: int, answers: int) -> None:
        self._pid, self._commands, self._answers = pid, commands, answers
        self.stage = "starting"  # the last one that it reported
        self.measured = 0

    def receive(self, timeout_s: float) -> Document:
        """The next answer, within the time. Stages on the way are noted.

        Raises WireError.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            answer = receive(self._answers, timeout_s=max(0.0, deadline - time.monotonic()))
            if answer is None:
                raise WireError("the process ended")
            if "stage" not in answer:
                return answer
            self.stage = str(answer["stage"])

    def measure(self, request: Document, timeout_s: float) -> Document:
        """The answer to a request.

        Raises WireError where the process hangs or dies under the candidate.
        """
        self.measured += 1
        send(self._commands, request)
        return self.receive(timeout_s)

    def probe(self, task: Document, timeout_s: float) -> Document:
        """The answer to a `ProbingTask`. Raises WireError as above."""
        send(self._commands, task)
        return self.receive(timeout_s)

    def end(self, *, grace_s: float = 0.0) -> int | None:
        """Kill what still runs after `grace_s`.

        Returns the status that it had ended with, negative for a signal; None where it
        still ran.
        """
        deadline = time.monotonic() + grace_s
        pid, status = os.waitpid(self._pid, os.WNOHANG)
        while pid == 0 and time.monotonic() < deadline:
            time.sleep(0.01)
            pid, status = os.waitpid(self._pid, os.WNOHANG)
        if pid == 0:
            with suppress(ProcessLookupError):
                os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
        os.close(self._commands)
        os.close(self._answers)
        return None if pid == 0 else os.waitstatus_to_exitcode(status)


@dataclass(frozen=True, slots=True, kw_only=True)
class Exercises:
    """What a foreign kernel is called on."""

    cases: Sequence[Case] = ()  # that it is checked on
    rounds: Sequence[Sequence[Case]] = ()  # of timed calls


def start(
    ordinal: int,
    problem: Problem | None,
    closed: tuple[int, ...],
    exercises: Exercises | None = None,
) -> DeviceProcess:
    """Fork the process. Without a problem it says what the device is, and what it can do.

    `closed` are descriptors that it must not hold. With `exercises` it takes contestants of
    an examination in the place of requests. Its first answer is {"facts"} or {"refused"}.
    """
    commands, command_end = os.pipe()
    answers, answer_end = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            die_with(parent)
            for descriptor in (*closed, command_end, answers):
                os.close(descriptor)
            status = _serve(ordinal, problem, exercises, commands, answer_end)
        except BaseException:
            traceback.print_exc()
            raise
        finally:
            os._exit(status)
    os.close(commands)
    os.close(answer_end)
    return DeviceProcess(pid, command_end, answers)


def _serve(
    ordinal: int,
    problem: Problem | None,
    exercises: Exercises | None,
    commands: int,
    answers: int,
) -> int:
    """Serve requests until the owner closes, or until a candidate breaks the device."""
    try:
        session = None if problem is None else Session(ordinal, problem)
        facts = device_facts(ordinal)
    except (NoDriver, CudaError) as error:
        send(answers, {"refused": str(error)})
        return 0
    send(answers, {"facts": dict(facts)})

    def stage(text: str) -> None:
        send(answers, {"stage": text})

    while (message := receive(commands)) is not None:
        if session is None:
            answer, ended = attempt(partial(_probed, ordinal, message, stage))
        elif exercises is not None:
            contestant = contestant_from_document(message)
            work = partial(session.examine, contestant, exercises.cases, exercises.rounds, stage)
            answer, ended = attempt(work)
        else:
            request = request_from_document(message)
            answer, ended = attempt(partial(session.measure, request, stage))
        send(answers, {**answer, "ended": ended})
        if ended:
            return 0
    return 0


def _probed(ordinal: int, task: Document, stage: Callable[[str], None]) -> Document:
    return {"probed": Probing(ordinal, task_from_document(task)).run(stage)}
