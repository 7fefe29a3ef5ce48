"""The block that stores finished accumulators as the output of a group."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.spaces.cpu.nest_parts import NestParts
from tuner.spaces.cpu.prefetch import epilogue_rows, row_prefetches
from tuner.spaces.cpu.tile_loops import TileLoops
from tuner.spaces.cpu.tile_plan import TilePlan
from tuner.spaces.program.loops import LoopId, loops_of
from tuner.spaces.program.program import Buffer, Prefetch, Reorder, ReverseComputeAt
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.groups import TileGroup, replace_reads
from tuner.spaces.rewrite.stages import is_expensive
from tuner.workload.dtypes import DType
from tuner.workload.expression import Read, Scalar, Var, substitute


def write_back(
    group: TileGroup,
    plan: TilePlan,
    parts: NestParts,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
    accumulators: str,
) -> None:
    """Stores the accumulators of a sum, with the epilogue done on them."""
    loops, output, epilogue = TileLoops(plan), group.output, group.epilogue
    costly = epilogue is not None and is_expensive(epilogue.body)
    level = (loops.inner or loops.outer)[-1] if plan.blocked is None else loops.outer[-1]
    below = LoopId.of(accumulators, level)
    tile_loops = [*loops.inner, *loops.stored]
    every = [*loops.outer, *tile_loops]
    finished = Read(accumulators, loops.element)
    if costly and plan.blocked is None:
        # Unrolled, a long epilogue takes the compiler seconds. Accumulators go to memory
        # once, so that it can be a loop.
        tile = f"{group.name}_tile"
        shape, element = zip(*((axis.extent, Var(axis.name)) for axis in every), strict=True)
        parts.buffers.append(Buffer(name=tile, shape=shape, dtype=group.anchor.accumulator))
        parts.compute(tile, every, element, finished)
        parts.steps.append(ReverseComputeAt(block=tile, loop=below))
        parts.steps.append(Reorder(loops=loops_of(tile, tile_loops)))
        parts.steps += loops.innermost_marks(tile, stored=True)
        finished = Read(tile, element)
    body: Scalar = finished
    prefetches: tuple[Prefetch, ...] = ()
    if epilogue is not None:
        extents = {tiled.axis.name: tiled.axis.extent for tiled in plan.spatial}
        plain = with_explicit_padding(epilogue.body, shapes, extents)
        body = replace_reads(substitute(plain, loops.indices), {group.anchor.name: finished})
        if plan.prefetch:
            rows = epilogue_rows(epilogue, plan.vector, shapes)
            prefetches = row_prefetches(plan, epilogue, rows, loops, dtypes)
    parts.compute(
        output.name,
        every,
        [loops.indices[axis.name] for axis in output.axes],
        body,
        prefetches=prefetches,
        non_temporal=plan.non_temporal,
    )
    parts.steps.append(ReverseComputeAt(block=output.name, loop=below))
    parts.steps.append(Reorder(loops=loops_of(output.name, tile_loops)))
    parts.steps += loops.innermost_marks(
        output.name,
        unrolled=not costly and plan.instruction.register_rows is None,
        stored=True,
        merged=has_vector_chains(group, plan, body),
    )


def has_vector_chains(group: TileGroup, plan: TilePlan, body: Scalar) -> bool:
    """Whether what is stored takes long chains of vector arithmetic: polynomials of float32."""
    return (
        plan.math_functions == "polynomial"
        and group.output.dtype == "float32"
        and is_expensive(body)
    )
