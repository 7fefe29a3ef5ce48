"""What became of a trial: timed samples, or a failure of a named kind with its text.
Failure is a variant, never a number."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import median

from tuner.measure.gpu.resources import Resources
from tuner.spaces.core.space import Config
from tuner.target.roofline import STEADY_FACTOR

# Of a kernel's slowness, in logarithms, that its core's tells. It is told with an error
# that grows with it, and the minimum of many times is sought: with all of it the winner
# would be one of the slowest moments (docs/explanation/measurement.md, Pace).
BELIEVED = 0.75


class FailureKind(StrEnum):
    """The closed set. All but `INFRASTRUCTURE` are the candidate's own fault and teach
    the model; only that one is retried."""

    ILLEGAL_SCHEDULE = "illegal_schedule"
    BUILD_ERROR = "build_error"
    BUILD_TIMEOUT = "build_timeout"
    WRONG_ANSWER = "wrong_answer"
    RUN_CRASH = "run_crash"
    RUN_TIMEOUT = "run_timeout"
    OUT_OF_MEMORY = "out_of_memory"
    IMPLAUSIBLE = "implausible"
    INFRASTRUCTURE = "infrastructure"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """Under which circumstances a trial was timed; None where the machine does not tell."""

    lane: str  # e.g. "cpu:1"
    isolation: str  # level of isolation the child ran under
    cache: str = "warm"  # warm or cold
    steal_s: float | None = None  # CPU time taken by the hypervisor while timing
    frequency_hz: float | None = None
    abandoned: bool = (
        False  # timing stopped early because the candidate was far slower than the best
    )
    pace: float | None = (
        # of the kernel, beside its usual one, as the core's tells; None on GPUs and
        # before one is known
        None
    )
    # not timed: another trial with the very same machine code was, and these are its
    # samples
    reused: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    samples_s: tuple[float, ...]  # seconds of one call, one entry per repeat
    # Against the float64 reference, normalised by decision 7 of docs/explanation/architecture.md.
    max_rel_error: float
    conditions: Conditions
    artifact: str  # SHA-256 of the library that was timed

    @property
    def median_s(self) -> float:
        return median(self.samples_s)

    @property
    def undisturbed_s(self) -> float:
        """What a call would have taken at the usual pace of its core, as far as that is
        believed: what searches compare."""
        return self.median_s * math.pow(min(1.0, self.conditions.pace or 1.0), BELIEVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    kind: FailureKind
    message: str  # the whole text, as the compiler or the check gave it


Outcome = Timed | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One config to be measured. Number 0 is the default schedule, whose config is empty."""

    number: int  # of its trial within the job, from 0
    config: Config = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    number: int
    config: Config
    outcome: Outcome
    build_s: float = 0.0  # seconds spent building on a builder
    measure_s: float = 0.0  # seconds the lane was held
    resources: Resources | None = None  # of a GPU's candidate that was built


def kept_pace(trials: Iterable[Trial]) -> bool:
    """Whether cores kept one speed in nine of ten trials at least. Where they did not,
    limits were measured at any of their speeds, and the fastest of many times may be
    that of a fast moment."""
    timed = [trial.outcome.conditions.pace for trial in trials if isinstance(trial.outcome, Timed)]
    paces = sorted(pace for pace in timed if pace is not None)
    return not paces or paces[-1] <= STEADY_FACTOR * paces[len(paces) // 10]
