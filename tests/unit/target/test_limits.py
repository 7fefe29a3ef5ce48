"""Measured limits: believable on this machine, the same after a round trip, refused
when malformed."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from importlib.resources import files
from pathlib import Path

import psutil
import pytest

from tests.support.measured_target import GPU, GPU_LIMITS
from tuner.scratch import COMMON, temporary_folder
from tuner.target.detect import detect_cpu, parse_target
from tuner.target.document import (
    DocumentError,
    limits_from_document,
    limits_to_document,
    target_from_document,
    target_to_document,
)
from tuner.target.limits import FLAGS, MACHINE_FLAGS, LimitsError, measure_limits
from tuner.target.merged_limits import highest
from tuner.target.target import Limits

ROOT = Path(__file__).resolve().parents[3]
MEASURE = """
import os
from tuner.target.limits import measure_limits
measure_limits(min(os.sched_getaffinity(0)), 0.1)
"""


@pytest.fixture(scope="module")
def limits() -> Limits:
    return measure_limits(max(os.sched_getaffinity(0)), 0.5)


def test_limits_are_believable(limits: Limits) -> None:
    assert limits.fma_flops_best >= limits.fma_flops > 1e9
    sizes = [entry.working_set_bytes for entry in limits.bandwidth]
    assert sizes == sorted(sizes) and sizes[0] <= 32 << 10
    assert all(min(entry.read, entry.write, entry.copy) > 1e8 for entry in limits.bandwidth)


@pytest.mark.skipif(detect_cpu().vector_bytes < 32, reason="this CPU has no vectors of 32 bytes")
def test_vectors_are_used(limits: Limits) -> None:
    """A scalar loop does at most 2 units x 2 FLOP x 6 GHz."""
    assert limits.fma_flops_best > 24e9


@pytest.mark.skipif(
    platform.machine() != "x86_64" or detect_cpu().vector_bytes < 32 or not shutil.which("objdump"),
    reason="read from the disassembly of x86 with vectors of 32 bytes",
)
def test_the_compiler_leaves_no_chain_out(tmp_path: Path) -> None:
    """A rate of 12 chains of which 7 are computed is beyond what the core can do."""
    source = files("tuner.target") / "limits.c"
    program = tmp_path / "limits"
    command = ["cc", *FLAGS, *MACHINE_FLAGS[1], str(source), "-o", str(program)]
    subprocess.run(command, check=True)
    listing = subprocess.run(
        ["objdump", "-d", program], capture_output=True, text=True, check=True
    ).stdout
    _, _, function = listing.partition("<multiply_adds>:")
    body = function.partition("\n\n")[0]
    counted = sum("vfmadd" in line for line in body.splitlines())
    assert counted and counted % 12 == 0  # CHAINS of limits.c, in each loop that it became


def test_round_trips(limits: Limits) -> None:
    assert limits_from_document(json.loads(json.dumps(limits_to_document(limits)))) == limits
    assert (
        limits_from_document(json.loads(json.dumps(limits_to_document(GPU_LIMITS)))) == GPU_LIMITS
    )
    for target in (
        detect_cpu(),
        replace(detect_cpu(), limits=limits),
        parse_target("cuda:sm_90"),
        GPU,
    ):
        assert target_from_document(json.loads(json.dumps(target_to_document(target)))) == target


@pytest.mark.parametrize(
    "broken", [{"fma_flops": "fast"}, {"fma_flops": 0.0}, {"bandwidth": []}, {"bandwidth": [{}]}]
)
def test_malformed_limits_are_refused(limits: Limits, broken: dict[str, object]) -> None:
    with pytest.raises(DocumentError, match="malformed limits"):
        limits_from_document({**limits_to_document(limits), **broken})


def test_limits_of_a_core_say_nothing_of_a_gpu(limits: Limits) -> None:
    assert set(limits_to_document(limits)) == {"fma_flops", "fma_flops_best", "bandwidth"}


@pytest.mark.parametrize(
    "broken",
    [
        {"rates": [{"unit": "abacus", "dtype": "float16", "flops": 1.0, "flops_best": 1.0}]},
        {"rates": [{"unit": "mma", "dtype": "float16", "flops": 0.0, "flops_best": 1.0}]},
        {"rates": [{"unit": "mma"}]},
        {"launch_s": -1.0},
        {"shared_bytes_per_s": "much"},
    ],
)
def test_malformed_limits_of_a_gpu_are_refused(broken: dict[str, object]) -> None:
    with pytest.raises(DocumentError, match="malformed limits"):
        limits_from_document({**limits_to_document(GPU_LIMITS), **broken})


def test_of_two_measurements_the_highest_rates_count() -> None:
    slower = replace(
        GPU_LIMITS,
        fma_flops=1e12,
        fma_flops_best=1e12,
        bandwidth=tuple(replace(level, read=9e12, copy=1e12) for level in GPU_LIMITS.bandwidth),
        rates=tuple(replace(rate, flops_best=950e12) for rate in GPU_LIMITS.rates[1:]),
        launch_s=2e-6,
    )
    merged = highest(GPU_LIMITS, slower)
    assert (merged.fma_flops, merged.fma_flops_best, merged.launch_s) == (60e12, 61e12, 1e-6)
    assert [rate.flops_best for rate in merged.rates] == [61e12, 950e12, 990e12, 950e12, 1.2e15]
    assert [(level.read, level.copy) for level in merged.bandwidth] == [
        (9e12, level.copy) for level in GPU_LIMITS.bandwidth
    ]
    assert highest(merged, merged) == merged


def test_malformed_target_is_refused() -> None:
    with pytest.raises(DocumentError, match="malformed target"):
        target_from_document({**target_to_document(detect_cpu()), "colour": "blue"})


def test_a_measurement_that_is_killed_leaves_nothing_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen([sys.executable, "-c", MEASURE], env=environment)
    while not (compilers := psutil.Process(process.pid).children()):
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    psutil.wait_procs(compilers, timeout=30)  # which end by themselves
    (left,) = tmp_path.glob("tuner-*")
    os.utime(left, (1, 1))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with temporary_folder(f"{COMMON}other-"):
        assert not left.exists()


def test_no_compiler_and_no_core_are_named() -> None:
    core = min(os.sched_getaffinity(0))
    with pytest.raises(LimitsError, match="no-such-compiler"):
        measure_limits(core, 0.1, compiler="no-such-compiler")
    with pytest.raises(LimitsError, match="core 4095"):
        measure_limits(4095, 0.1)
