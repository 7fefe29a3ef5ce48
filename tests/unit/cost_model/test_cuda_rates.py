"""Rates of GPUs come from their targets' facts."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.targets import SM_80, SM_90
from tuner.cost_model.cuda.rates import MEASURED_RATES, gpu_rates


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
