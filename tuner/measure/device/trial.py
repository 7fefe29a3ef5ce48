"""A candidate on a device: loaded, checked and timed as a local child does it.

The device computes and measures. Outputs come back as bytes and are judged here.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np

from tuner.measure.assignment import Request
from tuner.measure.check import POISONS, Array, Case, WrongAnswer, check_output, raw
from tuner.measure.child import PATIENT
from tuner.measure.device.connection import CallFailed, CandidateEnded, Connection
from tuner.measure.device.function import SETTLE_US, Undescribed, bound
from tuner.measure.device.protocol import KEEP, Binding, BufferChange, End, Ended
from tuner.measure.outcome import Failed, FailureKind
from tuner.measure.pace import Pace, PacedTiming, PaceUpdate
from tuner.measure.timing import LONG_CALL_S, Timing, time_calls
from tuner.runtime.loader import STATUS


class Refused(Exception):
    """The candidate failed, for this reason."""

    def __init__(self, kind: FailureKind, message: str) -> None:
        super().__init__(message)
        self.failed = Failed(kind=kind, message=message)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checked:
    """A candidate that was right, and its timing."""

    paced: PacedTiming
    max_rel_error: float


@dataclass(slots=True, kw_only=True)
class Trial:
    """One candidate on a device, from its library to its outcome."""

    connection: Connection
    cases: Sequence[Case]
    request: Request
    threads: int
    memory_bytes: int
    stage: str = field(default="loading", init=False)

    def run(self, pace: Pace) -> Checked:
        """Checks and times the candidate. Raises Refused, and DeviceError."""
        with self._refusals():
            self._open()
            error, call_s = self._checked()
            if self._screened and call_s >= LONG_CALL_S:
                return Checked(paced=self._single_call(call_s), max_rel_error=error)
            paced = self._timed(pace)
            self.stage = "checking the timed calls' outputs"
            return Checked(paced=paced, max_rel_error=max(error, self._compared(0, " (timed)")))

    @property
    def _screened(self) -> bool:
        return self.request.verification == "screening"

    def _open(self) -> None:
        library = self.connection.keep(Path(self.request.library or "").read_bytes(), library=True)
        inputs = tuple(
            tuple(self.connection.keep(raw(array).data) for array in case.pristine)
            for case in self.cases
        )
        description = self.connection.open(
            library,
            deadline_s=self.request.timeout_s,
            threads=self.threads,
            memory_bytes=self.memory_bytes,
        )
        self.connection.bind(
            binding_of(description, self.request.symbol, self.cases[0], inputs, self.threads)
        )

    def _checked(self) -> tuple[float, float]:
        """The largest error of all cases, and the seconds of the last call."""
        worst, call_s = 0.0, 0.0
        timed_only = self.request.verification == "timed"
        # The first case comes last, so that the timed calls use the inputs checked last.
        for number in () if timed_only else (*range(1, len(self.cases)), 0):
            self.stage = f"checking {self.cases[number].name} inputs"
            for poison in POISONS[:1] if self._screened else POISONS:
                (call_s,) = self._seconds(number, 1, 1, poison=poison)
                worst = max(worst, self._compared(number))
        return worst, call_s

    def _timed(self, pace: Pace) -> PacedTiming:
        self.stage = "timing"
        # What the checks left in the outputs must not pass for an answer.
        poison = POISONS[1 if self._screened else 0]

        def clock(number: int, repeat: int) -> Sequence[float]:
            nonlocal poison
            counts = number * repeat > 1
            seconds = self._seconds(
                0, number, repeat, poison=poison, settle_us=SETTLE_US if counts else 0
            )
            poison = KEEP
            return seconds

        timed = partial(
            time_calls, clock, self.request.plan, abandon_above_s=self.request.abandon_above_s
        )
        return pace.time_undisturbed(
            timed,
            promising_s=self.request.promising_s,
            within_s=self.request.timeout_s * PATIENT,
        )

    def _seconds(
        self, case: int, number: int, repeat: int, *, poison: int, settle_us: int = 0
    ) -> tuple[float, ...]:
        seconds = self.connection.run(
            case, number=number, repeat=repeat, poison=poison, settle_us=settle_us
        )
        if min(seconds) <= 0:
            raise Refused(
                FailureKind.IMPLAUSIBLE, f"the device says that a call took {min(seconds)} s"
            )
        return seconds

    def _compared(self, number: int, when: str = "") -> float:
        """The largest error of the outputs. Raises WrongAnswer."""
        case = self.cases[number]
        self._check_surroundings(case)
        worst = 0.0
        for index, expected in enumerate(case.expected):
            nbytes = expected.reference.size * expected.dtype.itemsize
            data = self.connection.output(index, nbytes)
            output: Array = np.frombuffer(data, expected.dtype).reshape(expected.reference.shape)
            worst = max(worst, check_output(output, expected, f"{case.name}{when}"))
        return worst

    def _check_surroundings(self, case: Case) -> None:
        around = self.connection.check()
        if around.what is BufferChange.UNCHANGED:
            return
        name = tensor_name(case, around.tensor)
        if around.what is BufferChange.INPUT:
            array = case.pristine[min(around.tensor, len(case.pristine) - 1)]
            place = min(around.offset // array.itemsize, max(0, array.size - 1))
            index = [int(part) for part in np.unravel_index(place, array.shape)]
            raise WrongAnswer(f"the kernel changed its input {name} at element {index}")
        where = "before its beginning" if around.what is BufferChange.BEFORE else "behind its end"
        raise WrongAnswer(f"the kernel wrote out of bounds of {name}, {where}")

    def _single_call(self, call_s: float) -> PacedTiming:
        """The timing of a call so long that it is sample enough."""
        above_s = self.request.abandon_above_s
        timing = Timing(samples_s=(call_s,), abandoned=above_s is not None and call_s > above_s)
        return PacedTiming(timing=timing, update=PaceUpdate())

    @contextmanager
    def _refusals(self) -> Iterator[None]:
        """Turns what the candidate did into its failure."""
        try:
            yield
        except WrongAnswer as error:
            raise Refused(FailureKind.WRONG_ANSWER, str(error)) from error
        except CallFailed as error:
            name = STATUS.get(error.status, "unknown")
            kind = FailureKind.OUT_OF_MEMORY if name == "memory" else FailureKind.RUN_CRASH
            raise Refused(kind, f"{error} (status {error.status}: {name})") from error
        except CandidateEnded as error:
            raise Refused(*self._why(error.ended)) from error

    def _why(self, ended: Ended) -> tuple[FailureKind, str]:
        """The failure that an end of the candidate's process is."""
        match ended.how:
            case End.DEADLINE:
                return FailureKind.RUN_TIMEOUT, (
                    f"stopped after {self.request.timeout_s:g} s while {self.stage}"
                )
            case End.GUARD:
                name = tensor_name(self.cases[0], ended.tensor)
                return FailureKind.WRONG_ANSWER, (
                    f"the kernel accessed memory out of bounds of {name}: it hit a guard page"
                )
            case End.MEMORY:
                return FailureKind.OUT_OF_MEMORY, (
                    f"no memory left within the candidate's limit of {self.memory_bytes} bytes "
                    f"while {self.stage}"
                )
            case End.NOT_LOADED:
                return FailureKind.RUN_CRASH, f"the device cannot load it: {ended.text}"
            case End.SIGNAL:
                return _by_signal(ended.code, self.stage)
            case End.EXIT:
                return FailureKind.RUN_CRASH, (
                    f"it ended with exit code {ended.code} and no result while {self.stage}"
                )
            case _:
                return FailureKind.RUN_CRASH, (
                    f"it wrote what is no answer to the agent while {self.stage}"
                )


