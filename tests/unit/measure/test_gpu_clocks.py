"""Clocks of a GPU while it is timed: what is taken again, how often, and what is said."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.gpu.clocks import ATTEMPTS, DISTURBING, PAUSE_S, WatchedClock
from tuner.measure.timing import SCREENING, time_calls
from tuner.runtime.nvml import REASONS, ClockReading, ManagedDevice, ThrottleReason

COOL = ClockReading(sm_mhz=1980, memory_mhz=2619)
HOT = ClockReading(
    sm_mhz=1200, memory_mhz=2619, reasons=frozenset({ThrottleReason.HARDWARE_THERMAL})
)
CAPPED = ClockReading(sm_mhz=1700, memory_mhz=2619, reasons=frozenset({ThrottleReason.POWER_CAP}))


class Device:
    """Calls take as long as the clock of the moment says."""

    def __init__(self, readings: Sequence[ClockReading]) -> None:
        self._readings: Iterator[ClockReading] = iter(readings)
        self._now = COOL
        self.paused_s: list[float] = []

    def clock(self, meanwhile: Callable[[], None]) -> Callable[[int, int], Sequence[float]]:
        def timed(number: int, repeat: int) -> Sequence[float]:
            seconds = []
            for _ in range(repeat):
                meanwhile()
                seconds.append(1.98 / self._now.sm_mhz)
            return seconds

        return timed

    def read(self) -> ClockReading:
        self._now = next(self._readings, COOL)
        return self._now

    def watched(self) -> WatchedClock:
        return WatchedClock(self.clock, self.read, self.paused_s.append)


def test_a_sample_of_a_hot_chip_is_taken_again() -> None:
    device = Device([COOL, HOT, COOL, COOL])
    watched = device.watched()
    assert watched(10, 3) == [0.001] * 3
    clocks = watched.of_last(3)
    assert (clocks.sm_hz, clocks.memory_hz) == ((1.98e9,) * 3, 2.619e9)
    assert (clocks.reasons, clocks.discarded, device.paused_s) == ((), 1, [PAUSE_S])


def test_attempts_are_bounded_and_what_held_the_clock_down_is_said() -> None:
    device = Device([HOT] * 100)
    watched = device.watched()
    assert watched(10, 2) == [1.98 / 1200] * 2
    clocks = watched.of_last(2)
    assert clocks.reasons == (ThrottleReason.HARDWARE_THERMAL,)
    assert clocks.discarded == 2 * (ATTEMPTS - 1) and len(device.paused_s) == ATTEMPTS - 1


def test_that_a_board_draws_all_its_power_is_the_kernels_own() -> None:
    device = Device([CAPPED] * 5)
    watched = device.watched()
    watched(1, 5)
    clocks = watched.of_last(5)
    assert (clocks.reasons, clocks.discarded) == ((ThrottleReason.POWER_CAP,), 0)
    assert clocks.sm_hz == (1.7e9,) * 5


@given(st.lists(st.sampled_from([COOL, HOT, CAPPED]), max_size=200))
def test_samples_have_the_clocks_they_were_taken_at(readings: list[ClockReading]) -> None:
    watched = Device(readings).watched()
    timing = time_calls(watched, SCREENING, abandon_above_s=None)
    clocks = watched.of_last(len(timing.samples_s))
    assert len(clocks.sm_hz) == len(timing.samples_s)
    assert [1.98e6 / hz for hz in clocks.sm_hz] == pytest.approx(list(timing.samples_s))
    assert not DISTURBING.intersection(clocks.reasons) or clocks.discarded


def test_without_nvml_nothing_is_said_and_nothing_taken_again() -> None:
    managed = ManagedDevice("0000:00:00.0")  # no such place, with a library or without
    watched = WatchedClock(Device([]).clock, managed.clocks)
    watched(1, 2)
    clocks = watched.of_last(2)
    assert (clocks.sm_hz, clocks.memory_hz, clocks.reasons, clocks.discarded) == ((), None, (), 0)


def test_every_reason_has_its_bit() -> None:
    assert set(REASONS.values()) == set(ThrottleReason)
    assert all(bit & (bit - 1) == 0 for bit in REASONS)
