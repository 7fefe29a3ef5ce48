"""What a thread block may take, judged before anything is compiled: threads, registers,
shared memory.

Registers are an estimate; the compiler's own count comes with the cubin. Sketches offer
only values that fit.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.errors import IllegalSchedule
from tuner.target.cuda import (
    REGISTERS_PER_BLOCK,
    REGISTERS_PER_THREAD,
    STATIC_SHARED_BYTES,
    THREADS_PER_BLOCK,
    VECTOR_BYTES,
    WARP,
)
from tuner.target.target import Target

# Addresses, loop counters, staged loads. Of 64 random kernels ptxas gave 8 more than
# this estimate, at worst 101 for 66.
OTHER_REGISTERS = 40
THREADS_PER_DIMENSION = (THREADS_PER_BLOCK, THREADS_PER_BLOCK, 64)  # x, y, z
LEAST_THREADS = 64  # two warps: fewer leave an SM's schedulers idle, whatever the tile
MAX_OVERLAP = 0.25  # work done twice, or beyond an extent, as a share of the extent


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What one thread block takes."""

    threads: tuple[int, ...]  # of each thread axis, x first
    registers: int  # 32-bit, of one thread, estimated
    shared_bytes: int
    # of a block, at most: more than the static where it is asked for at the launch
    most_shared_bytes: int = STATIC_SHARED_BYTES

    @property
    def block(self) -> int:
        total = 1
        for extent in self.threads:
            total *= extent
        return total

    @property
    def fault(self) -> str | None:
        """Why a block cannot be launched, None where it can."""
        for axis, extent, most in zip("xyz", self.threads, THREADS_PER_DIMENSION, strict=False):
            if extent > most:
                return f"{extent} threads along {axis}; a block has at most {most}"
        if self.block > THREADS_PER_BLOCK:
            return f"{self.block} threads in a block; the most are {THREADS_PER_BLOCK}"
        if self.registers > REGISTERS_PER_THREAD:
            return (
                f"about {self.registers} registers a thread; the most are "
                f"{REGISTERS_PER_THREAD}: a smaller register tile fits"
            )
        # Registers are given to a warp at a time.
        warps = -(-self.block // WARP)
        if self.registers * warps * WARP > REGISTERS_PER_BLOCK:
            return (
                f"about {self.registers} registers in each of {self.block} threads; a block has "
                f"{REGISTERS_PER_BLOCK}: "
                "fewer threads or a smaller register tile fit"
            )
        if self.shared_bytes > self.most_shared_bytes:
            most = self.most_shared_bytes
            return (
                f"{self.shared_bytes} bytes of shared memory; a block has {most}: a smaller "
                f"tile or depth fits"
            )
        return None

    def check(self) -> None:
        """Refuse a block that cannot be launched.

        Raises IllegalSchedule with the reason.
        """
        if self.fault is not None:
            raise IllegalSchedule(self.fault)


def covers(extent: int, block: int) -> bool:
    """Whether blocks fit an axis and do little of its work twice."""
    return block <= extent and wastes_little(extent, block)


def wastes_little(extent: int, block: int) -> bool:
    """Whether blocks exceed an axis, all together, by MAX_OVERLAP at most."""
    return -(-extent // block) * block - extent <= MAX_OVERLAP * extent


def widest(itemsize: int) -> int:
    """Elements of the widest load of one thread."""
    return max(VECTOR_BYTES // itemsize, 1)


def architecture_of(target: Target) -> int:
    """The number of a GPU's architecture, 80 of sm_80."""
    return int(str(target.tvm["arch"]).removeprefix("sm_"))


def block_shared_bytes(target: Target) -> int:
    """Shared memory of a thread block, as much as can be asked for at a launch."""
    return int(target.fingerprint["max_dynamic_shared_memory_per_block"])
