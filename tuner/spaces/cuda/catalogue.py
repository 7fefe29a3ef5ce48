"""The sketches of NVIDIA GPUs, in the order in which a space lists them.

Each group of stages is one kernel.
"""

from __future__ import annotations

from collections.abc import Sequence

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.sketch import Sketch
from tuner.spaces.core.target_space import SketchCatalogue
from tuner.spaces.cuda.facts import KernelFacts
from tuner.spaces.cuda.limits import architecture_of
from tuner.spaces.cuda.mma_knobs import CudaMmaSketch, product_shape
from tuner.spaces.cuda.multistage_knobs import CudaMultistageSketch, multistage_shape
from tuner.spaces.cuda.patch_knobs import CudaPatchSketch
from tuner.spaces.cuda.persistent_knobs import CudaPersistentSketch, persistent_shape
from tuner.spaces.cuda.row_knobs import CudaRowSketch
from tuner.spaces.cuda.tile_knobs import ASYNC_FROM, CudaTileSketch
from tuner.spaces.cuda.warpgroup_knobs import CudaWarpgroupSketch, warpgroup_shape
from tuner.spaces.rewrite.algorithm import simplified
from tuner.spaces.rewrite.collapse import collapsed
from tuner.spaces.rewrite.dot_products import factors
from tuner.spaces.rewrite.groups import Group, RowGroup, TileGroup, groups
from tuner.spaces.rewrite.parallel_units import ParallelUnits, gpu_multiprocessors
from tuner.spaces.rewrite.patches import patch_lengths
from tuner.spaces.rewrite.unit_axes import without_unit_axes
from tuner.spaces.rewrite.winograd_tile import F2X2_3X3
from tuner.target.target import Target
from tuner.workload.expression import Expression

# The only architecture with instructions of whole warpgroups; it has copies of boxes too.
WARPGROUPS = "sm_90"


def _parallel_units(target: Target, _threads: int) -> ParallelUnits:
    return gpu_multiprocessors(target.cores)


def _simplified(expression: Expression) -> Expression:
    """The expression as groups are made of it.

    Axes that every access walks together are joined where that makes fewer kernels:
    rows that lie along several axes are then those of one.
    """
    plain = simplified(expression)
    joined = collapsed(without_unit_axes(plain))
    return joined if len(groups(joined)) < len(groups(plain)) else plain


def _tiles(group: Group, context: SpaceContext) -> Sequence[Sketch[KernelFacts]]:
    if not isinstance(group, TileGroup):
        return []
    if not context.rewritten:
        return [CudaTileSketch(group, context)]
    if factors(group.anchor) is not None or _patches(group, context):
        return []
    # Of so many stages not every combination of sketches is offered, nor threads along
    # the places of a patch.
    return [CudaTileSketch(group, context, batches=False)]


def _tensor_cores(group: Group, context: SpaceContext) -> Sequence[Sketch[KernelFacts]]:
    if not isinstance(group, TileGroup) or not _may_use_tensor_cores(group, context):
        return []
    shape = product_shape(group, context)
    if shape is None:
        return []
    sketch = CudaMmaSketch(group, context, shape)
    return [sketch] if sketch.block.values else []


def _warpgroups(group: Group, context: SpaceContext) -> Sequence[Sketch[KernelFacts]]:
    if not isinstance(group, TileGroup) or not _may_use_tensor_cores(group, context):
        return []
    if context.target.tvm["arch"] != WARPGROUPS:
        return []
    shape = warpgroup_shape(group, context)
    if shape is None:
        return []
    sketch = CudaWarpgroupSketch(group, context, shape)
    return [sketch] if sketch.block.values else []


def _persistent(group: Group, context: SpaceContext) -> Sequence[Sketch[KernelFacts]]:
    if not isinstance(group, TileGroup) or context.rewritten:
        return []
    if context.target.tvm["arch"] != WARPGROUPS:
        return []
    shape = persistent_shape(group, context)
    if shape is None:
        return []
    sketch = CudaPersistentSketch(group, context, shape)
    return [sketch] if sketch.block.values else []


def _multistage(group: Group, context: SpaceContext) -> Sequence[Sketch[KernelFacts]]:
    if not isinstance(group, TileGroup) or context.rewritten:
        return []
    architecture = context.target.tvm["arch"]
    if architecture == WARPGROUPS or architecture_of(context.target) < ASYNC_FROM:
        return []
    shape = multistage_shape(group, context)
    if shape is None:
        return []
    sketch = CudaMultistageSketch(group, context, shape)
    return [sketch] if sketch.block.values else []


def _patches(group: Group, context: SpaceContext) -> Sequence[Sketch[KernelFacts]]:
    if (
        not isinstance(group, TileGroup)
        or not context.rewritten
        or factors(group.anchor) is not None
    ):
        return []
    lengths = patch_lengths(group.anchor)
    sketch = CudaPatchSketch(group, context, lengths)
    return [sketch] if lengths and sketch.block.values else []


def _rows(group: Group, context: SpaceContext) -> Sequence[Sketch[KernelFacts]]:
    return [CudaRowSketch(group, context)] if isinstance(group, RowGroup) else []


def _may_use_tensor_cores(group: TileGroup, context: SpaceContext) -> bool:
    """Rewritten products are of bfloat16, which only tensor cores sum faster than float32."""
    return not context.rewritten or factors(group.anchor) is not None


CUDA_SKETCHES: SketchCatalogue[KernelFacts] = SketchCatalogue(
    simplify=_simplified,
    parallel_units=_parallel_units,
    joins_tiles=True,
    winograd_tiles=(F2X2_3X3,),
    prepacks=False,
    widens=False,
    generators=(_tiles, _tensor_cores, _warpgroups, _persistent, _multistage, _patches, _rows),
)
