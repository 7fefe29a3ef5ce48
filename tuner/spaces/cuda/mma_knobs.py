"""Knobs of the tensor-core sketch: warps and squares of both sides with the depth,
stretched rows, overlapping of copies.

The sketch takes any sum of products of two reads whose access maps have the form: the
left one ends in (rows, depth), the right one in (depth, columns) or (columns, depth).
So a convolution of channels-last images is one too: its rows are pixels of an image's
row, its window further reductions, and the box in shared memory holds the halo once. It
knows no operator's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from math import prod

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.space import Knob, Value
from tuner.spaces.cuda.axes import DepthAxis, GridAxis
from tuner.spaces.cuda.facts import KernelFacts, KernelKind
from tuner.spaces.cuda.limits import (
    LEAST_THREADS,
    OTHER_REGISTERS,
    Footprint,
    architecture_of,
    block_shared_bytes,
)
from tuner.spaces.cuda.mma import EDGE, CudaMmaNest, MmaPlan, WarpAxis, pad_of
from tuner.spaces.cuda.shared_copies import box_shape, fetchable, stretched
from tuner.spaces.cuda.tile_knobs import ASYNC_FROM, MAX_OVERLAP, MAX_WINDOW
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.access import Access, access, linear
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.cuda import WARP
from tuner.workload.expression import DTYPE_BYTES, Axis, Binary, Cast, DType, Read, Scalar

OPERANDS: Mapping[DType, DType] = {
    "float16": "float32",
    "bfloat16": "float32",
    "int8": "int32",
}  # and what they are summed in
WARPS, SQUARES, DEPTHS = (1, 2, 4), (1, 2, 4), (16, 32, 64)
MAX_WARPS = 8  # of a block
ASYNC = ("async", "async 3", "async 4")  # with two copies of the operands in shared memory, or more


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Which axis of a sum of products plays which part."""

    rows: Axis
    columns: Axis
    depth: Axis
    left: Access
    right: Access
    turned: bool  # the right operand lies with the reduction last


def shape_of(
    group: TileGroup, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, DType]
) -> Shape | None:
    """The parts that the axes of a group play, None where it is no sum of products that
    tensor cores take."""
    anchor = group.anchor
    if (
        anchor.reducer != "sum"
        or not isinstance(anchor.body, Binary)
        or anchor.body.op != "mul"
        or not anchor.reduce_axes
    ):
        return None
    found = [
        access(read, shapes[read.tensor], anchor.extents)
        for read in map(bare, (anchor.body.lhs, anchor.body.rhs))
        if read
    ]
    if len(found) != 2 or not all(fetchable(one) and len(one.read.indices) > 1 for one in found):
        return None
    kinds = {dtypes[one.read.tensor] for one in found}
    if len(kinds) != 1 or OPERANDS.get(next(iter(kinds))) != anchor.accumulator:
        return None
    for left, right in (found, reversed(found)):
        for depth in anchor.reduce_axes:
            made = _fit(group, depth, left, right)
            if made is not None:
                return made
    return None


def _fit(group: TileGroup, depth: Axis, left: Access, right: Access) -> Shape | None:
    columns = group.output.axes[-1] if group.output.axes else None
    if columns is None or columns.name in left.axes or min(depth.extent, columns.extent) < EDGE:
        return None
    for rows in group.anchor.axes:
        if rows.extent < EDGE or rows.name in right.axes or not _ends(left, rows.name, depth.name):
            continue
        anchored = next((axis for axis in group.anchor.axes if axis.name == columns.name), None)
        if anchored is not None and _ends(right, depth.name, columns.name):
            return Shape(
                rows=rows, columns=anchored, depth=depth, left=left, right=right, turned=False
            )
        if anchored is not None and _ends(right, columns.name, depth.name):
            return Shape(
                rows=rows, columns=anchored, depth=depth, left=left, right=right, turned=True
            )
    return None


def _ends(found: Access, before: str, last: str) -> bool:
    """Whether the last two dimensions move by one with these axes, and no other
    dimension moves with them."""
    forms = [linear(index) for index in found.read.indices]
    moved = [
        (form.coefficient(before), form.coefficient(last)) if form else (0, 0) for form in forms
    ]
    return moved[-2:] == [(1, 0), (0, 1)] and not any(one != (0, 0) for one in moved[:-2])


def bare(node: Scalar) -> Read | None:
    """The read below casts."""
    while isinstance(node, Cast):
        node = node.arg
    return node if isinstance(node, Read) else None


