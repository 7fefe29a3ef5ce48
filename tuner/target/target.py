"""What a kernel is tuned for: TVM's target, the machine's fingerprint, its measured limits.

Plain data, no detection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from tuner.target.arithmetic import ArithmeticUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Bandwidth:
    """Memory bandwidth of one core, or of a whole GPU, at one working-set size.

    In bytes per second; bytes moved are counted.
    """

    working_set_bytes: int
    read: float
    write: float
    copy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ArithmeticRate:
    """How fast a whole GPU multiplies and adds in one way.

    FLOP/s with a multiply-add as 2.
    """

    unit: ArithmeticUnit
    dtype: str  # of the factors; tensor cores' sums have 32 bits
    flops: float  # median
    flops_best: float  # the highest ever seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The machine's own limits, measured once and stored: of one core, or of a whole GPU."""

    fma_flops: float  # float32 fused multiply-add rate, median, FLOP/s with a multiply-add as 2
    fma_flops_best: float  # the highest rate ever seen, from which implausibility is judged
    bandwidth: tuple[Bandwidth, ...]  # by growing working set
    # The rest is a GPU's.
    rates: tuple[ArithmeticRate, ...] = ()  # of each unit and dtype, float32's among them
    shared_bytes_per_s: float | None = None  # read from shared memory, all multiprocessors
    # Seconds from an empty kernel to the next one in a graph: no call takes less.
    launch_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A CPU or GPU that kernels are tuned for."""

    key: str  # SHA-256 of the fingerprint, hex; limits are not part of it
    kind: Literal["cpu", "cuda"]
    name: str  # for people, e.g. "AMD EPYC 9645 (znver5, 2 cores)"
    # Options for tvm.target.Target, e.g. {"kind": "llvm", "mcpu": "znver5"}.
    tvm: Mapping[str, str | int]
    # Instruction-set features that generated code may use, sorted, e.g. ("avx2", "fma").
    isa: tuple[str, ...]
    vector_bytes: int  # width of a vector register
    vector_registers: int  # architectural vector registers
    cores: int
    l1d_bytes: int  # of one core
    l2_bytes: int  # of one core
    l3_bytes: int  # shared
    fingerprint: Mapping[str, str | int] = field(default_factory=dict)  # what the key hashes
    limits: Limits | None = None

    @property
    def declared(self) -> bool:
        """Whether it is a class of CPUs or GPUs and not one that was seen."""
        if self.kind == "cpu":
            return "declared" in self.fingerprint
        return "device" not in self.fingerprint

    @property
    def on_device(self) -> bool:
        """Whether kernels run on a device beside the processor; its lanes are such devices."""
        return self.kind != "cpu"
