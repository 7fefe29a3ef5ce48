"""The pace of a core: how fast it computes at this moment beside its usual speed.

On a shared machine a core may be slowed to two thirds for seconds at a time, whatever
this system does meanwhile. That is long beside a timing and short beside a job, and
candidates timed in different states cannot be compared. So a candidate that may be the
best yet waits for the usual pace, with bounded patience. For all others it is recorded how
much their timings were slowed, and searches compare what they would have taken without.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite, log
from statistics import median
from typing import Any

from tuner.measure.timing import Timing

# A reading this many times the usual one is that of a slowed core. Undisturbed readings
# differ by a few percent.
SLOWED = 1.12
# Of calls before those that count: after a pause a core takes half of it to reach its pace.
WARM_UP_S = 0.001
CALLS = 5  # timed for a reading
KEPT = 200  # readings that say what is usual: of some hundred timings
# Of waiting for the usual pace, from the beginning of a timing; halved each time it was in
# vain.
PATIENCE_S = 1.0
STEP_S = 0.01  # between two readings while waiting
WIDEST = 8.0  # times the usual pace, or a part of it: anything further off is no pace
# Weight, as squared logarithm of readings, of the assumption that kernels are slowed as
# much as their core.
PRIOR_WEIGHT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowdownSample:
    """How much slower a core and a kernel on it were in one state than in another."""

    core: float  # log of the ratio of the readings
    kernel: float  # log of the ratio of the medians


@dataclass(frozen=True, slots=True, kw_only=True)
class PaceUpdate:
    """What a timing showed of its core: for itself, and for the timings after it."""

    # The kernel's pace beside its usual one, as far as the core's tells; None where nothing
    # is usual yet.
    pace: float | None = None
    # The first and the last; all readings of a long wait would become the usual ones.
    readings_s: tuple[float, ...] = ()
    waited_in_vain: bool | None = None  # None where nothing was waited for
    slowdown: SlowdownSample | None = None  # None where it was timed in one state

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> PaceUpdate:
        """The update of a child's JSON, which a kernel may have written.

        Raises ValueError, TypeError or KeyError for what cannot be.
        """
        pace, slowdown = document["pace"], document["slowdown"]
        readings = tuple(float(reading) for reading in document["readings_s"])
        if pace is not None and not 1 / WIDEST <= float(pace) <= WIDEST:
            raise ValueError(f"a pace of {pace}")
        if not all(isfinite(reading) and reading > 0 for reading in readings):
            raise ValueError(f"readings of {list(readings)} s")
        return cls(
            pace=None if pace is None else float(pace),
            readings_s=readings,
            waited_in_vain=document["waited_in_vain"],
            slowdown=None if slowdown is None else _sample_of(slowdown),
        )


def _sample_of(document: Mapping[str, Any]) -> SlowdownSample:
    sample = SlowdownSample(core=float(document["core"]), kernel=float(document["kernel"]))
    if not (isfinite(sample.core) and isfinite(sample.kernel)):
        raise ValueError(f"{sample} is no ratio")
    return sample


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedTiming:
    """A timing, with what it showed of its core."""

    timing: Timing
    update: PaceUpdate = PaceUpdate()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """A timing, with the state of the core around it."""

    slowness: float  # log of the readings around it, beside the usual one
    timing: Timing

    @property
    def median_s(self) -> float:
        return median(self.timing.samples_s)


class Pace:
    """What is usual on a core, and how much a workload's kernels are slowed with it.

    The runner's parent owns it; children read it.
    """

    def __init__(
        self, call_s: Callable[[], float], *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`call_s` does the same work each time, some tens of microseconds, and returns
        its seconds."""
        self._call_s, self._clock = call_s, clock
        self._readings: deque[float] = deque(maxlen=KEPT)
        self._waits_in_vain = 0  # in a row
        self._slowdowns: list[SlowdownSample] = []

    @property
    def usual_s(self) -> float | None:
        """The fastest tenth of the readings: others slow a core down, never speed it up."""
        ordered = sorted(self._readings)
        return ordered[len(ordered) // 10] if ordered else None

    @property
    def patience_s(self) -> float:
        """How long a timing may wait for the usual pace."""
        return PATIENCE_S * 0.5**self._waits_in_vain  # a float: no overflow, however many

    @property
    def share(self) -> float:
        """How much of a core's slowness, in logarithms, slows the workload's kernels: 0 to 1.

        All of it where arithmetic bounds them, less where memory does. Least squares,
        drawn towards 1 by `PRIOR_WEIGHT`.
        """
        both = PRIOR_WEIGHT + sum(sample.core * sample.kernel for sample in self._slowdowns)
        core = PRIOR_WEIGHT + sum(sample.core**2 for sample in self._slowdowns)
        return min(1.0, max(0.0, both / core))

    def read_s(self) -> float:
        """A reading: the median seconds of a few calls on the warm core."""
        warm_s = 0.0
        while warm_s < WARM_UP_S:
            warm_s += self._call_s()
        return median(self._call_s() for _ in range(CALLS))

    def learn(self, update: PaceUpdate) -> None:
        """Take up what a timing showed.

        A slower state that stays is waited out less and less, and becomes the usual one.
        """
        self._readings.extend(update.readings_s)
        if update.slowdown is not None:
            self._slowdowns.append(update.slowdown)
        if update.waited_in_vain is not None:
            self._waits_in_vain = self._waits_in_vain + 1 if update.waited_in_vain else 0

    def forget(self) -> None:
        """Forget the kernels: those of another workload may be slowed more or less."""
        self._slowdowns.clear()

    def time_undisturbed(
        self,
        timed: Callable[[], Timing],
        *,
        promising_s: float | None = None,
        within_s: float = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> PacedTiming:
        """`timed()`, repeated at the usual pace where that was lost.

        It is not repeated where it would take more than `promising_s` even at that pace.
        When patience ends, or after `within_s`, the least disturbed timing counts.
        """
        deadline, usual_s = self._clock() + min(self.patience_s, within_s), self.usual_s
        first_s = before_s = self.read_s()
        attempts: list[_Attempt] = []
        while True:
            timing = timed()
            after_s = self.read_s()
            if usual_s is None:
                return PacedTiming(timing=timing, update=PaceUpdate(readings_s=(first_s, after_s)))
            slowness = log(before_s * after_s) / 2 - log(usual_s)
            attempts.append(_Attempt(slowness=slowness, timing=timing))
            steady = not self._is_slowed(max(before_s, after_s), usual_s)
            late = self._clock() >= deadline
            if steady or late or timing.abandoned or _is_hopeless(attempts[-1], promising_s):
                break
            before_s = after_s
            while self._is_slowed(before_s, usual_s) and self._clock() < deadline:
                sleep(STEP_S)
                before_s = self.read_s()
        least = min(attempts, key=lambda attempt: attempt.slowness)
        update = PaceUpdate(
            pace=min(WIDEST, max(1 / WIDEST, exp(-self.share * least.slowness))),
            readings_s=(first_s, after_s),
            waited_in_vain=not steady if late or len(attempts) > 1 else None,
            slowdown=_slowdown(attempts),
        )
        return PacedTiming(timing=least.timing, update=update)

    def _is_slowed(self, reading_s: float, usual_s: float) -> bool:
        return self.share * log(reading_s / usual_s) > log(SLOWED)


def _is_hopeless(attempt: _Attempt, promising_s: float | None) -> bool:
    """Whether it would take longer than is promising even at the usual pace."""
    return (
        promising_s is not None
        and attempt.median_s * exp(-max(0.0, attempt.slowness)) > promising_s
    )


def _slowdown(attempts: Sequence[_Attempt]) -> SlowdownSample | None:
    """The most disturbed attempt beside the least; None where the core did not change."""
    least = min(attempts, key=lambda attempt: attempt.slowness)
    most = max(attempts, key=lambda attempt: attempt.slowness)
    core = most.slowness - least.slowness
    if core < log(SLOWED):
        return None
    return SlowdownSample(core=core, kernel=log(most.median_s / least.median_s))
