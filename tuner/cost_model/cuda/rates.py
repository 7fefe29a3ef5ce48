"""What a GPU computes and moves in a second with tuned kernels, from the facts of its
target.

One GPU was measured, an NVIDIA H200. Another one's rates are its peaks by the share of
them that the H200 reached.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tuner.spaces.cuda.limits import architecture_of
from tuner.target.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuRates:
    """What kernels reach at their best."""

    multiply_adds_per_s: float  # of float32, on CUDA cores
    tensor_multiply_adds_per_s: float  # of 16-bit floats, on tensor cores
    bytes_per_s: float  # of memory
    launch_s: float  # of a kernel after another of the same call, first and last blocks included


@dataclass(frozen=True, slots=True, kw_only=True)
class Architecture:
    """Peaks of an architecture, and the clocks of one GPU of it.

    The driver's own clocks come before these.
    """

    multiply_adds: int  # of float32, of a multiprocessor in a clock cycle
    tensor_multiply_adds: int  # of 16-bit floats summed in float32, likewise
    clock_khz: int  # at its highest
    memory_clock_khz: int  # two transfers a cycle
    memory_bus_bits: int


# Sources: "Arithmetic Instructions" in the CUDA C++ Programming Guide; NVIDIA's papers on
# the Volta, Turing, A100, GA102, Ada and H100 architectures (dense rates, of GeForce where
# they differ). Clocks and buses: V100, T4, A100 of 80 GB, RTX 3090, RTX 4090, H200.
ARCHITECTURES: Mapping[int, Architecture] = {
    70: Architecture(
        multiply_adds=64,
        tensor_multiply_adds=512,
        clock_khz=1_530_000,
        memory_clock_khz=877_000,
        memory_bus_bits=4096,
    ),
    75: Architecture(
        multiply_adds=64,
        tensor_multiply_adds=512,
        clock_khz=1_590_000,
        memory_clock_khz=5_001_000,
        memory_bus_bits=256,
    ),
    80: Architecture(
        multiply_adds=64,
        tensor_multiply_adds=1024,
        clock_khz=1_410_000,
        memory_clock_khz=1_593_000,
        memory_bus_bits=5120,
    ),
    86: Architecture(
        multiply_adds=128,
        tensor_multiply_adds=256,
        clock_khz=1_695_000,
        memory_clock_khz=9_751_000,
        memory_bus_bits=384,
    ),
    89: Architecture(
        multiply_adds=128,
        tensor_multiply_adds=256,
        clock_khz=2_520_000,
        memory_clock_khz=10_501_000,
        memory_bus_bits=384,
    ),
    90: Architecture(
        multiply_adds=128,
        tensor_multiply_adds=2048,
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
)


def gpu_rates(target: Target) -> GpuRates:
    """The rates of a target's GPU, by its multiprocessors, clocks and architecture."""
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
    )


def _architecture_of(target: Target) -> Architecture:
    """The target's architecture, or the newest before it in the table."""
    number = architecture_of(target)
    older = [each for each in ARCHITECTURES if each <= number]
    return ARCHITECTURES[max(older, default=min(ARCHITECTURES))]


def _fact(target: Target, name: str, declared: int) -> int:
    """What the driver says of the GPU, or what is declared where it says nothing."""
    return int(target.fingerprint.get(name, 0)) or declared
