"""The sketches of CPUs, in the order in which a space lists them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeGuard

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.sketch import Sketch
from tuner.spaces.core.target_space import SketchCatalogue
from tuner.spaces.cpu.amx import amx_sketch
from tuner.spaces.cpu.dots import dot_sketch
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.spaces.cpu.float16_sums import float16_sketch
from tuner.spaces.cpu.float_sums import float_sketch
from tuner.spaces.cpu.fully_unrolled import fully_unrolled
from tuner.spaces.cpu.fused_sketch import fused_sketch
from tuner.spaces.cpu.mmla import mmla_sketch
from tuner.spaces.cpu.patch_sketch import patch_sketch
from tuner.spaces.cpu.quantized import quantized_sketches
from tuner.spaces.cpu.ragged import is_ragged, ragged_sketches
from tuner.spaces.cpu.row_sketch import lane_sketches, row_sketch, unpacked_sketches
from tuner.spaces.cpu.scatter import scatter_sketch
from tuner.spaces.cpu.split_sketch import split_sketch
from tuner.spaces.cpu.stream_matrix_sketch import matrix_stream_sketch
from tuner.spaces.cpu.stream_sketch import stream_sketch
from tuner.spaces.cpu.vectors import tile_sketches, vectorised_stages
from tuner.spaces.rewrite import polyphase
from tuner.spaces.rewrite.algorithm import simplified
from tuner.spaces.rewrite.bf16x3 import factor_parts
from tuner.spaces.rewrite.collapse import collapsed
from tuner.spaces.rewrite.dot_products import factors
from tuner.spaces.rewrite.groups import FusedGroup, Group, RowGroup, TileGroup, groups
from tuner.spaces.rewrite.parallel_units import ParallelUnits, cpu_threads
from tuner.spaces.rewrite.quantized_products import with_weights_inlined
from tuner.spaces.rewrite.stages import materialized, stored_narrow
from tuner.spaces.rewrite.stream_group import StreamGroup
from tuner.spaces.rewrite.unit_axes import without_unit_axes
from tuner.spaces.rewrite.winograd_tile import TILES
from tuner.target.target import Target
from tuner.workload.expression import Expression, rows_from_data


def _simplify(expression: Expression) -> Expression:
    """The expression as groups are made of it.

    Axes of one point stay, unless stages come together without them: those of a product with
    those of a map that has a batch of one besides.
    """
    plain = simplified(with_weights_inlined(stored_narrow(expression)))
    joined = _joined(plain)
    if (count := len(groups(joined))) == 1:
        return joined
    bare = _joined(without_unit_axes(plain))
    return bare if len(groups(bare)) < count else joined


def _joined(plain: Expression) -> Expression:
    return collapsed(materialized(polyphase.decompose(plain)))


def _parallel_units(_target: Target, threads: int) -> ParallelUnits:
    return cpu_threads(threads)


def _is_dense_tile(group: Group) -> TypeGuard[TileGroup]:
    return isinstance(group, TileGroup) and rows_from_data(group.anchor) is None


def _tiles(group: Group, context: SpaceContext) -> Sequence[Sketch[LoopNestFacts]]:
    if not _is_dense_tile(group):
        return []
    if not context.rewritten:
        return tile_sketches(group, context)
    if factors(group.anchor) is not None:
        return []  # products of bfloat16, which only AMX sums faster than float32
    if context.in_patches and (patched := patch_sketch(group, context)) is not None:
        return [patched]
    # Of so many stages neither every combination is offered nor a copy of each read of a map.
    return tile_sketches(group, context, copying=group.anchor.reducer is not None)[:1]


def _of_vectors(
    sketch_of: Callable[[TileGroup, SpaceContext, str], Sketch[LoopNestFacts] | None],
    group: Group,
    context: SpaceContext,
) -> Sequence[Sketch[LoopNestFacts]]:
    """A sketch for each axis that tile sketches vectorise, of the stages as they are written."""
    if not _is_dense_tile(group) or context.rewritten:
        return []
    offered = (sketch_of(group, context, vector) for vector in _vector_axes(group, context))
    return [sketch for sketch in offered if sketch is not None]


def _matrix_registers(group: Group, context: SpaceContext) -> Sequence[Sketch[LoopNestFacts]]:
    if not _is_dense_tile(group):
        return []
    vectors = _vector_axes(group, context)
    parts = None
    if context.rewritten:
        vectors, parts = vectors[:1], factor_parts(group.anchor)
    offered = (amx_sketch(group, context, vector, parts) for vector in vectors)
    return [sketch for sketch in offered if sketch is not None]


def _rows(group: Group, context: SpaceContext) -> Sequence[Sketch[LoopNestFacts]]:
    if isinstance(group, RowGroup):
        return [row_sketch(group, context)]
    return [] if context.rewritten or not _is_dense_tile(group) else lane_sketches(group, context)


def _unpacked(group: Group, context: SpaceContext) -> Sequence[Sketch[LoopNestFacts]]:
    if context.rewritten or not (isinstance(group, RowGroup) or _is_dense_tile(group)):
        return []
    return unpacked_sketches(group, context)


def _quantized(group: Group, context: SpaceContext) -> Sequence[Sketch[LoopNestFacts]]:
    if not _is_dense_tile(group) or context.rewritten:
        return []
    vectors = _vector_axes(group, context)
    return [sketch for vector in vectors for sketch in quantized_sketches(group, context, vector)]


def _ragged(group: Group, context: SpaceContext) -> Sequence[Sketch[LoopNestFacts]]:
    if not isinstance(group, TileGroup) or not is_ragged(group):
        return []
    return ragged_sketches(group, context)


def _scattered(group: Group, context: SpaceContext) -> Sequence[Sketch[LoopNestFacts]]:
    sketch = scatter_sketch(group, context) if isinstance(group, TileGroup) else None
    return [] if sketch is None else [sketch]


def _streams(group: Group, context: SpaceContext) -> Sequence[Sketch[LoopNestFacts]]:
    if not isinstance(group, StreamGroup):
        return []
    offered = (
        stream_sketch(group, context),
        matrix_stream_sketch(group, context),
        split_sketch(group, context),
    )
    return [sketch for sketch in offered if sketch is not None]


def _fusions(group: Group, context: SpaceContext) -> Sequence[Sketch[LoopNestFacts]]:
    if not isinstance(group, FusedGroup):
        return []
    sketch = fused_sketch(group, context)
    return [] if sketch is None else [sketch]


def _vector_axes(group: TileGroup, context: SpaceContext) -> list[str]:
    """The axes that tile sketches vectorise, in their order."""
    return [stage.vector for stage in vectorised_stages(group, context) if stage.vector]


CPU_SKETCHES: SketchCatalogue[LoopNestFacts] = SketchCatalogue(
    simplify=_simplify,
    parallel_units=_parallel_units,
    joins_tiles=False,
    winograd_tiles=TILES,
    prepacks=True,
    widens=True,
    streams=True,
    fuses=True,
    # One a line, so that another one changes no line that is there.
    generators=(
        _tiles,
        partial(_of_vectors, dot_sketch),
        partial(_of_vectors, float_sketch),
        _matrix_registers,
        _rows,
        _quantized,
        _ragged,
        _scattered,
        _streams,
        _fusions,
        partial(_of_vectors, mmla_sketch),
        partial(_of_vectors, float16_sketch),
        _unpacked,
    ),
    whole_programs=(fully_unrolled,),
)
