"""Three jobs of different size on a virtual clock with recorded durations: each policy
is best at what it is for."""

from __future__ import annotations

import pytest

from benchmarks.sharing.__main__ import mixed_lanes, one_lane
from benchmarks.sharing.virtual import Course, VirtualFleet, VirtualJob, jain, simulate
from tuner.workers.fleet.policy import POLICIES, PolicyName

pytestmark = pytest.mark.slow

EVEN = [(0.1, 0.1)]


@pytest.fixture(scope="module")
def mixed() -> dict[PolicyName, Course]:
    return {course.policy: course for course in mixed_lanes()}


@pytest.mark.long
def test_every_trial_is_measured_under_every_policy(mixed: dict[PolicyName, Course]) -> None:
    for course in mixed.values():
        for name, job in course.jobs.items():
            assert sum(hold.job == name for hold in course.holds) == job.trials


@pytest.mark.long
def test_fair_divides_the_lanes_time_equally(mixed: dict[PolicyName, Course]) -> None:
    assert mixed["fair"].fairness >= 0.95
    assert max(mixed, key=lambda policy: mixed[policy].fairness) == "fair"


@pytest.mark.long
def test_srtf_has_the_shortest_mean_completion(mixed: dict[PolicyName, Course]) -> None:
    assert min(mixed, key=lambda policy: mixed[policy].mean_completion_s) == "srtf"


@pytest.mark.long
def test_pack_uses_most_of_the_lanes(mixed: dict[PolicyName, Course]) -> None:
    assert max(mixed, key=lambda policy: mixed[policy].occupancy) == "pack"


def test_on_one_lane_too() -> None:
    courses = {course.policy: course for course in one_lane()}
    assert courses["fair"].fairness >= 0.95
    assert min(courses, key=lambda policy: courses[policy].mean_completion_s) == "srtf"


def job(name: str, trials: int, **said: int) -> VirtualJob:
    return VirtualJob(
        name=name,
        trials=trials,
        durations=EVEN,
        priority=said.get("priority", 0),
        threads=said.get("threads", 1),
    )


def test_a_priority_doubles_the_share() -> None:
    course = simulate(
        [job("plain", 300), job("urgent", 300, priority=1)],
        VirtualFleet(lanes=(1,), builders=4),
        "fair",
    )
    time_s = course.lane_time_s(*course.all_active_s)
    assert time_s["urgent"] / time_s["plain"] == pytest.approx(2.0, rel=0.1)


def test_a_job_that_comes_later_has_its_share_from_then_on() -> None:
    late = VirtualJob(name="late", trials=100, durations=EVEN, comes_s=10.0)
    course = simulate([job("early", 400), late], VirtualFleet(lanes=(1,), builders=4), "fair")
    assert course.fairness >= 0.95
    assert course.completed_s["late"] == pytest.approx(
        20.0, rel=0.15
    )  # half of a lane, not all of it


def test_an_owner_with_many_jobs_keeps_within_its_share() -> None:
    jobs = [
        *(
            VirtualJob(name=f"many {number}", trials=150, durations=EVEN, owner="x")
            for number in range(4)
        ),
        VirtualJob(name="one", trials=100, durations=EVEN, owner="y"),
    ]
    fleet = VirtualFleet(lanes=(1,) * 4, builders=16)
    for lane_share, least in ((1.0, 0.15), (0.5, 0.42)):
        course = simulate(jobs, fleet, "fair", lane_share=lane_share)
        time_s = course.lane_time_s(0.0, course.completed_s["one"])
        assert time_s["one"] / sum(time_s.values()) >= least
    assert time_s["one"] / sum(time_s.values()) <= 0.6


@pytest.mark.parametrize("policy", POLICIES)
def test_a_kernel_never_gets_a_lane_that_is_too_short(policy: PolicyName) -> None:
    course = simulate(
        [job("wide", 30, threads=4), job("narrow", 60)],
        VirtualFleet(lanes=(1, 1, 4), builders=4),
        policy,
    )
    assert {hold.lane for hold in course.holds if hold.job == "wide"} == {"lane:2"}


def test_jains_index() -> None:
    assert jain([1.0, 1.0, 1.0]) == 1.0
    assert jain([1.0, 0.0, 0.0]) == pytest.approx(1 / 3)
