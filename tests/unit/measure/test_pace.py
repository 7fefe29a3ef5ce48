"""The pace of a core, on a core and a clock that tests command."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from itertools import pairwise
from math import inf, log, nan

import pytest

from tuner.measure.calibration import PACE_SIDE, CalibrationKernel
from tuner.measure.pace import (
    KEPT,
    PATIENCE_S,
    SLOWED,
    WARM_UP_S,
    Pace,
    PacedTiming,
    PaceUpdate,
    SlowdownSample,
)
from tuner.measure.timing import Timing

READING_S, TIMING_S, SLOW = 40e-6, 0.03, 1.5
READ_S = WARM_UP_S + 6 * READING_S  # that a reading takes, at most
ASLEEP = 10  # calls after a pause that take twice as long: vector units wake up


class Core:
    """`slow(at)` says how many times its usual time the core takes at a moment; its
    kernel feels `share` of that."""

    def __init__(self, slow: Callable[[float], float], share: float = 1.0) -> None:
        self.now, self.slow, self.share, self.timings, self.awake = 0.0, slow, share, 0, 0
        self.pace = Pace(self.call_s, clock=lambda: self.now)

    def call_s(self) -> float:
        self.awake += 1
        took = READING_S * self.slow(self.now) * (2.0 if self.awake <= ASLEEP else 1.0)
        self.now += took
        return took

    def timed(self) -> Timing:
        self.timings, self.awake = self.timings + 1, ASLEEP
        samples = tuple(
            1e-3 * self.slow(self.now + TIMING_S * part / 10) ** self.share for part in range(10)
        )
        self.now += TIMING_S
        return Timing(samples_s=samples, abandoned=False)

    def sleep(self, seconds: float) -> None:
        self.now, self.awake = self.now + seconds, 0

    def take(
        self, timed: Callable[[], Timing] | None = None, *, promising_s: float | None = None
    ) -> PacedTiming:
        paced = self.pace.time_undisturbed(
            timed or self.timed, promising_s=promising_s, sleep=self.sleep
        )
        self.pace.learn(paced.update)
        self.awake = 0
        return paced

    def known(self) -> Core:
        """After some timings at its usual pace, at moment 0."""
        slow, self.slow = self.slow, lambda now_s: 1.0
        for _ in range(5):
            self.take()
        self.now, self.slow, self.timings = 0.0, slow, 0
        return self


def test_the_first_timing_is_taken_as_it_comes() -> None:
    core = Core(lambda now_s: SLOW)
    assert core.take().update.pace is None and core.timings == 1


def test_an_undisturbed_core_is_not_kept_waiting() -> None:
    core = Core(lambda now_s: 1.0 + 0.05 * (now_s * 1e5 % 1.0)).known()
    paced = core.take()
    assert core.timings == 1 and core.now < TIMING_S + 2 * READ_S * 1.05
    assert (
        paced.update.pace is not None
        and 1 / SLOWED < paced.update.pace <= 1.0
        and paced.update.waited_in_vain is None
    )


def test_a_core_that_has_only_just_woken_is_not_taken_for_a_slowed_one() -> None:
    core = Core(lambda now_s: 1.0).known()
    core.sleep(0.1)
    assert abs(core.pace.read_s() - READING_S) < 1e-9


def test_what_may_be_the_best_waits_for_the_usual_pace() -> None:
    core = Core(lambda now_s: SLOW if now_s < 0.7 else 1.0).known()
    paced = core.take(promising_s=1.05e-3)
    assert max(paced.timing.samples_s) == 1e-3 and core.timings == 2 and 0.7 < core.now < 0.8
    assert (
        paced.update.pace is not None
        and abs(paced.update.pace - 1.0) < 1e-6
        and paced.update.waited_in_vain is False
    )


def test_what_cannot_be_the_best_is_taken_as_it_comes_with_its_pace() -> None:
    core = Core(lambda now_s: SLOW if now_s < 0.7 else 1.0).known()
    paced = core.take(promising_s=0.9e-3)
    assert core.timings == 1 and core.now < 0.1 and paced.update.waited_in_vain is None
    assert paced.update.pace is not None and abs(paced.update.pace - 1 / SLOW) < 1e-6


def test_a_timing_during_which_the_core_slowed_is_taken_again() -> None:
    core = Core(lambda now_s: SLOW if 0.02 < now_s < 0.5 else 1.0).known()
    paced = core.take()
    assert core.timings == 2 and max(paced.timing.samples_s) == 1e-3 and paced.update.pace == 1.0


def test_a_timing_is_taken_as_it_comes_when_patience_is_over_and_patience_shrinks() -> None:
    core = Core(lambda now_s: SLOW).known()
    waits = []
    for _ in range(4):
        before = core.now
        paced = core.take()
        assert paced.update.pace is not None and abs(paced.update.pace - 1 / SLOW) < 1e-6
        waits.append(core.now - before)
    assert PATIENCE_S <= waits[0] < PATIENCE_S + 3 * TIMING_S
    assert all(later < 0.6 * earlier for earlier, later in pairwise(waits))


def test_a_wait_that_ends_just_in_time_was_not_in_vain() -> None:
    core = Core(lambda now_s: SLOW if now_s < PATIENCE_S - 0.02 else 1.0).known()
    paced = core.take()
    assert (
        paced.timing.samples_s[-1] == 1e-3
        and core.now > PATIENCE_S
        and paced.update.waited_in_vain is False
    )


def test_the_least_disturbed_timing_counts_where_none_was_at_the_usual_pace() -> None:
    core = Core(lambda now_s: 1.2 if now_s > PATIENCE_S - 0.1 else SLOW).known()
    assert core.take().timing.samples_s[-1] == 1.2e-3


def test_a_state_that_stays_becomes_the_usual_one() -> None:
    core = Core(lambda now_s: SLOW).known()
    for _ in range(KEPT):
        core.take()
    assert core.take().update.pace == 1.0


def test_a_core_that_gets_faster_sets_what_is_usual() -> None:
    core = Core(lambda now_s: 0.7).known()
    assert core.take().timing.samples_s[0] == 0.7e-3 and core.timings == 1
    assert core.pace.usual_s == 0.7 * READING_S


def test_a_hopeless_candidate_is_not_timed_again() -> None:
    core = Core(lambda now_s: SLOW if 0.01 < now_s < 0.5 else 1.0).known()

    def hopeless() -> Timing:
        return Timing(samples_s=core.timed().samples_s[:2], abandoned=True)

    assert core.take(hopeless).timing.abandoned and core.timings == 1


def test_kernels_that_feel_little_of_it_soon_wait_no_more() -> None:
    """As those that memory bounds: what they took is hardly corrected, and no time is
    lost on them."""
    core = Core(lambda now_s: SLOW if now_s % 1.0 < 0.4 else 1.0, share=0.1).known()
    for _ in range(200):
        core.take()
    core.now, core.timings = 10.0, 0
    paced = core.take()
    assert (
        0.05 < core.pace.share < 0.3 and core.timings == 1 and paced.update.waited_in_vain is None
    )
    assert (
        paced.update.pace is not None
        and abs(paced.update.pace * paced.timing.samples_s[0] - 1e-3) < (SLOWED - 1) * 1e-3
    )
    core.pace.forget()
    assert core.pace.share == 1.0


def test_one_candidate_in_two_states_says_what_is_felt() -> None:
    core = Core(lambda now_s: SLOW if now_s < 0.2 else 1.0, share=0.5).known()
    slowdown = core.take().update.slowdown
    assert (
        slowdown is not None
        and abs(slowdown.core - log(SLOW)) < 1e-6
        and abs(slowdown.kernel - log(SLOW) / 2) < 1e-6
    )


def test_an_update_comes_through_json_and_nonsense_does_not() -> None:
    update = PaceUpdate(
        pace=0.9,
        readings_s=(1e-5, 2e-5),
        waited_in_vain=True,
        slowdown=SlowdownSample(core=0.4, kernel=0.2),
    )
    document = json.loads(json.dumps(asdict(update)))
    assert PaceUpdate.of(document) == update
    for readings in ([0.0], [-1.0], [nan], [inf], ["slow"], None):
        with pytest.raises((ValueError, TypeError)):
            PaceUpdate.of({**document, "readings_s": readings})
    for pace in (nan, 0.0, -1.0, 1e-9, 1e9, "slow", [1.0]):
        with pytest.raises((ValueError, TypeError)):
            PaceUpdate.of({**document, "pace": pace})
    for slowdown in ({"core": nan, "kernel": 1.0}, {"core": 1.0}, 3):
        with pytest.raises((ValueError, TypeError, KeyError)):
            PaceUpdate.of({**document, "slowdown": slowdown})


@pytest.mark.serial
def test_a_reading_is_short() -> None:
    assert min(Pace(CalibrationKernel(PACE_SIDE).call_s).read_s() for _ in range(20)) < 2e-3
