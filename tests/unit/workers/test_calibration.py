"""Bands on a virtual clock: one odd calibration changes nothing, a lane that leaves its
band is drained and comes back."""

from __future__ import annotations

import os

import pytest

from tuner.measure.calibration import CalibrationKernel
from tuner.workers.fleet.calibration import (
    EVERY_S,
    LEARNED,
    PATIENCE_S,
    PERSISTENT,
    SOON_S,
    TOLERANCE,
    Calibrator,
)
from tuner.workers.fleet.lane_calibration import LaneCalibration
from tuner.workers.fleet.messages import Calibrated
from tuner.workers.fleet.pipeline import Pipeline

GOOD_S, SLOW_S, FAST_S = 100e-6, 140e-6, 70e-6


class Clocked:
    """A calibrator with lanes whose speeds the test sets, driven as the driver does."""

    def __init__(self, *lanes: str) -> None:
        self.calibrator, self.now_s = Calibrator(), 1000.0
        self.speeds = {lane: [GOOD_S, GOOD_S] for lane in lanes}
        for lane in lanes:
            self.calibrator.add(lane, self.now_s)
        for _ in range(LEARNED):
            self.round()

    def round(self) -> list[Calibrated]:
        """All that is due next, at the moment it is due."""
        due_s = self.calibrator.next_s
        assert due_s is not None
        self.now_s = max(self.now_s, due_s)
        reports = [
            self.calibrator.note(lane, self.speeds[lane], self.now_s)
            for lane in self.calibrator.due(self.now_s)
        ]
        return [report for report in reports if report is not None]

    def until(self, lane: str, drained: bool) -> Calibrated:
        for _ in range(1000):
            for report in self.round():
                if report.lane == lane and report.drained is drained:
                    return report
        raise AssertionError(f"{lane} never became {'drained' if drained else 'in service'}")


def test_the_band_is_learned_at_once_and_looked_at_now_and_then() -> None:
    clocked = Clocked("a")
    assert clocked.now_s == 1000.0 and clocked.calibrator.next_s == 1000.0 + EVERY_S
    (report,) = clocked.round()
    assert (
        report.in_band
        and report.expected_s == GOOD_S
        and not report.drained
        and report.suspect_since_s is None
    )
    assert clocked.calibrator.due(clocked.now_s) == []


def test_one_odd_calibration_is_looked_at_again_and_changes_nothing() -> None:
    clocked = Clocked("a")
    clocked.speeds["a"] = [GOOD_S, SLOW_S]
    (odd,) = clocked.round()
    assert not odd.in_band and odd.median_s == SLOW_S and not odd.drained
    assert clocked.calibrator.next_s == clocked.now_s + SOON_S
    clocked.speeds["a"] = [GOOD_S, GOOD_S]
    assert not any(report.drained for _ in range(20) for report in clocked.round())


def test_a_lane_that_drifts_is_drained_its_trials_doubted_and_taken_back() -> None:
    clocked = Clocked("a", "b")
    clocked.round()
    good_s = clocked.now_s
    clocked.speeds["a"] = [GOOD_S, SLOW_S]
    drained = clocked.until("a", True)
    assert (
        drained.suspect_since_s == good_s
        and drained.at_s == good_s + EVERY_S + (PERSISTENT - 1) * SOON_S
    )
    assert clocked.calibrator.drained("a") and not clocked.calibrator.drained("b")
    for _ in range(
        200
    ):  # the other lane goes on, so that this one stays drained for as long as it is slow
        assert all(
            report.drained and report.suspect_since_s == good_s
            for report in clocked.round()
            if report.lane == "a"
        )
    clocked.speeds["a"] = [GOOD_S, GOOD_S]
    since_s = clocked.now_s
    call = clocked.until("a", False)
    assert (
        call.in_band
        and call.at_s - since_s <= PERSISTENT * SOON_S
        and call.suspect_since_s == good_s
    )
    assert all(report.suspect_since_s is None for _ in range(5) for report in clocked.round())


