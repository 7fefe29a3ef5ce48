"""Knobs of the persistent sketch: the tile and how warpgroups share it, and the order of
tiles.

The sketch takes any sum of products of two dense matrices, or of batches of them, whose
depth is last in the left one, and where elements have not two bytes in both, and what
`pixels` takes.
It knows no operator's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from tuner.spaces.core.choice import Choice, choice
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config
from tuner.spaces.cuda.facts import ComputeUnit, KernelFacts
from tuner.spaces.cuda.limits import (
    OTHER_REGISTERS,
    Footprint,
    block_shared_bytes,
    covers,
)
from tuner.spaces.cuda.operands import Operand, is_whole, operands_of
from tuner.spaces.cuda.persistent import CudaPersistentNest, PersistentPlan, ProductShape
from tuner.spaces.cuda.pixels import fit_pixels
from tuner.spaces.cuda.shared_choices import bands_choice, block_choice
from tuner.spaces.cuda.sketch import CudaSketch
from tuner.spaces.program.epilogues import as_stored, is_expressible
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.persistent import (
    COLUMNS,
    ROWS,
    Bands,
    PersistentTile,
    height_of,
    shared_bytes,
    strip_columns,
)
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.cuda import REGISTERS_PER_BLOCK
from tuner.workload.dtypes import DTYPE_BYTES, DType

CONSUMERS, FRAGMENTS, PANELS, STAGES = (2, 1), (1, 2), (4, 2, 3, 1), (4, 3, 5, 6)
MAX_ACCUMULATORS = 192  # 32-bit registers of a consumer's thread
ALIGNMENT = 16  # bytes that divide the distance between rows of every matrix
OUTPUTS: Mapping[DType, tuple[DType, ...]] = {  # by the accumulator
    "float32": ("float16", "bfloat16", "float32"),
    "int32": ("float16", "bfloat16", "float32", "int32", "int8", "uint8"),
}


def persistent_shape(group: TileGroup, context: SpaceContext) -> ProductShape | None:
    """The parts that the axes of a group play, None where it is no product that the
    sketch takes."""
    anchor = group.anchor
    operands = operands_of(anchor, context)
    if operands is None:
        return None
    if anchor.accumulator == "int32" and anchor.dtype != "int32":
        return None
    allowed = OUTPUTS.get(anchor.accumulator, ())
    if group.output.dtype not in allowed or not _is_finished(group, context):
        return None
    for left, right in (operands, operands[::-1]):
        shape = None
        if len(anchor.reduce_axes) == 1:
            shape = _fit(group, left, right, context)
        if shape is None:
            shape = fit_pixels(group, left, right, context)
        if shape is not None:
            return shape
    return None


def _is_finished(group: TileGroup, context: SpaceContext) -> bool:
    """Whether the kernel can compute the group's epilogue, if there is one."""
    if group.epilogue is None:
        return True
    extents = {axis.name: axis.extent for axis in group.anchor.axes}
    body = with_explicit_padding(group.epilogue.body, context.shapes, extents)
    if body != group.epilogue.body:
        return False
    dtypes = {**context.dtypes, group.anchor.name: group.anchor.dtype}
    return is_expressible(as_stored(body, group.output.dtype), group.anchor.name, dtypes)


def _fit(
    group: TileGroup, left: Operand, right: Operand, context: SpaceContext
) -> ProductShape | None:
    """The shape where these are its operands, None where they do not fit it."""
    shapes = context.shapes
    on_left, on_right = left.access.axes, right.access.axes
    (depth,) = group.anchor.reduce_axes
    *others, columns = group.output.axes
    if not others or columns.name in on_left or columns.name not in on_right:
        return None
    batch = tuple(axis for axis in others if axis.name in on_right)
    rows = tuple(axis for axis in others if axis.name not in on_right)
    in_order = others == [*batch, *rows] and bool(rows)
    if not in_order or not all(axis.name in on_left for axis in others):
        return None
    if not is_whole(left.read, [*batch, *rows, depth], shapes[left.read.tensor]):
        return None
    right_shape = shapes[right.read.tensor]
    transposed = is_whole(right.read, [*batch, columns, depth], right_shape)
    itemsize = left.factor.itemsize
    # The instruction turns elements of two bytes only.
    is_turned = itemsize == 2 and is_whole(right.read, [*batch, depth, columns], right_shape)
    if not transposed and not is_turned:
        return None
    output_bytes = columns.extent * DTYPE_BYTES[group.output.dtype]
    along = (depth,) if transposed else (depth, columns)
    rows_bytes = (axis.extent * itemsize for axis in along)
    if any(size % ALIGNMENT for size in (*rows_bytes, output_bytes)):
        return None
    if prod(axis.extent for axis in rows) < ROWS or columns.extent < COLUMNS:
        return None
    return ProductShape(
        batch=batch,
        rows=rows,
        columns=columns,
        depth=depth,
        left=left.read,
        right=right.read,
        factors=(left.factor, right.factor),
        values=(left.value, right.value),
        is_right_batched=bool(batch),
        is_right_transposed=transposed,
    )


