"""A question's answer: of one worker, of several, of one that was lost."""

from __future__ import annotations

from tests.unit.workers.fleet_simulation import library
from tests.unit.workers.test_builder import PROBLEM
from workers.messages import Answer, Ask, BuildAsk, Built
from workers.questions import Questions


def built(number: int) -> Built:
    return Built(number=number, result=library(number), started_s=0.0, ended_s=0.1)


def asked(number: int) -> Ask:
    return Ask(number=number, problem=PROBLEM, what=BuildAsk(requests=()))


def test_an_answer_in_parts_is_given_once_and_in_order() -> None:
    said: list[Answer] = []
    questions, first, second = Questions(said.append), asked(1), asked(2)
    questions.add(first)
    questions.add(second)
    questions.part(first, [built(1), built(3)], last=False)
    assert not said and questions.first is first
    questions.part(first, [built(0), built(2)], last=True)
    assert [(one.number, [part.number for part in one.value if isinstance(part, Built)]) for one in said] == [(1, [0, 1, 2, 3])]
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
    assert [(one.number, one.error, one.value) for one in said] == [(1, "killed", ())] and questions.first is second
    questions.part(second, [built(0)], last=True)
    assert len(said[1].value) == 1
