"""The process of one candidate: fence, load, check, time, report.

It runs in a fork of the runner's parent and never returns. It loads the library as a
user would. Only the call of the clock falls into the timed region.
"""

from __future__ import annotations

import gc
import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, NoReturn

import numpy as np

from tuner.errors import UsageError
from tuner.measure.assignment import Assignment, Request
from tuner.measure.buffers import GuardedBuffer, guarded
from tuner.measure.cache import COLD, WARM
from tuner.measure.check import (
    POISONS,
    Array,
    Case,
    Invoke,
    WrongAnswer,
    check_after_timing,
    check_case,
    poison,
)
from tuner.measure.fault import GuardWatch
from tuner.measure.outcome import FailureKind
from tuner.measure.pace import Pace, PacedTiming
from tuner.measure.rivals.rivals import RIVAL_BOUND_FACTOR, open_rival
from tuner.measure.sandbox.fence import Fence, enter
from tuner.measure.sandbox.refusals import REPORTED_FRACTION
from tuner.measure.sweep import sweeper
from tuner.measure.timing import LONG_CALL_S, Clock, Timing, time_calls
from tuner.runtime.loader import Library, LibraryError

# Part of a candidate's time limit that may go into waiting for the core's usual pace.
PATIENT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """What is measured: a kernel or a rival library."""

    invoke: Invoke
    clock: Clock
    bound_factor: float  # 1 for kernels
    workspace_bytes: Callable[[], int | None] = lambda: None  # the most so far


class Report:
    """The child's end of the result pipe: lines of JSON.

    They say what it is about to do, and at last what came out.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def stage(self, text: str) -> None:
        self._write({"stage": text})

    def failed(self, kind: FailureKind, message: str) -> None:
        self._write({"result": {"failed": {"kind": str(kind), "message": message}}})

    def timed(self, paced: PacedTiming, max_rel_error: float, workspace_bytes: int | None) -> None:
        result = {
            "samples_s": list(paced.timing.samples_s),
            "max_rel_error": max_rel_error,
            "abandoned": paced.timing.abandoned,
            "workspace_bytes": workspace_bytes,
            "pace": asdict(paced.update),
        }
        self._write({"result": {"timed": result}})

    def done(self) -> None:
        self._write({"result": {"done": True}})

    def refused(self, message: str) -> None:
        """The inputs are at fault, not the kernel."""
        self._write({"result": {"refused": message}})

    def _write(self, document: dict[str, Any]) -> None:
        data = memoryview(json.dumps(document).encode() + b"\n")
        while data:
            data = data[os.write(self._descriptor, data) :]


Work = Callable[[Report], None]  # what a fenced child does; it reports how it went


def run(work: Work, fence: Fence, *, parent: int, pipe: int, channel: int | None) -> NoReturn:
    """The child's whole life. It ends with status 0 when a result was sent, whatever it says."""
    status = 1
    try:
        gc.disable()
        guarded_work(work, Report(enter(fence, parent=parent, pipe=pipe, channel=channel)))
        status = 0
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)  # no destructor of a generated library runs


def guarded_work(work: Work, report: Report) -> None:
    """Do the work, and report its failure as a result."""
    try:
        work(report)
    except WrongAnswer as error:
        report.failed(FailureKind.WRONG_ANSWER, str(error))
    except MemoryError as error:
        report.failed(
            FailureKind.OUT_OF_MEMORY, str(error) or "no memory left within the candidate's limit"
        )
    except LibraryError as error:
        kind = FailureKind.OUT_OF_MEMORY if error.kind == "memory" else FailureKind.RUN_CRASH
        report.failed(
            kind, f"{error}" + (f" (status {error.status}: {error.kind})" if error.status else "")
        )
    except UsageError as error:
        report.failed(FailureKind.RUN_CRASH, str(error))


