"""The fleet's books on a virtual clock: each candidate ends once whatever is lost, lanes keep busy, twins share a time."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tuner.measure.outcome import Candidate, Conditions, Failed, FailureKind, Outcome, Timed
from workers.demand import Demand
from workers.messages import BuildRequest, Built, Library, Measured, MeasureRequest, Report, Span
from workers.pipeline import MAX_RETRIES, Pipeline
from workers.policy import POLICIES, LaneShare, Place, PolicyName, Standing
from workers.station import Station

Event = tuple[float, int, Callable[[], None]]


def timed(seconds: float, library: Library) -> Timed:
    conditions = Conditions(lane="cpu:1", isolation="process")
    return Timed(samples_s=(seconds,), max_rel_error=0.0, conditions=conditions, artifact=library.sha256)


@dataclass
class Simulation:
    """Stations that take virtual time, work one batch after the other and may die with what they hold."""

    pipeline: Pipeline
    build_s: float = 0.1
    measure_s: float = 0.2
    travel_s: float = 0.0  # of a message, either way
    deaths: float = 0.0  # chance that a batch kills its station
    poison: frozenset[int] = frozenset()  # numbers that always do
    code: Callable[[int], int] = lambda number: number  # candidates with equal code are twins
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    now: float = 0.0
    events: list[Event] = field(default_factory=list)
    free_at: dict[str, float] = field(default_factory=dict)
    generation: Counter[str] = field(default_factory=Counter)
    reports: list[Report] = field(default_factory=list)
    spans: list[Span] = field(default_factory=list)
    overlaps: int = 0  # builds in flight while something is measured
    measured_codes: Counter[str] = field(default_factory=Counter)
    count: int = 0

    def run(self) -> list[Report]:
        self.dispatch()
        while self.events:
            self.now, _, act = heapq.heappop(self.events)
            act()
            self.dispatch()
            reports, spans = self.pipeline.collect()
            self.reports += reports
            self.spans += spans
        return self.reports

    def dispatch(self) -> None:
        while build := self.pipeline.next_build():
            worker, _, requests = build
            numbers = [one.number for one in requests]
            self.start(worker, self.build_s * len(requests), numbers, partial(self.build, requests))
        while measurement := self.pipeline.next_measurement():
            worker, _, wanted = measurement
            numbers = [one.number for one in wanted]
            self.start(worker, self.measure_s * len(wanted), numbers, partial(self.measure, wanted))
        building = any(station.load for station in self.pipeline.builders.values())
        self.overlaps += building and any(station.load for station in self.pipeline.runners.values())

    def start(
        self, worker: str, seconds: float, numbers: list[int], work: Callable[[float, float], list[Built] | list[Measured]]
    ) -> None:
        begun = max(self.now + self.travel_s, self.free_at.get(worker, 0.0))
        self.free_at[worker] = begun + seconds
        generation = self.generation[worker]
        dies = bool(self.poison & set(numbers)) or self.rng.random() < self.deaths

        def end() -> None:
            if generation != self.generation[worker]:
                return
            if dies:
                self.generation[worker] += 1
                self.free_at[worker] = self.now
                self.pipeline.lost(worker, "killed")
                return
            results = work(begun, begun + seconds)
            if worker in self.pipeline.builders:
                self.pipeline.built(worker, results)  # type: ignore[arg-type]  # what builders give
            else:
                self.pipeline.measured(worker, results)  # type: ignore[arg-type]  # what runners give

        self.count += 1
        heapq.heappush(self.events, (begun + seconds + self.travel_s, self.count, end))

    def build(self, requests: list[BuildRequest], started: float, ended: float) -> list[Built]:
        results = []
        for request in requests:
            library = Library(sha256=f"code{self.code(request.number)}", path="", symbol="k")
            results.append(Built(number=request.number, result=library, started_s=started, ended_s=ended))
        return results

    def measure(self, requests: list[MeasureRequest], started: float, ended: float) -> list[Measured]:
        share = (ended - started) / len(requests)
        results = []
        for at, request in enumerate(requests):
            self.measured_codes[request.library.sha256] += 1
            outcome = timed(1.0 + request.number, request.library)
            results.append(
                Measured(
                    number=request.number, outcome=outcome, started_s=started + at * share, ended_s=started + (at + 1) * share
                )
            )
        return results


def candidates(count: int) -> list[Candidate]:
    return [Candidate(number=number, config={"knob": number}) for number in range(count)]


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
        builders=[f"build:{at}" for at in range(builders)], runners=[f"cpu:{at}" for at in range(runners)], alternates=alternates
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
        assert report.quarantined == (isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE)
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
    places = {f"cpu:{at}": Place(threads=cores) for at, cores in enumerate([*lanes, max(threads)])}
    pipeline = Pipeline(
        builders=["build:0", "build:1"], runners=list(places), policy=policy, places=places, lane_share=lane_share
    )
    simulation = Simulation(pipeline, deaths=deaths, code=lambda number: number % codes, rng=np.random.default_rng(seed))
    for at, wanted in enumerate(threads):
        standing = Standing(job=f"j{at}", owner=f"o{at % 2}", priority=at - 1, order=at, threads=wanted, trials_left=counts[at])
        pipeline.submit(f"p{at}", candidates(counts[at]), standing=standing)
    reports = simulation.run()
    for at in range(len(threads)):
        assert sorted(report.trial.number for report in reports if report.job == f"j{at}") == list(range(counts[at]))
    assert not pipeline.busy and pipeline.next_build() is None and pipeline.next_measurement() is None


def test_poison_is_quarantined_and_takes_nobody_along() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    simulation = Simulation(pipeline, measure_s=0.001, build_s=0.001, poison=frozenset({7}))
    pipeline.submit("p", candidates(40))
    reports = {report.trial.number: report for report in simulation.run()}
    assert [number for number, report in reports.items() if report.quarantined] == [7]
    outcome = reports[7].trial.outcome
    assert isinstance(outcome, Failed) and outcome.kind is FailureKind.INFRASTRUCTURE
    assert reports[7].attempts == MAX_RETRIES + 1 and "killed" in outcome.message


def library(number: int) -> Library:
    return Library(sha256=f"code{number}", path="", symbol="k")


def ready(pipeline: Pipeline, at_s: float = 0.0) -> None:
    """Everything that can be built is, by whatever builders take it."""
    while build := pipeline.next_build():
        worker, _, requests = build
        built = [Built(number=one.number, result=library(one.number), started_s=at_s, ended_s=at_s + 0.1) for one in requests]
        pipeline.built(worker, built)


def test_only_what_was_worked_on_counts_as_an_attempt() -> None:
    """What waited behind it at the lost lane goes on in company; what a lane was given that never came up neither."""
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    pipeline.submit("p", candidates(4))
    ready(pipeline)
    first, second = pipeline.next_measurement(), pipeline.next_measurement()
    assert first is not None and second is not None and pipeline.next_measurement() is None
    pipeline.lost("cpu:1", "killed", started=False)
    assert [one.number for one in (pipeline.next_measurement() or ("", "", []))[2]] == [first[2][0].number]
    assert pipeline.next_measurement() is not None  # none of them must travel alone
    pipeline.lost("cpu:1", "killed")
    assert pipeline.next_measurement() is not None and pipeline.next_measurement() is None  # the first one must
    for _ in range(MAX_RETRIES):
        pipeline.lost("cpu:1", "killed")
        assert pipeline.next_measurement() is not None
    (given_up,), _ = pipeline.collect()
    assert given_up.quarantined and given_up.trial.number == first[2][0].number


def test_a_lane_is_given_a_problem_once_it_is_prepared_for_it() -> None:
    """Another job's candidates go first until then, and a lane that was replaced begins with nothing."""
    pipeline = Pipeline(builders=["build:0", "build:1"], runners=["cpu:1"], policy="fifo", prepares=["cpu:1"])
    for order, job in enumerate(("new", "old")):
        pipeline.submit(job, [Candidate(number=order)], standing=Standing(job=job, order=order))
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
    pipeline.submit("p", (), standing=Standing(job="job"))
    assert pipeline.unprepared() == [("cpu:1", "p")] and pipeline.next_build() is None
    pipeline.abandon("job")
    assert pipeline.unprepared() == []


