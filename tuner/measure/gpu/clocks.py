"""The clocks of a GPU while it is timed: samples taken while it was throttled are taken
again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

from tuner.measure.timing import Clock
from tuner.runtime.nvml import ClockReading, ThrottleReason

# Heat and what comes from outside are the moment's. That a board draws all the power it
# may is the kernel's own: another sample of it would be the same.
DISTURBING = frozenset(ThrottleReason) - {ThrottleReason.POWER_CAP}
ATTEMPTS = 3  # in all, for samples that were disturbed
PAUSE_S = 0.1  # before each further attempt, in which a chip cools


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledClocks:
    """What the samples of a timing were taken at."""

    sm_hz: tuple[float, ...]  # of each sample; empty where NVML does not tell
    memory_hz: float | None  # the median
    reasons: tuple[ThrottleReason, ...]  # of all samples together, sorted
    discarded: int  # samples that were taken again


class WatchedClock:
    """A `Clock` whose samples are taken again while the device is throttled.

    After ATTEMPTS the last samples count, and `of_last` says what held the clocks down.
    """

    def __init__(
        self,
        made: Callable[[Callable[[], None]], Clock],
        read: Callable[[], ClockReading],
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        """`made(meanwhile)`: the device's clock, which calls `meanwhile` in each sample."""
        self._clock = made(lambda: self._noted.append(read()))
        self._pause = pause
        self._noted: list[ClockReading] = []
        self._readings: list[ClockReading] = []  # of all samples given
        self._discarded = 0

    def __call__(self, number: int, repeat: int) -> Sequence[float]:
        samples = self._taken(number, repeat)
        for _ in range(ATTEMPTS - 1):
            disturbed = [
                place
                for place, (_, reading) in enumerate(samples)
                if not DISTURBING.isdisjoint(reading.reasons)
            ]
            if not disturbed:
                break
            self._discarded += len(disturbed)
            self._pause(PAUSE_S)
            for place, sample in zip(disturbed, self._taken(number, len(disturbed)), strict=True):
                samples[place] = sample
        self._readings += [reading for _, reading in samples]
        return [seconds for seconds, _ in samples]

    def _taken(self, number: int, repeat: int) -> list[tuple[float, ClockReading]]:
        self._noted.clear()
        seconds = self._clock(number, repeat)
        return list(zip(seconds, self._noted, strict=True))

    def of_last(self, count: int) -> SampledClocks:
        """The clocks of the last samples that were given."""
        readings = self._readings[-count:]
        memory = [reading.memory_mhz for reading in readings if reading.memory_mhz]
        sm = [reading.sm_mhz * 1e6 for reading in readings]
        reasons = {reason for reading in readings for reason in reading.reasons}
        return SampledClocks(
            sm_hz=tuple(sm) if all(sm) else (),
            memory_hz=median(memory) * 1e6 if memory else None,
            reasons=tuple(sorted(reasons)),
            discarded=self._discarded,
        )
