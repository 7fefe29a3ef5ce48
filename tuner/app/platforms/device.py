"""The platform of devices: the agent of another machine, for one declared CPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

from tuner.app.devices import device_lanes
from tuner.app.kernels.kernel import Kernel
from tuner.app.platforms.platform import WorkloadRunner
from tuner.db.kernels import Kernel as StoredKernel
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.measure.assignment import Assignment, Lane
from tuner.measure.device.runner import DeviceRunner
from tuner.measure.race import Runs
from tuner.models.executors.device_executor import device_executor
from tuner.models.executors.executor import Executor
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class DeviceWorkloads:
    """A `WorkloadRunner` on one device."""

    runner: DeviceRunner
    lane: Lane
    settings: Settings

    def prepare(self, workload: Workload, *, threads: int, seed: int) -> Runs:
        """The device with the workload; it has the lane's cores."""
        assignment = Assignment(
            workload=workload,
            lane=self.lane,
            threads=min(threads, len(self.lane.cores)),
            seed=seed,
            isolation=self.settings.isolation,
        )
        self.runner.prepare(assignment)
        return self.runner


class DevicePlatform:
    """A `Platform`."""

    plural = "devices"

    def __init__(self, target: Target) -> None:
        self._target = target

    def detect(self) -> Target:
        """The declared CPU that the device is."""
        return self._target

    def open(self, *, stored: StoredKernel, workload: Workload, artifacts: ArtifactStore) -> Kernel:
        raise UsageError(f"{stored.id} is for {self._target.name}, and can be called there alone")

    @contextmanager
    def runner(self, target: Target, settings: Settings) -> Iterator[WorkloadRunner]:
        """A runner on the first of the settings' devices."""
        lane = device_lanes(settings, target)[0]
        assert lane.device is not None, "the lane of a device has one"
        with DeviceRunner(lane.device, patience_s=0.0) as runner:
            yield DeviceWorkloads(runner, lane, settings)

    def executor(
        self, target: Target, settings: Settings, threads: int
    ) -> AbstractContextManager[Executor]:
        """On the first of the settings' devices, on as many of its cores as it has."""
        lane = device_lanes(settings, target)[0]
        return device_executor(lane, target, threads, settings.isolation)

    def sanitizer(self, library: str) -> Path:
        raise UsageError(f"{library} is for CPUs; leave --sanitize out")
