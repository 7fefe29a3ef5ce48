"""The pace of a core: whether it computes as fast just now as it is known to.

On a shared machine a core may be slowed to two thirds for seconds at a time, whatever
this system does meanwhile: long beside a timing, short beside a job. Candidates timed
in different states cannot be compared. So what may be the best yet waits for the usual
pace, with bounded patience; of all others it is recorded how much of the core's
slowness they felt, and searches compare what they would have taken without it.
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

# a reading this many times the usual one is of a slowed core; undisturbed ones differ
# by a few percent
SLOWED = 1.12
# of calls before those that count: fresh from a pause a core takes half of it to reach
# its pace
WARM_UP_S = 0.001
CALLS = 5  # timed for a reading
KEPT = 200  # readings that say what is usual: of some hundred timings
# from the beginning of a timing until it is taken as it comes; halved each time it was
# in vain
PATIENCE_S = 1.0
STEP_S = 0.01  # between two readings while waiting
WIDEST = 8.0  # times the usual pace, or a part of it: what is further off is no pace
# squared logarithm of readings whose weight "kernels feel all of it" has until they
# were seen to
DOUBT = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Felt:
    """One candidate timed in two states of its core."""

    core: float  # log of the ratio of the readings
    kernel: float  # log of the ratio of the medians


@dataclass(frozen=True, slots=True, kw_only=True)
class Lesson:
    """What a timing showed of its core, for itself and for those after it."""

    pace: float | None = (
        # the kernel's beside its usual one, as far as the core's tells; None where
        # nothing is usual yet
        None
    )
    readings_s: tuple[
        float, ...
    ] = ()  # the first and the last: all of a long wait would become the usual ones
    vain: bool | None = None  # whether waiting was; None where nothing was waited for
    felt: Felt | None = None  # None where it was timed in one state

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Lesson:
        """From a child's JSON, which a kernel may have written. Raises ValueError,
        TypeError or KeyError for what cannot be."""
        pace, readings, felt = (
            document["pace"],
            [float(one) for one in document["readings_s"]],
            document["felt"],
        )
        if pace is not None and not 1 / WIDEST <= float(pace) <= WIDEST:
            raise ValueError(f"a pace of {pace}")
        if not all(isfinite(one) and one > 0 for one in readings):
            raise ValueError(f"readings of {readings} s")
        found = (
            None if felt is None else Felt(core=float(felt["core"]), kernel=float(felt["kernel"]))
        )
        if found is not None and not (isfinite(found.core) and isfinite(found.kernel)):
            raise ValueError(f"{found} is no ratio")
        return cls(
            pace=None if pace is None else float(pace),
            readings_s=tuple(readings),
            vain=document["vain"],
            felt=found,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A timing, and how the core was."""

    timing: Timing
    lesson: Lesson = Lesson()


class Pace:
    """What is usual on a core, and how much of its slowness a workload's kernels feel.
    Kept by the runner's parent, read by its children."""

    def __init__(
        self, call_s: Callable[[], float], *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        """`call_s` does always the same work and says how long it took, in seconds;
        some tens of microseconds."""
        self._call_s, self._clock = call_s, clock
        self._readings: deque[float] = deque(maxlen=KEPT)
        self._vain = 0  # waits in a row that ended without the usual pace
        self._felt: list[Felt] = []

    @property
    def usual_s(self) -> float | None:
        """The fastest tenth of what was read: a core is slowed by others and never hurried."""
        ordered = sorted(self._readings)
        return ordered[len(ordered) // 10] if ordered else None

    @property
    def patience_s(self) -> float:
        return PATIENCE_S * 0.5**self._vain  # never an overflow, however many

    @property
    def share(self) -> float:
        """Of a core's slowness, in logarithms, what the workload's kernels feel, 0 to
        1: all where arithmetic bounds them, less where memory does. Least squares,
        drawn towards 1."""
        both = DOUBT + sum(felt.core * felt.kernel for felt in self._felt)
        return min(1.0, max(0.0, both / (DOUBT + sum(felt.core**2 for felt in self._felt))))

    def read_s(self) -> float:
        warm_s = 0.0
        while warm_s < WARM_UP_S:
            warm_s += self._call_s()
        return median(self._call_s() for _ in range(CALLS))

    def learn(self, lesson: Lesson) -> None:
        """Takes up what a timing showed. A slower state that stays is waited out less
        and less, and is the usual one at last."""
        self._readings.extend(lesson.readings_s)
        if lesson.felt is not None:
            self._felt.append(lesson.felt)
        if lesson.vain is not None:
            self._vain = self._vain + 1 if lesson.vain else 0

    def forget(self) -> None:
        """Another workload: its kernels may feel more or less."""
        self._felt.clear()

    def take(
        self,
        timed: Callable[[], Timing],
        *,
        promising_s: float | None = None,
        within_s: float = PATIENCE_S,
        sleep: Callable[[float], None] = time.sleep,
    ) -> Taken:
        """`timed()`, again at the usual pace where that was lost, unless it would take
        more than `promising_s` even so. When patience is over, or `within_s` have gone,
        the least disturbed."""
        deadline, usual_s = self._clock() + min(self.patience_s, within_s), self.usual_s
        first_s = before_s = self.read_s()
        found: list[
            tuple[float, Timing]
        ] = []  # with how slow the core was around it, in logarithms
        while True:
            timing = timed()
            after_s = self.read_s()
            if usual_s is None:
                return Taken(timing=timing, lesson=Lesson(readings_s=(first_s, after_s)))
            found.append((log(before_s * after_s) / 2 - log(usual_s), timing))
            steady = not self._is_slowed(max(before_s, after_s), usual_s)
            late = self._clock() >= deadline
            if steady or late or timing.abandoned or self._is_hopeless(found[-1], promising_s):
                break
            before_s = after_s
            while self._is_slowed(before_s, usual_s) and self._clock() < deadline:
                sleep(STEP_S)
                before_s = self.read_s()
        slowness, least = min(found, key=lambda one: one[0])
        lesson = Lesson(
            pace=min(WIDEST, max(1 / WIDEST, exp(-self.share * slowness))),
            readings_s=(first_s, after_s),
            vain=not steady if late or len(found) > 1 else None,
            felt=_felt(found),
        )
        return Taken(timing=least, lesson=lesson)

    def _is_slowed(self, reading_s: float, usual_s: float) -> bool:
        return self.share * log(reading_s / usual_s) > log(SLOWED)

    def _is_hopeless(self, one: tuple[float, Timing], promising_s: float | None) -> bool:
        slowness, timing = one
        return (
            promising_s is not None
            and median(timing.samples_s) * exp(-max(0.0, slowness)) > promising_s
        )


def _felt(found: Sequence[tuple[float, Timing]]) -> Felt | None:
    """The most disturbed timing beside the least disturbed one, where the core changed
    between them."""
    (least, fast), (most, slow) = (
        min(found, key=lambda one: one[0]),
        max(found, key=lambda one: one[0]),
    )
    if most - least < log(SLOWED):
        return None
    return Felt(core=most - least, kernel=log(median(slow.samples_s) / median(fast.samples_s)))
