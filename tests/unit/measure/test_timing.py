"""The timing plan: long enough repeats, bounded budget, early end; on a clock that only counts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.measure.timing import (
    COLD_FEWER,
    LONG_CALL_S,
    PROMOTION,
    SCREENING,
    TimingPlan,
    time_calls,
    with_cache,
)


class CountingClock:
    """A kernel that always takes the same time."""

    def __init__(self, call_s: float) -> None:
        self.call_s = call_s
        self.spent_s = 0.0
        self.numbers: list[int] = []

    def __call__(self, number: int, repeat: int) -> Sequence[float]:
        self.spent_s += self.call_s * number * repeat
        self.numbers.append(number)
        return [self.call_s] * repeat


@given(st.floats(1e-8, 10.0), st.sampled_from([SCREENING, PROMOTION]))
def test_repeats_are_long_and_the_budget_is_kept(call_s: float, plan: TimingPlan) -> None:
    clock = CountingClock(call_s)
    timing = time_calls(clock, plan, abandon_above_s=None)
    assert (
        (plan.min_samples if call_s < LONG_CALL_S else 1)
        <= len(timing.samples_s)
        <= plan.max_samples
    )
    assert clock.numbers[-1] * call_s >= min(plan.min_repeat_s, plan.max_number * call_s) * 0.999
    longest = max(plan.budget_s, plan.min_samples * max(2 * plan.min_repeat_s, call_s))
    assert clock.spent_s <= longest + 2 * plan.warmup_s + 6 * max(call_s, plan.min_repeat_s)


def test_a_one_millisecond_kernel_is_screened_in_fifty() -> None:
    clock = CountingClock(0.001)
    timing = time_calls(clock, SCREENING, abandon_above_s=None)
    assert clock.spent_s < 0.05 and len(timing.samples_s) >= 20


def test_a_call_longer_than_the_budget_is_its_own_warm_up() -> None:
    clock = CountingClock(0.05)
    assert (
        time_calls(clock, SCREENING, abandon_above_s=None).samples_s
        == (0.05,) * SCREENING.min_samples
    )
    assert clock.spent_s == pytest.approx(0.05 * (1 + SCREENING.min_samples))


def test_abandoned_only_when_slow_twice() -> None:
    slow = time_calls(CountingClock(0.01), SCREENING, abandon_above_s=0.003)
    assert slow.abandoned and slow.samples_s == (0.01, 0.01)
    disturbed = iter([0.01])

    def clock(number: int, repeat: int) -> Sequence[float]:
        return [next(disturbed, 0.001)] * repeat

    timing = time_calls(clock, SCREENING, abandon_above_s=0.003)
    assert not timing.abandoned and set(timing.samples_s) == {0.001}


def test_cold_caches_are_swept_before_each_single_call() -> None:
    clock, sweeps = CountingClock(0.002), []
    plan = TimingPlan(cache="cold")
    timing = time_calls(clock, plan, abandon_above_s=None, sweep=lambda: sweeps.append(1))
    assert len(sweeps) == len(timing.samples_s) and set(clock.numbers) == {1}
    assert timing.samples_s == pytest.approx([0.002] * len(sweeps))


@given(st.floats(1e-8, 10.0), st.sampled_from([SCREENING, PROMOTION]))
def test_a_sweep_is_no_sample_and_there_are_few(call_s: float, plan: TimingPlan) -> None:
    sweeps: list[int] = []
    timing = time_calls(
        CountingClock(call_s),
        with_cache(plan, "cold"),
        abandon_above_s=None,
        sweep=lambda: sweeps.append(1),
    )
    assert plan.min_samples <= len(timing.samples_s) == len(sweeps)
    assert len(sweeps) <= plan.max_samples // COLD_FEWER
    assert with_cache(plan, "warm") is plan


def test_what_decides_that_a_cold_call_is_slow_is_cold() -> None:
    """A call that is only fast when it is warm is abandoned, and its samples are cold."""
    swept: list[int] = []

    def clock(number: int, repeat: int) -> Sequence[float]:
        cold = bool(swept) and swept.pop() == 1
        return [0.01 if cold else 0.001] * repeat

    timing = time_calls(
        clock,
        with_cache(SCREENING, "cold"),
        abandon_above_s=0.003,
        sweep=lambda: swept.append(1),
    )
    assert timing.abandoned and timing.samples_s == (0.01, 0.01)


def test_one_call_of_seconds_is_sample_enough() -> None:
    for limit, abandoned in ((None, False), (4.0, False), (0.1, True)):
        clock = CountingClock(3.0)
        timing = time_calls(clock, PROMOTION, abandon_above_s=limit)
        assert clock.spent_s == 3.0 and timing.samples_s == (3.0,) and timing.abandoned is abandoned


def test_a_short_kernel_is_not_given_up_for_its_first_calls() -> None:
    """Those are of cold caches and of the clock itself: a kernel of 30 ns was abandoned
    for calls of 0.4 us."""

    class Cold(CountingClock):
        def __call__(self, number: int, repeat: int) -> list[float]:
            return [call_s + 4e-7 / number for call_s in super().__call__(number, repeat)]

    timing = time_calls(Cold(3e-8), SCREENING, abandon_above_s=1e-7)
    assert not timing.abandoned and timing.samples_s[0] == pytest.approx(3e-8, rel=0.01)
    slow = time_calls(Cold(3e-6), SCREENING, abandon_above_s=1e-7)
    assert slow.abandoned and slow.samples_s == pytest.approx((3e-6, 3e-6), rel=0.01)
