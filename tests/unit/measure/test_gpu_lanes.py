"""Each GPU of a machine is a lane, and each slice of a partitioned one."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.device.machine import needs_compiler
from tuner.measure.gpu.runner import GpuLane, gpu_lane
from tuner.runtime import nvml
from tuner.workers.fleet.machine import plan_gpus

ROOT = Path(__file__).resolve().parents[3]
ASKED = """
import json
from dataclasses import asdict
from tuner.app.machine import gpus_for
from tuner.measure.gpu.visible import visible_gpus
from tuner.target.detect import parse_target
print(json.dumps({
    "gpus": [[asdict(gpu.lane), gpu.target.name, gpu.target.cores] for gpu in visible_gpus()],
    "same": [lane.name for lane in gpus_for(parse_target("cuda"))],
    "declared": [lane.name for lane in gpus_for(parse_target("cuda:sm_90"))],
}))
"""


def asked(doubles: Mapping[str, str], **settings: str) -> dict[str, Any]:
    plain = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    done = subprocess.run(
        [sys.executable, "-c", ASKED],
        env={**plain, **doubles, "PYTHONPATH": str(ROOT), **settings},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@needs_compiler
def test_every_gpu_is_a_lane(doubles: Mapping[str, str]) -> None:
    answer = asked(doubles, CUDA_VISIBLE_DEVICES="0,1")
    assert [lane["ordinal"] for lane, _, _ in answer["gpus"]] == [0, 1]
    assert answer["same"] == answer["declared"] == ["gpu:0", "gpu:1"]


@needs_compiler
def test_every_slice_is_a_lane_with_a_target_of_its_own(doubles: Mapping[str, str]) -> None:
    answer = asked(doubles, DOUBLE_SLICES="3", CUDA_VISIBLE_DEVICES="MIG-double-2,MIG-double-0")
    lanes = [lane for lane, _, _ in answer["gpus"]]
    assert [lane["called"] for lane in lanes] == ["gpu:0.0", "gpu:0.2"]
    assert [lane["visible"] for lane in lanes] == ["MIG-double-0", "MIG-double-2"]
    assert all("MIG 1g.10gb" in name and cores == 16 for _, name, cores in answer["gpus"])
    # A slice has too few multiprocessors for what was declared of whole ones.
    assert (answer["same"], answer["declared"]) == (["gpu:0.0", "gpu:0.2"], [])


def test_a_plan_says_which_device_the_processes_of_a_lane_may_use() -> None:
    gpus = (GpuLane(called="gpu:0.0", visible="MIG-a"), GpuLane(called="gpu:0.1", visible="MIG-b"))
    plan = plan_gpus([[0, 1, 2, 3]], gpus)
    assert [(lane.name, lane.cores) for lane in plan.lanes] == [
        ("gpu:0.0", (2,)),
        ("gpu:0.1", (3,)),
    ]
    assert tuple(map(gpu_lane, plan.lanes)) == gpus
    whole = plan_gpus([[0, 1]], (GpuLane(ordinal=1),))
    assert [(lane.name, lane.gpu, lane.visible) for lane in whole.lanes] == [("gpu:1", 1, "")]


def test_without_nvml_there_are_no_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nvml, "LIBRARY", "libno-such-library.so")
    assert nvml.partitions() == ()