@pytest.mark.parametrize("builders", [1, 3])
def test_what_no_lane_is_prepared_for_is_built_last_and_leaves_a_core_to_preparing_it(builders: int) -> None:
    names = [f"build:{at}" for at in range(builders)]
    pipeline = Pipeline(builders=names, runners=["cpu:1"], policy="fifo", prepares=["cpu:1"])
    for order, job in enumerate(("new", "old")):
        numbered = [Candidate(number=10 * order + number) for number in range(4 if job == "new" else 1)]
        pipeline.submit(job, numbered, standing=Standing(job=job, order=order))
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
    pipeline.submit("wide", candidates(2), standing=Standing(job="job", threads=4))
    assert pipeline.next_build() is not None


def test_a_builder_is_kept_free_for_a_question_while_all_else_goes_on() -> None:
    pipeline = Pipeline(builders=["build:0", "build:1"], runners=["cpu:1"])
    pipeline.submit("p", candidates(6))
    first = pipeline.next_build()
    assert first is not None and first[0] == "build:0"
    pipeline.reserve(wanted=True)
    assert pipeline.reserved == "build:1"  # the less busy one
    pipeline.built("build:0", [Built(number=0, result=library(0), started_s=0.0, ended_s=0.2)])
    assert pipeline.next_measurement() is not None
    while build := pipeline.next_build():
        assert build[0] == "build:0"
        pipeline.reserve(wanted=True)
    assert pipeline.reserved == "build:1" and not pipeline.builders["build:1"].batches
    pipeline.reserve(wanted=False)
    assert (pipeline.next_build() or ("",))[0] == "build:1"


