"""Who takes part in a promotion: the fastest trials whose code differs."""

from __future__ import annotations

from tuner.measure.outcome import Conditions, Timed, Trial
from tuner.workers.fleet.actors import FIRST_CALL_S
from tuner.workers.fleet.messages import Limits
from tuner.workers.jobs.promotion import ANSWER_S, RACE_S, distinct


def trial(
    number: int, seconds: float, artifact: str, *, abandoned: bool = False, reused: bool = False
) -> Trial:
    conditions = Conditions(lane="cpu:1", isolation="process", abandoned=abandoned, reused=reused)
    outcome = Timed(
        samples_s=(seconds,), max_rel_error=0.0, conditions=conditions, artifact=artifact
    )
    return Trial(number=number, config={"knob": number} if number else {}, outcome=outcome)


def test_finalists_have_different_code_and_were_timed_to_the_end() -> None:
    best = [
        trial(4, 1.0, "a"),
        trial(7, 1.0, "a", reused=True),
        trial(0, 1.5, "default"),
        trial(2, 2.0, "b"),
        trial(3, 3.0, "c", abandoned=True),
        trial(5, 4.0, "d"),
    ]
    assert [trial.number for trial in distinct(best, 3)] == [4, 2, 5]
    assert [trial.number for trial in distinct(best, 1)] == [4]
    assert distinct([trial(0, 1.0, "default")], 3) == []


def test_an_answer_is_waited_for_longer_than_the_fleet_may_take() -> None:
    """A race that is asked for again while the first still runs would only wait behind it."""
    preparation_s = FIRST_CALL_S + Limits().run_timeout_s
    assert 2 * preparation_s + RACE_S < ANSWER_S
