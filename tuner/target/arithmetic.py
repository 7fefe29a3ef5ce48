"""What multiplies and adds on a GPU."""

from __future__ import annotations

from enum import StrEnum


class ArithmeticUnit(StrEnum):
    """A way in which a multiprocessor multiplies and adds."""

    CUDA_CORES = "cuda_cores"
    MMA = "mma"  # tensor cores, by the instructions of a warp
    WGMMA = "wgmma"  # tensor cores, by those of a warpgroup, from operands in shared memory
