"""Which jobs can share a fleet: those for which the same lanes are planned."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.support.admitted_jobs import job
from tuner.errors import UsageError
from tuner.workers.fleet.affinity import confined
from tuner.workers.jobs.fleet_cache import FleetCache
from tuner.workers.jobs.options import OrchestratorOptions

CORES = sorted(os.sched_getaffinity(0))

pytestmark = pytest.mark.skipif(len(CORES) < 2, reason="a lane and a builder need a core each")


def fleet_cache(lanes: str = "") -> FleetCache:
    options = OrchestratorOptions(
        artifacts=Path("unused"), lanes=lanes, policy="pack", lane_share=0.5
    )
    return FleetCache(options, on_hosts=lambda hosts: None)


def test_detected_lanes_are_cut_for_a_number_of_threads() -> None:
    assert fleet_cache().shared_by(job("a"), job("b"))
    assert not fleet_cache().shared_by(job("a"), job("b", threads=len(CORES)))


def test_declared_lanes_are_shared_by_what_fits_them() -> None:
    declared = fleet_cache(f"lanes={CORES[-1]};builders={CORES[0]}")
    plan = declared.plan(1, "t")
    assert [lane.cores for lane in plan.lanes] == [(CORES[-1],)]
    assert plan.policy == "pack" and plan.lane_share == 0.5
    everything = ",".join(map(str, CORES))
    long = fleet_cache(f"lanes={everything};builders={CORES[0]}")
    assert long.shared_by(job("a"), job("b", threads=2))


def test_a_kernel_that_no_lane_is_long_enough_for_is_refused_and_is_in_nobodys_way() -> None:
    declared = fleet_cache(f"lanes={CORES[-1]};builders={CORES[0]}")
    with pytest.raises(
        UsageError, match="a kernel of 2 threads needs a lane of 2 cores; the plan's longest has 1"
    ):
        declared.plan(2, "t")
    assert declared.shared_by(job("a", threads=2), job("b"))


def test_the_plan_stays_the_same_while_a_search_keeps_this_process_off_the_lanes() -> None:
    made = fleet_cache()
    before = made.plan(1, "t")
    with confined(before.builder_cores):
        assert made.plan(1, "t") == before
