"""The fleet's books about lanes: given what they are ready for, kept busy, drained."""

from __future__ import annotations

import heapq
import time

import pytest

from tests.unit.workers.fleet_simulation import Simulation, candidates, library, ready
from tuner.measure.outcome import Candidate, Failed, FailureKind
from tuner.workers.fleet.messages import Built, Measured
from tuner.workers.fleet.pipeline import Pipeline
from tuner.workers.fleet.policy import JobShare, Place


def test_a_lane_is_given_a_problem_once_it_is_prepared_for_it() -> None:
    """Another job's candidates go first until then, and a lane that was replaced begins
    with nothing."""
    pipeline = Pipeline(
        builders=["build:0", "build:1"], runners=["cpu:1"], policy="fifo", prepares=["cpu:1"]
    )
    for order, job in enumerate(("new", "old")):
        pipeline.submit(job, [Candidate(number=order)], job_share=JobShare(job=job, order=order))
    assert pipeline.unprepared() == [("cpu:1", "new"), ("cpu:1", "old")]
    assert (pipeline.next_build() or ("", ""))[1] == "new"
    pipeline.built("build:0", [Built(number=0, result=library(0), started_s=0.0, ended_s=0.1)])
    assert pipeline.next_measurement() is None
    pipeline.prepared("cpu:1", "old")
    assert pipeline.unprepared() == [("cpu:1", "new")]
    ready(pipeline)
    assert (pipeline.next_measurement() or ("", ""))[1] == "old"
    pipeline.prepared("cpu:1", "new")
    assert (pipeline.next_measurement() or ("", ""))[1] == "new"
    pipeline.lost("cpu:1", "killed")
    assert pipeline.next_measurement() is None and len(pipeline.unprepared()) == 2


def test_lanes_are_prepared_for_what_a_job_is_about_to_submit() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"], prepares=["cpu:1"])
    pipeline.submit("p", (), job_share=JobShare(job="job"))
    assert pipeline.unprepared() == [("cpu:1", "p")] and pipeline.next_build() is None
    pipeline.abandon("job")
    assert pipeline.unprepared() == []


def test_lanes_are_prepared_for_what_is_measured_before_what_comes_next() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"], prepares=["cpu:1"])
    share = JobShare(job="job")
    for problem in ("now", "next"):
        pipeline.submit(problem, (), job_share=share)
    assert pipeline.unprepared() == [("cpu:1", "now"), ("cpu:1", "next")]
    pipeline.submit("now", candidates(1), job_share=share)
    assert pipeline.unprepared() == [("cpu:1", "now"), ("cpu:1", "next")]
    pipeline.prepared("cpu:1", "now")
    ready(pipeline)
    assert (pipeline.next_measurement() or ("", ""))[1] == "now"
    assert pipeline.unprepared() == [("cpu:1", "next")]
    for problem in ("next", "last"):
        pipeline.submit(problem, (), job_share=share)
    assert pipeline.unprepared() == [("cpu:1", "next"), ("cpu:1", "last")]


@pytest.mark.parametrize("builders", [1, 3])
def test_what_no_lane_is_prepared_for_is_built_last_and_leaves_a_core_to_preparing_it(
    builders: int,
) -> None:
    names = [f"build:{number}" for number in range(builders)]
    pipeline = Pipeline(builders=names, runners=["cpu:1"], policy="fifo", prepares=["cpu:1"])
    for order, job in enumerate(("new", "old")):
        numbered = [
            Candidate(number=10 * order + number) for number in range(4 if job == "new" else 1)
        ]
        pipeline.submit(job, numbered, job_share=JobShare(job=job, order=order))
    pipeline.prepared("cpu:1", "old")
    assert (pipeline.next_build() or ("", ""))[1] == "old"
    pipeline.built("build:0", [Built(number=10, result=library(1), started_s=0.0, ended_s=0.2)])
    assert pipeline.next_measurement() is not None
    for _ in range(builders - 1):
        assert (pipeline.next_build() or ("", ""))[1] == "new"  # there is nothing else to do
    assert pipeline.next_build() is None
    pipeline.prepared("cpu:1", "new")
    assert (pipeline.next_build() or ("", ""))[1] == "new"


def test_what_fits_no_lane_is_built_all_the_same() -> None:
    """No lane will ever be prepared for it; one that joins may take it."""
    narrow = {"cpu:1": Place(threads=1)}
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"], places=narrow, prepares=["cpu:1"])
    pipeline.submit("wide", candidates(2), job_share=JobShare(job="job", threads=4))
    assert pipeline.next_build() is not None