@dataclass(frozen=True)
class CudaPersistentSketch(CudaSketch[TileGroup]):
    """The persistent sketch of one group; `shape` says that it has one."""

    shape: ProductShape

    name = "persistent"

    # --- choices

    @cached_property
    def choices(self) -> tuple[Choice[Any], ...]:
        return (self.block, self.bands, self.split)

    @cached_property
    def block(self) -> Choice[PersistentTile]:
        """Tiles that fit a block; empty where none fits."""
        return block_choice(self.prefix, self._fitting())

    @cached_property
    def bands(self) -> Choice[Bands]:
        return bands_choice(self.prefix)

    @cached_property
    def split(self) -> Choice[bool]:
        """Whether blocks share tiles; a choice where that is useful for one of them."""
        useful = any(map(self._leaves_blocks_idle, self.block.values))
        values = (False, True) if useful else (False,)
        return choice(self.prefix, KnobRole.DEPTH_SPLIT, values, _stored_split)

    def _leaves_blocks_idle(self, tile: PersistentTile) -> bool:
        nest = self._nest(
            PersistentPlan(
                shape=self.shape, tile=tile, bands=self.bands.values[0], shares_depth=True
            )
        )
        return nest.kernel().stream_k is not None

    def _fitting(self) -> Iterator[PersistentTile]:
        for consumers, fragments, panels, alternating, stages in product(
            CONSUMERS, FRAGMENTS, PANELS, (False, True), STAGES
        ):
            tile = PersistentTile(
                consumers=consumers,
                fragments=fragments,
                panels=panels,
                alternating=alternating,
                stages=stages,
            )
            if self._is_useful(tile) and self.footprint(tile).fault is None:
                yield tile

    def _is_useful(self, tile: PersistentTile) -> bool:
        rows = height_of(self.shape.rows, self.shape.pixels)
        return (
            covers(rows, tile.rows)
            and covers(self.shape.columns.extent, tile.columns)
            and tile.columns % strip_columns(self.group.output.dtype) == 0
            and self._accumulators(tile) <= MAX_ACCUMULATORS
            and (tile.consumers > 1 or not tile.alternating)
        )

    def _accumulators(self, tile: PersistentTile) -> int:
        """32-bit registers of a consumer's thread that hold sums."""
        short = any(factor.is_summed_short for factor in self.shape.factors)
        return tile.accumulators * (2 if short else 1)

    def footprint(self, tile: PersistentTile) -> Footprint:
        """What a block of this tile takes.

        Producers give registers to consumers, so that a thread's share is a mean.
        """
        share = REGISTERS_PER_BLOCK // tile.threads
        return Footprint(
            threads=(tile.threads,),
            registers=min(self._accumulators(tile) + OTHER_REGISTERS, share),
            shared_bytes=shared_bytes(tile),
            most_shared_bytes=block_shared_bytes(self.context.target),
        )

    # --- meaning

    @cached_property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            owner=self.prefix,
            group=self.group.name,
            unit=ComputeUnit.SPECIALIZED_WARPGROUPS,
            block=self.block,
            footprints=tuple(map(self.footprint, self.block.values)),
        )

    def nest(self, config: Config) -> Nest:
        return self._nest(self.plan(config)).build()

    def _nest(self, plan: PersistentPlan) -> CudaPersistentNest:
        return CudaPersistentNest(self.group, plan, self.context)

    def plan(self, config: Config) -> PersistentPlan:
        """The config decoded."""
        return PersistentPlan(
            shape=self.shape,
            tile=self.block.of(config),
            bands=self.bands.of(config),
            shares_depth=self.split.of(config),
        )


def _stored_split(shares_depth: bool) -> str:
    return "stream-k" if shares_depth else "tiles"
