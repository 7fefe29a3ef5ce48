"""The runner's parent: a small process of one thread that forks a child per candidate.

It holds a workload's inputs and reference outputs. `tuner.measure.runner` runs it as
`python -m tuner.measure.parent`; it speaks JSON on standard input and output. It
supervises, kills and classifies. Generated code never runs in it.
"""

from __future__ import annotations

import gc
import hashlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import ceil
from pathlib import Path

from tuner.errors import TunerError, UsageError
from tuner.measure import child
from tuner.measure.assignment import (
    Assignment,
    Placement,
    Request,
    assignment_from_document,
    outcome_to_document,
    placement_from_document,
    request_from_document,
)
from tuner.measure.calibration import PACE_SIDE, CalibrationKernel
from tuner.measure.child import Work
from tuner.measure.execution import (
    Execution,
    SharedOutputs,
    compute,
    execution_from_document,
    read_inputs,
)
from tuner.measure.fault import warm_up
from tuner.measure.foreign.arena import Arena
from tuner.measure.foreign.guest import Invitation, invitation_from_document, serve
from tuner.measure.outcome import Conditions, Failed, FailureKind, Outcome, Timed
from tuner.measure.pace import Pace, PaceUpdate
from tuner.measure.problem import SCREENING_CASES, Problem
from tuner.measure.sandbox.confinement import (
    Confinement,
    readable_for_kernels,
    readable_for_libraries,
)
from tuner.measure.sandbox.fence import Fence, adopt_orphans
from tuner.measure.sandbox.isolation import Isolation, check_level, resolve
from tuner.measure.sandbox.refusals import REPORTED_FRACTION, Refusals
from tuner.measure.sandbox.seccomp import Filter, kernel_filter, library_filter
from tuner.measure.sandbox.support import Mechanism, Support, Way, probe
from tuner.measure.supervision import End, OwnerGone, classify, supervise
from tuner.measure.wire import Document, WireError, receive, send
from tuner.runtime.hidden_features import HIDDEN_FEATURES


class RunnerBroken(TunerError):
    """This process can no longer fork safely."""

    code = "runner"