def test_a_lane_that_waits_may_begin_with_what_is_built_for_it() -> None:
    pipeline = Pipeline(builders=["build:0", "build:1"], runners=["cpu:1", "cpu:2"], prepares=["cpu:1", "cpu:2"])
    pipeline.submit("p", candidates(8))
    for lane in ("cpu:1", "cpu:2"):
        pipeline.prepared(lane, "p")
    builds = [pipeline.next_build(), pipeline.next_build()]
    promised = {build[0]: build[2][0].lane for build in builds if build is not None}
    assert set(promised.values()) == {"cpu:1", "cpu:2"}  # each to one of them
    pipeline.paused = True  # what a lane has begun with is brought to its end, and nothing else goes out
    pipeline.built("build:1", [Built(number=1, result=library(1), started_s=0.0, ended_s=0.2)])
    handed = pipeline.next_measurement()
    assert handed is not None and handed[0] == promised["build:1"] and handed[2][0].number == 1
    assert pipeline.next_measurement() is None and pipeline.next_build() is None
    pipeline.paused = False
    pipeline.lost("build:0", "killed")  # what was lost once travels alone, and nobody begins with it early
    build = pipeline.next_build()
    assert build is not None and build[2][0].number == 0 and build[2][0].lane == ""


def test_a_race_is_lane_time_and_not_idleness() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    pipeline.submit("p", candidates(2))
    for number, at in enumerate((1.0, 5.0)):
        build = pipeline.next_build()
        assert build is not None
        pipeline.built("build:0", [Built(number=number, result=library(number), started_s=at - 0.5, ended_s=at)])
        assert pipeline.next_measurement() is not None
        outcome = Failed(kind=FailureKind.WRONG_ANSWER, message="")
        pipeline.measured("cpu:1", [Measured(number=number, outcome=outcome, started_s=at, ended_s=at + 0.5)])
        if number == 0:
            span = pipeline.raced("cpu:1", 1.6, 4.0)
            assert (span.activity, span.number, span.started_s, span.ended_s) == ("time", None, 1.6, 4.0)
    _, spans = pipeline.collect()
    assert [(one.started_s, one.ended_s) for one in spans if one.activity == "idle"] == [(1.5, 1.6), (4.0, 5.0)]


def test_a_builder_hands_over_before_it_builds_on_while_a_lane_waits() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    pipeline.submit("p", candidates(8))
    assert pipeline.next_build() is not None and pipeline.next_build() is None
    for number in range(2):
        pipeline.built("build:0", [Built(number=number, result=library(number), started_s=0.0, ended_s=0.2)])
        assert pipeline.next_measurement() is not None  # the second one waits at the lane
        assert pipeline.next_build() is not None
        assert (pipeline.next_build() is None) is (number == 0)  # then the lane has enough for now


def test_lanes_go_on_at_once_although_messages_take_their_time() -> None:
    """As many candidates in flight as a job submits, on lanes that limit it."""
    lanes, builders = 4, 8
    pipeline = Pipeline(builders=[f"build:{at}" for at in range(builders)], runners=[f"cpu:{at}" for at in range(lanes)])
    simulation = Simulation(pipeline, build_s=0.1, measure_s=0.06, travel_s=0.005)
    pipeline.submit("p", candidates(4 + 2 * builders + 3 * lanes))
    simulation.run()
    idle = [span for span in simulation.spans if span.activity == "idle" and span.started_s < 0.4]
    assert sum(span.ended_s - span.started_s for span in idle) < 0.01 * lanes * 0.4


