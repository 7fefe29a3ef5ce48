"""A CPU and a GPU with measured limits."""

from __future__ import annotations

from dataclasses import replace

from tests.support.targets import SM_90
from tuner.target.arithmetic import ArithmeticUnit
from tuner.target.target import ArithmeticRate, Bandwidth, Limits, Target

LIMITS = Limits(
    fma_flops=100e9,
    fma_flops_best=110e9,
    bandwidth=(
        Bandwidth(working_set_bytes=1 << 14, read=400e9, write=100e9, copy=300e9),
        Bandwidth(working_set_bytes=1 << 20, read=100e9, write=100e9, copy=50e9),
        Bandwidth(working_set_bytes=1 << 28, read=10e9, write=8e9, copy=9e9),
    ),
)


TARGET = Target(
    key="k", kind="cpu", name="test", tvm={"kind": "llvm"}, isa=("avx512bf16", "avx512f",
    "avx512vnni"), vector_bytes=64,
    vector_registers=32, cores=4, l1d_bytes=1 << 15, l2_bytes=1 << 20, l3_bytes=1 << 25,
    limits=LIMITS,
)  # fmt: skip

GPU_LIMITS = Limits(
    fma_flops=60e12,
    fma_flops_best=61e12,
    bandwidth=(
        Bandwidth(working_set_bytes=12 << 20, read=7e12, write=4e12, copy=5e12),
        Bandwidth(working_set_bytes=200 << 20, read=3e12, write=2.9e12, copy=2.8e12),
        Bandwidth(working_set_bytes=1 << 30, read=3e12, write=2.9e12, copy=2.8e12),
    ),
    rates=(
        ArithmeticRate(
            unit=ArithmeticUnit.CUDA_CORES, dtype="float32", flops=60e12, flops_best=61e12
        ),
        ArithmeticRate(unit=ArithmeticUnit.MMA, dtype="float16", flops=600e12, flops_best=610e12),
        ArithmeticRate(unit=ArithmeticUnit.WGMMA, dtype="float16", flops=900e12, flops_best=990e12),
        ArithmeticRate(
            unit=ArithmeticUnit.WGMMA, dtype="bfloat16", flops=900e12, flops_best=930e12
        ),
        ArithmeticRate(unit=ArithmeticUnit.MMA, dtype="int8", flops=1.2e15, flops_best=1.2e15),
    ),
    shared_bytes_per_s=33e12,
    launch_s=1e-6,
)
GPU = replace(SM_90, limits=GPU_LIMITS)


def with_rates(target: Target, *, bytes_per_s: float, flops: float) -> Target:
    """A target that moves so many bytes and adds and multiplies so often, whatever it works on."""
    bandwidth = Bandwidth(
        working_set_bytes=1 << 20, read=bytes_per_s, write=bytes_per_s, copy=bytes_per_s
    )
    limits = Limits(fma_flops=flops, fma_flops_best=flops, bandwidth=(bandwidth,))
    return replace(target, limits=limits)
