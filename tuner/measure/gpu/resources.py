"""Device resources that a GPU's candidate needs, as the compiler reports them.

They are known once it is built, whatever becomes of it then.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """Of all kernels of the candidate: the worst of each."""

    registers: int  # 32-bit, of one thread; the most
    # stored to and loaded from memory by one thread for want of registers, a static
    # count; the sum
    spill_bytes: int
    shared_bytes: int  # of one block, static and asked for at the launch; the most
    # of one multiprocessor, as many as registers, shared memory and threads let in; the
    # fewest
    resident_warps: int
