"""The roles that commands work with, each with a local and a remote implementation.

All of them answer in the types of REST. So there is one way to print a job, whether it
came from the database or from a service.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from tuner.api.estimate_schemas import EstimatesAnswer
from tuner.api.lookup_schemas import LookupAnswer
from tuner.api.race_schemas import RacesAnswer, RegressionAnswer
from tuner.api.schemas import (
    EventAnswer,
    HealthAnswer,
    JobAnswer,
    KernelAnswer,
    OperatorAnswer,
    RollbackAnswer,
    TrialAnswer,
    WorkerAnswer,
)

if TYPE_CHECKING:
    from tuner.cli.progress import TuningDisplay
    from tuner.target.target import Target
    from tuner.workload.spec import Portfolio
    from tuner.workload.workload import Workload

LAST = "last"  # as a job's id: the newest job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """What a job is to tune. Its budget comes from the settings."""

    workloads: tuple[Workload, ...]
    families: tuple[Portfolio, ...] = ()  # of each, a few members are tuned
    priority: int = 0  # higher goes first
    improve: bool = True  # whether workloads that have a kernel are tuned again


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """What to export, and where to."""

    ids: tuple[str, ...]  # of kernels
    families: tuple[Portfolio, ...]
    every: bool  # all promoted kernels of this machine instead
    directory: Path
    name: str | None  # of the library; None: as the implementation names it
    public_key: str | None = None  # that must have signed what is downloaded
    isa: str | None = None  # levels of x86-64 to compile for too, with commas
    frameworks: tuple[str, ...] = ()  # of tuner.export.frameworks, that it is for too
    within: float | None = None  # share by which kernels may be slower than the fastest


@dataclass(frozen=True, slots=True, kw_only=True)
class Exported:
    """An exported library in its directory."""

    directory: Path
    manifest: dict[str, Any]  # as manifest.json has it


class Jobs(Protocol):
    """Reads and cancels jobs. `job` is an id or LAST."""

    def list(self, *, states: Sequence[str], limit: int) -> Sequence[JobAnswer]: ...

    def get(self, job: str) -> JobAnswer: ...

    def trials(self, job: str, *, outcomes: Sequence[str]) -> Sequence[TrialAnswer]: ...

    def cancel(self, job: str) -> JobAnswer: ...

    def events(self, job: str, *, after: int) -> Iterator[EventAnswer]:
        """The events numbered above `after`, as they come, until the job is finished."""
        ...


class Work(Protocol):
    """Makes jobs, continues them, and runs them to their end."""

    def submit(self, request: JobRequest) -> JobAnswer: ...

    def learn(
        self, workloads: Sequence[Workload], weights: Sequence[float], *, seconds: float
    ) -> JobAnswer:
        """Queues a job of what makes the estimates of these workloads surest."""
        ...

    def resume(self, job: str, *, trials: int | None, seconds: float | None) -> JobAnswer: ...

    def run(self, job: str, display: TuningDisplay) -> JobAnswer:
        """Returns the job when it has ended. The first Ctrl-C cancels it."""
        ...


class Kernels(Protocol):
    """Reads, estimates, rolls back and exports kernels."""

    def list(self, *, workload: str | None) -> Sequence[KernelAnswer]:
        """Promoted kernels, the newest first: those of one workload's key, or all."""
        ...

    def get(self, kernel: str) -> KernelAnswer: ...

    def canaries(self) -> Sequence[KernelAnswer]: ...

    def promote(self, kernel: str) -> KernelAnswer: ...

    def rollback(self, kernel: str) -> RollbackAnswer: ...

    def races(self, kernel: str) -> RacesAnswer:
        """The kernel's races since it was promoted, in order of time."""
        ...

    def regressions(self, *, states: Sequence[str]) -> Sequence[RegressionAnswer]:
        """What promoted kernels lost, the newest first."""
        ...

    def export(self, request: ExportRequest) -> Sequence[Exported]: ...

    def lookup(
        self,
        workload: Workload,
        *,
        threads: int | Literal["auto"] | None,
        within: float | None,
    ) -> LookupAnswer:
        """What the settings' objective chooses among a workload's kernels.

        `within`: the share by which it may take longer than the fastest. Raises NotFound
        where there is no kernel.
        """
        ...

    def estimate(self, workloads: Sequence[Workload]) -> EstimatesAnswer:
        """What kernels of these workloads take, or would take, on the settings' target."""
        ...


class Fleet(Protocol):
    """What can be tuned, and on what."""

    def operators(self) -> Sequence[OperatorAnswer]: ...

    def target(self) -> Target:
        """The target that the settings name."""
        ...

    def workers(self) -> Sequence[WorkerAnswer]: ...

    def health(self) -> HealthAnswer: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Backend:
    """The three roles that work on jobs and kernels."""

    where: str  # for people: a database's or a service's address
    jobs: Jobs
    work: Work
    kernels: Kernels
