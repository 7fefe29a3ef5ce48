"""Rates of GPUs come from their targets' facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.measured_target import GPU, GPU_LIMITS
from tests.support.targets import SM_80, SM_90
from tuner.cost_model.cuda.rates import MEASURED_PEAKS, MEASURED_RATES, gpu_rates
from tuner.target.arithmetic import ArithmeticUnit
from tuner.target.target import ArithmeticRate, Bandwidth, Limits


def test_the_measured_gpu_has_the_measured_rates() -> None:
    assert gpu_rates(SM_90) == MEASURED_RATES


def test_an_older_gpu_is_slower_at_everything_but_launches() -> None:
    rates = gpu_rates(SM_80)
    assert rates.multiply_adds_per_s < MEASURED_RATES.multiply_adds_per_s / 2
    assert rates.tensor_multiply_adds_per_s < MEASURED_RATES.tensor_multiply_adds_per_s / 2
    assert rates.bytes_per_s < MEASURED_RATES.bytes_per_s / 2
    assert rates.launch_s == MEASURED_RATES.launch_s


def test_what_the_driver_says_comes_before_what_is_declared() -> None:
    said = {"clock_khz": 990_000, "memory_clock_khz": 3_201_000, "memory_bus_bits": 3072}
    rates = gpu_rates(replace(SM_90, cores=66, fingerprint={**SM_90.fingerprint, **said}))
    assert rates.multiply_adds_per_s == pytest.approx(MEASURED_RATES.multiply_adds_per_s / 4)
    assert rates.bytes_per_s == pytest.approx(MEASURED_RATES.bytes_per_s / 2)


def test_an_unknown_architecture_counts_as_the_newest_known_before_it() -> None:
    newer = replace(SM_90, tvm={**SM_90.tvm, "arch": "sm_120"})
    assert gpu_rates(newer) == MEASURED_RATES


def limits(peak: float) -> Limits:
    """Those of the measured GPU, so many times."""
    tensor, mma = MEASURED_PEAKS.tensor_flops, MEASURED_PEAKS.mma_flops
    moved = peak * MEASURED_PEAKS.bytes_per_s
    rates = ((ArithmeticUnit.WGMMA, tensor), (ArithmeticUnit.MMA, mma))
    return Limits(
        fma_flops=peak * MEASURED_PEAKS.fma_flops,
        fma_flops_best=peak * MEASURED_PEAKS.fma_flops,
        bandwidth=(Bandwidth(working_set_bytes=1 << 30, read=moved, write=moved / 2, copy=moved),),
        rates=tuple(
            ArithmeticRate(unit=unit, dtype="float16", flops=peak * flops, flops_best=peak * flops)
            for unit, flops in rates
        ),
        launch_s=MEASURED_PEAKS.launch_s / peak,
    )


@pytest.mark.parametrize("peak", [1.0, 0.25])
def test_as_much_is_expected_of_measured_limits_as_was_reached_of_the_measured_gpus(
    peak: float,
) -> None:
    """Whatever the GPU is called and its driver says of its clocks."""
    rates = gpu_rates(replace(SM_80, limits=limits(peak)))
    assert rates.multiply_adds_per_s == pytest.approx(peak * MEASURED_RATES.multiply_adds_per_s)
    assert rates.tensor_multiply_adds_per_s == pytest.approx(
        peak * MEASURED_RATES.tensor_multiply_adds_per_s
    )
    assert rates.bytes_per_s == pytest.approx(peak * MEASURED_RATES.bytes_per_s)
    assert rates.launch_s == pytest.approx(MEASURED_RATES.launch_s / peak)
    assert rates.tensor_ratio == pytest.approx(MEASURED_RATES.tensor_ratio)


def test_a_gpu_whose_tensor_cores_were_not_measured_computes_on_the_others() -> None:
    plain = replace(GPU, limits=replace(GPU_LIMITS, rates=GPU_LIMITS.rates[:1]))
    assert gpu_rates(plain).tensor_ratio < gpu_rates(GPU).tensor_ratio


def test_what_tensor_cores_are_worth_is_the_architectures_own() -> None:
    """An A100's do 16 times what its other cores do, an RTX 3090's twice as much."""
    ratios = [
        gpu_rates(replace(SM_80, tvm={**SM_80.tvm, "arch": arch})).tensor_ratio
        for arch in ("sm_80", "sm_86")
    ]
    assert ratios == [16.0, 2.0]
