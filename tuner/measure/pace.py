"""The pace of a core: whether it computes as fast just now as it is known to.

On a shared machine a core may be slowed to a half or two thirds for seconds at a time, whatever this system does meanwhile: long
beside a timing, short beside a job. Candidates timed in different states cannot be compared, so a timing waits for the usual
one, with bounded patience, and is taken again where the state changed meanwhile.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tuner.measure.timing import Timing

SLOWED = 1.12  # a reading this many times the usual one is of a slowed core; undisturbed ones differ by a few percent
CALLS = 3  # timed for a reading, after one that warms the caches
KEPT = 200  # readings that say what is usual: of some hundred timings
PATIENCE_S = 1.0  # from the beginning of a timing until it is taken as it comes; halved each time it was in vain
STEP_S = 0.005  # between two readings while waiting


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken:
    """A timing, and how the core was."""

    timing: Timing
    readings_s: tuple[float, ...]  # in their order, the last one after the timing
    pace: float | None  # the usual reading over the slower of those around the timing; None where nothing is usual yet


class Pace:
    """What is usual on a core. Kept by the runner's parent, read by its children."""

    def __init__(self, call_s: Callable[[], float], *, clock: Callable[[], float] = time.perf_counter) -> None:
        """`call_s` does always the same work and says how long it took, in seconds; some tens of microseconds."""
        self._call_s, self._clock = call_s, clock
        self._readings: deque[float] = deque(maxlen=KEPT)
        self._vain = 0  # waits in a row that ended without the usual pace

    @property
    def usual_s(self) -> float | None:
        """The fastest tenth of what was read: a core is slowed by others and never hurried."""
        ordered = sorted(self._readings)
        return ordered[len(ordered) // 10] if ordered else None

    @property
    def patience_s(self) -> float:
        return PATIENCE_S * 0.5**self._vain  # never an overflow, however many

    def read_s(self) -> float:
        self._call_s()
        return median(self._call_s() for _ in range(CALLS))

    def learn(self, readings_s: Sequence[float]) -> None:
        """Takes up what a timing read. A slower state that stays is waited out less and less, and is the usual one at last."""
        if not readings_s:
            return
        self._vain = self._vain + 1 if self._is_slowed(readings_s[-1]) else 0
        self._readings.extend((readings_s[0], readings_s[-1]))  # not all of a long wait: they would become the usual ones

    def take(
        self, timed: Callable[[], Timing], *, within_s: float = PATIENCE_S, sleep: Callable[[float], None] = time.sleep
    ) -> Taken:
        """`timed()` at the usual pace, again where that was lost meanwhile. When patience is over, or `within_s` have gone, the
        least disturbed."""
        deadline, usual_s = self._clock() + min(self.patience_s, within_s), self.usual_s
        readings, best, pace = [self.read_s()], None, None
        while True:
            while self._is_slowed(readings[-1]) and self._clock() < deadline:
                sleep(STEP_S)
                readings.append(self.read_s())
            timing = timed()
            readings.append(self.read_s())
            slower_s = max(readings[-2:])
            if best is None or median(timing.samples_s) < median(best.samples_s) or not self._is_slowed(slower_s):
                best, pace = timing, None if usual_s is None else usual_s / slower_s
            if not self._is_slowed(slower_s) or timing.abandoned or self._clock() >= deadline:
                return Taken(timing=best, readings_s=tuple(readings), pace=pace)

    def _is_slowed(self, reading_s: float) -> bool:
        usual_s = self.usual_s
        return usual_s is not None and reading_s > SLOWED * usual_s
