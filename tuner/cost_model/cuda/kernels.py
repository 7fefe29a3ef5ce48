"""What the kernels of an algorithm take on a GPU at their best, each for itself: its
launch, and its work or its bytes.

For what the estimate cannot tell from knobs: which algorithm of a convolution has the
fewer doublings before it, and how much of the whole each of an algorithm's kernels is.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from tuner.spaces.rewrite.algorithm import Algorithm
from tuner.spaces.rewrite.groups import Group, RowGroup
from tuner.workload.expression import DTYPE_BYTES, Stage, reads

# Of one NVIDIA H200 (docs/cuda.md): float32 products of 2048 each way in 480 us,
# softmax over 512 MiB in 129 us.
MULTIPLICATIONS_PER_S, BYTES_PER_S = 18e12, 4.2e12
TENSOR_CORES_PER_S = (
    250e12  # multiplications of 16-bit numbers: float16 products of 4096 each way in 272 us
)
# of a kernel after another of the same call, its first and last blocks included; chosen
# by hand
LAUNCH_S = 2e-6


def least_seconds(algorithm: Algorithm) -> Mapping[str, float]:
    """Seconds of each group, by its name, were all its tensors in memory and no cache held them."""
    return {group.name: _seconds(group, algorithm) for group in algorithm.groups}


def _seconds(group: Group, algorithm: Algorithm) -> float:
    stages = (
        group.stages
        if isinstance(group, RowGroup)
        else (group.anchor, *((group.epilogue,) if group.epilogue else ()))
    )
    own = {stage.name for stage in stages}
    moved = {read.tensor for stage in stages for read in reads(stage.body)} - own | {group.name}
    nbytes = sum(
        prod(algorithm.shapes[name]) * DTYPE_BYTES[algorithm.dtypes[name]] for name in moved
    )
    computed = sum(
        stage.points / _rate(stage, algorithm) for stage in stages if stage.reducer is not None
    )
    return LAUNCH_S + float(max(computed, nbytes / BYTES_PER_S))


def _rate(stage: Stage, algorithm: Algorithm) -> float:
    """Terms of its sum a second."""
    read = {algorithm.dtypes[one.tensor] for one in reads(stage.body)}
    return TENSOR_CORES_PER_S if read and read <= {"float16", "bfloat16"} else MULTIPLICATIONS_PER_S
