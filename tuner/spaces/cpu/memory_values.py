"""What a tile nest may do beside computing: prefetch, store past the caches, and take
its functions from a library."""

from __future__ import annotations

from math import prod

from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.copy_prefetch import is_streamed
from tuner.spaces.cpu.copy_values import copy_modes
from tuner.spaces.cpu.prefetch import (
    MOST_USES,
    boxes,
    epilogue_rows,
    gathered_rows,
    is_packed_in_parts,
    is_walked,
    read_once,
)
from tuner.spaces.cpu.reduction_values import reduction_blocks
from tuner.spaces.cpu.store_mode import StoreMode, store_modes
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.rewrite.access import Access
from tuner.spaces.rewrite.stages import is_expensive
from tuner.workload.dtypes import DTYPE_BYTES

# Rows that are gathered ahead of the current one: the latency of the last cache, and of memory,
# by the time that a row of a few lines takes.
ROWS_AHEAD = (4, 16)


def far_rows(stage: TiledStage) -> frozenset[str]:
    """The tensors beyond the second cache of which a sum, or its epilogue, gathers rows."""
    context, group = stage.context, stage.group
    rows = (
        *gathered_rows(group.anchor, stage.vector, context.shapes),
        *epilogue_rows(group.epilogue, stage.vector, context.shapes),
    )
    tensors = {row.access.read.tensor for row in rows} if group.anchor.reducer else set()
    return frozenset(name for name in tensors if _bytes(stage, name) > context.target.l2_bytes)


def _bytes(stage: TiledStage, tensor: str) -> int:
    context = stage.context
    return prod(context.shapes[tensor]) * DTYPE_BYTES[context.dtypes[tensor]]


def prefetch_distances(stage: TiledStage, *, copying: bool) -> tuple[int, ...]:
    """How far ahead a nest fetches what it uses seldom and has beyond the second cache:
    bytes along the vectors of a map, blocks of a reduction, parts that are packed or
    packed copies of the whole, rows that are gathered.

    Without `copying` only the last: other operands are neither copied nor prefetched.
    """
    context, anchor = stage.context, stage.group.anchor
    if not context.isa.prefetch:
        return (0,)
    if stage.across is not None or stage.lanes == 1 or not _takes_vectors(stage):
        return (0,)
    if far_rows(stage):
        return (0, *ROWS_AHEAD)
    if not copying or gathered_rows(anchor, stage.vector, context.shapes):
        return (0,)
    distances: tuple[int, ...]
    if stage.is_sum:
        tensors, distances = {read.read.tensor for read in _prefetchable(stage)}, (1,)
    else:
        streams = read_once(anchor, stage.vector, context.shapes)
        tensors = {anchor.name, *(read.tensor for read in streams)} if streams else set()
        distances = (context.isa.page_bytes,)
    # TVM stores narrow floats as integers, under pointers of another type.
    wide = not any(context.dtypes[name] in ("float16", "bfloat16") for name in tensors)
    size = sum(_bytes(stage, name) for name in tensors)
    return (0, *distances) if wide and size > context.target.l2_bytes else (0,)


def _takes_vectors(stage: TiledStage) -> bool:
    """Whether a step takes plain vectors of memory, and no rows of a matrix."""
    instruction = stage.instruction
    return instruction.register_rows is None and instruction.paired is None


def _prefetchable(stage: TiledStage) -> list[Access]:
    """What a sum reads that can come ahead."""
    anchor, shapes = stage.group.anchor, stage.context.shapes
    in_boxes = () if stage.instruction.axes else boxes(anchor, shapes)
    return [
        read
        for read in stage.reads
        if (stage.packable(read) and is_streamed(read, anchor, stage.vector, stage.instruction))
        or (read in in_boxes and _comes_in_boxes(stage, read))
    ]


def _comes_in_boxes(stage: TiledStage, access: Access) -> bool:
    """Whether a box of what a sum reads can come ahead: a part that is packed, or the
    next block of the reduction."""
    modes, anchor = copy_modes(stage, access), stage.group.anchor
    in_place = (
        CopyMode.NONE in modes
        and len(reduction_blocks(stage)) > 1
        and is_walked(access, anchor, stage.vector)
    )
    return in_place or (CopyMode.PACK in modes and is_packed_in_parts(access, anchor))


def tile_store_modes(stage: TiledStage) -> tuple[StoreMode, ...]:
    """Whether an output goes past the caches; of a sum one that computes little for each
    element, and so waits for memory.

    Patches are read again by the next stage, or store where a neighbour's line begins.
    """
    often = prod(axis.extent for axis in stage.group.anchor.reduce_axes) > MOST_USES
    if often or stage.instruction.axes or stage.places:
        return (StoreMode.CACHED,)
    return store_modes(stage.group.output, stage.vector, stage.lanes, stage.context.target)


def function_sources(stage: TiledStage) -> tuple[MathFunctions, ...]:
    """Where transcendental functions come from, if there are any."""
    group = stage.group
    bodies = [group.anchor.body] + ([group.epilogue.body] if group.epilogue else [])
    return ("polynomial", "libm") if any(map(is_expensive, bodies)) else ("libm",)
