"""The tile nest of a stage without a reduction: tiles of the output straight from its reads."""

from __future__ import annotations

from collections.abc import Mapping

from tuner.spaces.cpu.nest_parts import NestParts
from tuner.spaces.cpu.prefetch import map_prefetches
from tuner.spaces.cpu.tile_copies import TileCopies
from tuner.spaces.cpu.tile_loops import TileLoops
from tuner.spaces.cpu.tile_plan import TilePlan
from tuner.spaces.cpu.write_back import has_vector_chains
from tuner.spaces.program.loops import loops_of
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import Prefetch, Reorder
from tuner.spaces.rewrite.dead_code import constant_border
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.liveness import tile_condition
from tuner.workload.dtypes import DType
from tuner.workload.expression import Read, Scalar, Var, substitute


def map_nest(
    group: TileGroup,
    plan: TilePlan,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
) -> Nest:
    """The nest of a group whose anchor has no reduction."""
    anchor, loops = group.anchor, TileLoops(plan)
    parts = NestParts(math_functions=plan.math_functions, threads=plan.threads)
    copies = TileCopies(group, plan, parts, shapes, dtypes)
    body = substitute(copies.add(), loops.indices)
    when, otherwise = _predicate(group, loops, copies.shapes)
    merged = has_vector_chains(group, plan, body)
    prefetches: tuple[Prefetch, ...] = ()
    if plan.prefetch:
        written = Read(group.name, tuple(Var(axis.name) for axis in group.output.axes))
        prefetches = map_prefetches(
            plan,
            anchor,
            written,
            copies.shapes,
            copies.dtypes,
            merged=merged and loops.has_mergeable_vectors,
        )
    parts.compute(
        group.name,
        loops.spatial,
        [loops.indices[axis.name] for axis in group.output.axes],
        body,
        when=when,
        otherwise=otherwise,
        prefetches=prefetches,
        non_temporal=plan.non_temporal,
    )
    parts.steps.append(Reorder(loops=loops_of(group.name, loops.spatial)))
    copies.place_in_tile(group.name)
    parts.steps += loops.innermost_marks(group.name, merged=merged)
    parts.share_loops(group.name, loops.outer)
    return parts.nest()


def _predicate(
    group: TileGroup, loops: TileLoops, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[tuple[Scalar, ...], Scalar | None]:
    """Conditions under which a tile is computed, and the constant stored where one fails.

    They fail where all reads of a tile see padding alone.
    """
    # TVM has no stores of one bfloat16 value to all lanes.
    constant = None if group.anchor.dtype == "bfloat16" else constant_border(group.anchor, shapes)
    if constant is None:
        return (), None
    conditions, otherwise = constant
    when = (tile_condition(condition, loops.indices, loops.register) for condition in conditions)
    return tuple(when), otherwise
