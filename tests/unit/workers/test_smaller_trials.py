"""Which trials race for what they need beside time."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from tests.support.database_samples import failed, timed
from tuner.measure.objective import TIME, goal_of
from tuner.measure.outcome import Timed, Trial
from tuner.workers.jobs.smaller_trials import MOST, on_front

CODE = goal_of("code_size")


def trial(number: int, median_s: float, code_bytes: int, artifact: str = "") -> Trial:
    made = replace(timed(number, median_s), code_bytes=code_bytes)
    assert isinstance(made.outcome, Timed)
    return replace(made, outcome=replace(made.outcome, artifact=artifact or f"{number:064x}"))


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), max_size=40), st.integers(0, 3))
def test_they_are_few_and_nobody_is_faster_with_less_code(
    sizes: list[tuple[int, int]], beside: int
) -> None:
    trials = [trial(number, *size) for number, size in enumerate(sizes)]
    fastest = sorted(trials, key=lambda each: each.figures.median_s or 0.0)[:beside]
    chosen = on_front(trials, CODE, fastest)
    assert len(chosen) <= MOST and not set(map(id, chosen)) & set(map(id, fastest))
    for each in chosen:
        assert not any(
            other.figures.median_s < each.figures.median_s  # type: ignore[operator]  # timed
            and other.figures.code_bytes < each.figures.code_bytes  # type: ignore[operator]
            for other in trials
        )
    numbers = [each.number for each in chosen]
    assert len(set(numbers)) == len(numbers)


def test_both_ends_of_a_long_front_race() -> None:
    trials = [trial(number, 1.0 + number, 100 - number) for number in range(50)]
    chosen = on_front(trials, CODE, [])
    assert len(chosen) == MOST and (chosen[0].number, chosen[-1].number) == (0, 49)


def test_the_default_failures_and_hopeless_ones_are_left_out() -> None:
    default = replace(trial(0, 1.0, 1), config={})
    hopeless = trial(1, 0.5, 1)
    assert isinstance(hopeless.outcome, Timed)
    conditions = replace(hopeless.outcome.conditions, abandoned=True)
    hopeless = replace(hopeless, outcome=replace(hopeless.outcome, conditions=conditions))
    fair = trial(3, 2.0, 7)
    trials = [default, hopeless, failed(2), fair, trial(4, 2.0, 7, artifact=f"{3:064x}")]
    assert on_front(trials, CODE, []) == [fair]
    assert on_front(trials, CODE, [fair]) == [], "the same code races already"
    assert on_front(trials, goal_of(TIME.name), []) == on_front(trials, goal_of("energy"), []) == []