def test_a_builder_is_kept_free_for_a_question_while_all_else_goes_on() -> None:
    pipeline = Pipeline(builders=["build:0", "build:1"], runners=["cpu:1"])
    pipeline.submit("p", candidates(6))
    first = pipeline.next_build()
    assert first is not None and first[0] == "build:0"
    pipeline.reserve(needed=True)
    assert pipeline.reserved == "build:1"  # the less busy one
    pipeline.built("build:0", [Built(number=0, result=library(0), started_s=0.0, ended_s=0.2)])
    assert pipeline.next_measurement() is not None
    while build := pipeline.next_build():
        assert build[0] == "build:0"
        pipeline.reserve(needed=True)
    assert pipeline.reserved == "build:1" and not pipeline.builders["build:1"].batches
    pipeline.reserve(needed=False)
    assert (pipeline.next_build() or ("",))[0] == "build:1"


def test_a_lane_that_waits_may_begin_with_what_is_built_for_it() -> None:
    pipeline = Pipeline(
        builders=["build:0", "build:1"], runners=["cpu:1", "cpu:2"], prepares=["cpu:1", "cpu:2"]
    )
    pipeline.submit("p", candidates(8))
    for lane in ("cpu:1", "cpu:2"):
        pipeline.prepared(lane, "p")
    builds = [pipeline.next_build(), pipeline.next_build()]
    promised = {build[0]: build[2][0].lane for build in builds if build is not None}
    assert set(promised.values()) == {"cpu:1", "cpu:2"}  # each to one of them
    pipeline.paused = (
        True  # what a lane has begun with is brought to its end, and nothing else goes out
    )
    pipeline.built("build:1", [Built(number=1, result=library(1), started_s=0.0, ended_s=0.2)])
    handed = pipeline.next_measurement()
    assert handed is not None and handed[0] == promised["build:1"] and handed[2][0].number == 1
    assert pipeline.next_measurement() is None and pipeline.next_build() is None
    pipeline.paused = False
    pipeline.lost(
        "build:0", "killed"
    )  # what was lost once travels alone, and nobody begins with it early
    build = pipeline.next_build()
    assert build is not None and build[2][0].number == 0 and build[2][0].lane == ""


def test_a_race_is_lane_time_and_not_idleness() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    pipeline.submit("p", candidates(2))
    for number, moment_s in enumerate((1.0, 5.0)):
        build = pipeline.next_build()
        assert build is not None
        pipeline.built(
            "build:0",
            [
                Built(
                    number=number,
                    result=library(number),
                    started_s=moment_s - 0.5,
                    ended_s=moment_s,
                )
            ],
        )
        assert pipeline.next_measurement() is not None
        outcome = Failed(kind=FailureKind.WRONG_ANSWER, message="")
        pipeline.measured(
            "cpu:1",
            [Measured(number=number, outcome=outcome, started_s=moment_s, ended_s=moment_s + 0.5)],
        )
        if number == 0:
            span = pipeline.raced("cpu:1", 1.6, 4.0)
            assert (span.activity, span.number, span.started_s, span.ended_s) == (
                "time",
                None,
                1.6,
                4.0,
            )
    _, spans = pipeline.collect()
    assert [(span.started_s, span.ended_s) for span in spans if span.activity == "idle"] == [
        (1.5, 1.6),
        (4.0, 5.0),
    ]


def test_a_builder_hands_over_before_it_builds_on_while_a_lane_waits() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    pipeline.submit("p", candidates(8))
    assert pipeline.next_build() is not None and pipeline.next_build() is None
    for number in range(2):
        pipeline.built(
            "build:0", [Built(number=number, result=library(number), started_s=0.0, ended_s=0.2)]
        )
        assert pipeline.next_measurement() is not None  # the second one waits at the lane
        assert pipeline.next_build() is not None
        assert (pipeline.next_build() is None) is (number == 0)  # then the lane has enough for now


def test_lanes_go_on_at_once_although_messages_take_their_time() -> None:
    """As many candidates in flight as a job submits, on lanes that limit it."""
    lanes, builders = 4, 8
    pipeline = Pipeline(
        builders=[f"build:{number}" for number in range(builders)],
        runners=[f"cpu:{number}" for number in range(lanes)],
    )
    simulation = Simulation(pipeline, build_s=0.1, measure_s=0.06, travel_s=0.005)
    pipeline.submit("p", candidates(4 + 2 * builders + 3 * lanes))
    simulation.run()
    idle = [span for span in simulation.spans if span.activity == "idle" and span.started_s < 0.4]
    assert sum(span.ended_s - span.started_s for span in idle) < 0.01 * lanes * 0.4


