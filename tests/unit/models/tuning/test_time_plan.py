"""A model's time: rounds end while all kernels can still be promoted, at the pace measured."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.models.tuning.task_scheduler import FIRST_ROUND
from tuner.models.tuning.time_plan import MOST_FINALISTS, TimePlan


class Clock:
    def __init__(self) -> None:
        self.now_s = 50.0

    def __call__(self) -> float:
        return self.now_s


def plan(seconds: float | None, kernels: int) -> tuple[TimePlan, Clock]:
    clock = Clock()
    return TimePlan(seconds=seconds, kernels=kernels, clock=clock, begin_s=clock()), clock


def spent(
    seconds: float, kernels: int, trial_s: float, contestant_s: float
) -> tuple[float, list[int], list[int]]:
    """A whole job: seconds it took, trials and finalists by kernel."""
    made, clock = plan(seconds, kernels)
    trials = [0] * kernels
    for kernel in range(kernels):
        left = made.search_s()
        assert left is not None
        if left <= 0:
            break
        count = min(made.first_trials(kernels - kernel), max(int(left / trial_s), 1))
        clock.now_s += count * trial_s
        made.searched(kernel, count, count * trial_s)
        trials[kernel] += count
    while (made.search_s() or 0.0) > trial_s and trials[0]:
        clock.now_s += trial_s
        made.searched(0, 1, trial_s)
        trials[0] += 1
    finalists = []
    for kernel in range(kernels):
        most = made.finalists(kernel)
        assert most is not None
        finalists.append(most if trials[kernel] else 0)
        contestants = max(min(finalists[-1], trials[kernel]), 1)
        took = contestants * contestant_s
        clock.now_s += took
        made.promoted(kernel, contestants, took)
    return clock.now_s - 50.0, trials, finalists


def test_without_a_bound_nothing_is_cut() -> None:
    made, clock = plan(None, 3)
    clock.now_s += 1e6
    assert made.search_s() is None
    assert (made.first_trials(3), made.finalists(0)) == (FIRST_ROUND, None)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 40), st.floats(0.1, 3.0), st.floats(0.5, 1.5), st.floats(1.0, 30.0))
@pytest.mark.slow
def test_the_time_is_kept(kernels: int, trial_s: float, ratio: float, room: float) -> None:
    """Where the time suffices for two contestants of each kernel and first rounds."""
    least = kernels * (2 * trial_s + 4 * 1.5 * (trial_s + 0.6))
    seconds = least * room
    took, trials, finalists = spent(seconds, kernels, trial_s, ratio * trial_s)
    assert took <= 1.1 * seconds + FIRST_ROUND * trial_s
    assert min(trials) >= 1 and min(finalists) >= 1


def test_plenty_of_time_goes_to_later_rounds_and_all_finalists() -> None:
    took, trials, finalists = spent(1000.0, 5, 0.2, 0.3)
    assert min(trials) == 2 and max(trials) > 4000 and finalists == [MOST_FINALISTS, 2, 2, 2, 2]
    assert 970 < took <= 1000


def test_little_time_leaves_kernels_without_trials() -> None:
    """More kernels than can be searched: none waits for a trial that will not come."""
    took, trials, finalists = spent(5.0, 40, 0.5, 0.5)
    assert sum(trials) < 40
    assert finalists.count(0) == trials.count(0) > 0
    assert took < 40


def test_short_time_shortens_first_rounds_before_it_drops_kernels() -> None:
    _, trials, _ = spent(59.0, 20, 1.0, 1.0)
    assert min(trials) == 1


def test_a_slow_promotion_makes_the_rest_smaller() -> None:
    made, clock = plan(100.0, 3)
    for kernel in range(3):
        made.searched(kernel, 10, 10.0)
    before = made.finalists(0)
    clock.now_s += 70.0
    made.promoted(0, 5, 70.0)
    assert before == MOST_FINALISTS and made.finalists(1) == 1


def test_what_is_late_still_has_a_finalist() -> None:
    made, clock = plan(10.0, 2)
    made.searched(0, 6, 6.0)
    clock.now_s += 60.0
    assert made.left_s == pytest.approx(-50.0)
    assert made.finalists(0) == 1 and (made.search_s() or 0.0) < 0
