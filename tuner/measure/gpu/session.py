"""A device and the cases of one workload on it.

It checks and times libraries of CUDA kernels, one after another, in the process that
owns the device. After an error that breaks the device's context the process is of no
more use.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial

from tuner.errors import UsageError
from tuner.measure.assignment import Request
from tuner.measure.cache import COLD
from tuner.measure.check import POISONS, Case, WrongAnswer, check_output
from tuner.measure.foreign.examination import Contestant
from tuner.measure.foreign.verdict import Guilty, guilty_to_document
from tuner.measure.gpu.buffers import DeviceCase
from tuner.measure.gpu.clocks import SampledClocks, WatchedClock
from tuner.measure.gpu.guest import Guest
from tuner.measure.outcome import FailureKind
from tuner.measure.problem import SCREENING_CASES, Problem
from tuner.measure.timing import Timing, time_calls
from tuner.measure.wire import Document
from tuner.runtime.cuda_driver import (
    Clock,
    CudaError,
    Device,
    NoDriver,
    device_facts,
    reaches_host_memory,
)
from tuner.runtime.cuda_loader import CudaFunction, CudaLibrary, CudaLibraryError
from tuner.runtime.cuda_module import CudaModuleError
from tuner.runtime.nvml import ManagedDevice

MAX_NUMBER = 1000  # calls in one graph
FLUSH_FACTOR = 2  # times the L2 that is overwritten to flush it
DRIVER_STATUS, MEMORY_STATUS = 8, 6  # TUNER_CUDA_ERROR_DRIVER, TUNER_CUDA_ERROR_MEMORY


class Session:
    """A device with its context, and the workload whose candidates it measures."""

    def __init__(self, ordinal: int, problem: Problem) -> None:
        """Raises NoDriver and CudaError."""
        self._ordinal, self._device, self._problem = ordinal, Device(ordinal), problem
        facts = device_facts(ordinal)
        self._l2_bytes = int(facts["l2_bytes"])
        self._managed = ManagedDevice(str(facts["pci"]))

    def measure(self, request: Request, stage: Callable[[str], None]) -> Document:
        """Check a library on the cases asked for, and time it on the first.

        What the timed calls left is checked too.
        """
        if request.library is None:
            raise UsageError(
                f"{request.name} is no library of CUDA kernels; a GPU's lane runs nothing else"
            )
        stage("loading")
        function = CudaLibrary(request.library).function(request.symbol)
        names = (
            self._problem.promotion_cases
            if request.verification == "promotion"
            else SCREENING_CASES
        )
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
            if request.verification != "timed":
                stage(f"checking {first.name} inputs")
                worst = max(worst, self._checked(on_device, function))
            stage("timing")
            timing, clocks = self._timed(on_device, function, request)
            stage("checking the timed calls' outputs")
            worst = max(worst, self._compared(on_device, f"{first.name} (timed)"))
        finally:
            on_device.close()
        timed = {
            "samples_s": timing.samples_s,
            "max_rel_error": worst,
            "abandoned": timing.abandoned,
            "clocks": asdict(clocks),
        }
        return {"timed": timed}

    def check(self, library: str, symbol: str, *, poisoned: bool) -> Document:
        """One call on the inputs of screening, in buffers without guards. Nothing is timed."""
        function = CudaLibrary(library).function(symbol)
        worst = 0.0
        for case in self._problem.cases(SCREENING_CASES):
            on_device = DeviceCase(self._device, case, guard_bytes=0)
            try:
                if poisoned:
                    on_device.poison(POISONS[0])
                function.launch(on_device.addresses, self._device.stream)
                worst = max(worst, self._compared(on_device, case.name))
            finally:
                on_device.close()
        return {"checked": {"max_rel_error": worst}}

    def examine(
        self,
        contestant: Contestant,
        cases: Sequence[Case],
        rounds: Sequence[Sequence[Case]],
        stage: Callable[[str], None],
    ) -> Document:
        """A foreign kernel, or one of ours beside it: checked on the cases, timed in rounds."""
        if contestant.foreign and reaches_host_memory(self._ordinal):
            return failed(
                FailureKind.INFRASTRUCTURE,
                f"kernels of gpu:{self._ordinal} reach all memory of their process, with what says "
                f"what is right; foreign ones are judged where the driver's heterogeneous memory "
                f"management is off (nvidia_uvm's option uvm_disable_hmm=1)",
            )
        stage("loading")
        expression = self._problem.workload.expression
        buffers = len(expression.inputs) + len(expression.outputs)
        try:
            guest = Guest(self._device, contestant, buffers)
            error = guest.verify(cases, stage)
            return {"max_rel_error": error, "samples_s": guest.time(rounds, stage)}
        except Guilty as guilty:
            return {"guilty": guilty_to_document(guilty)}

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
        return max(
            check_output(got, want, name)
            for got, want in zip(results, case.case.expected, strict=True)
        )

    def _timed(
        self, case: DeviceCase, function: CudaFunction, request: Request
    ) -> tuple[Timing, SampledClocks]:
        case.poison(POISONS[0])
        plan = replace(request.plan, max_number=min(request.plan.max_number, MAX_NUMBER))
        clock = WatchedClock(
            partial(
                Clock, self._device, lambda: function.launch(case.addresses, self._device.stream)
            ),
            self._managed.clocks,
        )
        flush_bytes = FLUSH_FACTOR * self._l2_bytes if plan.cache == COLD else 0
        flushed = self._device.allocate(flush_bytes)
        try:
            timing = time_calls(
                clock,
                plan,
                abandon_above_s=request.abandon_above_s,
                sweep=lambda: self._device.fill(flushed, 0, flush_bytes),
            )
            return timing, clock.of_last(len(timing.samples_s))
        finally:
            self._device.free(flushed)


def attempt(work: Callable[[], Document]) -> tuple[Document, bool]:
    """What came of a candidate, and whether the process must end."""
    try:
        return work(), False
    except WrongAnswer as error:
        return failed(FailureKind.WRONG_ANSWER, str(error)), False
    except MemoryError as error:
        return failed(FailureKind.OUT_OF_MEMORY, str(error) or "no memory left on the host"), False
    except NoDriver as error:
        return failed(FailureKind.INFRASTRUCTURE, str(error)), True
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
