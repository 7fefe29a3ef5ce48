"""What a GPU computes and moves in a second with tuned kernels.

Kernels of one GPU were raced, an NVIDIA H200. Of another one, as much is expected of its
limits as they reached of the H200's: of its measured limits, or where it has none, of
the peaks that its description has.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.spaces.cuda.limits import architecture_of
from tuner.target.arithmetic import ArithmeticUnit
from tuner.target.target import Limits, Target


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRates:
    """What kernels reach at their best."""

    multiply_adds_per_s: float  # of float32, on CUDA cores
    tensor_multiply_adds_per_s: float  # of 16-bit floats, on tensor cores
    bytes_per_s: float  # of memory
    launch_s: float  # of a kernel after another of the same call, first and last blocks included
    # Peak of a warp's instructions of tensor cores, of 16-bit floats, over that of CUDA
    # cores, of float32.
    tensor_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Peaks:
    """Measured limits of the GPU whose kernels were raced."""

    fma_flops: float  # of float32, on CUDA cores
    tensor_flops: float  # of 16-bit floats, on tensor cores in the fastest way
    mma_flops: float  # likewise, by a warp's instructions
    bytes_per_s: float  # of memory
    launch_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Peaks of an architecture, and the clocks of one GPU of it.

    The driver's own clocks come before these.
    """

    multiply_adds: int  # of float32, of a multiprocessor in a clock cycle
    tensor_multiply_adds: int  # of 16-bit floats summed in float32, likewise
    mma_multiply_adds: int  # likewise, by a warp's instructions
    clock_khz: int  # at its highest
    memory_clock_khz: int  # two transfers a cycle
    memory_bus_bits: int


# Sources: "Arithmetic Instructions" in the CUDA C++ Programming Guide; NVIDIA's papers on
# the Volta, Turing, A100, GA102, Ada and H100 architectures (dense rates, of GeForce where
# they differ; of sm_90's mma what was measured). Clocks and buses: V100, T4, A100 of
# 80 GB, RTX 3090, RTX 4090, H200.
ARCHITECTURES: Mapping[int, Architecture] = {
    70: Architecture(
        multiply_adds=64,
        tensor_multiply_adds=512,
        mma_multiply_adds=512,
        clock_khz=1_530_000,
        memory_clock_khz=877_000,
        memory_bus_bits=4096,
    ),
    75: Architecture(
        multiply_adds=64,
        tensor_multiply_adds=512,
        mma_multiply_adds=512,
        clock_khz=1_590_000,
        memory_clock_khz=5_001_000,
        memory_bus_bits=256,
    ),
    80: Architecture(
        multiply_adds=64,
        tensor_multiply_adds=1024,
        mma_multiply_adds=1024,
        clock_khz=1_410_000,
        memory_clock_khz=1_593_000,
        memory_bus_bits=5120,
    ),
    86: Architecture(
        multiply_adds=128,
        tensor_multiply_adds=256,
        mma_multiply_adds=256,
        clock_khz=1_695_000,
        memory_clock_khz=9_751_000,
        memory_bus_bits=384,
    ),
    89: Architecture(
        multiply_adds=128,
        tensor_multiply_adds=256,
        mma_multiply_adds=256,
        clock_khz=2_520_000,
        memory_clock_khz=10_501_000,
        memory_bus_bits=384,
    ),
    90: Architecture(
        multiply_adds=128,
        tensor_multiply_adds=2048,
        mma_multiply_adds=1343,
        clock_khz=1_980_000,
        memory_clock_khz=3_201_000,
        memory_bus_bits=6144,
    ),
}
MEASURED, MEASURED_MULTIPROCESSORS = ARCHITECTURES[90], 132
# Of one NVIDIA H200 (docs/design-notes/0020): float32 products of 2048 each way in 480 us,
# float16 products of 4096 each way in 272 us, softmax over 512 MiB in 129 us. The launch
# was chosen by hand.
MEASURED_RATES = GpuRates(
    multiply_adds_per_s=18e12,
    tensor_multiply_adds_per_s=250e12,
    bytes_per_s=4.2e12,
    launch_s=2e-6,
    tensor_ratio=MEASURED.mma_multiply_adds / MEASURED.multiply_adds,
)
# Limits of an H200 as the product measures them, in
# docs/measurements/2026-11-27-h200-gpu-limits.json.
MEASURED_PEAKS = Peaks(
    fma_flops=64.9e12,
    tensor_flops=970e12,
    mma_flops=636e12,
    bytes_per_s=3.69e12,
    launch_s=0.50e-6,
)


