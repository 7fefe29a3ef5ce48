"""The pace of a core, on a core and a clock that tests command."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from tuner.measure.calibration import PACE_SIDE, CalibrationKernel
from tuner.measure.pace import KEPT, PATIENCE_S, SLOWED, Pace, Taken
from tuner.measure.timing import Timing

READING_S, TIMING_S, SLOW = 40e-6, 0.03, 1.5


class Core:
    """`slow(at)` says how many times its usual time the core takes at a moment."""

    def __init__(self, slow: Callable[[float], float]) -> None:
        self.now, self.slow, self.timings = 0.0, slow, 0
        self.pace = Pace(self.call_s, clock=lambda: self.now)

    def call_s(self) -> float:
        took = READING_S * self.slow(self.now)
        self.now += took
        return took

    def timed(self) -> Timing:
        self.timings += 1
        samples = tuple(1e-3 * self.slow(self.now + TIMING_S * part / 10) for part in range(10))
        self.now += TIMING_S
        return Timing(samples_s=samples, abandoned=False)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def take(self, timed: Callable[[], Timing] | None = None) -> Taken:
        taken = self.pace.take(timed or self.timed, sleep=self.sleep)
        self.pace.learn(taken.readings_s)
        return taken

    def known(self) -> Core:
        """After some timings at its usual pace, at moment 0."""
        slow, self.slow = self.slow, lambda at: 1.0
        for _ in range(5):
            self.take()
        self.now, self.slow, self.timings = 0.0, slow, 0
        return self


def test_the_first_timing_is_taken_as_it_comes() -> None:
    core = Core(lambda at: SLOW)
    assert core.take().pace is None and core.timings == 1


def test_an_undisturbed_core_is_not_kept_waiting() -> None:
    core = Core(lambda at: 1.0 + 0.05 * (at * 1e5 % 1.0)).known()
    taken = core.take()
    assert core.timings == 1 and core.now < TIMING_S + 10 * READING_S
    assert taken.pace is not None and 1 / SLOWED < taken.pace <= 1.0


def test_a_slowed_core_is_waited_for() -> None:
    core = Core(lambda at: SLOW if at < 0.7 else 1.0).known()
    taken = core.take()
    assert max(taken.timing.samples_s) == 1e-3 and core.timings == 1 and 0.7 < core.now < 0.8


def test_a_timing_during_which_the_core_slowed_is_taken_again() -> None:
    core = Core(lambda at: SLOW if 0.02 < at < 0.5 else 1.0).known()
    taken = core.take()
    assert core.timings == 2 and max(taken.timing.samples_s) == 1e-3 and taken.pace == 1.0


def test_a_timing_is_taken_as_it_comes_when_patience_is_over_and_patience_shrinks() -> None:
    core = Core(lambda at: SLOW).known()
    waits = []
    for _ in range(4):
        before = core.now
        taken = core.take()
        assert taken.pace is not None and abs(taken.pace - 1 / SLOW) < 1e-6
        waits.append(core.now - before)
    assert PATIENCE_S <= waits[0] < PATIENCE_S + 3 * TIMING_S
    assert all(later < 0.6 * earlier for earlier, later in pairwise(waits))


def test_the_least_disturbed_timing_counts_where_none_was_at_the_usual_pace() -> None:
    core = Core(lambda at: 1.2 if at > PATIENCE_S - 0.1 else SLOW).known()
    assert core.take().timing.samples_s[-1] == 1.2e-3


def test_a_state_that_stays_becomes_the_usual_one() -> None:
    core = Core(lambda at: SLOW).known()
    for _ in range(KEPT):
        core.take()
    assert core.take().pace == 1.0


def test_a_core_that_gets_faster_sets_what_is_usual() -> None:
    core = Core(lambda at: 0.7).known()
    assert core.take().timing.samples_s[0] == 0.7e-3 and core.timings == 1
    assert core.pace.usual_s == 0.7 * READING_S


def test_a_hopeless_candidate_is_not_timed_again() -> None:
    core = Core(lambda at: SLOW if 0.01 < at < 0.5 else 1.0).known()

    def hopeless() -> Timing:
        return Timing(samples_s=core.timed().samples_s[:2], abandoned=True)

    assert core.take(hopeless).timing.abandoned and core.timings == 1


def test_a_reading_is_short() -> None:
    assert min(Pace(CalibrationKernel(PACE_SIDE).call_s).read_s() for _ in range(20)) < 1e-3
