"""Objectives: what is written for them, what is best by one, and the Pareto front of two."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.database_samples import failed, sample_target, timed
from tests.support.targets import ZEN5
from tuner.errors import UsageError
from tuner.measure.objective import (
    CODE_SIZE,
    ENERGY,
    FASTEST,
    MEMORY,
    OBJECTIVES,
    THROUGHPUT,
    TIME,
    Figures,
    Goal,
    Objective,
    check_goal,
    chosen,
    front,
    goal_of,
    refuse_beside_work,
)

SIZES = st.none() | st.integers(0, 6)
FIGURES = st.builds(
    Figures,
    median_s=st.integers(1, 6).map(float),
    workspace_bytes=SIZES,
    code_bytes=SIZES,
    calls_per_s=st.none() | st.integers(1, 6).map(float),
)


def own(figures: Figures) -> Figures:
    return figures


def test_names_are_read_and_written_back() -> None:
    for name, objective in OBJECTIVES.items():
        assert goal_of(name) == Goal(objectives=(objective,)) and goal_of(name).text == name
    both = goal_of(" time , code_size ")
    assert both.objectives == (TIME, CODE_SIZE) and both.text == "time,code_size" and both.is_front
    assert goal_of("time") == FASTEST and not FASTEST.is_front and not FASTEST.of_trials


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("speed", "unknown objective 'speed'; it is time, throughput, memory, code_size or energy"),
        ("", "unknown objective ''"),
        ("time,", "unknown objective ''"),
        ("time,time", "objective is 'time,time'; give one, or 2 different ones"),
        ("time,memory,code_size", "give one, or 2 different ones for their Pareto front"),
    ],
)
def test_anything_else_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        goal_of(text)


def test_other_targets_and_services_measure_less() -> None:
    check_goal(goal_of("code_size"), sample_target())
    gpu = replace(sample_target("gpu"), kind="cuda")
    for text in ("time", "energy", "time,energy"):
        check_goal(goal_of(text), gpu)
    for text in ("memory", "energy,code_size"):
        with pytest.raises(UsageError, match=f"{text}, and gpu is a GPU.*give time or energy"):
            check_goal(goal_of(text), gpu)
    declared = replace(ZEN5, fingerprint={"declared": "yes"})
    for text in ("time,memory", "energy"):
        with pytest.raises(UsageError, match=r"is a declared CPU.*give time$"):
            check_goal(goal_of(text), declared)
    refuse_beside_work(goal_of("time,code_size"))
    for text in ("throughput", "energy,time"):
        with pytest.raises(UsageError, match="a service measures beside other work"):
            refuse_beside_work(goal_of(text))


@given(st.lists(FIGURES, max_size=8), st.sampled_from(["time,memory", "throughput,code_size"]))
def test_nobody_beats_who_is_on_the_front_and_the_others_are_beaten(
    items: list[Figures], text: str
) -> None:
    objectives = goal_of(text).objectives

    def costs(item: Figures) -> tuple[float, ...]:
        return tuple(each.cost(item) for each in objectives)

    measured = [each for each in items if all(o.figure(each) is not None for o in objectives)]
    kept = front(items, objectives, own)
    assert kept == sorted(kept, key=costs)
    for each in measured:
        better = [
            other
            for other in measured
            if costs(other) != costs(each)
            and all(a <= b for a, b in zip(costs(other), costs(each), strict=True))
        ]
        same = [other for other in kept if costs(other) == costs(each)]
        assert len(same) == (0 if better else 1)


@given(
    st.lists(FIGURES, max_size=8),
    st.sampled_from([TIME, MEMORY, CODE_SIZE, THROUGHPUT]),
    st.none() | st.sampled_from([0.0, 0.5, 9.0]),
)
def test_one_objective_takes_the_least_and_of_equals_the_fastest(
    items: list[Figures], objective: Objective, within: float | None
) -> None:
    least_s = min((each.median_s or 0.0 for each in items), default=0.0)
    near = [
        each
        for each in items
        if within is None or (each.median_s or 0.0) <= least_s * (1.0 + within)
    ]
    measured = [each for each in near if objective.figure(each) is not None]
    best = chosen(items, Goal(objectives=(objective,)), own, within=within)
    if not measured:
        assert best == []
        return
    key = (objective.cost(best[0]), best[0].median_s)
    assert len(best) == 1
    assert key == min((objective.cost(each), each.median_s) for each in measured)


def test_a_search_weighs_time_and_size_alike() -> None:
    goal, big = goal_of("time,code_size"), Figures(code_bytes=64 * 1023)
    small = Figures(code_bytes=64 * 511)
    assert goal.search_cost_s(1.0, big) == pytest.approx(goal.search_cost_s(2.0, small))
    assert goal.search_cost_s(1.0, Figures()) == 1.0, "what was not measured is no reason"
    assert FASTEST.search_cost_s(0.5, big) == 0.5
    memory = goal_of("memory")
    page = memory.search_cost_s(1.0, Figures(workspace_bytes=4096))
    assert page == 2.0 and memory.search_cost_s(1.0, Figures(workspace_bytes=0)) == 1.0
    assert goal_of("energy").search_cost_s(1.0, big) == 1.0 and ENERGY.on_idle_machine


def test_a_trial_tells_its_time_and_sizes() -> None:
    trial = replace(timed(1, 2e-3), code_bytes=300)
    assert trial.figures == Figures(median_s=2e-3, code_bytes=300)
    assert failed(2).figures == Figures()
