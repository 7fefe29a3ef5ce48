"""From what the machine tells and the settings say to a lane plan; what it does not
have is refused."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import psutil
import pytest

from tuner.errors import UsageError
from tuner.measure.assignment import Lane
from tuner.workers.fleet.affinity import confined
from tuner.workers.fleet.machine import BUILDERS_PER_LANE, near, plan_machine, usable_nodes

TWO_NODES = [list(range(0, 16)), list(range(16, 32))]


def test_each_node_gets_a_lane() -> None:
    plan = plan_machine(TWO_NODES, threads=4)
    assert {lane.cores for lane in plan.lanes} == {(12, 13, 14, 15), (28, 29, 30, 31)}
    assert len(plan.builder_cores) == BUILDERS_PER_LANE * 2


def test_builders_can_be_bounded() -> None:
    assert len(plan_machine(TWO_NODES, threads=1, builders=3).builder_cores) == 3


@pytest.mark.parametrize(
    ("cores", "threads", "options", "borrowers"),
    [
        (2, 1, {}, (1,)),
        (4, 2, {}, (2,)),  # the first core of the lane
        (4, 1, {}, ()),  # three builders keep a lane busy
        (2, 2, {}, ()),  # they take turns
        (2, 1, {"builders": 1}, ()),
        (2, 1, {"declared": "lanes=1;builders=0"}, ()),
    ],
)
def test_a_lane_lends_a_core_where_builders_are_few_and_nobody_said_how_many(
    cores: int, threads: int, options: dict[str, Any], borrowers: tuple[int, ...]
) -> None:
    assert plan_machine([list(range(cores))], threads=threads, **options).lent_cores == borrowers


def test_a_declared_plan_is_held_against_the_machine() -> None:
    assert plan_machine([[0, 1, 2]], threads=1, declared="lanes=2;builders=0-1").lanes[0].cores == (
        2,
    )
    with pytest.raises(UsageError, match="names core 7"):
        plan_machine([[0, 1, 2]], threads=1, declared="lanes=7;builders=0-1")
    with pytest.raises(UsageError, match="lane cpu:2 has 1"):
        plan_machine([[0, 1, 2]], threads=2, declared="lanes=2;builders=0-1")


def test_nodes_come_from_sysfs(tmp_path: Path) -> None:
    allowed = sorted(os.sched_getaffinity(0))
    assert usable_nodes(tmp_path) == [allowed]
    (tmp_path / "node0").mkdir()
    (tmp_path / "node0" / "cpulist").write_text("0-4095\n")
    (tmp_path / "node1").mkdir()
    (tmp_path / "node1" / "cpulist").write_text("\n")  # memory without cores
    assert usable_nodes(tmp_path) == [allowed]


def test_a_confined_process_gets_its_cores_back() -> None:
    before = os.sched_getaffinity(0)
    core = min(before)
    with confined([core]):
        assert os.sched_getaffinity(0) == {core}
        assert all(
            os.sched_getaffinity(thread.id) == {core} for thread in psutil.Process().threads()
        )
    assert os.sched_getaffinity(0) == before


def test_cores_near_a_lane_are_of_its_node_and_not_its_own(tmp_path: Path) -> None:
    lane = Lane(name="cpu:6", cores=(6, 7))
    assert near((0, 4, 6), lane, tmp_path) == (0, 4)  # a machine that tells nothing has one node
    for node, cores in enumerate(("0-3", "4-7")):
        (tmp_path / f"node{node}").mkdir()
        (tmp_path / f"node{node}" / "cpulist").write_text(f"{cores}\n")
    assert near((0, 1, 4, 6), lane, tmp_path) == (4,)
    assert near((0, 1), lane, tmp_path) == ()
