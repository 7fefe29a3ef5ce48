"""The roofline: the slower of computing and moving, monotone in both, with a verdict on
what cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.measured_target import GPU, LIMITS, TARGET
from tests.support.targets import SM_90
from tuner.errors import UsageError
from tuner.target.roofline import (
    Work,
    bandwidth_at,
    floor_seconds,
    highest_bandwidth,
    implausible,
    least_seconds,
    relative_rate,
    roofline_fraction,
)

COMPUTE = Work(flops=2 * 512**3, nbytes=3 << 20)
MOVE = Work(flops=1 << 20, nbytes=1 << 28)


def test_the_slower_side_decides() -> None:
    assert least_seconds(COMPUTE, TARGET) == pytest.approx(COMPUTE.flops / 100e9)
    assert least_seconds(MOVE, TARGET) == pytest.approx(MOVE.nbytes / 10e9)


def test_the_floor_is_at_the_highest_rates() -> None:
    assert floor_seconds(COMPUTE, TARGET) == pytest.approx(COMPUTE.flops / 110e9)
    assert floor_seconds(MOVE, TARGET) == pytest.approx(MOVE.nbytes / 10e9)
    between = Work(flops=1, nbytes=1 << 24)  # where a part may still come from the faster level
    assert floor_seconds(between, TARGET) == pytest.approx(between.nbytes / 100e9)
    assert floor_seconds(between, TARGET) < least_seconds(between, TARGET)


@given(flops=st.integers(1, 10**12), nbytes=st.integers(1, 1 << 30), threads=st.integers(1, 8))
def test_the_floor_is_plausible_and_no_more_than_the_roofline(
    flops: int, nbytes: int, threads: int
) -> None:
    work = Work(flops=flops, nbytes=nbytes, threads=threads)
    floor_s = floor_seconds(work, TARGET)
    assert (
        floor_s <= least_seconds(work, TARGET) * (1 + 1e-9)
        and implausible(floor_s, work, TARGET) is None
    )
    assert implausible(floor_s / 1.3, work, TARGET) is not None


def test_fraction_is_one_at_the_roofline() -> None:
    assert roofline_fraction(least_seconds(COMPUTE, TARGET) * 2, COMPUTE, TARGET) == pytest.approx(
        0.5
    )


def test_threads_count_up_to_the_cores() -> None:
    alone = least_seconds(COMPUTE, TARGET)
    assert least_seconds(replace(COMPUTE, threads=4), TARGET) == pytest.approx(alone / 4)
    assert least_seconds(replace(COMPUTE, threads=64), TARGET) == pytest.approx(alone / 4)


def test_dtypes_relative_to_float32() -> None:
    rates = [
        relative_rate(dtype, TARGET)
        for dtype in ("float32", "float64", "bfloat16", "float16", "int8", "int32")
    ]
    assert rates == [1.0, 0.5, 2.0, 1.0, 4.0, 1.0]
    assert relative_rate("bfloat16", replace(TARGET, isa=("avx2",))) == 1.0
    amx = replace(TARGET, isa=("amx-bf16", "amx-int8", "avx512bf16", "avx512vnni"))
    assert [relative_rate(dtype, amx) for dtype in ("bfloat16", "int8", "uint8", "float16")] == [
        16.0,
        32.0,
        32.0,
        1.0,
    ]


@given(st.floats(1, 1e12), st.floats(1, 1e12))
def test_bandwidth_interpolates_between_its_neighbours_and_never_rises(
    first: float, second: float
) -> None:
    small, large = sorted((first, second))
    assert (
        10e9
        <= bandwidth_at(LIMITS, large)
        <= bandwidth_at(LIMITS, small) * (1 + 1e-12)
        <= 400e9 * (1 + 1e-12)
    )
    assert highest_bandwidth(LIMITS, small) >= bandwidth_at(LIMITS, large) * (1 - 1e-12)


@given(st.integers(1, 10**12), st.integers(1, 10**10), st.integers(1, 8))
def test_the_roofline_itself_is_always_plausible(flops: int, nbytes: int, threads: int) -> None:
    work = Work(flops=flops, nbytes=nbytes, threads=threads)
    assert implausible(least_seconds(work, TARGET), work, TARGET) is None


def test_what_cannot_be_is_said_with_rate_and_limit() -> None:
    assert implausible(COMPUTE.flops / (1.19 * 110e9), COMPUTE, TARGET) is None
    compute = implausible(COMPUTE.flops / (1.25 * 110e9), COMPUTE, TARGET)
    assert compute is not None and "137.5 GFLOP/s" in compute and "110.0" in compute
    move = implausible(MOVE.nbytes / 20e9, MOVE, TARGET)
    assert move is not None and "20.0 GB/s" in move


def test_without_limits_there_is_no_roofline() -> None:
    with pytest.raises(UsageError, match="not been measured"):
        least_seconds(COMPUTE, SM_90)


HALF_PRODUCT = Work(flops=2 * 4096**3, nbytes=3 * 2 * 4096**2, dtype="float16")


@pytest.mark.parametrize(
    ("dtype", "flops"),
    [("float32", 60e12), ("float16", 900e12), ("bfloat16", 900e12), ("int8", 1.2e15),
     ("uint8", 1.2e15)],
)  # fmt: skip
def test_a_gpu_computes_at_the_rate_of_its_fastest_unit(dtype: str, flops: float) -> None:
    work = replace(HALF_PRODUCT, dtype=dtype)
    assert least_seconds(work, GPU) == pytest.approx(work.flops / flops)
    assert relative_rate(dtype, GPU) == pytest.approx(flops / 60e12)


def test_a_gpu_is_judged_by_the_highest_rate_of_the_units_that_take_the_dtype() -> None:
    assert floor_seconds(HALF_PRODUCT, GPU) == pytest.approx(HALF_PRODUCT.flops / 990e12)
    assert implausible(HALF_PRODUCT.flops / 1.15e15, HALF_PRODUCT, GPU) is None
    verdict = implausible(HALF_PRODUCT.flops / 1.3e15, HALF_PRODUCT, GPU)
    assert verdict is not None and "1300000.0 GFLOP/s is 1.31 times the 990000.0" in verdict


def test_no_call_of_a_gpu_takes_less_than_a_launch() -> None:
    little = Work(flops=64, nbytes=512)
    assert least_seconds(little, GPU) == floor_seconds(little, GPU) == 1e-6
    assert implausible(0.9e-6, little, GPU) is None
    verdict = implausible(0.8e-6, little, GPU)
    assert verdict is not None and "0.80 us is less than the 1.00" in verdict


@given(flops=st.integers(1, 10**15), nbytes=st.integers(1, 1 << 34))
def test_a_gpus_floor_is_plausible_and_no_more_than_the_roofline(flops: int, nbytes: int) -> None:
    work = Work(flops=flops, nbytes=nbytes, dtype="float16")
    floor_s = floor_seconds(work, GPU)
    assert floor_s <= least_seconds(work, GPU) * (1 + 1e-9)
    assert implausible(floor_s, work, GPU) is None
    assert implausible(floor_s / 1.3, work, GPU) is not None