def busy_share(lanes: int, trials: int) -> tuple[float, float]:
    """Share of the lanes' time spent measuring until the last batch starts, and
    processor seconds of bookkeeping a trial."""
    pipeline = Pipeline(
        builders=[f"build:{number}" for number in range(lanes)],
        runners=[f"cpu:{number}" for number in range(lanes)],
    )
    simulation = Simulation(pipeline, build_s=0.1, measure_s=0.2)
    pipeline.submit("p", candidates(trials))
    before = time.process_time()
    simulation.run()
    cost_s = (time.process_time() - before) / trials
    times = [span for span in simulation.spans if span.activity == "time"]
    first, last = min(span.started_s for span in times), max(span.started_s for span in times)
    busy = sum(min(span.ended_s, last) - span.started_s for span in times if span.started_s < last)
    return busy / (lanes * (last - first)), cost_s


def test_sixty_four_lanes_are_busy() -> None:
    share, _ = busy_share(64, 64 * 40)
    assert share >= 0.95


@pytest.mark.slow
@pytest.mark.serial
def test_a_thousand_lanes_cost_little_bookkeeping() -> None:
    share, cost_s = busy_share(1000, 6000)
    assert share >= 0.95
    assert cost_s <= 0.003


def test_a_drained_lane_ends_what_it_holds_and_gets_nothing_new() -> None:
    simulation = Simulation(Pipeline(builders=["b"], runners=["steady", "drifting"]))
    simulation.pipeline.submit(
        "p", [Candidate(number=number, config={"x": number}) for number in range(60)]
    )
    simulation.events.append((3.05, -1, lambda: simulation.pipeline.drain("drifting")))
    simulation.events.append(
        (4.55, -2, lambda: simulation.pipeline.drain("drifting", drained=False))
    )
    heapq.heapify(simulation.events)
    reports = simulation.run()
    assert sorted(report.trial.number for report in reports) == list(range(60))
    on_drifting = [
        span.started_s
        for span in simulation.spans
        if span.activity == "time" and span.worker == "drifting"
    ]
    assert any(started < 3.05 for started in on_drifting) and any(
        started > 4.55 for started in on_drifting
    )
    assert not any(3.3 < started < 4.55 for started in on_drifting)


def test_a_guest_and_its_lane_take_turns() -> None:
    pipeline = Pipeline(
        builders=["build:0", "build:1"], runners=["cpu:1"], borrowers={"build:1": "cpu:1"}
    )
    pipeline.submit("p", candidates(9))
    given = [pipeline.next_build(), pipeline.next_build()]
    assert [build and build[0] for build in given] == ["build:0", "build:1"]
    assert all(
        request.lane == "" for build in given if build for request in build[2]
    )  # no lane begins by itself beside its borrower
    pipeline.built("build:0", [Built(number=0, result=library(0), started_s=0.0, ended_s=0.2)])
    assert pipeline.next_measurement() is None
    pipeline.built("build:1", [Built(number=1, result=library(1), started_s=0.0, ended_s=0.2)])
    assert pipeline.next_measurement() is not None
    while build := pipeline.next_build():
        assert build[0] == "build:0"
    pipeline.lost("cpu:1", "killed")
    assert (
        not pipeline.runners["cpu:1"].batches and (pipeline.next_build() or ("",))[0] == "build:1"
    )


def test_a_lane_that_is_asked_waits_for_its_guest_to_leave_and_then_has_its_cores_alone() -> None:
    pipeline = Pipeline(
        builders=["build:0", "build:1"], runners=["cpu:1"], borrowers={"build:1": "cpu:1"}
    )
    pipeline.submit("p", candidates(9))
    while pipeline.next_build():
        pass
    assert not pipeline.vacated("cpu:1")
    pipeline.built("build:1", [Built(number=1, result=library(1), started_s=0.0, ended_s=0.2)])
    assert pipeline.vacated("cpu:1")
    while build := pipeline.next_build():
        assert build[0] == "build:0"
    pipeline.shared("cpu:1")
    assert (pipeline.next_measurement() or ("",))[0] == "cpu:1"


def test_a_guest_is_never_kept_free_for_a_question() -> None:
    pipeline = Pipeline(
        builders=["build:0", "build:1"], runners=["cpu:1"], borrowers={"build:0": "cpu:1"}
    )
    pipeline.submit("p", candidates(9))
    while pipeline.next_build():
        pass
    pipeline.reserve(needed=True)
    assert pipeline.reserved == "build:1"
