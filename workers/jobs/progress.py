"""What an orchestrator tells whoever watches a job from within its process, beside the
events of the tuning loop itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tuner.tuning import Event
from tuner.workload.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskStarted:
    position: int  # of the workload in the job, from 0
    workload: Workload
    space_size: int
    recorded: int  # trials of an earlier run
    trials: int  # budget
    seconds: float | None  # budget


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """What is going on besides trials."""

    name: Literal["starting workers", "searching", "promotion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNotice:
    """A worker, or the driver, was lost and replaced."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished:
    position: int
    kernel: (
        str | None
        # id; None when not even the default could be verified, or the job was stopped
        # before promotion
    )
    error: str | None


Progress = TaskStarted | Phase | WorkerNotice | TaskFinished | Event
Observer = Callable[[Progress], None]


def unobserved(progress: Progress) -> None:
    """For jobs that nobody watches from within the process."""
