"""The platform of NVIDIA GPUs: runners on the first GPU that serves a target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tuner.app.kernels.cuda_kernel import CudaKernel
from tuner.app.machine import gpus_for
from tuner.app.platforms.platform import WorkloadRunner
from tuner.db.kernels import Kernel as StoredKernel
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.measure.gpu.runner import FreshProcesses, GpuLane, GpuRunner
from tuner.measure.gpu.sanitizer import find_sanitizer
from tuner.measure.race import Runs
from tuner.models.executors.cuda_executor import CudaExecutor
from tuner.models.executors.executor import Executor
from tuner.settings import Settings
from tuner.target.capability import called
from tuner.target.detect import detect_gpu
from tuner.target.target import Target
from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class CudaRunner:
    """A `WorkloadRunner` on one GPU."""

    device: GpuRunner

    def prepare(self, workload: Workload, *, threads: int, seed: int) -> Runs:
        """The GPU with the workload; each library gets a process of its own."""
        self.device.prepare(workload, seed)
        return FreshProcesses(self.device)


class CudaPlatform:
    """A `Platform`."""

    plural = "GPUs"

    def detect(self) -> Target:
        return detect_gpu()

    def open(
        self, *, stored: StoredKernel, workload: Workload, artifacts: ArtifactStore
    ) -> CudaKernel:
        return CudaKernel(stored=stored, workload=workload, artifacts=artifacts)

    @contextmanager
    def runner(self, target: Target, settings: Settings) -> Iterator[WorkloadRunner]:
        with GpuRunner(next(iter(gpus_for(target)), GpuLane())) as device:
            yield CudaRunner(device)

    def executor(
        self, target: Target, settings: Settings, threads: int
    ) -> AbstractContextManager[Executor]:
        lanes = gpus_for(target)
        if not lanes:
            raise UsageError(
                f"a model for {called(target)} is checked on the machine where it is tuned, which "
                f"has no such GPU; run the command where one is"
            )
        return nullcontext(CudaExecutor(lanes[0]))

    def sanitizer(self, library: str) -> Path:
        return find_sanitizer()
