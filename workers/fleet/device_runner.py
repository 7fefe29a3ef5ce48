"""Runners of devices: Ray actors that have candidates measured by the agent of another machine.

The actor makes inputs and judges outputs on the builders' cores; candidates run on the
device (`tuner.measure.device`).
"""

from __future__ import annotations

import os

from tuner.errors import UsageError
from tuner.measure.assignment import Assignment, Lane, Request
from tuner.measure.device.connection import DeviceError
from tuner.measure.device.runner import DeviceRunner
from tuner.measure.outcome import Outcome
from tuner.workers.fleet.lane_runner import LaneRunner
from tuner.workers.fleet.messages import Limits, Problem


class DeviceLaneRunner(LaneRunner):
    """The actor of a device's lane. Ray runs its methods one after the other."""

    def __init__(
        self, *, lane: Lane, home_cores: tuple[int, ...], limits: Limits, storage: str
    ) -> None:
        """`storage`: directory for libraries that come from other machines."""
        os.sched_setaffinity(0, home_cores)
        if lane.device is None:
            raise UsageError(f"lane {lane.name} is of no device")
        super().__init__(lane=lane, limits=limits, storage=storage)
        self._runner = DeviceRunner(lane.device)

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

    def prepare(self, problem: Problem) -> None:
        self._runner.prepare(
            Assignment(
                workload=problem.workload,
                lane=self._lane,
                threads=problem.threads,
                seed=problem.seed,
                memory_bytes=self._limits.memory_bytes,
                isolation=self._limits.isolation,
            )
        )

    def outcome(self, request: Request) -> Outcome:
        return self._runner.measure(request)

    def contender(self) -> DeviceRunner:
        return self._runner

    def close(self) -> None:
        self._runner.close()