def test_twins_share_one_measurement() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    simulation = Simulation(pipeline, code=lambda number: 0)
    pipeline.submit("p", candidates(5))
    reports = simulation.run()
    assert simulation.measured_codes == {"code0": 1}
    outcomes = [report.trial.outcome for report in sorted(reports, key=lambda one: one.trial.number)]
    assert [isinstance(one, Timed) and one.conditions.reused for one in outcomes] == [False, True, True, True, True]


def test_outcomes_of_an_earlier_run_are_reused() -> None:
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    simulation = Simulation(pipeline, code=lambda number: 0)
    pipeline.submit("p", candidates(2), {"code0": timed(3.0, Library(sha256="code0", path="", symbol="k"))})
    assert [report.trial.outcome.samples_s for report in simulation.run() if isinstance(report.trial.outcome, Timed)] == [
        (3.0,),
        (3.0,),
    ]
    assert not simulation.measured_codes


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
    """Both jobs propose the same code: the one that stays has it measured although the other's measurement is dropped."""
    pipeline = Pipeline(builders=["build:0"], runners=["cpu:1"])
    simulation = Simulation(pipeline, code=lambda number: number % 10)
    for order, job in enumerate(("gone", "stays")):
        numbered = [Candidate(number=10 * order + number) for number in range(10)]
        pipeline.submit("p", numbered, standing=Standing(job=job, order=order))
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
    """It needs an empty station, which another job's candidates would keep busy for ever."""
    demand = Demand(POLICIES["fifo"], LaneShare())
    demand.stations([Place()], builders=1)
    for order, job in enumerate(("careful", "other")):
        demand.submit(Standing(job=job, order=order), "p", candidates(3))
    careful, other = demand
    assert demand.next_to_build(lambda item: True, lambda problem: True) is careful
    assert demand.next_to_build(lambda item: item.job == "other", lambda problem: True) is None
    for queue in (careful, other):
        queue.is_ready(queue.to_build.popleft())
    lane = Station("cpu:1")
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
    for at, job in enumerate(("p", "q")):
        numbered = [Candidate(number=100 * at + number) for number in range(20)]
        pipeline.submit(job, numbered, standing=Standing(job=job, order=at))
    sent: list[tuple[str, set[int]]] = []
    while build := pipeline.next_build():
        worker, problem, requests = build
        sent.append((problem, {one.number // 100 for one in requests}))
        library = Library(sha256="x", path="", symbol="k")
        pipeline.built(worker, [Built(number=one.number, result=library, started_s=0.0, ended_s=0.001) for one in requests])
    assert {problem for problem, _ in sent} == {"p", "q"} and len(sent) < 40
    assert all(owners == {0 if problem == "p" else 1} for problem, owners in sent)


def busy_share(lanes: int, trials: int) -> tuple[float, float]:
    """Share of the lanes' time spent measuring until the last batch starts, and processor seconds of bookkeeping a trial."""
    pipeline = Pipeline(builders=[f"build:{at}" for at in range(lanes)], runners=[f"cpu:{at}" for at in range(lanes)])
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
def test_a_thousand_lanes_cost_little_bookkeeping() -> None:
    share, cost_s = busy_share(1000, 6000)
    assert share >= 0.95
    assert cost_s <= 0.003


def test_a_drained_lane_ends_what_it_holds_and_gets_nothing_new() -> None:
    simulation = Simulation(Pipeline(builders=["b"], runners=["steady", "drifting"]))
    simulation.pipeline.submit("p", [Candidate(number=number, config={"x": number}) for number in range(60)])
    simulation.events.append((3.05, -1, lambda: simulation.pipeline.drain("drifting")))
    simulation.events.append((4.55, -2, lambda: simulation.pipeline.drain("drifting", drained=False)))
    heapq.heapify(simulation.events)
    reports = simulation.run()
    assert sorted(report.trial.number for report in reports) == list(range(60))
    on_drifting = [span.started_s for span in simulation.spans if span.activity == "time" and span.worker == "drifting"]
    assert any(started < 3.05 for started in on_drifting) and any(started > 4.55 for started in on_drifting)
    assert not any(3.3 < started < 4.55 for started in on_drifting)
