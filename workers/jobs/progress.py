"""Progress of a job for observers within the orchestrator's process.

Observers also get the events of the tuning loop itself.
"""

from __future__ import annotations

import math
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
    """A phase of a task begins."""

    name: Literal["starting workers", "searching", "promotion"]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerNotice:
    """A worker, or the driver, was lost and replaced."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRound:
    """The next round of a model's kernels begins, or their promotions."""

    trials: int  # of all kernels, until now
    budget: int  # trials of all kernels
    searched: int  # kernels that had a round
    kernels: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelGain:
    """What the last rounds of a model have gained, by the sum of its kernels' times."""

    seconds: float  # that the rounds took
    before_s: float  # one call of all kernels before them
    after_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelLate:
    """The time of a model was too short for a round of each kernel."""

    kernels: int
    unsearched: int = 0  # kernels without a round; each gets one trial, then its promotion
    kept: int = 0  # kernels without a round that the database has a verified one of, which stays
    seconds: float  # by which the command is expected to be late
    before_s: float | None = None  # what was said of it before; None the first time

    @property
    def text(self) -> str:
        if self.before_s is not None:
            end = f"about {math.ceil(self.seconds)} s late" if self.seconds > 0 else "in time"
            before = f", not {math.ceil(self.before_s)} s late" if self.before_s > 0 else ""
            return f"by what promotions take, the model will be {end}{before}"
        parts = []
        if self.unsearched:
            parts.append(f"{self.unsearched} of {self.kernels} get one trial each")
        if self.unsearched and self.seconds > 0:
            parts[0] += f", which takes about {math.ceil(self.seconds)} s longer than was given"
        if self.kept:
            parts.append(f"{self.kept} of {self.kernels} stay as the database has them")
        return (
            f"the time was too short for a round of each kernel: {'; '.join(parts)}; give more "
            f"seconds for faster kernels"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFinished:
    position: int
    # id; None if not even the default could be verified, or the job stopped before promotion
    kernel: str | None
    error: str | None


Progress = (
    TaskStarted | Phase | WorkerNotice | ModelRound | ModelGain | ModelLate | TaskFinished | Event
)
Observer = Callable[[Progress], None]


def unobserved(progress: Progress) -> None:
    """An observer that ignores all progress."""