def measure(
    assignment: Assignment, request: Request, cases: Sequence[Case], pace: Pace, report: Report
) -> None:
    """Check the subject on all cases asked for, time it, and report."""
    outputs = [guarded(expected.reference.shape, expected.dtype) for expected in cases[0].expected]
    watch = _watch(cases, outputs, report, None if request.rival else assignment.memory_bytes)
    report.stage("loading")
    first, arrays = cases[0], [buffer.array for buffer in (*cases[0].inputs, *outputs)]
    subject = (
        _rival(assignment, request, first)
        if request.rival
        else _library(assignment, request, arrays)
    )
    error = 0.0
    checked = () if request.verification == "timed" else (*cases[1:], first)
    screened = request.verification == "screening" and request.rival is None
    # A trial's timed calls are its second round: they begin with the other poison, and
    # what they leave is checked.
    poisons = POISONS[:1] if screened else POISONS
    calls_s: list[float] = []

    def invoke(arguments: Sequence[Array]) -> None:
        started = time.perf_counter()
        subject.invoke(arguments)
        calls_s.append(time.perf_counter() - started)

    # The first case comes last, so that the timed calls use the inputs checked last.
    for case in checked:
        report.stage(f"checking {case.name} inputs")
        error = max(
            error,
            check_case(case, outputs, invoke, poisons=poisons, bound_factor=subject.bound_factor),
        )
    if screened and request.plan.cache == WARM and calls_s[-1] >= LONG_CALL_S:
        timing = _single_call(calls_s[-1], request.abandon_above_s)
        report.timed(timing, error, subject.workspace_bytes())
        return
    report.stage("timing")
    # What the checks left in the outputs must not pass for an answer.
    poison(outputs, POISONS[1 if screened else 0])
    sweep = sweeper(len(assignment.lane.cores)) if request.plan.cache == COLD else None
    timed = partial(
        time_calls,
        subject.clock,
        request.plan,
        abandon_above_s=request.abandon_above_s,
        sweep=sweep,
    )
    paced = pace.time_undisturbed(
        timed, promising_s=request.promising_s, within_s=request.timeout_s * PATIENT
    )
    if request.rival is None:
        report.stage("checking the timed calls' outputs")
        error = max(error, check_after_timing(first, outputs, bound_factor=subject.bound_factor))
    report.timed(paced, error, subject.workspace_bytes())
    del watch


def _single_call(call_s: float, abandon_above_s: float | None) -> PacedTiming:
    """The timing of a call so long that it is sample enough."""
    abandoned = abandon_above_s is not None and call_s > abandon_above_s
    return PacedTiming(timing=Timing(samples_s=(call_s,), abandoned=abandoned))


def _library(assignment: Assignment, request: Request, arrays: Sequence[Array]) -> Subject:
    library = Library(request.library or "")
    library.set_num_threads(assignment.threads)
    timed = [_plain(array) for array in arrays]

    def invoke(arguments: Sequence[Array]) -> None:
        library.call(request.symbol, [_plain(array) for array in arguments])

    def clock(number: int, repeat: int) -> Sequence[float]:
        return library.time(request.symbol, timed, number, repeat)

    return Subject(
        invoke=invoke, clock=clock, bound_factor=1.0, workspace_bytes=library.workspace_bytes
    )


def _rival(assignment: Assignment, request: Request, case: Case) -> Subject:
    rival = open_rival(request.rival or "", assignment.workload, case.pristine, assignment.threads)
    return Subject(invoke=rival.invoke, clock=rival.clock, bound_factor=RIVAL_BOUND_FACTOR)


def _plain(array: Array) -> Any:
    """bfloat16 crosses into C as its 16 bits."""
    return array.view(np.uint16) if array.dtype.name == "bfloat16" else array


def _watch(
    cases: Sequence[Case],
    outputs: Sequence[GuardedBuffer],
    report: Report,
    memory_bytes: int | None,
) -> GuardWatch:
    names = (*cases[0].input_names, *(expected.name for expected in cases[0].expected))
    pages = [
        (name, *guard)
        for case in cases
        for name, buffer in zip(names, (*case.inputs, *outputs), strict=True)
        for guard in buffer.guards
    ]

    def hit(name: str) -> None:
        report.failed(
            FailureKind.WRONG_ANSWER,
            f"the kernel accessed memory out of bounds of {name}: it hit a guard page",
        )
        os._exit(0)

    def elsewhere(number: int) -> None:
        if memory_bytes is not None and _exhausted(memory_bytes):
            name = signal.Signals(number).name
            message = (
                f"ended by {name} with its memory used up: an allocation beyond the limit "
                f"of {memory_bytes} bytes failed"
            )
            report.failed(FailureKind.OUT_OF_MEMORY, message)
            os._exit(0)

    return GuardWatch(pages, hit, elsewhere)


def _exhausted(memory_bytes: int) -> bool:
    """Whether the last allocation may have failed unseen.

    The supervisor hears only of larger ones.
    """
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    try:
        mmap.mmap(-1, memory_bytes // REPORTED_FRACTION, flags=flags, prot=mmap.PROT_READ).close()
    except OSError:
        return True
    return False