def gpu_rates(target: Target) -> GpuRates:
    """The rates of a target's GPU.

    By its measured limits where there are any, else by its multiprocessors, clocks and
    architecture.
    """
    if target.limits is not None and target.limits.launch_s is not None:
        return _by_limits(target.limits, target.limits.launch_s)
    architecture = _architecture_of(target)
    cycles = target.cores * _fact(target, "clock_khz", architecture.clock_khz)
    share = cycles / (MEASURED_MULTIPROCESSORS * MEASURED.clock_khz)
    transfers = _fact(target, "memory_clock_khz", architecture.memory_clock_khz) * _fact(
        target, "memory_bus_bits", architecture.memory_bus_bits
    )
    cuda_cores = share * architecture.multiply_adds / MEASURED.multiply_adds
    tensor_cores = share * architecture.tensor_multiply_adds / MEASURED.tensor_multiply_adds
    memory = transfers / (MEASURED.memory_clock_khz * MEASURED.memory_bus_bits)
    return GpuRates(
        multiply_adds_per_s=cuda_cores * MEASURED_RATES.multiply_adds_per_s,
        tensor_multiply_adds_per_s=tensor_cores * MEASURED_RATES.tensor_multiply_adds_per_s,
        bytes_per_s=memory * MEASURED_RATES.bytes_per_s,
        launch_s=MEASURED_RATES.launch_s,
        tensor_ratio=architecture.mma_multiply_adds / architecture.multiply_adds,
    )


def _by_limits(limits: Limits, launch_s: float) -> GpuRates:
    """What the H200's kernels reached of its limits, of these."""
    halves = [rate for rate in limits.rates if rate.dtype == "float16"]
    tensor = max((rate.flops for rate in halves), default=limits.fma_flops)
    mma = max(
        (rate.flops for rate in halves if rate.unit is ArithmeticUnit.MMA),
        default=limits.fma_flops,
    )
    last = limits.bandwidth[-1]
    share = limits.fma_flops / MEASURED_PEAKS.fma_flops
    moved = max(last.read, last.write, last.copy) / MEASURED_PEAKS.bytes_per_s
    return GpuRates(
        multiply_adds_per_s=share * MEASURED_RATES.multiply_adds_per_s,
        tensor_multiply_adds_per_s=tensor
        / MEASURED_PEAKS.tensor_flops
        * MEASURED_RATES.tensor_multiply_adds_per_s,
        bytes_per_s=moved * MEASURED_RATES.bytes_per_s,
        launch_s=launch_s / MEASURED_PEAKS.launch_s * MEASURED_RATES.launch_s,
        tensor_ratio=mma / MEASURED_PEAKS.mma_flops / share * MEASURED_RATES.tensor_ratio,
    )


def _architecture_of(target: Target) -> Architecture:
    """The target's architecture, or the newest before it in the table."""
    number = architecture_of(target)
    older = [each for each in ARCHITECTURES if each <= number]
    return ARCHITECTURES[max(older, default=min(ARCHITECTURES))]


def _fact(target: Target, name: str, declared: int) -> int:
    """What the driver says of the GPU, or what is declared where it says nothing."""
    return int(target.fingerprint.get(name, 0)) or declared
