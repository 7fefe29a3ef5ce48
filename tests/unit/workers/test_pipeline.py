"""The fleet's books: each candidate ends once whatever is lost, duplicates share a time,
jobs don't get in each other's way."""

from __future__ import annotations

import heapq
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.workers.fleet_simulation import Simulation, candidates, library, ready, timed
from tuner.measure.cache import COLD, WARM
from tuner.measure.gpu.resources import Resources
from tuner.measure.outcome import Candidate, Failed, FailureKind, Outcome, Timed
from tuner.workers.fleet.demand import Demand
from tuner.workers.fleet.messages import Built, Library, Measured
from tuner.workers.fleet.outcomes import MAX_RETRIES
from tuner.workers.fleet.pipeline import Pipeline
from tuner.workers.fleet.policy import POLICIES, JobShare, LaneShare, Place, PolicyName
from tuner.workers.fleet.worker_slot import WorkerSlot


@settings(deadline=None, max_examples=60)
@given(
    builders=st.integers(1, 3),
    runners=st.integers(1, 4),
    count=st.integers(0, 60),
    deaths=st.sampled_from([0.0, 0.1, 0.5]),
    codes=st.integers(1, 60),
    alternates=st.booleans(),
    seed=st.integers(0, 2**16),
    build_s=st.sampled_from([0.001, 0.1]),
    measure_s=st.sampled_from([0.001, 0.1]),
)
def test_every_candidate_ends_exactly_once(
    builders: int,
    runners: int,
    count: int,
    deaths: float,
    codes: int,
    alternates: bool,
    seed: int,
    build_s: float,
    measure_s: float,
) -> None:
    if alternates:
        builders = runners = 1
    pipeline = Pipeline(
        builders=[f"build:{number}" for number in range(builders)],
        runners=[f"cpu:{number}" for number in range(runners)],
        alternates=alternates,
    )
    simulation = Simulation(
        pipeline,
        build_s=build_s,
        measure_s=measure_s,
        deaths=deaths,
        code=lambda number: number % codes,
        rng=np.random.default_rng(seed),
    )
    pipeline.submit("p", candidates(count))
    reports = simulation.run()
    assert sorted(report.trial.number for report in reports) == list(range(count))
    assert not pipeline.busy
    if alternates:
        assert simulation.overlaps == 0
    if deaths == 0.0:
        assert all(isinstance(report.trial.outcome, Timed) for report in reports)
        assert set(simulation.measured_codes.values()) <= {1}
    for report in reports:
        outcome: Outcome = report.trial.outcome
        assert report.quarantined == (
            isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE
        )
        assert 1 <= report.attempts <= MAX_RETRIES + 1


@settings(deadline=None, max_examples=40)
@given(
    policy=st.sampled_from(sorted(POLICIES)),
    threads=st.lists(st.integers(1, 3), min_size=1, max_size=4),
    counts=st.lists(st.integers(0, 25), min_size=4, max_size=4),
    lanes=st.lists(st.integers(1, 3), max_size=3),
    deaths=st.sampled_from([0.0, 0.2]),
    codes=st.integers(1, 60),
    lane_share=st.sampled_from([1.0, 0.3]),
    seed=st.integers(0, 2**16),
)
def test_whatever_the_policy_every_jobs_candidates_end_once(
    policy: PolicyName,
    threads: list[int],
    counts: list[int],
    lanes: list[int],
    deaths: float,
    codes: int,
    lane_share: float,
    seed: int,
) -> None:
    """Jobs propose the same code, workers die, lanes differ; afterwards nobody holds anything."""
    places = {
        f"cpu:{number}": Place(threads=cores) for number, cores in enumerate([*lanes, max(threads)])
    }
    pipeline = Pipeline(
        builders=["build:0", "build:1"],
        runners=list(places),
        policy=policy,
        places=places,
        lane_share=lane_share,
    )
    simulation = Simulation(
        pipeline, deaths=deaths, code=lambda number: number % codes, rng=np.random.default_rng(seed)
    )
    for number, job_threads in enumerate(threads):
        job_share = JobShare(
            job=f"j{number}",
            owner=f"o{number % 2}",
            priority=number - 1,
            order=number,
            threads=job_threads,
            trials_left=counts[number],
        )
        pipeline.submit(f"p{number}", candidates(counts[number]), job_share=job_share)
    reports = simulation.run()
    for number in range(len(threads)):
        assert sorted(
            report.trial.number for report in reports if report.job == f"j{number}"
        ) == list(range(counts[number]))
    assert (
        not pipeline.busy and pipeline.next_build() is None and pipeline.next_measurement() is None
    )


