"""A model's time: rounds end while all kernels can still be promoted, at the pace measured."""

from __future__ import annotations

from collections.abc import Sequence

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


def plan(
    seconds: float | None, kernels: int, stored: frozenset[int] = frozenset()
) -> tuple[TimePlan, Clock]:
    clock = Clock()
    made = TimePlan(seconds=seconds, kernels=kernels, clock=clock, begin_s=clock(), stored=stored)
    return made, clock


def spent(
    seconds: float,
    trials_s: Sequence[float],
    contestant_s: float,
    stored: frozenset[int] = frozenset(),
) -> tuple[float, list[int], list[int]]:
    """A whole job of kernels whose trials take so long: seconds it took, trials and finalists
    by kernel."""
    made, clock = plan(seconds, len(trials_s), stored)
    trials = [0] * len(trials_s)
    for kernel, trial_s in enumerate(trials_s):
        left = made.search_s()
        assert left is not None
        if left <= 0:
            break
        count = min(made.first_trials(len(trials) - kernel), max(int(left / trial_s), 1))
        clock.now_s += count * trial_s
        made.searched(kernel, count, count * trial_s)
        trials[kernel] += count
        probe = made.probe()
        if probe is not None:
            clock.now_s += contestant_s
            made.promoted(probe, 1, contestant_s)
    while (made.search_s() or 0.0) > trials_s[0] and all(trials):
        clock.now_s += trials_s[0]
        made.searched(0, 1, trials_s[0])
        trials[0] += 1
    kept = [kernel for kernel in range(len(trials)) if made.keeps(kernel)]
    for kernel in kept:
        made.skipped(kernel)
    finalists = []
    for kernel, trial_s in enumerate(trials_s):
        most = 1 if made.is_promoted(kernel) else made.finalists(kernel)
        assert most is not None
        finalists.append(most if trials[kernel] else 0)
        if not made.is_promoted(kernel):
            racing = max(min(finalists[-1], trials[kernel]), 1)
            took = (racing + (kernel in stored)) * contestant_s
            took += 0.0 if trials[kernel] else trial_s
            clock.now_s += took
            made.promoted(kernel, racing, took)
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
    took, trials, finalists = spent(seconds, [trial_s] * kernels, ratio * trial_s)
    assert took <= 1.1 * seconds + FIRST_ROUND * trial_s
    assert min(trials) >= 1 and min(finalists) >= 1


def test_plenty_of_time_goes_to_later_rounds_and_all_finalists() -> None:
    took, trials, finalists = spent(1000.0, [0.2] * 5, 0.3)
    assert min(trials) == 2 and max(trials) > 4000 and finalists == [MOST_FINALISTS, 2, 2, 2, 2]
    assert 970 < took <= 1000


def test_little_time_leaves_kernels_without_trials() -> None:
    """More kernels than can be searched: none waits for a trial that will not come."""
    took, trials, finalists = spent(5.0, [0.5] * 40, 0.5)
    assert sum(trials) < 40
    assert finalists.count(0) == trials.count(0) > 0
    assert took == pytest.approx(40 * (0.5 + 0.5))  # of each the least that makes a kernel


@pytest.mark.parametrize("slow", (0, 3))
def test_a_kernel_whose_trial_takes_long_does_not_speak_for_all(slow: int) -> None:
    """Such as a window whose reference takes half a minute: others have their rounds."""
    trials_s = [0.8] * 68
    trials_s[slow] = 32.0
    took, trials, _ = spent(185.0, trials_s, 0.9)
    assert sum(map(bool, trials)) > 30
    assert took <= 185.0


def test_kernels_that_are_stored_stay_where_time_is_short() -> None:
    """Without them each kernel has a trial, which is late."""
    trials_s = [0.9] * 32
    late, _, _ = spent(20.0, trials_s, 0.9)
    took, trials, finalists = spent(20.0, trials_s, 0.9, stored=frozenset(range(32)))
    assert late > 40 and took <= 1.1 * 20
    assert 0 < sum(map(bool, trials)) < 32
    assert [bool(most) for most in finalists] == [bool(count) for count in trials]


