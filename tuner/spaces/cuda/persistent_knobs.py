"""Knobs of the persistent sketch: the tile and how warpgroups share it, and the order of
tiles.

The sketch takes any sum of products of two dense matrices, or of batches of them, whose
depth is last in the left one, and of integers of 8 bits in both, and what `pixels` takes.
It knows no operator's name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod
from typing import Any

from tuner.spaces.core.choice import Choice, choice, open_knobs
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config, Knob
from tuner.spaces.cuda.block_shapes import stored_shape
from tuner.spaces.cuda.facts import ComputeUnit, KernelFacts
from tuner.spaces.cuda.limits import (
    OTHER_REGISTERS,
    Footprint,
    block_shared_bytes,
    covers,
)
from tuner.spaces.cuda.persistent import CudaPersistentNest, PersistentPlan, ProductShape
from tuner.spaces.cuda.pixels import fit_pixels
from tuner.spaces.cuda.products import product_operands
from tuner.spaces.program.epilogues import as_stored, is_expressible
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.persistent import (
    COLUMNS,
    FACTORS,
    ROWS,
    Bands,
    PersistentTile,
    Side,
    height_of,
    shared_bytes,
    strip_columns,
)
from tuner.spaces.rewrite.access import Access, with_explicit_padding
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.cuda import REGISTERS_PER_BLOCK
from tuner.workload.expression import DTYPE_BYTES, Axis, DType, Read, Var

CONSUMERS, FRAGMENTS, PANELS, STAGES = (2, 1), (1, 2), (4, 2, 3, 1), (4, 3, 5, 6)
MAX_ACCUMULATORS = 192  # 32-bit registers of a consumer's thread
BAND_WIDTHS = (8, 4, 16)
ALIGNMENT = 16  # bytes that divide the distance between rows of every matrix
OUTPUTS: Mapping[DType, tuple[DType, ...]] = {  # by the accumulator
    "float32": ("float16", "bfloat16", "float32"),
    "int32": ("float16", "bfloat16", "float32", "int32", "int8", "uint8"),
}


def persistent_shape(group: TileGroup, context: SpaceContext) -> ProductShape | None:
    """The parts that the axes of a group play, None where it is no product that the
    sketch takes."""
    anchor = group.anchor
    operands = product_operands(anchor, context.shapes)
    if operands is None:
        return None
    if any(context.dtypes[operand.read.tensor] not in FACTORS for operand in operands):
        return None
    if not _multiply(operands, anchor.accumulator, context.dtypes):
        return None
    if anchor.accumulator == "int32" and anchor.dtype != "int32":
        return None
    allowed = OUTPUTS.get(anchor.accumulator, ())
    if group.output.dtype not in allowed or not _is_finished(group, context):
        return None
    for left, right in (operands, operands[::-1]):
        shape = (
            _fit(group, left, right, context)
            if len(anchor.reduce_axes) == 1
            else fit_pixels(group, left, right, context)
        )
        if shape is not None:
            return shape
    return None


def _multiply(
    operands: tuple[Access, Access], accumulator: DType, dtypes: Mapping[str, DType]
) -> bool:
    """Whether an instruction multiplies such operands and sums as the stage does.

    Floats are of one dtype, integers of 8 bits of either sign each.
    """
    left, right = (dtypes[operand.read.tensor] for operand in operands)
    factors = FACTORS[left], FACTORS[right]
    if any(factor.accumulator != accumulator for factor in factors):
        return False
    return left == right or accumulator == "int32"


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
    group: TileGroup, left: Access, right: Access, context: SpaceContext
) -> ProductShape | None:
    """The shape where these are its operands, None where they do not fit it."""
    shapes, dtypes = context.shapes, context.dtypes
    (depth,) = group.anchor.reduce_axes
    *others, columns = group.output.axes
    if not others or columns.name in left.axes or columns.name not in right.axes:
        return None
    batch = tuple(axis for axis in others if axis.name in right.axes)
    rows = tuple(axis for axis in others if axis.name not in right.axes)
    in_order = others == [*batch, *rows] and bool(rows)
    if not in_order or not all(axis.name in left.axes for axis in others):
        return None
    if not _lies(left.read, [*batch, *rows, depth], shapes):
        return None
    transposed = _lies(right.read, [*batch, columns, depth], shapes)
    factors = FACTORS[dtypes[left.read.tensor]], FACTORS[dtypes[right.read.tensor]]
    # The instruction turns elements of two bytes only.
    is_turned = factors[0].itemsize == 2 and _lies(right.read, [*batch, depth, columns], shapes)
    if not transposed and not is_turned:
        return None
    output_bytes = columns.extent * DTYPE_BYTES[group.output.dtype]
    along = (depth,) if transposed else (depth, columns)
    rows_bytes = (axis.extent * factors[0].itemsize for axis in along)
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
        factors=factors,
        is_right_batched=bool(batch),
        is_right_transposed=transposed,
    )


def _lies(read: Read, axes: list[Axis], shapes: Mapping[str, tuple[int, ...]]) -> bool:
    """Whether the whole tensor is read, each dimension along one of the axes, in order."""
    return (
        read.pad is None
        and read.indices == tuple(Var(axis.name) for axis in axes)
        and shapes[read.tensor] == tuple(axis.extent for axis in axes)
    )


@dataclass(frozen=True)
class CudaPersistentSketch:
    """The persistent sketch of one group; `shape` says that it has one."""

    group: TileGroup
    context: SpaceContext
    shape: ProductShape

    name = "persistent"

    @property
    def prefix(self) -> str:
        return f"{self.group.name}.{self.name}"

    # --- choices
    # ------------------------------------------------------------------------------

    @property
    def knobs(self) -> tuple[Knob, ...]:
        return open_knobs(self.choices)

    @cached_property
    def choices(self) -> tuple[Choice[Any], ...]:
        """All decisions of the sketch, in the order of its knobs."""
        return (self.block, self.bands)

    @cached_property
    def block(self) -> Choice[PersistentTile]:
        """Tiles that fit a block; empty where none fits."""
        return choice(self.prefix, KnobRole.BLOCK_TILE, self._fitting(), stored_shape)

    @cached_property
    def bands(self) -> Choice[Bands]:
        every = (Bands(along=side, width=width) for side in Side for width in BAND_WIDTHS)
        return choice(self.prefix, KnobRole.BLOCK_ORDER, every, _stored_bands)

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
            and tile.accumulators <= MAX_ACCUMULATORS
            and (tile.consumers > 1 or not tile.alternating)
        )

    def footprint(self, tile: PersistentTile) -> Footprint:
        """What a block of this tile takes.

        Producers give registers to consumers, so that a thread's share is a mean.
        """
        share = REGISTERS_PER_BLOCK // tile.threads
        return Footprint(
            threads=(tile.threads,),
            registers=min(tile.accumulators + OTHER_REGISTERS, share),
            shared_bytes=shared_bytes(tile),
            most_shared_bytes=block_shared_bytes(self.context.target),
        )

    # --- meaning
    # ------------------------------------------------------------------------------

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
        return CudaPersistentNest(self.group, self.plan(config), self.context).build()

    def plan(self, config: Config) -> PersistentPlan:
        """The config decoded."""
        return PersistentPlan(
            shape=self.shape,
            tile=self.block.of(config),
            bands=self.bands.of(config),
        )


def _stored_bands(bands: Bands) -> str:
    return f"{bands.width} {'rows' if bands.along is Side.LEFT else 'columns'}"
