"""Knobs of the tensor-core sketch: warps and fragments of both sides with the depth,
stretched rows, overlapping of copies.

The sketch takes any sum of products of two reads whose access maps have the form: the
left one ends in (rows, depth), the right one in (depth, columns) or (columns, depth).
So a convolution of channels-last images is one too: its rows are pixels of an image's
row, its window is further reductions, and the box in shared memory holds the halo once.
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
from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.cuda.block_order import BlockOrder
from tuner.spaces.cuda.block_shapes import FragmentTile, WarpSplit
from tuner.spaces.cuda.facts import ComputeUnit, KernelFacts
from tuner.spaces.cuda.limits import (
    LEAST_THREADS,
    OTHER_REGISTERS,
    Footprint,
    architecture_of,
    block_shared_bytes,
    covers,
    wastes_little,
)
from tuner.spaces.cuda.mma import (
    FRAGMENT_EDGE,
    CudaMmaNest,
    MmaPlan,
    ProductShape,
    WarpAxis,
    row_padding,
)
from tuner.spaces.cuda.pipelining import UNPIPELINED, Pipelining, pipelinings
from tuner.spaces.cuda.products import product_operands
from tuner.spaces.cuda.shared_choices import (
    block_choice,
    block_order_choice,
    pipelining_choice,
)
from tuner.spaces.cuda.shared_copies import box_shape, has_known_box, padded_stride, spans
from tuner.spaces.cuda.sketch import CudaSketch
from tuner.spaces.cuda.tile_knobs import ASYNC_FROM, MAX_WINDOW
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.access import Access
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.cuda import WARP
from tuner.workload.affine import linear
from tuner.workload.dtypes import DTYPE_BYTES, DType
from tuner.workload.expression import Axis

# The dtypes of operands, and what they are summed in.
OPERANDS: Mapping[DType, DType] = {"float16": "float32", "bfloat16": "float32", "int8": "int32"}
WARPS, FRAGMENTS, DEPTHS = (1, 2, 4), (1, 2, 4), (16, 32, 64)
MAX_WARPS = 8  # of a block
MAX_STAGES = 4  # boxes of each operand in shared memory
FRAGMENT_REGISTERS = 8  # 32-bit, of a thread for one fragment of accumulators
FRAGMENT_BYTES = FRAGMENT_EDGE * FRAGMENT_EDGE * 4  # of accumulators, in shared memory


def product_shape(group: TileGroup, context: SpaceContext) -> ProductShape | None:
    """The parts that the axes of a group play, None where it is no sum of products that
    tensor cores take."""
    anchor = group.anchor
    operands = product_operands(anchor, context.shapes)
    if operands is None or not all(
        has_known_box(operand) and len(operand.read.indices) > 1 for operand in operands
    ):
        return None
    left_dtype, right_dtype = (context.dtypes[operand.read.tensor] for operand in operands)
    if left_dtype != right_dtype or OPERANDS.get(left_dtype) != anchor.accumulator:
        return None
    for left, right in (operands, operands[::-1]):
        for depth in anchor.reduce_axes:
            shape = _fit(group, depth, left, right)
            if shape is not None:
                return shape
    return None


def _fit(group: TileGroup, depth: Axis, left: Access, right: Access) -> ProductShape | None:
    """The shape where these are its operands and its depth, None where they do not fit it."""
    if not group.output.axes:
        return None
    last = group.output.axes[-1].name
    columns = next((axis for axis in group.anchor.axes if axis.name == last), None)
    if columns is None or last in left.axes or min(depth.extent, columns.extent) < FRAGMENT_EDGE:
        return None
    for rows in group.anchor.axes:
        if rows.extent < FRAGMENT_EDGE or rows.name in right.axes:
            continue
        plain = _ends_in(right, depth.name, last)
        if _ends_in(left, rows.name, depth.name) and (plain or _ends_in(right, last, depth.name)):
            return ProductShape(
                rows=rows,
                columns=columns,
                depth=depth,
                left=left,
                right=right,
                transposed=not plain,
            )
    return None


def _ends_in(operand: Access, second_last: str, last: str) -> bool:
    """Whether the last two dimensions move by one with these axes, and no other
    dimension moves with them."""
    forms = [linear(index) for index in operand.read.indices]
    factors = [
        (form.coefficient(second_last), form.coefficient(last)) if form else (0, 0)
        for form in forms
    ]
    return factors[-2:] == [(1, 0), (0, 1)] and all(pair == (0, 0) for pair in factors[:-2])


@dataclass(frozen=True)
class CudaMmaSketch(CudaSketch[TileGroup]):
    """The tensor-core sketch of one group; `shape` says that it has one."""

    shape: ProductShape

    name = "mma"

    # --- choices

    @cached_property
    def choices(self) -> tuple[Choice[Any], ...]:
        return (self.block, self.padded_rows, self.pipelining, self.order)

    @cached_property
    def block(self) -> Choice[FragmentTile]:
        """Tiles that fit a block, without those of too few warps; empty where none fits."""
        fitting = list(self._fitting())
        most = max((tile.warps for tile in fitting), default=0)
        least = min(LEAST_THREADS // WARP, most)
        tiles = [tile for tile in fitting if tile.warps >= least]
        return block_choice(self.prefix, tiles)

    @cached_property
    def padded_rows(self) -> Choice[bool]:
        """Whether rows in shared memory are stretched against bank conflicts."""
        return choice(
            self.prefix,
            KnobRole.SHARED_ROWS,
            (False, True),
            lambda padded: "padded" if padded else "plain",
        )

    @cached_property
    def pipelining(self) -> Choice[Pipelining]:
        asynchronous = architecture_of(self.context.target) >= ASYNC_FROM
        offered = pipelinings(asynchronous=asynchronous, deepest=MAX_STAGES)
        return pipelining_choice(self.prefix, offered)

    @cached_property
    def order(self) -> Choice[BlockOrder]:
        return block_order_choice(self.prefix)

    def _fitting(self) -> Iterator[FragmentTile]:
        windows = (True, False) if len(self.group.anchor.reduce_axes) > 1 else (None,)
        sides = [
            WarpSplit(warps=warps, fragments=fragments)
            for warps, fragments in product(WARPS, FRAGMENTS)
        ]
        for rows, columns, depth, inside in product(sides, sides, DEPTHS, windows):
            tile = FragmentTile(rows=rows, columns=columns, depth=depth, window_inside=inside)
            if self._is_useful(tile) and self.footprint(tile).fault is None:
                yield tile

    def _is_useful(self, tile: FragmentTile) -> bool:
        shape = self.shape
        return (
            tile.warps <= MAX_WARPS
            and covers(shape.rows.extent, self._rows(tile).block)
            and covers(shape.columns.extent, self._columns(tile).block)
            and (tile.depth == FRAGMENT_EDGE or wastes_little(shape.depth.extent, tile.depth))
        )

    def footprint(self, tile: FragmentTile, stages: int = 2) -> Footprint:
        """What a block of this tile takes, with so many boxes of each operand."""
        plan = self._plan(tile, padded=False, pipelining=UNPIPELINED, order=BlockOrder.ROWS_FIRST)
        extents = spans(plan.spatial, plan.reduction)
        shared = tile.warps * FRAGMENT_BYTES
        for operand in (plan.shape.left, plan.shape.right):
            itemsize = DTYPE_BYTES[self.context.dtypes[operand.read.tensor]]
            *others, row = box_shape(operand.read, extents)
            stride = padded_stride(row, row_padding(plan, itemsize))
            shared += stages * prod(others) * stride * itemsize
        # An operand's fragment takes half as many registers at most.
        fragments = tile.rows.fragments * tile.columns.fragments
        fragments += tile.rows.fragments + tile.columns.fragments
        return Footprint(
            threads=(WARP, tile.rows.warps, tile.columns.warps),
            registers=fragments * FRAGMENT_REGISTERS + OTHER_REGISTERS,
            shared_bytes=shared,
            most_shared_bytes=block_shared_bytes(self.context.target),
        )

    # --- meaning

    @cached_property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            owner=self.prefix,
            group=self.group.name,
            unit=ComputeUnit.TENSOR_CORES,
            block=self.block,
            footprints=tuple(map(self.footprint, self.block.values)),
            pipelining=self.pipelining,
            padded_rows=self.padded_rows,
        )

    def nest(self, config: Config) -> Nest:
        """Raises IllegalSchedule where a block of the config cannot be launched."""
        return CudaMmaNest(self.group, self.plan(config), self.context).build()

    def plan(self, config: Config) -> MmaPlan:
        """The config decoded. Raises IllegalSchedule where a block does not fit."""
        tile, pipelining = self.block.of(config), self.pipelining.of(config)
        self.footprint(tile, pipelining.stages).check()
        return self._plan(
            tile,
            padded=self.padded_rows.of(config),
            pipelining=pipelining,
            order=self.order.of(config),
        )

    def _plan(
        self, tile: FragmentTile, *, padded: bool, pipelining: Pipelining, order: BlockOrder
    ) -> MmaPlan:
        shape, anchor = self.shape, self.group.anchor
        sides = [shape.rows.name, shape.columns.name]
        others = tuple(GridAxis(axis=axis) for axis in anchor.axes if axis.name not in sides)
        window = tuple(
            DepthAxis(
                axis=axis,
                depth=axis.extent if tile.window_inside and axis.extent <= MAX_WINDOW else 1,
            )
            for axis in anchor.reduce_axes
            if axis != shape.depth
        )
        ordered = sides if order is BlockOrder.ROWS_FIRST else sides[::-1]
        return MmaPlan(
            shape=shape,
            rows=self._rows(tile),
            columns=self._columns(tile),
            others=others,
            grid=(*(part.axis.name for part in others), *ordered),
            depth=DepthAxis(axis=shape.depth, depth=tile.depth, unroll=FRAGMENT_EDGE),
            window=window,
            padded=padded,
            pipelining=pipelining,
        )

    def _rows(self, tile: FragmentTile) -> WarpAxis:
        split = tile.rows
        return WarpAxis(axis=self.shape.rows, warps=split.warps, fragments=split.fragments)

    def _columns(self, tile: FragmentTile) -> WarpAxis:
        split = tile.columns
        return WarpAxis(axis=self.shape.columns, warps=split.warps, fragments=split.fragments)
