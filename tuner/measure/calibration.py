"""The calibration kernel: the same arithmetic each time, timed on each core of a lane.

It runs between trials and tells a lane whose speed has changed from one whose
candidates are slow. It is our own code, so it runs in the runner's parent: nothing is
forked, and a core is held for some 8 ms.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from statistics import median

import numpy as np
from numpy.typing import NDArray

SIDE = 192  # of the matrices: 14 million operations on 0.4 MiB, which is a private cache's
CALLS = 15  # timed, of which the median counts: an interruption falls on one or two of them
PACE_SIDE = 128  # of the matrices by which the pace of a core is read (pace.py): some 35 us
WARM_UP_S = 0.003  # of calls before those: frequency and caches settle


class CalibrationKernel:
    """A float32 matrix product by NumPy on one thread."""

    def __init__(self, side: int = SIDE) -> None:
        rng = np.random.default_rng(0)
        self._left = rng.standard_normal((side, side), dtype=np.float32)
        self._right = rng.standard_normal((side, side), dtype=np.float32)
        self._product: NDArray[np.float32] = np.empty((side, side), np.float32)

    def time_cores(self, cores: Sequence[int]) -> tuple[float, ...]:
        """Seconds of one product on each core.

        The calling process is pinned meanwhile, and gets its cores back.
        """
        before = os.sched_getaffinity(0)
        try:
            return tuple(self._time_on(core) for core in cores)
        finally:
            os.sched_setaffinity(0, before)

    def _time_on(self, core: int) -> float:
        os.sched_setaffinity(0, (core,))
        warm = time.perf_counter() + WARM_UP_S
        while time.perf_counter() < warm:
            self.call_s()
        return median(self.call_s() for _ in range(CALLS))

    def call_s(self) -> float:
        """Seconds of one product, on whichever core this runs."""
        started = time.perf_counter()
        np.matmul(self._left, self._right, out=self._product)
        return time.perf_counter() - started
