"""How caches are emptied before a call that is to find them cold."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np

# Read by each core to empty its caches; as much as the last level holds where that is more.
SWEEP_BYTES = 128 << 20


def sweeper(cores: int) -> Callable[[], None]:
    """What empties the caches of the calling process's cores when it is called.

    So many threads at once read the same memory, each all of it. They are as many as the
    process may use cores, so that each core has one, and no private cache keeps anything.
    """
    memory = np.ones(max(SWEEP_BYTES, _last_level_bytes()) // 8)
    together = Barrier(cores)
    others = ThreadPoolExecutor(cores - 1) if cores > 1 else None

    def read() -> None:
        together.wait()
        memory.sum()

    def sweep() -> None:
        reads = [] if others is None else [others.submit(read) for _ in range(cores - 1)]
        read()
        for other in reads:
            other.result()

    return sweep


def _last_level_bytes() -> int:
    """The third-level cache as the C library knows it; 0 where it does not."""
    try:
        return max(0, os.sysconf("SC_LEVEL3_CACHE_SIZE"))
    except (ValueError, OSError):
        return 0
