"""A question's answer: of one worker, of several, of one that was lost."""

from __future__ import annotations

from tests.unit.workers.fleet_simulation import library
from tests.unit.workers.test_builder import PROBLEM
from tuner.workers.fleet.control_requests import Questions
from tuner.workers.fleet.messages import Answer, Ask, BuildAsk, BuildRequest, Built


def built(number: int) -> Built:
    return Built(number=number, result=library(number), started_s=0.0, ended_s=0.1)


def asked(number: int, *builds: int) -> Ask:
    requests = tuple(BuildRequest(number=at, config=None) for at in builds)
    return Ask(number=number, problem=PROBLEM, what=BuildAsk(requests=requests))


def test_an_answer_in_parts_is_given_once_and_in_order() -> None:
    said: list[Answer] = []
    questions, first, second = Questions(said.append), asked(1), asked(2)
    questions.add(first)
    questions.add(second)
    questions.part(first, [built(1), built(3)], last=False)
    assert not said and questions.first is first
    questions.part(first, [built(0), built(2)], last=True)
    assert [
        (one.number, [part.number for part in one.value if isinstance(part, Built)]) for one in said
    ] == [(1, [0, 1, 2, 3])]
    questions.part(second, [built(0)], last=True)
    assert len(said[1].value) == 1 and questions.first is None


def test_a_question_that_lost_a_worker_has_no_answer_but_the_loss() -> None:
    said: list[Answer] = []
    questions, first, second = Questions(said.append), asked(1), asked(2)
    questions.add(first)
    questions.add(second)
    questions.part(first, [built(1)], last=False)
    questions.refuse(first, "killed")
    questions.part(first, [built(0)], last=True)  # of the worker that was not lost
    questions.refuse(first, "killed again")
    assert [(one.number, one.error, one.value) for one in said] == [
        (1, "killed", ())
    ] and questions.first is second
    questions.part(second, [built(0)], last=True)
    assert len(said[1].value) == 1


def test_builds_are_taken_one_at_a_time_and_the_answer_waits_for_all() -> None:
    said: list[Answer] = []
    questions, first, second = Questions(said.append), asked(1, 0, 1), asked(2, 5)
    assert questions.next_build() is None
    questions.add(first)
    questions.add(second)
    assert [one.number for one in (questions.next_build(),) if one] == [0]
    questions.part(first, [built(0)], last=True)  # nobody works on it, but a build is left
    assert not said
    assert [one.number for one in (questions.next_build(), questions.next_build()) if one] == [
        1
    ]  # not the second question's
    questions.part(first, [built(1)], last=True)
    assert len(said) == 1 and len(said[0].value) == 2
    assert [one.number for one in (questions.next_build(),) if one] == [5]


def test_builds_of_a_question_that_lost_a_worker_are_not_taken() -> None:
    said: list[Answer] = []
    questions, first, second = Questions(said.append), asked(1, 0, 1, 2), asked(2, 7)
    questions.add(first)
    questions.add(second)
    questions.next_build()
    questions.refuse(first, "killed")
    assert [one.number for one in (questions.next_build(), questions.next_build()) if one] == [7]
