"""Runners of GPUs: Ray actors that own a device and measure one candidate at a time.

They have the methods of `Runner`. The actor stays on the lane's cores of the host;
candidates run in the processes of `tuner.measure.gpu.runner`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path

from tuner.errors import TunerError
from tuner.measure.assignment import Lane
from tuner.measure.gpu.runner import FreshProcesses, GpuRunner, gpu_lane
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


class GpuLaneRunner:
    """The actor of a GPU's lane. Ray runs its methods one after the other."""

    def __init__(
        self, *, lane: Lane, home_cores: tuple[int, ...], limits: Limits, storage: str
    ) -> None:
        """`storage`: directory for libraries that come from other machines."""
        os.sched_setaffinity(0, lane.cores or home_cores)
        self._lane = lane
        self._limits = limits
        self._storage = Path(storage)
        self._runner = GpuRunner(gpu_lane(lane))
        self._problems: dict[str, Problem] = {}
        self._prepared = ""  # key of the problem that the runner holds

    def describe(self) -> dict[str, int | str]:
        """Name and process ids, or `refused`: why the device cannot be used."""
        description: dict[str, int | str] = {"name": self._lane.name, "pid": os.getpid()}
        try:
            self._runner.start()
        except TunerError as error:
            return description | {"refused": str(error)}
        return description | {
            "process_pid": self._runner.pid or 0,
            "isolation": "process",
            "device": str(self._runner.facts["name"]),
        }

    def calibrate(self) -> tuple[float, ...]:
        """An empty calibration: a device reports its clock with each trial instead."""
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
        return [
            raced(control, FreshProcesses(self._runner), self._limits, self._storage)
            for control in asks
        ]

    def close(self) -> None:
        self._runner.close()

    def _measure(self, request: MeasureRequest) -> Outcome:
        library = unpacked(request.library, self._storage)
        try:
            return self._runner.measure(measurement_request(request, library, self._limits))
        except TunerError as error:
            self._prepared = ""
            return Failed(kind=FailureKind.INFRASTRUCTURE, message=str(error))
        finally:
            if library is not request.library:
                Path(library.path).unlink(missing_ok=True)

    def _prepare(self, problem_key: str) -> Failed | None:
        """Prepares the workload unless the runner holds it; the failure if there is one."""
        if self._prepared == problem_key:
            return None
        problem = self._problems[problem_key]
        self._prepared = ""
        try:
            self._runner.prepare(problem.workload, problem.seed)
        except TunerError as error:
            return Failed(kind=FailureKind.INFRASTRUCTURE, message=str(error))
        self._prepared = problem_key
        return None
