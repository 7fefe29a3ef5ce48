"""Runners of devices: Ray actors that have candidates measured by the agent of another machine.

They have the methods of `Runner`. The actor makes inputs and judges outputs on the
builders' cores; candidates run on the device (`tuner.measure.device`).
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from tuner.errors import TunerError, UsageError
from tuner.measure.assignment import Assignment, Lane
from tuner.measure.device.connection import DeviceError
from tuner.measure.device.runner import DeviceRunner
from tuner.measure.outcome import Failed, FailureKind, Outcome
from tuner.workers.fleet.messages import (
    Limits,
    Measured,
    MeasureRequest,
    Problem,
    RaceOutcome,
    RunRace,
)
from tuner.workers.fleet.runner import measurement_request, raced
from tuner.workers.fleet.shipping import unpacked


class DeviceLaneRunner:
    """The actor of a device's lane. Ray runs its methods one after the other."""

    def __init__(
        self, *, lane: Lane, home_cores: tuple[int, ...], limits: Limits, storage: str
    ) -> None:
        """`storage`: directory for libraries that come from other machines."""
        os.sched_setaffinity(0, home_cores)
        if lane.device is None:
            raise UsageError(f"lane {lane.name} is of no device")
        self._lane = lane
        self._limits = limits
        self._storage = Path(storage)
        self._runner = DeviceRunner(lane.device)
        self._problems: dict[str, Problem] = {}
        self._prepared = ""  # key of the problem that the runner holds

    def describe(self) -> dict[str, int | str]:
        """Name and isolation, or `refused`: why the device cannot be used."""
        description: dict[str, int | str] = {"name": self._lane.name, "pid": os.getpid()}
        try:
            return description | {"isolation": self._runner.isolate(self._limits.isolation)}
        except UsageError as error:
            return description | {"refused": str(error)}
        except DeviceError as error:
            # It may come back, and measurements wait for it.
            return description | {"away": str(error)}

    def calibrate(self) -> tuple[float, ...]:
        """Seconds of the calibration kernel on the device; empty while it is away."""
        try:
            return (self._runner.pace_s(),)
        except DeviceError:
            return ()

    def load(self, problem: Problem) -> None:
        self._problems[problem.key] = problem

    def measure(self, problem_key: str, requests: Sequence[MeasureRequest]) -> list[Measured]:
        measured = []
        for request in requests:
            refusal = self._prepare(problem_key)
            # Preparing inputs and reference, once a workload, is not the candidate's time.
            started = time.time()
            outcome = refusal if refusal is not None else self._measure(request)
            measured.append(
                Measured(
                    number=request.number, outcome=outcome, started_s=started, ended_s=time.time()
                )
            )
        return measured

    def race(self, problem_key: str, asks: Sequence[RunRace]) -> list[RaceOutcome]:
        refusal = self._prepare(problem_key)
        if refusal is not None:
            # The driver replaces this runner, and the promotion tries again.
            raise RuntimeError(refusal.message)
        return [raced(control, self._runner, self._limits, self._storage) for control in asks]

    def close(self) -> None:
        self._runner.close()

    def _measure(self, request: MeasureRequest) -> Outcome:
        library = unpacked(request.library, self._storage)
        try:
            return self._runner.measure(measurement_request(request, library, self._limits))
        finally:
            if library is not request.library:
                Path(library.path).unlink(missing_ok=True)

    def _prepare(self, problem_key: str) -> Failed | None:
        """Prepares the workload unless the runner holds it; the failure if there is one."""
        if self._prepared == problem_key:
            return None
        problem, self._prepared = self._problems[problem_key], ""
        assignment = Assignment(
            workload=problem.workload,
            lane=self._lane,
            threads=problem.threads,
            seed=problem.seed,
            memory_bytes=self._limits.memory_bytes,
            isolation=self._limits.isolation,
        )
        try:
            self._runner.prepare(assignment)
        except TunerError as error:
            return Failed(kind=FailureKind.INFRASTRUCTURE, message=str(error))
        self._prepared = problem_key
        return None