def test_poison_is_quarantined_and_takes_nobody_along() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    simulation = Simulation(pipeline, measure_s=0.001, build_s=0.001, poison=frozenset({7}))
    pipeline.submit("p", candidates(40))
    reports = {report.trial.number: report for report in simulation.run()}
    assert [number for number, report in reports.items() if report.quarantined] == [7]
    outcome = reports[7].trial.outcome
    assert isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE
    assert reports[7].attempts == MAX_RETRIES + 1 and "killed" in outcome.message


def test_only_what_was_worked_on_counts_as_an_attempt() -> None:
    """What waited behind it at the lost lane goes on in company; what a lane was given
    that never came up neither."""
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    pipeline.submit("p", candidates(4))
    ready(pipeline)
    first, second = pipeline.next_measurement(), pipeline.next_measurement()
    assert first is not None and second is not None and pipeline.next_measurement() is None
    pipeline.lost("cpu:1", "killed", started=False)
    assert [request.number for request in (pipeline.next_measurement() or ("", "", []))[2]] == [
        first[2][0].number
    ]
    assert pipeline.next_measurement() is not None  # none of them must travel alone
    pipeline.lost("cpu:1", "killed")
    assert (
        pipeline.next_measurement() is not None and pipeline.next_measurement() is None
    )  # the first one must
    for _ in range(MAX_RETRIES):
        pipeline.lost("cpu:1", "killed")
        assert pipeline.next_measurement() is not None
    (given_up,), _ = pipeline.collect()
    assert given_up.quarantined and given_up.trial.number == first[2][0].number


def test_twins_share_one_measurement() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    simulation = Simulation(pipeline, code=lambda number: 0)
    pipeline.submit("p", candidates(5))
    reports = simulation.run()
    assert simulation.measured_codes == {"code0": 1}
    outcomes = [
        report.trial.outcome for report in sorted(reports, key=lambda report: report.trial.number)
    ]
    assert [isinstance(report, Timed) and report.conditions.reused for report in outcomes] == [
        False,
        True,
        True,
        True,
        True,
    ]


def test_what_a_candidate_takes_is_reported_whatever_becomes_of_it() -> None:
    """Duplicates and candidates that fail on the lane have the compiler's figures; what was
    not built has none."""
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    pipeline.submit("p", candidates(3))
    resources = Resources(registers=255, spill_bytes=64, shared_bytes=1024, resident_warps=8)
    refused, made = (
        Failed(kind=FailureKind.BUILD_ERROR, message="no"),
        replace(library(7), resources=resources),
    )
    while build := pipeline.next_build():
        results = [refused if request.number == 2 else made for request in build[2]]
        numbers = [request.number for request in build[2]]
        pipeline.built(
            build[0],
            [
                Built(number=number, result=result, started_s=0.0, ended_s=0.1)
                for number, result in zip(numbers, results, strict=True)
            ],
        )
    measurement = pipeline.next_measurement()
    assert measurement is not None and pipeline.next_measurement() is None
    wrong = Failed(kind=FailureKind.WRONG_ANSWER, message="wrong")
    number = measurement[2][0].number
    pipeline.measured("cpu:1", [Measured(number=number, outcome=wrong, started_s=0.2, ended_s=0.3)])
    reports, _ = pipeline.collect()
    assert {report.trial.number: report.trial.resources for report in reports} == {
        0: resources,
        1: resources,
        2: None,
    }


def test_outcomes_of_an_earlier_run_are_reused() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    simulation = Simulation(pipeline, code=lambda number: 0)
    pipeline.submit(
        "p", candidates(2), {"code0": timed(3.0, Library(sha256="code0", path="", symbol="k"))}
    )
    assert [
        report.trial.outcome.samples_s
        for report in simulation.run()
        if isinstance(report.trial.outcome, Timed)
    ] == [
        (3.0,),
        (3.0,),
    ]
    assert not simulation.measured_codes


