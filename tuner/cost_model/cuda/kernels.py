"""What the kernels of an algorithm take on a GPU at their best, each for itself: its
launch, and its work or its bytes.

For what the estimate cannot tell from knobs: which algorithm of a convolution takes less
time, and how much of the whole each of an algorithm's kernels is.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from math import prod

from tuner.cost_model.cuda.rates import GpuRates
from tuner.spaces.rewrite.algorithm import Algorithm
from tuner.spaces.rewrite.groups import Group, RowGroup, TileGroup
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Stage, reads


def least_seconds(
    algorithm: Algorithm, rates: GpuRates, multiplied: Collection[str] = ()
) -> Mapping[str, float]:
    """Seconds of each group, by its name, were all its tensors in memory and no cache held them.

    `multiplied`: names of groups whose sums tensor cores may make.
    """
    return {
        group.name: _seconds(group, algorithm, rates, group.name in multiplied)
        for group in algorithm.groups
    }


def _seconds(group: Group, algorithm: Algorithm, rates: GpuRates, multiplied: bool) -> float:
    if isinstance(group, RowGroup):
        stages = group.stages
    else:
        assert isinstance(group, TileGroup)  # no sketch of a GPU computes rows part by part
        stages = (group.anchor, *((group.epilogue,) if group.epilogue else ()))
    own = {stage.name for stage in stages}
    moved = {read.tensor for stage in stages for read in reads(stage.body)} - own | {group.name}
    nbytes = sum(
        prod(algorithm.shapes[name]) * DTYPE_BYTES[algorithm.dtypes[name]] for name in moved
    )
    computed = sum(
        stage.points / _terms_per_s(stage, algorithm, rates, multiplied)
        for stage in stages
        if stage.reducer is not None
    )
    return rates.launch_s + float(max(computed, nbytes / rates.bytes_per_s))


def _terms_per_s(stage: Stage, algorithm: Algorithm, rates: GpuRates, multiplied: bool) -> float:
    """Terms of a stage's sum that are added in a second."""
    dtypes = {algorithm.dtypes[read.tensor] for read in reads(stage.body)}
    if multiplied:  # twice as many terms of half as many bytes
        widest = max(DTYPE_BYTES[dtype] for dtype in dtypes)
        return rates.tensor_multiply_adds_per_s * DTYPE_BYTES["float16"] / widest
    halves = bool(dtypes) and dtypes <= {"float16", "bfloat16"}
    return rates.tensor_multiply_adds_per_s if halves else rates.multiply_adds_per_s
