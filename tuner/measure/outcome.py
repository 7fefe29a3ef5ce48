"""What became of a trial: timed samples, or a failure of a named kind with its text.

A failure is a variant, never a number.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from statistics import median
from typing import Any

from tuner.measure.gpu.resources import Resources
from tuner.measure.objective import Figures
from tuner.spaces.core.space import Config
from tuner.target.roofline import STEADY_FACTOR

# The part of a kernel's estimated slowness, in logarithms, that its time is corrected by.
# The estimate's error grows with the slowness, and a search looks for the least of many
# times. With the whole correction the winner would come from one of the slowest moments
# (docs/explanation/measurement.md, Pace).
BELIEVED = 0.75


class FailureKind(StrEnum):
    """The closed set of kinds.

    All but `INFRASTRUCTURE` are the candidate's own fault and teach the model. Only
    that one is retried.
    """

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
    """The circumstances of a timing; None where the machine does not tell."""

    lane: str  # e.g. "cpu:1"
    isolation: str  # level of isolation the child ran under
    cache: str = "warm"  # warm or cold
    steal_s: float | None = None  # CPU time taken by the hypervisor while timing
    frequency_hz: float | None = None  # of a GPU's multiprocessors: the samples' median
    abandoned: bool = False  # timing stopped early: far slower than the best
    # The kernel's pace beside its usual one, estimated from the core's; None on GPUs, and
    # before a usual pace is known.
    pace: float | None = None
    # Not timed: these are the samples of another trial with the very same machine code.
    reused: bool = False
    # The rest is a GPU's, as NVML says it while a sample is taken.
    sample_frequencies_hz: tuple[float, ...] = ()  # of each sample; empty: all are the median
    memory_frequency_hz: float | None = None
    throttled: tuple[str, ...] = ()  # what held the clocks of the samples down, sorted
    discarded: int = 0  # samples that were taken again, because of heat or from outside


def conditions_from_document(document: Mapping[str, Any]) -> Conditions:
    """Conditions from their fields as JSON."""
    lists = {name: tuple(document.get(name, ())) for name in ("sample_frequencies_hz", "throttled")}
    return Conditions(**{**document, **lists})


def conditions_to_document(conditions: Conditions) -> dict[str, Any]:
    """The fields as JSON; what a GPU alone has, only where there is something of it."""
    fields = asdict(conditions)
    of_a_gpu = ("sample_frequencies_hz", "memory_frequency_hz", "throttled", "discarded")
    return {name: value for name, value in fields.items() if value or name not in of_a_gpu}


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """A candidate that was checked and timed."""

    samples_s: tuple[float, ...]  # seconds of one call, one entry per repeat
    # Against the float64 reference, normalised by decision 7 of docs/explanation/architecture.md.
    max_rel_error: float
    conditions: Conditions
    artifact: str  # SHA-256 of the library that was timed
    # Memory for temporaries that all its threads held at most; None where that is not told.
    workspace_bytes: int | None = None

    @property
    def median_s(self) -> float:
        return median(self.samples_s)

    @property
    def undisturbed_s(self) -> float:
        """Seconds of a call at the usual pace of its core, as far as that is believed.

        This is what searches compare.
        """
        return self.median_s * math.pow(min(1.0, self.conditions.pace or 1.0), BELIEVED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """A candidate that was not timed, with the reason."""

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
    """A candidate with its outcome."""

    number: int
    config: Config
    outcome: Outcome
    build_s: float = 0.0  # seconds spent building on a builder
    measure_s: float = 0.0  # seconds the lane was held
    resources: Resources | None = None  # of a GPU's candidate that was built
    code_bytes: int | None = None  # machine code; None where it was not built, and on GPUs

    @property
    def figures(self) -> Figures:
        """What objectives compare, as far as a trial tells."""
        if not isinstance(self.outcome, Timed):
            return Figures()
        return Figures(
            median_s=self.outcome.median_s,
            workspace_bytes=self.outcome.workspace_bytes,
            code_bytes=self.code_bytes,
        )


def kept_pace(trials: Iterable[Trial]) -> bool:
    """Whether cores kept one speed in at least nine of ten trials.

    Where they did not, the limits may have been measured at any of their speeds, and
    the fastest of many times may be that of a fast moment.
    """
    timed = [trial.outcome.conditions.pace for trial in trials if isinstance(trial.outcome, Timed)]
    paces = sorted(pace for pace in timed if pace is not None)
    return not paces or paces[-1] <= STEADY_FACTOR * paces[len(paces) // 10]


def printable(text: str) -> str:
    """What a stranger's program said, without what drives a terminal or is no text to a
    database."""
    return "".join(
        character if character.isprintable() or character in "\n\t" else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )
