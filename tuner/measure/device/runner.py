"""The runner of a device: a workload's inputs and references here, its kernels over there.

A device that vanishes is asked for again for a while. What it was measuring is then an
infrastructure failure, which is repeated.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tuner.errors import UsageError
from tuner.measure.assignment import Assignment, Device, Request
from tuner.measure.cache import WARM
from tuner.measure.device.connection import Connection, DeviceError
from tuner.measure.device.protocol import DeviceFacts, FenceBit
from tuner.measure.device.trial import Refused, Trial
from tuner.measure.outcome import Conditions, Failed, FailureKind, Outcome, Timed
from tuner.measure.pace import Pace
from tuner.measure.problem import SCREENING_CASES, Problem
from tuner.measure.sandbox.isolation import Isolation, resolve
from tuner.measure.sandbox.support import Finding, Mechanism, State, Support, Way

PATIENCE_S = 120.0  # for a device that is away
RETRY_S = 2.0  # between two attempts to reach it


class DevicePace(Pace):
    """The pace of a device's core, which it reads in one request."""

    def __init__(self, reading_s: Callable[[], float]) -> None:
        super().__init__(reading_s)
        self._reading_s = reading_s

    def read_s(self) -> float:
        return self._reading_s()


class DeviceRunner:
    """One device's runner. Not thread-safe; close it, or use it as a context."""

    def __init__(self, device: Device, *, patience_s: float = PATIENCE_S) -> None:
        """`patience_s`: how long a measurement waits for a device that is away."""
        self._device = device
        self._patience_s = patience_s
        self._connection: Connection | None = None
        self._facts: DeviceFacts | None = None  # of the first that answered
        self._assignment: Assignment | None = None
        self._problem: Problem | None = None
        self._isolation: Isolation | None = None
        self._pace = DevicePace(lambda: self.start().pace_s())

    def __enter__(self) -> DeviceRunner:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start(self) -> Connection:
        """The connection, made now where there is none.

        Raises DeviceError, also where another machine answers than before.
        """
        if self._connection is None or not self._connection.is_open:
            connection = Connection(self._device)
            # Its memory apart, of which a new start of the same machine may leave more or less.
            facts = replace(connection.facts, memory_bytes=0)
            if self._facts not in (None, facts):
                connection.close()
                raise DeviceError(f"{self._device.text}: another machine answers than before")
            self._connection, self._facts = connection, facts
        return self._connection

    def isolate(self, level: str) -> str:
        """The name of the isolation level as it is in force on the device.

        Raises UsageError where the device does not have it, and DeviceError.
        """
        return resolve(level, support(self.start())).name

    def pace_s(self) -> float:
        """Seconds of the calibration kernel on the device. Raises DeviceError."""
        return self._pace.read_s()

    def prepare(self, assignment: Assignment) -> None:
        """Makes the workload's inputs and reference, for all following requests.

        The device gets them when they are needed. Raises UsageError for threads or an
        isolation that it does not have, and DeviceError.
        """
        connection = self.reached()
        if assignment.threads > connection.facts.cores:
            raise UsageError(
                f"a kernel of {assignment.threads} threads does not fit {self._device.text}, "
                f"whose agent may use {connection.facts.cores} cores"
            )
        self._isolation = resolve(assignment.isolation, support(connection))
        connection.forget_all()
        self._drop()
        problem = Problem(assignment.workload, assignment.seed)
        problem.cases(SCREENING_CASES)
        self._assignment, self._problem = assignment, problem
        self._pace.forget()

    def prepare_promotion(self) -> None:
        """Makes the inputs and references of a promotion before they are needed."""
        if self._problem is not None:
            self._problem.cases(self._problem.promotion_cases)

    def measure(self, request: Request) -> Outcome:
        """The outcome of a library. A device that is lost is an infrastructure failure.

        Raises UsageError for a rival, which has no code for the device.
        """
        if request.rival or request.library is None or request.plan.cache != WARM:
            raise UsageError(f"{request.name} cannot run on a device: only kernels, warm caches")
        try:
            return self._measured(request, self.reached())
        except Refused as error:
            return error.failed
        except DeviceError as error:
            return Failed(
                kind=FailureKind.INFRASTRUCTURE,
                message=f"the device was lost while measuring {request.name}: {error}",
            )

    def _measured(self, request: Request, connection: Connection) -> Outcome:
        if self._assignment is None or self._problem is None or self._isolation is None:
            raise DeviceError("a device was given a candidate before a workload")
        promotion = request.verification == "promotion"
        names = self._problem.promotion_cases if promotion else SCREENING_CASES
        trial = Trial(
            connection=connection,
            cases=self._problem.cases(names),
            request=request,
            threads=self._assignment.threads,
            memory_bytes=min(self._assignment.memory_bytes, connection.facts.memory_bytes),
        )
        try:
            checked = trial.run(self._pace)
        finally:
            with suppress(DeviceError):
                if connection.is_open:
                    connection.close_candidate()
        self._pace.learn(checked.paced.update)
        return Timed(
            samples_s=checked.paced.timing.samples_s,
            max_rel_error=checked.max_rel_error,
            artifact=hashlib.sha256(Path(request.library or "").read_bytes()).hexdigest(),
            conditions=Conditions(
                lane=self._assignment.lane.name,
                isolation=self._isolation.name,
                abandoned=checked.paced.timing.abandoned,
                pace=checked.paced.update.pace,
            ),
        )

    def reached(self) -> Connection:
        """The connection, for which a while is waited. Raises DeviceError."""
        deadline = time.monotonic() + self._patience_s
        while True:
            try:
                return self.start()
            except DeviceError:
                if time.monotonic() >= deadline:
                    raise
                time.sleep(min(RETRY_S, max(0.0, deadline - time.monotonic())))

    def close(self) -> None:
        """End the agent. Idempotent."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        self._drop()

    def _drop(self) -> None:
        problem, self._problem = self._problem, None
        self._assignment = None
        if problem is not None:
            problem.close()


def support(connection: Connection) -> Support:
    """What the device's system offers to fence candidates off."""
    fences = connection.facts.fences
    calls, files = FenceBit.CALLS in fences, FenceBit.FILES in fences
    return Support(
        machine=connection.facts.architecture,
        findings={
            Mechanism.SECCOMP: _finding(calls, Way.KILL, "system calls are filtered"),
            Mechanism.CAPABILITIES: _finding(
                FenceBit.PRIVILEGES in fences, Way.CAPSET, "all dropped"
            ),
            Mechanism.PROCESSES: _finding(False, None, "an agent does not count threads"),
            Mechanism.FILES: _finding(files, Way.LANDLOCK, "none can be opened"),
            Mechanism.NETWORK: _finding(calls, Way.SECCOMP, "no socket can be made"),
        },
    )


def _finding(there: bool, way: Way | None, detail: str) -> Finding:
    if there:
        return Finding(state=State.AVAILABLE, way=way, detail=detail)
    return Finding(state=State.MISSING, way=None, detail="the device's system does not have it")
