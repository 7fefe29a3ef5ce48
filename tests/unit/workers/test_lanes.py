"""Lane plans: lanes never share a core, builders never stand on a lane unless they take
turns, bad declarations are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.errors import UsageError
from tuner.workers.fleet.lanes import parse_cores, parse_plan, plan_lanes, ranges

machines = st.lists(st.integers(1, 24), min_size=1, max_size=4).map(
    lambda sizes: [
        list(range(sum(sizes[:node]), sum(sizes[: node + 1]))) for node in range(len(sizes))
    ]
)


@given(machines, st.integers(1, 48), st.integers(1, 40))
def test_a_plan_is_sound(nodes: list[list[int]], threads: int, max_lanes: int) -> None:
    cores = {core for node in nodes for core in node}
    if threads > len(cores):
        with pytest.raises(UsageError, match=f"may use 1 to {len(cores)}"):
            plan_lanes(nodes, threads, max_lanes=max_lanes)
        return
    plan = plan_lanes(nodes, threads, max_lanes=max_lanes)
    measuring = [core for lane in plan.lanes for core in lane.cores]
    assert 1 <= len(plan.lanes) <= max_lanes
    assert all(len(lane.cores) == threads for lane in plan.lanes)
    assert len(set(measuring)) == len(measuring)
    assert len({lane.name for lane in plan.lanes}) == len(plan.lanes)
    assert set(plan.builder_cores) and set(plan.builder_cores) <= cores
    assert (
        plan.alternates == bool(set(plan.builder_cores) & set(measuring)) == (threads == len(cores))
    )
    if any(len(node) >= threads for node in nodes) and not plan.alternates:
        assert all(any(set(lane.cores) <= set(node) for node in nodes) for lane in plan.lanes)


def test_two_cores_one_thread_measures_on_the_last() -> None:
    plan = plan_lanes([[0, 1]], 1)
    assert (plan.lanes[0].name, plan.lanes[0].cores, plan.builder_cores, plan.alternates) == (
        "cpu:1",
        (1,),
        (0,),
        False,
    )


@given(st.sets(st.integers(0, 200), min_size=1))
def test_cores_survive_being_written(cores: set[int]) -> None:
    assert parse_cores(ranges(sorted(cores))) == tuple(sorted(cores))


def test_a_declared_plan() -> None:
    plan = parse_plan("lanes=2-3/4-5;builders=0-1")
    assert [lane.cores for lane in plan.lanes] == [(2, 3), (4, 5)]
    assert plan.builder_cores == (0, 1) and not plan.alternates
    assert parse_plan("lanes=0-1;builders=0-1").alternates


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("lanes=1", "must give lanes and builders"),
        ("lanes=1/1;builders=0", "to two lanes"),
        ("lanes=1/2;builders=0,1", "core 1"),
        ("lanes=0;builders=0,1", "core 0"),
        ("lanes=x;builders=0", "'x' is no core"),
        ("lanes=1,1;builders=0", "twice"),
    ],
)
def test_an_unsound_declaration_is_refused(text: str, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        parse_plan(text)
