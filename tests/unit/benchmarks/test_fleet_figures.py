"""What the fleet's benchmarks compute from what they saw: idle time that could have
been used, growth, faults."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psutil
import pytest

from benchmarks.chaos import Survived, failures
from benchmarks.soak import Growth, Look, Soaked, _growth
from benchmarks.throughput import Throughput, _waiting_s
from tuner.db.lanes import LaneSpan

START = datetime(2026, 1, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


@pytest.mark.parametrize(
    ("waits", "lost"),
    [
        ([], 0.0),
        ([(0.0, 1.5)], 0.0),  # it was taken before the gap began
        ([(1.0, 3.0)], 1.0),  # it waited through the gap
        ([(2.4, 3.0)], 0.6),  # it was built within the gap
        ([(2.4, 3.0), (2.1, 3.2)], 0.9),  # the one that waited longest counts
    ],
)
def test_a_lane_idles_for_nothing_only_while_something_waits(
    waits: list[tuple[float, float]], lost: float
) -> None:
    spans = [
        LaneSpan(worker="w", lane="cpu:1", kind="wait", started_at=at(a), ended_at=at(b))
        for a, b in waits
    ]
    assert _waiting_s(spans, at(2.0), at(3.0)) == pytest.approx(lost)


def test_growth_is_that_of_the_last_three_quarters() -> None:
    process = psutil.Process()
    looks = [
        Look(
            trials=done,
            resident_bytes=10_000_000 + (50_000_000 if done > 200 else 0) + 100 * done,
            descriptors=12,
        )
        for done in range(0, 1001, 20)
    ]
    (grown,) = _growth({process: looks}, {process: "driver"}, 1000)
    assert (
        grown.kind == "driver"
        and grown.bytes_per_trial == pytest.approx(100.0)
        and grown.descriptors == (12, 12)
    )


def test_what_is_wrong_is_said() -> None:
    grown = Growth(kind="driver", bytes_per_trial=2000.0, resident_bytes=1, descriptors=(10, 40))
    soaked = Soaked(
        recorded=10, timed=10, seconds=1.0, trials_per_s=10.0, growth=[grown], zombies=(0, 5)
    )
    assert len(soaked.faults(10)) == 3 and len(soaked.faults(11)) == 4
    survived = Survived(
        state="failed",
        recorded=9,
        twice=1,
        outcomes={},
        quarantined=0,
        retried=0,
        kills={},
        processes=1,
        seconds=1.0,
        returned_s=60.0,
        left=["process 7"],
    )
    assert len(survived.faults(10)) == 4
    slow = Throughput(
        trials=10,
        trials_per_s=4.0,
        hold_s=0.2,
        busy=0.5,
        idle_while_ready=0.2,
        longest_idle_while_ready_s=1.0,
    )
    assert len(slow.faults()) == 3


def test_failures_are_what_ray_reads() -> None:
    for failure in failures().values():
        assert set(failure) == {
            "num_failures",
            "req_failure_prob",
            "resp_failure_prob",
            "in_flight_failure_prob",
        }
        assert 0 < failure["req_failure_prob"] + failure["resp_failure_prob"] <= 100