class Parent:
    """State of one runner process: the assignment, its problem, a scratch folder."""

    def __init__(self, commands: int, scratch: Path) -> None:
        # Descriptor. A hang-up on it means that nobody waits for results any more.
        self._commands = commands
        self._scratch = scratch
        warm_up()
        self._assignment: Assignment | None = None
        self._problem: Problem | None = None
        self._support: Support | None = None
        self._confinement = Confinement()
        self._settings: ChildSettings | None = None
        self._kernel: CalibrationKernel | None = None
        self._pace = Pace(CalibrationKernel(PACE_SIDE).call_s)

    def close(self) -> None:
        self._confinement.close()

    def answer(self, message: Document) -> Document:
        """The reply to a command."""
        match message.get("do"):
            case "prepare":
                return self._prepare(message)
            case "measure":
                return outcome_to_document(self._measure(request_from_document(message["request"])))
            case "prepare promotion":
                return self._prepare_promotion()
            case "isolate":
                return {"isolation": self._isolation(message["isolation"]).name}
            case "calibrate":
                self._kernel = self._kernel or CalibrationKernel()
                return {"seconds": self._kernel.time_cores(message["cores"])}
            case "execute":
                failure = self._execute(
                    placement_from_document(message),
                    execution_from_document(message["execution"]),
                )
                return {"executed": True} if failure is None else outcome_to_document(failure)
            case "host":
                failure = self._host(
                    placement_from_document(message),
                    invitation_from_document(message["invitation"]),
                )
                return {"hosted": True} if failure is None else outcome_to_document(failure)
            case other:
                raise WireError(f"unknown command {other!r}")

    def _prepare(self, message: Document) -> Document:
        assignment = assignment_from_document(message)
        problem = Problem(assignment.workload, assignment.seed)
        # The lane may time another workload meanwhile. It is entered when all is made.
        if message["cores"]:
            os.sched_setaffinity(0, message["cores"])
            problem.cases(SCREENING_CASES)
        settings = self._enter(assignment)
        self._assignment, self._problem = assignment, problem
        self._pace.forget()
        problem.cases(SCREENING_CASES)
        gc.freeze()  # children do not touch, and so do not copy, what is there already
        return {"prepared": True, "isolation": settings.isolation.name}

    def _prepare_promotion(self) -> Document:
        if self._problem is None:
            raise WireError("a promotion was to be prepared before a workload")
        self._problem.cases(self._problem.promotion_cases)
        gc.freeze()
        return {"prepared": True}

    def _enter(self, placement: Placement) -> ChildSettings:
        """Enter the placement's lane, and leave the one before it."""
        lane = placement.lane
        check_level(placement.isolation)
        if placement.threads > len(lane.cores):
            raise UsageError(
                f"a kernel of {placement.threads} threads does not fit lane {lane.name} of "
                f"{len(lane.cores)} cores"
            )
        isolation = self._isolation(placement.isolation)
        self._settings = _child_settings(
            placement, isolation, self._confinement.apply(isolation, placement.threads)
        )
        os.sched_setaffinity(0, lane.cores)
        if self._problem is not None:
            self._problem.close()
        self._assignment = self._problem = None
        return self._settings

    def _isolation(self, level: str) -> Isolation:
        """What a level is on this machine. Raises UsageError where it cannot be had."""
        if self._support is None:
            # Before anything is entered: it finds out what this process may enter.
            self._support = probe()
        return resolve(level, self._support)

    def _execute(self, placement: Placement, execution: Execution) -> Failed | None:
        """Run a function once on a caller's arrays.

        The outputs come over shared memory: nothing that a child sends is parsed. Raises
        UsageError for values that the function refuses.
        """
        settings = self._enter(placement)
        inputs = read_inputs(execution.inputs, execution.takes)
        with SharedOutputs(execution.gives) as outputs, scratch_folder(self._scratch) as scratch:
            work = partial(compute, execution, placement.threads, inputs, outputs.arrays)
            end = self._fork(
                placement, settings, work, execution.library, execution.timeout_s, scratch
            )
            refused = end.result.get("refused")
            expected = "done" if refused is None else "refused"
            failure = classify(end, scratch / "output", execution.timeout_s, expected=expected)
            if failure is None and refused is not None:
                raise UsageError(str(refused))
            if failure is None:
                outputs.write(execution.outputs, execution.bounded)
            return failure

    def _host(self, placement: Placement, invitation: Invitation) -> Failed | None:
        """Have a guest play rounds until its judge ends them."""
        settings = self._enter(placement)
        if invitation.foreign:
            settings = replace(settings, kernel_calls=settings.foreign_calls)
        arena = Arena(invitation.arena, invitation.layout)
        try:
            with scratch_folder(self._scratch) as scratch:
                work = partial(serve, invitation, arena, placement.threads)
                timeout_s = invitation.timeout_s
                end = self._fork(
                    placement,
                    settings,
                    work,
                    invitation.library,
                    timeout_s,
                    scratch,
                    readable=(invitation.harness,),
                    started=lambda pid: Path(invitation.number).write_text(f"{pid}\n"),
                )
                return classify(end, scratch / "output", timeout_s, expected="done")
        finally:
            arena.close()

    def _measure(self, request: Request) -> Outcome:
        if self._assignment is None or self._problem is None or self._settings is None:
            return Failed(
                kind=FailureKind.INFRASTRUCTURE,
                message="the runner was given a candidate before a workload",
            )
        cases = self._problem.cases(
            self._problem.promotion_cases
            if request.verification == "promotion"
            else SCREENING_CASES
        )
        artifact = (
            ""
            if request.library is None
            else hashlib.sha256(Path(request.library).read_bytes()).hexdigest()
        )
        work = partial(child.measure, self._assignment, request, cases, self._pace)
        with scratch_folder(self._scratch) as scratch:
            before = steal_s(self._assignment.lane.cores)
            end = self._fork(
                self._assignment, self._settings, work, request.library, request.timeout_s, scratch
            )
            after = steal_s(self._assignment.lane.cores)
            failure = classify(end, scratch / "output", request.timeout_s)
        if failure is not None:
            return failure
        timed = end.result["timed"]
        try:
            update = PaceUpdate.of(timed["pace"])
        except (ValueError, TypeError, KeyError) as error:
            return Failed(
                kind=FailureKind.RUN_CRASH, message=f"what it sent as its result is none: {error!r}"
            )
        self._pace.learn(update)
        return Timed(
            samples_s=tuple(timed["samples_s"]),
            max_rel_error=timed["max_rel_error"],
            artifact=artifact,
            workspace_bytes=timed["workspace_bytes"],
            conditions=Conditions(
                lane=self._assignment.lane.name,
                isolation=self._settings.isolation.name,
                cache=request.plan.cache,
                steal_s=None if before is None or after is None else round(after - before, 2),
                frequency_hz=frequency_hz(self._assignment.lane.cores[0]),
                abandoned=timed["abandoned"],
                pace=update.pace,
            ),
        )

    def _fork(
        self,
        placement: Placement,
        settings: ChildSettings,
        work: Work,
        library: str | None,
        timeout_s: float,
        scratch: Path,
        readable: tuple[str, ...] = (),
        started: Callable[[int], object] = lambda pid: None,
    ) -> End:
        """Do `work` in a fenced child, and wait for its end.

        `library` is the generated code that it loads, None for a rival's. `readable`:
        files that it reads besides. `started` gets its process number.
        """
        threads = len(os.listdir("/proc/self/task"))
        if threads != 1:
            raise RunnerBroken(f"the runner has {threads} threads; forking needs one")
        fence = _fence(placement, settings, library, timeout_s, str(scratch))
        fence = replace(fence, readable=(*fence.readable, *readable))
        parent, (result, pipe) = os.getpid(), os.pipe()
        listening = fence.calls is not None and fence.calls.listening
        near, far = socket.socketpair() if listening else (None, None)
        pid = os.fork()
        if pid == 0:
            child.run(
                work, fence, parent=parent, pipe=pipe, channel=None if far is None else far.fileno()
            )
        os.close(pipe)
        started(pid)
        refusals = None
        if near is not None and far is not None:
            far.close()
            refusals = Refusals(
                near, settings.isolation.machine, readable=fence.readable, scratch=str(scratch)
            )
        try:
            return supervise(
                pid,
                result,
                timeout_s,
                owner=self._commands,
                confinement=self._confinement,
                refusals=refusals,
            )
        finally:
            os.close(result)
            if refusals is not None:
                refusals.close()


