"""Occupancy: the warps of a kernel that a multiprocessor holds at a time.

Registers, shared memory and block size leave room for them. Source: CUDA C++
Programming Guide, "Technical Specifications per Compute Capability", and NVIDIA's
occupancy calculator.
"""

from __future__ import annotations

from collections.abc import Mapping

from tuner.target.cuda import REGISTERS_PER_BLOCK, STATIC_SHARED_BYTES, WARP
from tuner.target.target import Target

# Architecture -> most resident warps and blocks of a multiprocessor.
_RESIDENT: Mapping[str, tuple[int, int]] = {
    "sm_86": (48, 16),
    "sm_87": (48, 16),
    "sm_89": (48, 24),
    "sm_120": (48, 24),
    "sm_121": (48, 24),
}
_OTHERS = (64, 32)
_REGISTERS_AT_ONCE = 8  # of a thread: a warp is given registers by 256
_RESERVED_BYTES = 1024  # of shared memory that each block takes beside its own, from sm_80 on


def resident_warps(target: Target, *, threads: int, registers: int, shared_bytes: int) -> int:
    """The resident warps of a kernel, at least those of one block.

    `threads` and `shared_bytes` are of a block, `registers` of a thread. A
    multiprocessor has as many registers as a block may have, and 1 KiB more shared
    memory.
    """
    most_warps, most_blocks = _RESIDENT.get(str(target.tvm["arch"]), _OTHERS)
    warps = -(-threads // WARP)
    block_registers = (
        -(-max(registers, 1) // _REGISTERS_AT_ONCE) * _REGISTERS_AT_ONCE * WARP * warps
    )
    shared_room = (
        int(target.fingerprint.get("max_dynamic_shared_memory_per_block", STATIC_SHARED_BYTES))
        + _RESERVED_BYTES
    )
    blocks = min(
        most_warps // warps,
        most_blocks,
        REGISTERS_PER_BLOCK // block_registers,
        shared_room // (shared_bytes + _RESERVED_BYTES),
    )
    return max(blocks, 1) * warps