def test_a_stored_kernel_takes_part_in_the_race_of_its_own() -> None:
    alone, stored = plan(100.0, 1)[0], plan(100.0, 1, frozenset({0}))[0]
    for made in (alone, stored):
        made.searched(0, 1, 1.0)
    assert alone.search_s() == pytest.approx(100 - 1.6)
    assert stored.search_s() == pytest.approx(100 - 2 * 1.6)
    assert not stored.keeps(0) and stored.tried(0)


@pytest.mark.parametrize("contestant_s", (0.4, 1.4, 3.0))
@pytest.mark.parametrize("room", (1.0, 1.3))
def test_promotions_in_between_tell_how_long_rounds_may_last(
    contestant_s: float, room: float
) -> None:
    """Of many kernels: dear promotions end the rounds, cheap ones leave time for more."""
    seconds = room * 40 * (1.0 + contestant_s)
    took, _, _ = spent(seconds, [1.0] * 40, contestant_s)
    assert 0.9 * seconds <= took <= 1.1 * seconds


def test_the_kernel_that_tells_is_a_middling_one_of_eight() -> None:
    made, _ = plan(40.0, 17)
    for kernel in range(7):
        made.searched(kernel, 1, 1.0 + kernel)
        assert made.probe() is None
    made.searched(7, 1, 0.5)
    assert made.probe() == 3
    made.promoted(3, 1, 2.0)
    assert made.probe() is None and made.is_promoted(3)
    made.searched(3, 1, 1.0)
    assert not made.is_promoted(3)
    assert plan(None, 8)[0].probe() is None


def test_plenty_of_time_needs_no_promotion_in_between() -> None:
    made, _ = plan(1000.0, 10)
    for kernel in range(10):
        made.searched(kernel, 2, 1.0)
    assert made.probe() is None


def test_lateness_counts_the_trials_that_are_still_to_come() -> None:
    made, clock = plan(10.0, 5)
    made.searched(0, 1, 1.0)
    clock.now_s += 4.0
    assert made.late_s() == pytest.approx(5 * 1.6 + 4 * 1.0 - 6.0)


def test_what_a_command_leaves_out_makes_it_less_late() -> None:
    made, clock = plan(10.0, 5)
    made.searched(0, 1, 1.0)
    clock.now_s += 4.0
    before = made.late_s()
    made.spare_s = 2.5
    assert made.late_s() == pytest.approx(before - 2.5)
    made.spare_s = 60.0
    assert made.late_s() == 0.0


@pytest.mark.parametrize("took_s", (0.8, 6.0))
def test_lateness_is_said_again_by_what_promotions_take(took_s: float) -> None:
    """Of twenty kernels without a round: cheap ones and dear ones. As expected, it is not."""
    made, clock = plan(10.0, 21)
    made.searched(0, 1, 1.0)
    made.skipped(0)
    clock.now_s += 1.0
    made.said_late_s = before = made.late_s()
    said = []
    for kernel in range(1, 21):
        clock.now_s += took_s
        made.promoted(kernel, 1, took_s)
        late_s = made.changed_late_s()
        if late_s is not None:
            made.said_late_s = late_s
            said.append((kernel, late_s))
    truth = clock.now_s - 50.0 - 10.0
    assert [kernel for kernel, _ in said] == [4]
    assert abs(before - truth) > 15 and abs(said[0][1] - truth) < 5


def test_lateness_as_expected_is_not_said_again() -> None:
    made, clock = plan(10.0, 21)
    made.searched(0, 1, 1.0)
    made.said_late_s = made.late_s()
    for kernel in range(1, 21):
        clock.now_s += 2.6
        made.promoted(kernel, 1, 2.6)
        assert made.changed_late_s() is None


def test_what_a_promotion_takes_is_told_from_its_trial() -> None:
    """Of a kernel that was not searched before."""
    made, clock = plan(100.0, 3)
    made.searched(0, 1, 1.0)
    before = made.late_s()
    clock.now_s += 200.0
    late = made.late_s()
    made.promoted(1, 1, 1.0 + 1.6)  # as planned: what is left takes as long as before
    assert before == 0.0
    assert made.late_s() == pytest.approx(late - (1.0 + 1.6))


def test_short_time_shortens_first_rounds_before_it_drops_kernels() -> None:
    _, trials, _ = spent(59.0, [1.0] * 20, 1.0)
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
