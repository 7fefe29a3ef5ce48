"""A runner that cannot have the isolation asked for says so when it starts, in words,
and nothing is measured by it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from threading import Thread

import pytest

from tests.support.isolation_levels import FULL, without
from tests.support.targets import host_target
from tuner.measure import runner as processes
from tuner.measure.assignment import Lane
from tuner.measure.outcome import Failed
from tuner.measure.sandbox.isolation import resolve
from tuner.measure.sandbox.support import Mechanism, State
from tuner.workers.fleet.handoff import HandoffMessage, post
from tuner.workers.fleet.messages import Library, Limits, MeasureRequest, Problem
from tuner.workers.fleet.runner import Runner
from tuner.workload.spec import parse_spec


@pytest.fixture
def lane() -> Lane:
    core = max(os.sched_getaffinity(0))
    return Lane(name=f"cpu:{core}", cores=(core,))


def test_a_runner_tells_the_level_it_has(lane: Lane, tmp_path: Path) -> None:
    home = tuple(os.sched_getaffinity(0))
    runner = Runner(
        lane=lane, home_cores=home, limits=Limits(isolation="process"), storage=str(tmp_path)
    )
    try:
        said = runner.describe()
        assert said["isolation"] == "process" and "refused" not in said
        assert len(runner.calibrate()) == 1
    finally:
        runner.close()


def test_a_runner_that_lacks_a_required_part_refuses_with_the_way_out(
    lane: Lane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    denied = without(Mechanism.NETWORK, State.DENIED)

    def isolate(process: processes.RunnerProcess, level: str) -> str:
        return resolve(
            level, denied
        ).name  # what the runner process does, on a kernel that refuses namespaces

    monkeypatch.setattr(processes.RunnerProcess, "isolate", isolate)
    home = tuple(os.sched_getaffinity(0))
    for level, refuses in (
        ("required", True),
        ("sealed", True),
        ("sealed without network", False),
        ("confined", False),
    ):
        runner = Runner(
            lane=lane, home_cores=home, limits=Limits(isolation=level), storage=str(tmp_path)
        )
        try:
            said = runner.describe()
        finally:
            runner.close()
        assert ("refused" in said) is refuses, level
        if refuses:
            assert "network" in str(said["refused"]) and "'sealed without network'" in str(
                said["refused"]
            )
    assert FULL.findings[Mechanism.NETWORK].state is State.AVAILABLE


def test_later_workloads_are_made_ready_beside_the_first_unless_that_would_be_on_its_lane(
    lane: Lane, tmp_path: Path
) -> None:
    others = tuple(os.sched_getaffinity(0) - set(lane.cores))
    problems = [
        Problem(workload=parse_spec(f"softmax:M={rows},N=8"), target=host_target(), threads=1)
        for rows in (4, 5)
    ]
    before = os.sched_getaffinity(0)
    for home, ready in ((others or lane.cores, 2 if others else 1), (lane.cores, 1)):
        runner = Runner(
            lane=lane, home_cores=home, limits=Limits(isolation="process"), storage=str(tmp_path)
        )
        try:
            for problem in problems:
                thread = Thread(target=runner.prefetch, args=(problem,))
                thread.start()
                thread.join()
            assert runner.prepared_keys == tuple(problem.key for problem in problems[:ready])
            assert len(runner.calibrate()) == 1
        finally:
            runner.close()
            os.sched_setaffinity(0, before)


@pytest.mark.slow
def test_what_a_builder_handed_over_is_begun_before_it_is_asked_for(
    lane: Lane, tmp_path: Path
) -> None:
    """The answer is what was measured then; a hand-off message that comes late, or about
    something else, changes nothing."""
    problem = Problem(workload=parse_spec("softmax:M=4,N=8"), target=host_target(), threads=1)
    before = os.sched_getaffinity(0)
    runner = Runner(
        lane=lane,
        home_cores=tuple(before),
        limits=Limits(isolation="process"),
        storage=str(tmp_path),
    )

    def wanted(number: int) -> MeasureRequest:
        library = Library(
            sha256=f"{number:064x}", path=str(tmp_path / f"{number:064x}.so"), symbol="none"
        )
        return MeasureRequest(number=number, library=library, best_s=None)

    def handed_over(number: int) -> float:
        """When the lane had time enough for it."""
        post(tmp_path, lane.name, HandoffMessage(problem=problem.key, request=wanted(number)))
        time.sleep(1.0)
        return time.monotonic()

    try:
        handed_over(0)  # of a problem that the lane is not ready for
        runner.prefetch(problem)
        (cold,) = runner.measure(problem.key, [wanted(0)])
        later = handed_over(1)
        (begun,) = runner.measure(problem.key, [wanted(1)])
        assert begun.number == 1 and begun.ended_s < later
        assert isinstance(begun.outcome, Failed) and isinstance(
            cold.outcome, Failed
        )  # there is no such library
        handed_over(1)
        later = handed_over(2)
        third, second = runner.measure(problem.key, [wanted(3), wanted(2)])
        assert third.number == 3 and third.started_s >= later and second.started_s >= third.ended_s
        later = handed_over(2)
        assert runner.measure(problem.key, [wanted(2)])[0].started_s >= later
        post(tmp_path, lane.name, HandoffMessage(problem=problem.key, request=wanted(4)))
        later = handed_over(5)  # before anybody asked for the fourth, which is not measured again
        assert runner.measure(problem.key, [wanted(4)])[0].ended_s < later
    finally:
        runner.close()
        os.sched_setaffinity(0, before)