def _by_signal(number: int, stage: str) -> tuple[FailureKind, str]:
    name = signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"
    match number:
        case signal.SIGSYS:
            return FailureKind.RUN_CRASH, (
                f"ended by {name} while {stage}: it made a system call that isolation refuses"
            )
        case signal.SIGILL:
            return FailureKind.RUN_CRASH, (
                f"ended by {name} while {stage}: the device lacks an instruction of the target's"
            )
        case signal.SIGXCPU:
            return FailureKind.RUN_TIMEOUT, f"used up its CPU time ({name}) while {stage}"
        case signal.SIGKILL:  # not by the agent, which says when it kills
            return FailureKind.OUT_OF_MEMORY, (
                f"killed by the device's system ({name}) while {stage}, mostly for want of memory"
            )
        case _:
            return FailureKind.RUN_CRASH, f"ended by {name} while {stage}"


def binding_of(
    description: str,
    symbol: str,
    case: Case,
    inputs: tuple[tuple[bytes, ...], ...],
    threads: int,
) -> Binding:
    """The function with its buffers, as its library describes itself; constants packed.

    Raises Refused for what describes another function than the workload's.
    """
    try:
        binding, signature = bound(description, symbol, case.pristine, inputs, threads)
    except Undescribed as error:
        raise Refused(FailureKind.RUN_CRASH, str(error)) from error
    takes = [(argument.shape, argument.numpy_dtype.itemsize) for argument in signature.inputs]
    gives = [(argument.shape, argument.numpy_dtype.itemsize) for argument in signature.outputs]
    if takes != [(array.shape, array.itemsize) for array in case.pristine] or gives != [
        (expected.reference.shape, expected.dtype.itemsize) for expected in case.expected
    ]:
        raise Refused(FailureKind.RUN_CRASH, f"{symbol} takes other tensors than the workload's")
    return binding


def tensor_name(case: Case, place: int) -> str:
    """The name of a tensor; inputs are counted first."""
    names = (*case.input_names, *(expected.name for expected in case.expected))
    return names[place] if place < len(names) else f"tensor {place}"
