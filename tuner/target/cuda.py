"""Declared CUDA targets: what the generator must know of a GPU that need not be present.

Plain data. Source: CUDA C++ Programming Guide, "Technical Specifications per Compute
Capability", and the A100 and H100 architecture papers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tuner.target.target import Target


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredGpu:
    """What the tables say of the GPUs of a compute capability."""

    name: str
    multiprocessors: int
    block_shared_bytes: int  # the most dynamic shared memory of a block
    l1_bytes: int  # L1 cache and shared memory of a multiprocessor
    l2_bytes: int


GPUS: Mapping[str, DeclaredGpu] = {
    "sm_80": DeclaredGpu(
        name="NVIDIA A100",
        multiprocessors=108,
        block_shared_bytes=163 << 10,
        l1_bytes=192 << 10,
        l2_bytes=40 << 20,
    ),
    "sm_90": DeclaredGpu(
        name="NVIDIA H100/H200",
        multiprocessors=132,
        block_shared_bytes=227 << 10,
        l1_bytes=256 << 10,
        l2_bytes=50 << 20,
    ),
}
THREADS_PER_BLOCK = 1024
# Of a block that does not opt in to more; the same for all compute capabilities.
STATIC_SHARED_BYTES = 48 << 10
REGISTERS_PER_BLOCK = 65536  # 32-bit
REGISTERS_PER_THREAD = 255
WARP = 32
VECTOR_BYTES = 16  # the widest load or store of one thread


def cuda_targets() -> tuple[str, ...]:
    return tuple(GPUS)


def cuda_target(arch: str, key: Callable[[Mapping[str, str | int]], str]) -> Target:
    """The declared target of a compute capability.

    `key` hashes its fingerprint. `arch` must be one of `cuda_targets()`.
    """
    gpu = GPUS[arch]
    fingerprint: dict[str, str | int] = {
        "schema": 1,
        "kind": "cuda",
        "arch": arch,
        "multiprocessors": gpu.multiprocessors,
        "max_threads_per_block": THREADS_PER_BLOCK,
        "max_dynamic_shared_memory_per_block": gpu.block_shared_bytes,
        "registers_per_block": REGISTERS_PER_BLOCK,
    }
    return Target(
        key=key(fingerprint),
        kind="cuda",
        name=f"{gpu.name} ({arch})",
        tvm={
            "kind": "cuda",
            "arch": arch,
            "max_threads_per_block": THREADS_PER_BLOCK,
            "max_shared_memory_per_block": STATIC_SHARED_BYTES,
            "thread_warp_size": WARP,
        },
        isa=(arch,),
        vector_bytes=VECTOR_BYTES,
        vector_registers=REGISTERS_PER_THREAD,
        cores=gpu.multiprocessors,
        l1d_bytes=gpu.l1_bytes,
        l2_bytes=gpu.l2_bytes,
        l3_bytes=0,
        fingerprint=fingerprint,
    )
