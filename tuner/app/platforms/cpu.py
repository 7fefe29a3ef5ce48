"""The platform of CPUs: runner processes on lanes of cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from tuner.app.kernels.kernel import Kernel
from tuner.app.machine import first_lane
from tuner.app.platforms.platform import WorkloadRunner
from tuner.db.kernels import Kernel as StoredKernel
from tuner.errors import UsageError
from tuner.export.artifacts import ArtifactStore
from tuner.measure.assignment import Assignment
from tuner.measure.race import Runs
from tuner.measure.runner import RunnerOptions, RunnerProcess
from tuner.models.executors.confined_calls import ConfinedCalls
from tuner.models.executors.cpu_executor import CpuExecutor
from tuner.models.executors.executor import Executor
from tuner.settings import Settings
from tuner.target.detect import detect_cpu
from tuner.target.target import Target
from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class CpuRunner:
    """A `WorkloadRunner` on the first lane of the settings."""

    process: RunnerProcess
    settings: Settings

    def prepare(self, workload: Workload, *, threads: int, seed: int) -> Runs:
        """The process with the workload, on a lane of so many cores."""
        lane = first_lane(self.settings, threads)
        self.process.prepare(Assignment(workload=workload, lane=lane, threads=threads, seed=seed))
        return self.process


@contextmanager
def cpu_runner(settings: Settings, *, without: Sequence[str] = ()) -> Iterator[CpuRunner]:
    """A runner process for the block; `without` names CPU features hidden from libraries."""
    with RunnerProcess(RunnerOptions(cpu_without=tuple(without))) as process:
        yield CpuRunner(process, settings)


class CpuPlatform:
    """A `Platform`."""

    plural = "CPUs"

    def detect(self) -> Target:
        return detect_cpu()

    def open(self, *, stored: StoredKernel, workload: Workload, artifacts: ArtifactStore) -> Kernel:
        return Kernel(stored=stored, workload=workload, artifacts=artifacts)

    def runner(self, target: Target, settings: Settings) -> AbstractContextManager[WorkloadRunner]:
        return cpu_runner(settings)

    def executor(
        self, target: Target, settings: Settings, threads: int
    ) -> AbstractContextManager[Executor]:
        return nullcontext(CpuExecutor(ConfinedCalls(first_lane(settings, threads).cores)))

    def sanitizer(self, library: str) -> Path:
        raise UsageError(
            f"{library} is for CPUs; compute-sanitizer looks at kernels for GPUs: leave "
            f"--sanitize out"
        )
