"""A control request's answer: of one worker, of several, of one that was lost."""

from __future__ import annotations

from concurrent.futures import Future
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

from tests.support.problems import PROBLEM
from tests.unit.workers.fleet_simulation import library
from tuner.workers.fleet.actors import Worker
from tuner.workers.fleet.calls import CallReturned, Events, WorkerCalls
from tuner.workers.fleet.control_requests import ControlRequests
from tuner.workers.fleet.messages import (
    BuildFinalists,
    BuildRequest,
    Built,
    ControlReply,
    ControlRequest,
)


def built(number: int) -> Built:
    return Built(number=number, result=library(number), started_s=0.0, ended_s=0.1)


def asked(number: int, *builds: int) -> ControlRequest:
    requests = tuple(BuildRequest(number=number, config=None) for number in builds)
    return ControlRequest(number=number, problem=PROBLEM, what=BuildFinalists(requests=requests))


def test_an_answer_in_parts_is_given_once_and_in_order() -> None:
    said: list[ControlReply] = []
    controls, first, second = ControlRequests(said.append), asked(1), asked(2)
    controls.add(first)
    controls.add(second)
    controls.part(first, [built(1), built(3)], last=False)
    assert not said and controls.first is first
    controls.part(first, [built(0), built(2)], last=True)
    assert [
        (reply.number, [part.number for part in reply.value if isinstance(part, Built)])
        for reply in said
    ] == [(1, [0, 1, 2, 3])]
    controls.part(second, [built(0)], last=True)
    assert len(said[1].value) == 1 and controls.first is None


def test_a_question_that_lost_a_worker_has_no_answer_but_the_loss() -> None:
    said: list[ControlReply] = []
    controls, first, second = ControlRequests(said.append), asked(1), asked(2)
    controls.add(first)
    controls.add(second)
    controls.part(first, [built(1)], last=False)
    controls.refuse(first, "killed")
    controls.part(first, [built(0)], last=True)  # of the worker that was not lost
    controls.refuse(first, "killed again")
    assert [(reply.number, reply.error, reply.value) for reply in said] == [
        (1, "killed", ())
    ] and controls.first is second
    controls.part(second, [built(0)], last=True)
    assert len(said[1].value) == 1


def test_builds_are_taken_one_at_a_time_and_the_answer_waits_for_all() -> None:
    said: list[ControlReply] = []
    controls, first, second = ControlRequests(said.append), asked(1, 0, 1), asked(2, 5)
    assert controls.next_build() is None
    controls.add(first)
    controls.add(second)
    assert [build.number for build in (controls.next_build(),) if build] == [0]
    controls.part(first, [built(0)], last=True)  # nobody works on it, but a build is left
    assert not said
    assert [build.number for build in (controls.next_build(), controls.next_build()) if build] == [
        1
    ]  # not the second control request's
    controls.part(first, [built(1)], last=True)
    assert len(said) == 1 and len(said[0].value) == 2
    assert [build.number for build in (controls.next_build(),) if build] == [5]


def test_builds_of_a_question_that_lost_a_worker_are_not_taken() -> None:
    said: list[ControlReply] = []
    controls, first, second = ControlRequests(said.append), asked(1, 0, 1, 2), asked(2, 7)
    controls.add(first)
    controls.add(second)
    controls.next_build()
    controls.refuse(first, "killed")
    assert [build.number for build in (controls.next_build(), controls.next_build()) if build] == [
        7
    ]


class Slot(Worker):
    """A builder whose actor keeps its calls until a test answers them."""

    def _make(self) -> Any:
        self.calls: list[Future[Any]] = []

        def remote(*_: object) -> SimpleNamespace:
            self.calls.append(Future())
            return SimpleNamespace(future=lambda call=self.calls[-1]: call)

        method = SimpleNamespace(remote=remote)
        return SimpleNamespace(build=method, load=SimpleNamespace(remote=lambda problem: None))


def test_builds_behind_a_part_of_a_request_leave_it_the_builders() -> None:
    events: Events = SimpleQueue()
    calls, slot, control = (
        WorkerCalls(events),
        Slot("builder", None, {"cores": (0,)}, 1.0),
        asked(1),
    )
    calls.know(PROBLEM)
    calls.work(slot, "build", PROBLEM.key, [], control=control)
    calls.work(slot, "build", PROBLEM.key, [])
    assert slot.control is control
    slot.calls[1].set_result([])
    slot.calls[0].set_result([])
    returned = [events.get_nowait() for _ in range(2)]
    assert [isinstance(each, CallReturned) and each.control for each in returned] == [None, control]