def test_the_last_lane_gets_a_new_band_in_the_end() -> None:
    clocked = Clocked("a")
    clocked.speeds["a"] = [SLOW_S, SLOW_S]
    drained = clocked.until("a", True)
    call = clocked.until("a", False)
    assert PATIENCE_S < call.at_s - drained.at_s < PATIENCE_S + 2 * SOON_S
    (later,) = clocked.round()
    assert later.in_band and later.expected_s == SLOW_S
    clocked.speeds["a"] = [GOOD_S, GOOD_S]  # and back: it was not the lane's fault
    assert not any(report.drained for _ in range(20) for report in clocked.round())


def test_a_lane_that_became_faster_stays_and_its_earlier_trials_are_doubted() -> None:
    clocked = Clocked("a")
    clocked.round()
    good_s = clocked.now_s
    clocked.speeds["a"] = [FAST_S, FAST_S]
    reports = [report for _ in range(PERSISTENT) for report in clocked.round()]
    assert [report.suspect_since_s for report in reports] == [None, None, good_s]
    assert not any(report.drained for report in reports)
    assert clocked.round()[0].expected_s == FAST_S


def test_a_band_learned_in_a_restless_hour_is_wider() -> None:
    calibrator = Calibrator()
    calibrator.add("a", 0.0)
    for seconds in (80e-6, 90e-6, 100e-6, 110e-6, 120e-6):
        calibrator.note("a", [seconds], 0.0)
    at_the_edge = calibrator.note("a", [100e-6 * (1 + 2 * TOLERANCE - 0.01)], 1.0)
    assert at_the_edge is not None and at_the_edge.in_band


def test_a_lane_that_has_gone_is_forgotten() -> None:
    clocked = Clocked("a", "b")
    clocked.calibrator.remove("a")
    assert clocked.calibrator.note("a", [GOOD_S], 0.0) is None
    assert {report.lane for _ in range(5) for report in clocked.round()} == {"b"}


def test_a_new_runner_keeps_its_lanes_band() -> None:
    clocked = Clocked("a")
    clocked.calibrator.add("a", clocked.now_s)
    (report,) = clocked.round()
    assert report.expected_s == GOOD_S and report.at_s == clocked.now_s


def test_the_kernel_times_each_core_and_gives_the_cores_back() -> None:
    before = os.sched_getaffinity(0)
    timings_s = CalibrationKernel().time_cores(sorted(before))
    assert os.sched_getaffinity(0) == before
    assert len(timings_s) == len(before)
    assert all(
        seconds > 10e-6 for seconds in timings_s
    )  # this process may have as many threads as NumPy likes


@pytest.mark.parametrize(
    "seconds", [GOOD_S * (1 + 0.9 * TOLERANCE), GOOD_S * (1 - 0.9 * TOLERANCE)]
)
def test_within_the_band_nothing_happens(seconds: float) -> None:
    clocked = Clocked("a")
    clocked.speeds["a"] = [seconds, seconds]
    assert all(report.in_band for _ in range(10) for report in clocked.round())


def test_a_drained_lane_is_calibrated_soon_again() -> None:
    steady_s = 50.0
    lanes = LaneCalibration(
        Pipeline(builders=["build:0"], runners=["cpu:1"]), steady_s=lambda: steady_s
    )
    lanes.add("cpu:1")
    for speed_s in [GOOD_S] * LEARNED + [SLOW_S] * PERSISTENT:
        steady_s = max(steady_s, lanes.next_s or 0.0)
        assert lanes.due() == ["cpu:1"]
        lanes.note("cpu:1", [speed_s])
    assert lanes.drained("cpu:1")
    *_, last = lanes.collect()
    since_s = steady_s - (PERSISTENT - 1) * SOON_S - EVERY_S
    assert (last.at_s, last.suspect_since_s) == (steady_s, since_s)
    assert lanes.next_s == steady_s + SOON_S
    steady_s += SOON_S
    assert lanes.due() == ["cpu:1"]
    lanes.note("cpu:1", [GOOD_S])
    assert [result.at_s for result in lanes.collect()] == [steady_s]
