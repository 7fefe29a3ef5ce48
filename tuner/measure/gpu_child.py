"""The process that owns a GPU: checks and times libraries of CUDA kernels, one after another, until one breaks the device.

Run as `python -m tuner.measure.gpu_child ORDINAL`; JSON messages on standard input and output. After a sticky error of the driver
it says so and ends: whoever started it starts another one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from tuner.errors import UsageError
from tuner.measure.check import POISONS, WrongAnswer, check_output
from tuner.measure.gpu_buffers import DeviceCase
from tuner.measure.gpu_messages import GpuRequest, gpu_request_from_document
from tuner.measure.outcome import FailureKind
from tuner.measure.problem import PROMOTION_CASES, SCREENING_CASES, Problem
from tuner.measure.timing import time_calls
from tuner.measure.wire import Document, receive, send
from tuner.runtime.cuda_driver import Clock, CudaError, Device, NoDriver, device_facts
from tuner.runtime.cuda_loader import CudaFunction, CudaLibrary, CudaLibraryError
from tuner.runtime.cuda_module import CudaModuleError
from tuner.target.nvidia import management
from tuner.workload.spec import from_document

MAX_NUMBER = 1000  # calls in one graph
FLUSH_FACTOR = 2  # times the L2 that is overwritten to flush it
DRIVER_STATUS, MEMORY_STATUS = 8, 6  # TUNER_CUDA_ERROR_DRIVER, TUNER_CUDA_ERROR_MEMORY


class Session:
    """A device and the cases of one workload on it."""

    def __init__(self, ordinal: int) -> None:
        self._device, self._ordinal = Device(ordinal), ordinal
        self._l2_bytes = int(device_facts(ordinal)["l2_bytes"])
        self._problem: Problem | None = None

    def prepare(self, message: Document) -> Document:
        if self._problem is not None:
            self._problem.close()
        self._problem = Problem(from_document(message["workload"]), int(message["seed"]))
        self._problem.cases(SCREENING_CASES)
        return {"ready": True}

    def measure(self, request: GpuRequest, stage: Callable[[str], None]) -> Document:
        """Checks on each case, times on the last one, and checks what the timed calls left."""
        if self._problem is None:
            raise UsageError("nothing was prepared; prepare a workload first")
        stage("loading")
        function = CudaLibrary(request.library).function(request.symbol)
        names = PROMOTION_CASES if request.verification == "promotion" else SCREENING_CASES
        worst = 0.0
        first, *others = self._problem.cases(names)
        for case in others:
            on_device = DeviceCase(self._device, case)
            try:
                stage(f"checking {case.name} inputs")
                worst = max(worst, self._checked(on_device, function))
            finally:
                on_device.close()
        on_device = DeviceCase(self._device, first)
        try:
            stage(f"checking {first.name} inputs")
            worst = max(worst, self._checked(on_device, function))
            stage("timing")
            samples, abandoned = self._timed(on_device, function, request)
            stage("checking the timed calls' outputs")
            worst = max(worst, self._compared(on_device, f"{first.name} (timed)"))
        finally:
            on_device.close()
        clock_hz = management(self._ordinal).sm_clock_mhz * 1e6
        timed = {"samples_s": samples, "max_rel_error": worst, "abandoned": abandoned, "frequency_hz": clock_hz or None}
        return {"timed": timed}

    def _checked(self, case: DeviceCase, function: CudaFunction) -> float:
        worst = 0.0
        for byte in POISONS:
            case.poison(byte)
            function.launch(case.addresses, self._device.stream)
            worst = max(worst, self._compared(case, case.case.name))
        return worst

    def _compared(self, case: DeviceCase, name: str) -> float:
        results = case.results()
        case.check_surroundings()
        return max(check_output(got, want, name) for got, want in zip(results, case.case.expected, strict=True))

    def _timed(self, case: DeviceCase, function: CudaFunction, request: GpuRequest) -> tuple[Sequence[float], bool]:
        case.poison(POISONS[0])
        plan = replace(request.plan, max_number=min(request.plan.max_number, MAX_NUMBER))
        clock = Clock(self._device, lambda: function.launch(case.addresses, self._device.stream))
        if plan.cache != "cold":
            found = time_calls(clock, plan, abandon_above_s=request.abandon_above_s)
            return found.samples_s, found.abandoned
        flush_bytes = FLUSH_FACTOR * self._l2_bytes
        flushed = self._device.allocate(flush_bytes)
        try:
            found = time_calls(
                clock,
                plan,
                abandon_above_s=request.abandon_above_s,
                sweep=lambda: self._device.fill(flushed, 0, flush_bytes),
            )
            return found.samples_s, found.abandoned
        finally:
            self._device.free(flushed)


def attempt(work: Callable[[], Document]) -> tuple[Document, bool]:
    """What came of a candidate, and whether this process must end."""
    try:
        return work(), False
    except WrongAnswer as error:
        return failed(FailureKind.WRONG_ANSWER, str(error)), False
    except MemoryError as error:
        return failed(FailureKind.OUT_OF_MEMORY, str(error) or "no memory left on the host"), False
    except CudaError as error:
        kind = FailureKind.OUT_OF_MEMORY if error.out_of_memory else FailureKind.RUN_CRASH
        return failed(kind, str(error)), not error.out_of_memory
    except CudaLibraryError as error:
        kind = FailureKind.OUT_OF_MEMORY if error.status == MEMORY_STATUS else FailureKind.RUN_CRASH
        return failed(kind, str(error)), error.status == DRIVER_STATUS
    except (UsageError, CudaModuleError, OSError, KeyError) as error:
        return failed(FailureKind.RUN_CRASH, f"{type(error).__name__}: {error}"), False


def failed(kind: FailureKind, message: str) -> Document:
    return {"failed": {"kind": str(kind), "message": message}}


def main(ordinal: int, given: int, answers: int) -> int:
    try:
        session = Session(ordinal)
    except (NoDriver, CudaError) as error:
        send(answers, {"refused": str(error)})
        return 1
    send(answers, {"ready": True, "facts": dict(device_facts(ordinal))})
    while (message := receive(given)) is not None:
        answer, ended = attempt(partial(handled, session, message, answers))
        send(answers, {**answer, "ended": ended})
        if ended:
            return 1
    return 0


def handled(session: Session, message: Document, answers: int) -> Document:
    if message["do"] == "prepare":
        return session.prepare(message)
    return session.measure(gpu_request_from_document(message["request"]), lambda text: send(answers, {"stage": text}))


def _own_output() -> tuple[int, int]:
    """The messages' ends; what a library prints goes to standard error instead."""
    given, answers = os.dup(0), os.dup(1)
    os.dup2(2, 1)
    os.close(0)
    os.open(os.devnull, os.O_RDONLY)
    return given, answers


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), *_own_output()))