def test_equal_code_is_timed_once_for_each_state_of_the_caches() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    simulation = Simulation(pipeline, code=lambda number: 0)
    for cache in (WARM, COLD, WARM):
        pipeline.submit("p", candidates(2), job_share=JobShare(job=cache, cache=cache))
        simulation.run()
    assert simulation.measured_codes == {"code0": 2}


def test_a_failed_build_is_not_measured() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    pipeline.submit("p", candidates(1))
    assert pipeline.next_build() is not None
    failed = Failed(kind=FailureKind.ILLEGAL_SCHEDULE, message="no")
    pipeline.built("build:0", [Built(number=0, result=failed, started_s=0.0, ended_s=0.1)])
    (report,), _ = pipeline.collect()
    assert report.trial.outcome == failed and pipeline.next_measurement() is None


def test_nothing_is_handed_out_while_paused() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    pipeline.submit("p", candidates(1))
    pipeline.paused = True
    assert pipeline.next_build() is None
    pipeline.paused = False
    assert pipeline.next_build() is not None
    library = Library(sha256="x", path="", symbol="k")
    pipeline.built("build:0", [Built(number=0, result=library, started_s=0.0, ended_s=0.1)])
    pipeline.paused = True
    assert pipeline.next_measurement() is None and not pipeline.busy
    pipeline.paused = False
    assert pipeline.next_measurement() is not None


def test_a_job_that_leaves_takes_nothing_of_anothers_along() -> None:
    """Both jobs propose the same code: the one that stays has it measured although the
    other's measurement is dropped."""
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    simulation = Simulation(pipeline, code=lambda number: number % 10)
    for order, job in enumerate(("gone", "stays")):
        numbered = [Candidate(number=10 * order + number) for number in range(10)]
        pipeline.submit("p", numbered, job_share=JobShare(job=job, order=order))
    simulation.dispatch()
    for _ in range(4):
        simulation.now, _, act = heapq.heappop(simulation.events)
        act()
        simulation.dispatch()
    told_before = [report.trial.number for report in pipeline.collect()[0] if report.job == "stays"]
    pipeline.abandon("gone", leaves=True)
    reports = simulation.run()
    assert {report.job for report in reports} == {"stays"}
    numbers = [*told_before, *(report.trial.number for report in reports)]
    assert sorted(numbers) == list(range(10, 20)) and not pipeline.busy


def test_a_candidate_that_must_travel_alone_is_not_overtaken() -> None:
    """It needs an empty slot, which another job's candidates would keep busy for ever."""
    demand = Demand(POLICIES["fifo"], LaneShare())
    demand.slots([Place()], builders=1)
    for order, job in enumerate(("careful", "other")):
        demand.submit(JobShare(job=job, order=order), "p", candidates(3))
    careful, other = demand
    assert demand.next_to_build(lambda item: True, lambda problem: True) is careful
    assert demand.next_to_build(lambda item: item.job == "other", lambda problem: True) is None
    for queue in (careful, other):
        queue.is_ready(queue.to_build.popleft())
    lane = WorkerSlot("cpu:1")
    assert demand.next_for_lane([Place()], lambda place, item: lane) == (careful, lane)
    careful.ready[0].lost.append("killed")
    lane.batches.append([other.ready[0]])
    assert demand.next_for_lane([Place()], lambda place, item: lane) is None


def test_abandoned_candidates_are_never_reported() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    pipeline.submit("p", candidates(6))
    simulation = Simulation(pipeline)
    simulation.dispatch()
    pipeline.abandon()
    assert simulation.run() == []
    assert not pipeline.busy
    pipeline.submit("p", candidates(2))
    assert len(simulation.run()) == 2


def test_jobs_do_not_share_a_batch() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    for order, job in enumerate(("p", "q")):
        numbered = [Candidate(number=100 * order + number) for number in range(20)]
        pipeline.submit(job, numbered, job_share=JobShare(job=job, order=order))
    sent: list[tuple[str, set[int]]] = []
    while build := pipeline.next_build():
        worker, problem, requests = build
        sent.append((problem, {request.number // 100 for request in requests}))
        library = Library(sha256="x", path="", symbol="k")
        pipeline.built(
            worker,
            [
                Built(number=request.number, result=library, started_s=0.0, ended_s=0.001)
                for request in requests
            ],
        )
    assert {problem for problem, _ in sent} == {"p", "q"} and len(sent) < 40
    assert all(owners == {0 if problem == "p" else 1} for problem, owners in sent)