@dataclass(frozen=True)
class CudaMmaSketch:
    """The tensor-core sketch of one group; `shape` says that it has one."""

    group: TileGroup
    context: SpaceContext
    shape: Shape

    name = "mma"

    @property
    def prefix(self) -> str:
        return f"{self.group.name}.{self.name}"

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        ways = (
            "none",
            "registers",
            *(ASYNC if architecture_of(self.context.target) >= ASYNC_FROM else ()),
        )
        knobs = [
            self._knob("tile", self.tile_values()),
            self._knob("rows", ("plain", "padded")),
            self._knob("pipeline", ways),
            self._knob("order", ("rows first", "columns first")),
        ]
        return tuple(knob for knob in knobs if len(knob.values) > 1)

    def _knob(self, what: str, values: Iterable[Value]) -> Knob:
        return Knob(name=f"{self.prefix}.{what}", values=tuple(values))

    @cached_property
    def _tiles(self) -> tuple[tuple[int, ...], ...]:
        found = list(self._fitting())
        most = max((tile[0] * tile[2] for tile in found), default=0)
        least = min(LEAST_THREADS // WARP, most)
        return tuple(tile for tile in found if tile[0] * tile[2] >= least)

    def tile_values(self) -> tuple[tuple[int, ...], ...]:
        """(warps, squares) along rows and along columns, the depth, and of a window
        whether it is inside a block's boxes (1) or walked one by one (0); each fits a
        block. Empty where nothing fits."""
        return self._tiles

    def _fitting(self) -> Iterator[tuple[int, ...]]:
        shape = self.shape
        window = ((1,), (0,)) if len(self.group.anchor.reduce_axes) > 1 else ((),)
        for a, b, c, d, depth, inside in product(WARPS, SQUARES, WARPS, SQUARES, DEPTHS, window):
            tile = (a, b, c, d, depth, *inside)
            covered = _covers(shape.rows.extent, a * b * EDGE) and _covers(
                shape.columns.extent, c * d * EDGE
            )
            deep = (
                depth == EDGE
                or -(-shape.depth.extent // depth) * depth <= 1.25 * shape.depth.extent
            )
            if a * c <= MAX_WARPS and covered and deep and self.footprint(tile).fault is None:
                yield tile

    def footprint(self, tile: tuple[int, ...], stages: int = 2) -> Footprint:
        """What a block of this tile takes, with so many boxes of each operand."""
        plan = self._plan(tile, "plain", "none", "rows first")
        spans = {one.axis.name: one.block for one in plan.spatial} | {
            one.axis.name: one.depth for one in plan.reduction
        }
        shared = 0
        for one in (plan.left, plan.right):
            itemsize = DTYPE_BYTES[self.context.dtypes[one.read.tensor]]
            *others, row = box_shape(one.read, spans)
            shared += stages * prod(others) * stretched(row, pad_of(plan, itemsize)) * itemsize
        warps = plan.rows.warps * plan.columns.warps
        shared += warps * EDGE * EDGE * 4
        # A square of sums takes eight registers of each thread, one of an operand's four at most.
        sums = plan.rows.squares * plan.columns.squares * 8
        operands = (plan.rows.squares + plan.columns.squares) * 8
        threads = (WARP, plan.rows.warps, plan.columns.warps)
        registers = sums + operands + OTHER_REGISTERS
        return Footprint(
            threads=threads,
            registers=registers,
            shared_bytes=shared,
            most_shared_bytes=block_shared_bytes(self.context.target),
        )

    # --- meaning
    # ------------------------------------------------------------------------------

    @property
    def facts(self) -> KernelFacts:
        return KernelFacts(
            kind=KernelKind.TENSOR_CORES,
            group=self.group,
            owner=self.prefix,
            knobs=self.knobs,
            footprint=self.footprint,
        )

    def nest(self, config: Mapping[str, Value]) -> Nest:
        return CudaMmaNest(
            self.group, self.plan(config), self.context.shapes, self.context.dtypes
        ).build()

    def plan(self, config: Mapping[str, Value]) -> MmaPlan:
        """The config decoded; knobs with a single value are not in it. Raises
        IllegalSchedule where a block does not fit."""
        values = {
            knob.name.removeprefix(self.prefix + "."): config[knob.name] for knob in self.knobs
        }
        tile = values.get("tile") or self.tile_values()[0]
        assert isinstance(tile, tuple)
        pipeline = str(values.get("pipeline", "none"))
        self.footprint(tile, _stages(pipeline)).check()
        return self._plan(
            tile, str(values.get("rows", "plain")), pipeline, str(values.get("order", "rows first"))
        )

    def _plan(self, tile: tuple[int, ...], rows: str, pipeline: str, order: str) -> MmaPlan:
        shape, anchor = self.shape, self.group.anchor
        along = [shape.rows.name, shape.columns.name]
        others = tuple(GridAxis(axis=axis) for axis in anchor.axes if axis.name not in along)
        window = tuple(
            DepthAxis(
                axis=axis, depth=axis.extent if tile[-1] == 1 and axis.extent <= MAX_WINDOW else 1
            )
            for axis in anchor.reduce_axes
            if axis != shape.depth
        )
        first = along if order == "rows first" else list(reversed(along))
        return MmaPlan(
            rows=WarpAxis(axis=shape.rows, warps=tile[0], squares=tile[1]),
            columns=WarpAxis(axis=shape.columns, warps=tile[2], squares=tile[3]),
            others=others,
            grid=(*(one.axis.name for one in others), *first),
            depth=DepthAxis(axis=shape.depth, depth=tile[4], unroll=EDGE),
            window=window,
            left=shape.left,
            right=shape.right,
            turned=shape.turned,
            padded=rows == "padded",
            pipeline=pipeline.partition(" ")[0],
            stages=_stages(pipeline),
        )


def _stages(pipeline: str) -> int:
    return int(pipeline.split()[1]) if " " in pipeline else 2


def _covers(extent: int, block: int) -> bool:
    return block <= extent and -(-extent // block) * block - extent <= MAX_OVERLAP * extent
