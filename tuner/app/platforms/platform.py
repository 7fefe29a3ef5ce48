"""The contract of a platform: how this machine runs the kernels of one kind of target."""

from __future__ import annotations

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol

from tuner.app.kernels.cuda_kernel import CudaKernel
from tuner.app.kernels.kernel import Kernel
from tuner.db.kernels import Kernel as StoredKernel
from tuner.export.artifacts import ArtifactStore
from tuner.measure.race import Runs
from tuner.models.executors.executor import Executor
from tuner.settings import Settings
from tuner.target.target import Target
from tuner.workload.workload import Workload


class WorkloadRunner(Protocol):
    """Measures libraries of one workload after another."""

    def prepare(self, workload: Workload, *, threads: int, seed: int) -> Runs:
        """The runner with the workload's inputs, which are made from `seed`.

        Raises UsageError where the machine has no lane of so many threads, RunnerError
        and GpuRunnerError.
        """
        ...


class Platform(Protocol):
    """This machine as a place for kernels of one kind of target."""

    @property
    def plural(self) -> str:
        """What such targets are called in messages, such as `CPUs`."""
        ...

    def detect(self) -> Target:
        """This machine's target of the kind.

        Raises NoDriver and CudaError where it has none.
        """
        ...

    def open(
        self, *, stored: StoredKernel, workload: Workload, artifacts: ArtifactStore
    ) -> Kernel | CudaKernel:
        """A promoted kernel as a callable object. Raises ArtifactMissing, ArtifactCorrupt."""
        ...

    def runner(self, target: Target, settings: Settings) -> AbstractContextManager[WorkloadRunner]:
        """A runner on the first lane that can measure for the target."""
        ...

    def executor(
        self, target: Target, settings: Settings, threads: int
    ) -> AbstractContextManager[Executor]:
        """What runs models for the target, on the first lane of so many threads.

        Raises UsageError where there is none, and DeviceError.
        """
        ...

    def sanitizer(self, library: str) -> Path:
        """The program that looks for errors in the kernels of a library.

        Raises UsageError where there is none for this kind of target, or none installed.
        """
        ...
