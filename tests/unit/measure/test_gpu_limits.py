"""Limits of a GPU: kernels whose work is known, counted and checked, in the process that
owns a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.device.machine import needs_compiler
from tests.support.gpu_machine import needs_gpu, needs_nvcc
from tests.support.targets import SM_80, SM_90
from tuner.lowering.cuda.nvcc import cuda_compiler
from tuner.lowering.cuda.nvrtc import any_compiler
from tuner.measure.assignment import Lane
from tuner.measure.gpu.limits import (
    MOST_SET_BYTES,
    limits_of,
    measure_gpu_limits,
    working_sets,
)
from tuner.measure.gpu.probes import modules, rate_probes, source
from tuner.measure.gpu.probing import CHECKED_ROUNDS, ProbingTask
from tuner.measure.gpu.runner import GpuLane, GpuRunner, GpuRunnerError
from tuner.runtime.cuda_link import link_cuda
from tuner.target.arithmetic import ArithmeticUnit
from tuner.target.detect import detect_gpu
from tuner.target.limits import LimitsError
from tuner.target.target import Target
from tuner.workers.backends.cuda import CudaBackend

SOME = ("cuda_cores_float32", "mma_float16", "wgmma_int8", "cuda_cores_bfloat16")
MULTIPROCESSORS = 132


@pytest.mark.parametrize(
    ("architecture", "tensor_cores"),
    [
        (80, {"float16", "bfloat16", "tf32", "int8"}),
        (89, {"float16", "bfloat16", "tf32", "int8", "float8_e4m3"}),
        (90, {"float16", "bfloat16", "tf32", "int8", "float8_e4m3"}),
        (120, {"float16", "bfloat16", "tf32", "int8", "float8_e4m3"}),
    ],
)
def test_every_unit_of_an_architecture_has_its_kernels(
    architecture: int, tensor_cores: set[str]
) -> None:
    probes = rate_probes(architecture)
    assert len({probe.symbol for probe in probes}) == len(probes)
    dtypes = {
        unit: {probe.dtype for probe in probes if probe.unit is unit} for unit in ArithmeticUnit
    }
    assert dtypes[ArithmeticUnit.MMA] == tensor_cores
    assert dtypes[ArithmeticUnit.WGMMA] == (tensor_cores if architecture == 90 else set())
    assert dtypes[ArithmeticUnit.CUDA_CORES] >= {"float32", "float64", "float16", "int32", "int8"}


@given(l2=st.integers(1, 1 << 28), memory=st.integers(1 << 20, 1 << 38))
def test_working_sets_grow_and_leave_the_device_its_memory(l2: int, memory: int) -> None:
    sizes = working_sets(l2, memory)
    assert list(sizes) == sorted(set(sizes)) and all(size % 32 == 0 for size in sizes)
    assert sizes[0] >= 32 and 2 * sizes[-1] <= max(64, memory // 4) and sizes[-1] <= MOST_SET_BYTES


def answered(**wrong: float) -> dict[str, Any]:
    """What a device of twice the speed of a round a millisecond says."""
    timed = {"samples_s": [1e-3, 0.5e-3, 1e-3], "rounds": 10}
    rates = {}
    for probe in rate_probes(90):
        total = probe.first_sum + CHECKED_ROUNDS * probe.round_sum
        rates[probe.symbol] = {**timed, "least": float(total), "most": float(total)}
    for symbol, sum_of in wrong.items():
        rates[symbol]["most"] = sum_of
    memory = [
        {"set_bytes": size, "read": timed, "write": timed, "copy": timed}
        for size in (1 << 20, 1 << 30)
    ]
    return {"launch_s": [2e-6, 1e-6, 3e-6], "memory": memory, "shared": timed, "rates": rates}


def test_rates_are_the_counted_work_over_the_time() -> None:
    limits = limits_of(answered(), rate_probes(90), MULTIPROCESSORS)
    # 256 threads of each multiprocessor do 16 times 32 multiply-adds in a round.
    assert limits.fma_flops == pytest.approx(132 * 256 * 2 * 16 * 32 * 10 / 1e-3)
    assert limits.fma_flops_best == pytest.approx(2 * limits.fma_flops)
    wgmma = next(
        rate
        for rate in limits.rates
        if (rate.unit, rate.dtype) == (ArithmeticUnit.WGMMA, "float16")
    )
    assert wgmma.flops == pytest.approx(132 * 2 * 16 * 2 * 64 * 256 * 16 * 10 / 1e-3)
    assert [level.read for level in limits.bandwidth] == pytest.approx(
        [10 * 2**20 / 1e-3, 10 * 2**30 / 1e-3]
    )
    assert limits.launch_s == 1e-6


def test_a_kernel_that_computed_something_else_has_no_rate() -> None:
    with pytest.raises(LimitsError, match=r"mma_float16 summed to 256 to 255 instead of 256"):
        limits_of(answered(mma_float16=255.0), rate_probes(90), MULTIPROCESSORS)


@needs_compiler
@pytest.mark.slow
def test_the_kernels_run_on_a_device_and_compute_what_they_count(
    gpu_double: None, tmp_path: Path
) -> None:
    probes = tuple(probe for probe in rate_probes(90) if probe.symbol in SOME)
    assert len(probes) == len(SOME)
    sets = working_sets(1 << 20, 1 << 26)
    cubin = any_compiler(tmp_path / "cubins").compile(source(probes), SM_90).code
    library = tmp_path / "liblimits.so"
    linked = link_cuda(
        "limits",
        modules(
            probes, arch="sm_90", cubin=cubin, multiprocessors=MULTIPROCESSORS, set_bytes=sets[-1]
        ),
    )
    assert linked.count(cubin[:4096]) == 1  # the functions share their code
    library.write_bytes(linked)
    task = ProbingTask(
        library=str(library),
        rates={probe.symbol: probe.word for probe in probes},
        set_bytes=sets,
        multiprocessors=MULTIPROCESSORS,
    )
    with GpuRunner() as runner:
        answer = runner.probe(task)
        with pytest.raises(GpuRunnerError, match="no-such"):
            runner.probe(replace(task, library="/no-such.so"))
    limits = limits_of(answer, probes, MULTIPROCESSORS)
    assert {f"{rate.unit}_{rate.dtype}" for rate in limits.rates} == set(SOME)
    assert limits.fma_flops_best >= limits.fma_flops > 0
    assert [level.working_set_bytes for level in limits.bandwidth] == list(sets)
    assert all(min(level.read, level.write, level.copy) > 0 for level in limits.bandwidth)
    launches = answer["launch_s"]
    assert limits.launch_s == min(launches) and median(launches) > 0


def test_an_architecture_without_kernels_is_refused_with_the_reason() -> None:
    old = replace(SM_80, tvm={**SM_80.tvm, "arch": "sm_75"})
    with pytest.raises(LimitsError, match="sm_80 and newer"):
        measure_gpu_limits(old, GpuLane(), lambda text, target: b"")


def test_a_lane_of_cores_has_no_gpu_to_measure() -> None:
    with pytest.raises(LimitsError, match="lane cpu:1 of this machine is no GPU"):
        CudaBackend().limits(SM_90, Lane(name="cpu:1", cores=(1,)))


@needs_nvcc
@pytest.mark.slow
@pytest.mark.parametrize("target", [SM_80, SM_90], ids=["sm_80", "sm_90"])
def test_no_kernel_spills(target: Target, tmp_path: Path) -> None:
    probes = rate_probes(int(str(target.tvm["arch"]).removeprefix("sm_")))
    kernels = cuda_compiler(tmp_path).compile(source(probes), target).kernels
    assert {kernel.name for kernel in kernels} >= {probe.symbol for probe in probes}
    assert not [kernel.name for kernel in kernels if kernel.spills]


@needs_gpu
def test_this_machines_gpu_has_limits() -> None:
    target = detect_gpu()
    limits = CudaBackend().limits(target, Lane(name="gpu:0", cores=(), gpu=0))
    assert limits.fma_flops_best >= limits.fma_flops > 1e12
    assert limits.bandwidth[0].read > limits.bandwidth[-1].read > 1e11
    assert limits.launch_s is not None and 1e-7 < limits.launch_s < 1e-5
