"""What was compiled lately is not compiled again, and goes back to the builder that has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.problems import PROBLEM
from tests.unit.workers.fleet_simulation import library
from tuner.errors import IllegalSchedule
from tuner.measure.assignment import Lane
from tuner.measure.outcome import Candidate
from tuner.spaces.core.space import Config
from tuner.workers.backends.backend import CompiledCandidate
from tuner.workers.fleet.actors import ActorFactory, Worker
from tuner.workers.fleet.calls import Events, WorkerCalls
from tuner.workers.fleet.control_dispatch import ControlDispatch
from tuner.workers.fleet.lane_calibration import LaneCalibration
from tuner.workers.fleet.messages import (
    BuildFinalists,
    BuildRequest,
    Built,
    ControlReply,
    ControlRequest,
    FleetPlan,
    HostPlan,
    Limits,
    Problem,
)
from tuner.workers.fleet.pipeline import Pipeline
from tuner.workers.fleet.recent_builds import BuildPlaces, RecentBuilds, RememberingCompiler
from tuner.workers.fleet.roster import Roster


class Compiler:
    """Compiles what is not refused, and counts."""

    def __init__(self, problem: Problem = PROBLEM) -> None:
        self.problem = problem
        self.compiled: list[Config | None] = []

    def compile(self, config: Config | None) -> CompiledCandidate:
        self.compiled.append(config)
        if config == {"sketch": "illegal"}:
            raise IllegalSchedule("no such loop")
        return CompiledCandidate(
            library=repr(config).encode(), code=b"", symbol="k", schedule=lambda: {}
        )


def test_what_was_compiled_lately_is_the_same_object_again() -> None:
    compiler, recent = Compiler(), RecentBuilds(most=2)
    remembering = RememberingCompiler(compiler, recent)
    assert remembering.problem is PROBLEM
    first = remembering.compile({"tile": (4, 8), "unroll": 2})
    loaded: Any = {"unroll": 2, "tile": [4, 8]}  # as a database gives it
    assert remembering.compile(loaded) is first
    default = remembering.compile(None)
    assert remembering.compile({}) is default and len(compiler.compiled) == 2
    remembering.compile({"tile": (4, 8), "unroll": 4})
    assert remembering.compile(None) is default
    assert remembering.compile({"tile": (4, 8), "unroll": 2}) is not first  # the oldest of three


def test_what_does_not_build_is_refused_each_time() -> None:
    compiler = Compiler()
    remembering = RememberingCompiler(compiler, RecentBuilds())
    for _ in range(2):
        with pytest.raises(IllegalSchedule):
            remembering.compile({"sketch": "illegal"})
    assert len(compiler.compiled) == 2


def test_problems_do_not_share_what_was_compiled() -> None:
    recent = RecentBuilds()
    other = Problem(workload=PROBLEM.workload, target=PROBLEM.target, threads=2)
    compilers = Compiler(), Compiler(other)
    one, two = (RememberingCompiler(compiler, recent).compile(None) for compiler in compilers)
    assert one is not two


def test_places_of_the_latest_candidates_are_known() -> None:
    places = BuildPlaces(most=2)
    for number in range(3):
        places.note("p", {"knob": number}, f"build:{number}")
    assert [places.builder("p", {"knob": number}) for number in range(3)] == [
        "",
        "build:1",
        "build:2",
    ]
    assert places.builder("q", {"knob": 2}) == ""


class Slot(Worker):
    """A worker whose actor keeps its calls until a test answers them."""

    def _make(self) -> Any:
        self.asked: list[tuple[str, Sequence[BuildRequest]]] = []

        def remote(problem: str, requests: Sequence[BuildRequest] = ()) -> SimpleNamespace:
            self.asked.append((problem, requests))
            return SimpleNamespace(future=Future[Any])

        method = SimpleNamespace(remote=remote)
        return SimpleNamespace(build=method, load=SimpleNamespace(remote=lambda problem: None))


class Slots(ActorFactory):
    """Two builders and a lane that prepares nothing."""

    def make(
        self,
        plan: FleetPlan | HostPlan,
        limits: Limits,
        *,
        host: str | None = None,
        threads: int = 1,
    ) -> list[Worker]:
        lane = Lane(name="cpu:2", cores=(2,))
        builders: list[Worker] = [
            Slot(f"build:{core}", object, {"cores": (core,)}, 1.0) for core in range(2)
        ]
        return [*builders, Slot("cpu:2", object, {"lane": lane}, 1.0)]


def fleet(pipeline: Pipeline) -> tuple[ControlDispatch, Mapping[str, Slot], list[ControlReply]]:
    plan = FleetPlan(
        lanes=(Lane(name="cpu:2", cores=(2,)),),
        builder_cores=(0, 1),
        alternates=False,
        limits=Limits(),
        storage="",
    )
    events: Events = SimpleQueue()
    roster, calls = Roster(plan, Slots(), local=True), WorkerCalls(events)
    calls.know(PROBLEM)
    said: list[ControlReply] = []
    calibration = LaneCalibration(pipeline)
    calibration.add("cpu:2")
    dispatch = ControlDispatch(
        said.append, roster=roster, pipeline=pipeline, calls=calls, calibration=calibration
    )
    slots = {worker.name: worker for worker in roster if isinstance(worker, Slot)}
    return dispatch, slots, said


def built_before(pipeline: Pipeline, *numbers: int) -> dict[int, str]:
    """Who built candidates of these numbers, by builders that take turns; none is measured."""
    pipeline.submit(PROBLEM.key, [Candidate(number=n, config={"knob": n}) for n in numbers])
    while builds := [*iter(pipeline.next_build, None)]:
        for builder, _, requests in builds:
            results = [built(request.number) for request in requests]
            pipeline.built(builder, results)
    pipeline.abandon()
    return {number: pipeline.builder_of(PROBLEM.key, {"knob": number}) for number in numbers}


def built(number: int) -> Built:
    return Built(number=number, result=library(number), started_s=0.0, ended_s=0.1)


def request(*knobs: int) -> ControlRequest:
    requests = tuple(
        BuildRequest(number=place, config={"knob": knob}, keep="kept")
        for place, knob in enumerate(knobs)
    )
    return ControlRequest(number=1, problem=PROBLEM, what=BuildFinalists(requests=requests))


def knobs(slot: Slot) -> list[int]:
    return [
        int(str(each.config["knob"])) for _, asked in slot.asked for each in asked if each.config
    ]


def returned(dispatch: ControlDispatch, control: ControlRequest, slot: Slot) -> None:
    """The slot has done its part of the request."""
    slot.deadlines.pop(0)
    slot.control = None
    dispatch.returned(control, slot, [built(slot.asked[-1][1][0].number)])


def test_a_finalist_goes_to_the_builder_that_has_built_it() -> None:
    pipeline = Pipeline(builders=["build:0", "build:1"], runners=["cpu:2"])
    homes = built_before(pipeline, 10, 11, 12, 13)
    assert set(homes.values()) == {"build:0", "build:1"}
    dispatch, slots, said = fleet(pipeline)
    control = request(13, 12, 11, 10, 99)
    dispatch.add(control)
    while not said:
        dispatch.dispatch()
        for slot in slots.values():
            if slot.deadlines:
                returned(dispatch, control, slot)
    asked = {name: knobs(slot) for name, slot in slots.items()}
    assert sorted(knob for each in asked.values() for knob in each) == [10, 11, 12, 13, 99]
    assert all(homes.get(knob, name) == name for name, each in asked.items() for knob in each)
    (reply,) = said
    assert [part.number for part in reply.value if isinstance(part, Built)] == [0, 1, 2, 3, 4]


def test_a_finalist_waits_for_its_builder_only_while_that_builds_others_of_the_race() -> None:
    pipeline = Pipeline(builders=["build:0", "build:1"], runners=["cpu:2"])
    homes = built_before(pipeline, 10, 11, 12, 13)
    both = [number for number, builder in homes.items() if builder == "build:1"]
    assert len(both) == 2
    dispatch, slots, _ = fleet(pipeline)
    control, other = request(*both), slots["build:0"]
    dispatch.add(control)
    dispatch.dispatch()
    dispatch.dispatch()
    assert knobs(slots["build:1"]) == both[:1] and not other.asked
    slots["build:1"].deadlines.append(1.0)  # another job's candidates, behind its part
    returned(dispatch, control, slots["build:1"])
    dispatch.dispatch()
    assert knobs(other) == both[1:]


def test_no_finalist_waits_for_a_builder_that_has_gone() -> None:
    pipeline = Pipeline(builders=["build:0", "build:1", "build:9"], runners=["cpu:2"])
    homes = built_before(pipeline, 10, 11, 12)
    (lost,) = [number for number, builder in homes.items() if builder == "build:9"]
    dispatch, slots, _ = fleet(pipeline)
    dispatch.add(request(lost))
    dispatch.dispatch()
    assert knobs(slots["build:0"]) == [lost]