def _fence(
    placement: Placement,
    settings: ChildSettings,
    library: str | None,
    timeout_s: float,
    scratch: str,
) -> Fence:
    """What a child may use. `library` is the generated code it loads, None for a rival's."""
    generated = library is not None
    return Fence(
        isolation=settings.isolation,
        cores=placement.lane.cores,
        scratch=scratch,
        readable=(
            readable_for_kernels(library, os.environ)
            if library
            else readable_for_libraries(os.environ)
        ),
        memory_bytes=placement.memory_bytes if generated else None,
        cpu_s=ceil(timeout_s * placement.threads) + 1,
        tasks=settings.tasks,
        environment=child_environment(scratch, placement.threads),
        calls=settings.kernel_calls if generated else settings.library_calls,
    )


@contextmanager
def scratch_folder(root: Path) -> Iterator[Path]:
    """A folder for one child, removed with all that is in it."""
    scratch = Path(tempfile.mkdtemp(prefix="candidate-", dir=root))
    try:
        yield scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """What all children of an assignment have in common."""

    isolation: Isolation
    tasks: int
    kernel_calls: Filter | None  # the filters, assembled once
    foreign_calls: Filter | None
    library_calls: Filter | None


def _child_settings(placement: Placement, isolation: Isolation, tasks: int) -> ChildSettings:
    way = isolation.way(Mechanism.SECCOMP)
    reported = placement.memory_bytes // REPORTED_FRACTION if way is Way.LISTENER else None
    kernel_calls, foreign_calls = (
        kernel_filter(
            isolation.machine,
            listening=way is Way.LISTENER,
            reported_bytes=reported,
            threads=threads,
        )
        if way
        else None
        for threads in (True, False)
    )
    return ChildSettings(
        isolation=isolation,
        tasks=tasks,
        kernel_calls=kernel_calls,
        foreign_calls=foreign_calls,
        library_calls=library_filter(isolation.machine) if way else None,
    )


def child_environment(scratch: str, threads: int) -> Mapping[str, str]:
    """All environment variables that a child sees."""
    count = str(threads)
    return {
        "PATH": os.defpath,
        "HOME": scratch,
        "TMPDIR": scratch,
        "LANG": "C.UTF-8",
        "OMP_NUM_THREADS": count,
        "MKL_NUM_THREADS": count,
        "OPENBLAS_NUM_THREADS": count,
        HIDDEN_FEATURES: os.environ.get(HIDDEN_FEATURES, ""),
    }


def steal_s(cores: tuple[int, ...]) -> float | None:
    """CPU seconds that the hypervisor has taken from these cores since boot.

    None where the kernel does not tell.
    """
    try:
        lines = Path("/proc/stat").read_text().splitlines()
    except OSError:
        return None
    names = {f"cpu{core}" for core in cores}
    ticks = [
        int(words[8])
        for words in map(str.split, lines)
        if words and words[0] in names and len(words) > 8
    ]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def frequency_hz(core: int) -> float | None:
    """The core's current frequency; None where it cannot be read."""
    try:
        return (
            float(Path(f"/sys/devices/system/cpu/cpu{core}/cpufreq/scaling_cur_freq").read_text())
            * 1000.0
        )
    except (OSError, ValueError):
        return None


def main() -> None:
    answers = os.dup(1)
    os.dup2(2, 1)  # whatever prints must not break the framing
    adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="tuner-runner-") as scratch:
        parent = Parent(0, Path(scratch))
        try:
            _serve(parent, answers)
        finally:
            parent.close()


def _serve(parent: Parent, answers: int) -> None:
    send(answers, {"ready": os.getpid()})
    while (message := receive(0)) is not None:
        try:
            reply = parent.answer(message)
        except UsageError as error:
            reply = {"refused": str(error)}
        except (OSError, MemoryError, TunerError) as error:
            failure = Failed(
                kind=FailureKind.INFRASTRUCTURE, message=f"{type(error).__name__}: {error}"
            )
            reply = outcome_to_document(failure)
        except OwnerGone:
            return
        send(answers, reply)


if __name__ == "__main__":
    try:
        main()
    except WireError as error:
        sys.exit(str(error))
