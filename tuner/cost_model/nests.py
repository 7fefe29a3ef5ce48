"""Loop nests of many configs at once: knob values turned into arrays of extents, orders and tiles, one row a config."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import numpy as np
from numpy.typing import NDArray

from tuner.spaces.cpu import CpuSpace
from tuner.spaces.cpu_row_knobs import RowSketch
from tuner.spaces.cpu_tile_knobs import TileSketch
from tuner.spaces.groups import COLUMN
from tuner.spaces.space import Knob, Points, Space, Value
from tuner.spaces.stages import Access, accesses, linear
from tuner.spaces.tiles import fit_block
from tuner.workload.expression import DTYPE_BYTES, Axis, Binary, Stage, Unary, arithmetic, walk

Ints = NDArray[np.int64]
COPIES = ("none", "pad", "pack", "pack_root", "pad_parts")
NONE, PAD, PACK, PACK_ROOT, PAD_PARTS = range(len(COPIES))
TRANSCENDENTAL = ("exp", "log", "tanh", "erf")


@dataclass(frozen=True)
class ReadMap:
    """How a read moves with the axes of a nest; all arrays follow the nest's axes."""

    coefficients: Ints  # (dimensions, axes): absolute steps in each dimension per step of an axis
    shape: Ints  # (dimensions,)
    uses: NDArray[np.bool_]  # (axes,)
    strides: Ints  # (axes,) elements moved; -1 where that is not constant
    dtype_bytes: int


@dataclass(frozen=True, kw_only=True)
class Nests:
    """n configs of one group, decoded. Loop levels run outermost first."""

    axis: Ints  # (n, levels) which axis a loop runs over
    extent: Ints  # (n, levels) its trip count
    span: Ints  # (n, axes) elements of each axis in the innermost tile
    lanes: Ints  # (n,)
    vector: Ints  # (n,) the vectorised axis, -1 for none
    partials: Ints  # (n,) accumulators an output element has beside its lanes
    covered: NDArray[np.float64]  # (n,) points computed, overlap included
    blocks: Ints  # (n,) cache blocks
    tasks: Ints  # (n,) independent outermost iterations
    how: Ints  # (n, reads) index into COPIES
    packed: NDArray[np.bool_]  # (n, reads)
    polynomial: NDArray[np.float64]  # (n,)
    recomputed: NDArray[np.float64]  # (n,) stages computed again by each reader
    kind: Ints  # (n,) 0 tile of a reduction, 1 map, 2 rows or lanes


class NestTable:
    """Lookup tables of one group's sketch in a space; `decode` is pure NumPy."""

    def __init__(self, sketch: TileSketch | RowSketch, space: Space) -> None:
        self.sketch = sketch
        self.columns = {knob.name: column for column, knob in enumerate(space.knobs)}
        self.knobs = {knob.name.removeprefix(sketch.prefix + "."): knob for knob in sketch.knobs}
        is_rows = isinstance(sketch, RowSketch)
        stages = sketch.group.stages if isinstance(sketch, RowSketch) else (sketch.group.anchor,)
        anchor = next((stage for stage in stages if stage.reducer is not None), stages[0])
        self.rows = sketch.group.rows if isinstance(sketch, RowSketch) else anchor.axes
        reduce_axes = anchor.reduce_axes
        if isinstance(sketch, RowSketch):
            reduce_axes = tuple(axis for axis in reduce_axes if axis.name != COLUMN)
            self.axes: tuple[Axis, ...] = (*self.rows, *reduce_axes, sketch.group.column)
        else:
            self.axes = (*self.rows, *reduce_axes)
        self.is_rows = is_rows
        self.spatial = len(self.rows)
        self.reductions = len(self.axes) - self.spatial
        self.extents = np.array([axis.extent for axis in self.axes], np.int64)
        self.points = prod(axis.extent for axis in self.axes)
        self.dtype_bytes = DTYPE_BYTES[anchor.accumulator if anchor.reducer else anchor.dtype]
        self.flops = sum(_flops(stage) for stage in stages)
        self.transcendentals = sum(_transcendentals(stage) for stage in _all_stages(sketch))
        found = _distinct(stages, sketch)
        found.sort(key=lambda one: -prod(sketch.shapes[one.read.tensor]))
        self.found = found
        written = [axis.extent for axis in self.rows]
        steps = [prod(written[at + 1 :]) for at in range(self.spatial)] + [int(self.is_rows)] * self.reductions
        output = ReadMap(
            coefficients=np.eye(self.spatial, len(self.axes), dtype=np.int64),
            shape=np.array(written, np.int64),
            uses=np.arange(len(self.axes)) < self.spatial,
            strides=np.array(steps, np.int64),  # a row's elements are written one after the other
            dtype_bytes=self.dtype_bytes,
        )
        self.inputs = len(found)
        self.reads = [*(self._map(one) for one in found), output]
        self.nbytes = sum(int(np.prod(read.shape)) * read.dtype_bytes for read in self.reads)
        self._vector = -1
        if isinstance(sketch, RowSketch):
            self._vector = len(self.axes) - 1
        elif sketch.vector is not None:
            self._vector = [axis.name for axis in self.axes].index(sketch.vector)

        width = len(sketch.register_values()[0])
        self._registers = np.array(self._values("register", sketch.register_values()[0]), np.int64).reshape(-1, width)
        self._tiles = self._tile_table()
        self._block_tables = [self._block_table(position) for position in range(self.spatial)]
        self._orders = {what: self._order_table(what) for what in ("outer_order", "inner_order")}
        self._hows = [] if isinstance(sketch, RowSketch) else [self._how_table(sketch, one) for one in found]

    def _tile_table(self) -> Ints:
        """Tile of each spatial axis for each value of the register knob."""
        if not isinstance(self.sketch, RowSketch):
            return self._registers
        tiles = np.ones((len(self._registers), self.spatial), np.int64)
        names = [axis.name for axis in self.rows]
        for position, axis in enumerate(self.sketch.tiled_rows()):
            tiles[:, names.index(axis.name)] = self._registers[:, position]
        return tiles

    def _block_table(self, position: int) -> Ints:
        """Tiles of a cache block of one axis, by (tile, index of the block knob's value)."""
        axis = self.rows[position]
        wanted = [int(str(value)) for value in self._values(f"block_{axis.name}", 0)]
        table = np.ones((int(self._tiles[:, position].max()) + 1, len(wanted)), np.int64)
        for tile in np.unique(self._tiles[:, position]):
            table[tile] = [fit_block(-(-axis.extent // int(tile)), -(-want // int(tile))) for want in wanted]
        return table

    def _order_table(self, what: str) -> Ints:
        """Positions of the spatial axes in loop order, by index of the knob's value."""
        names = [axis.name for axis in self.rows]
        orders = [[names.index(name) for name in self.sketch.order(value)] for value in self._values(what, None)]
        return np.array(orders, np.int64).reshape(-1, self.spatial)

    def _how_table(self, sketch: TileSketch, found: Access) -> tuple[str, Ints]:
        """The knob of a read's copy, and by index of its value the index into COPIES."""
        what = f"copy{sketch.reads.index(found)}_{found.read.tensor}"
        values = self._values(what, sketch.copy_values(found)[0])
        return what, np.array([COPIES.index(str(value)) for value in values], np.int64)

    def _map(self, found: Access) -> ReadMap:
        names = [axis.name for axis in self.axes]
        shape = self.sketch.shapes[found.read.tensor]
        coefficients = np.zeros((max(len(shape), 1), len(names)), np.int64)
        for dimension, index in enumerate(found.read.indices):
            form = linear(index)
            for name in found.axes & set(names):
                step = form.coefficient(name) if form is not None else 1
                coefficients[dimension, names.index(name)] = abs(step)
        strides = [found.stride(name) for name in names]
        return ReadMap(
            coefficients=coefficients,
            shape=np.array(shape or (1,), np.int64),
            uses=np.array([name in found.axes for name in names]),
            strides=np.array([-1 if stride is None else stride for stride in strides], np.int64),
            dtype_bytes=_read_bytes(found, self.sketch),
        )

    # --- decoding -----------------------------------------------------------------------------------------------------

    def _index(self, points: Points, what: str) -> Ints:
        knob = self.knobs.get(what)
        return points[:, self.columns[knob.name]].astype(np.int64) if knob is not None else np.zeros(len(points), np.int64)

    def _values(self, what: str, default: Value | None) -> Sequence[Value | None]:
        knob: Knob | None = self.knobs.get(what)
        return knob.values if knob is not None else (default,)

    def decode(self, points: Points) -> Nests:
        n, spatial = len(points), self.spatial
        tiles, lanes, column = self._register(points)
        counts = -(-self.extents[:spatial] // tiles)
        block = np.stack([self._block(points, position, tiles[:, position]) for position in range(spatial)], axis=1)
        blocks = -(-counts // block)
        reduction_axes, reduction_extent, reduction_span, outer_axis, outer_extent = self._reduction(points, column)
        outer, inner = (table[self._index(points, what)] for what, table in self._orders.items())
        rows = np.arange(n)[:, None]
        axis = np.concatenate([outer, outer_axis, inner, reduction_axes], axis=1)
        extent = np.concatenate([blocks[rows, outer], outer_extent, block[rows, inner], reduction_extent], axis=1)
        span = np.concatenate([tiles, reduction_span], axis=1)
        covered = (blocks * block * tiles).prod(axis=1).astype(np.float64) * prod(int(size) for size in self.extents[spatial:])
        how = self._copies(points)
        partials = column // np.maximum(lanes, 1) if self.is_rows else np.ones(n, np.int64)
        map_only = self.reductions == 0
        return Nests(
            axis=axis, extent=extent, span=span, lanes=lanes, vector=np.full(n, self._vector), partials=np.maximum(partials, 1),
            covered=covered, blocks=blocks.prod(axis=1), tasks=blocks.prod(axis=1), how=how,
            packed=(how == PACK) | (how == PACK_ROOT),
            polynomial=np.array([value == "polynomial" for value in self._values("mathematics", "libm")], np.float64)[
                self._index(points, "mathematics")
            ],
            recomputed=self._recomputed(points),
            kind=np.full(n, 2 if self.is_rows else int(map_only)),
        )  # fmt: skip

    def _register(self, points: Points) -> tuple[Ints, Ints, Ints]:
        """Register tile of each spatial axis, lanes, and the column's tile (1 where there is none)."""
        index = self._index(points, "register")
        column = self._registers[index, -1] if self.is_rows else np.ones(len(points), np.int64)
        return self._tiles[index], np.full(len(points), self.sketch.lanes, np.int64), column

    def _block(self, points: Points, position: int, tile: Ints) -> Ints:
        return self._block_tables[position][tile, self._index(points, f"block_{self.rows[position].name}")]

    def _reduction(self, points: Points, column: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
        """(axes, extents, innermost spans) of the reduction loops, and (axis, extent) of the loop over reduction blocks."""
        n, count, first = len(points), self.reductions, self.spatial
        if count == 0:
            none = np.zeros((n, 0), np.int64)
            return none, none, none, np.zeros((n, 1), np.int64), np.ones((n, 1), np.int64)
        sizes = self.extents[first:]
        if isinstance(self.sketch, RowSketch):
            axes = np.broadcast_to(np.arange(first, first + count), (n, count))
            extent = np.broadcast_to(sizes, (n, count)).copy()
            extent[:, -1] = -(-sizes[-1] // column)
            span = np.ones((n, count), np.int64)
            span[:, -1] = column
            return axes, extent, span, np.full((n, 1), first), np.ones((n, 1), np.int64)
        main = int(np.argmax(sizes))
        depth = np.array(self._values("depth", int(sizes[main])), np.int64)[self._index(points, "depth")]
        unroll = np.array(self._values("unroll", (count - 1, 1)), np.int64)[self._index(points, "unroll")]
        orders = np.array([[*(axis for axis in range(count) if axis != last), last] for last in range(count)], np.int64)
        order = orders[unroll[:, 0]]
        block = np.broadcast_to(sizes, (n, count)).copy()
        block[:, main] = depth
        rows = np.arange(n)
        factor = np.where(block[rows, unroll[:, 0]] % unroll[:, 1] == 0, unroll[:, 1], 1)
        span = np.ones((n, count), np.int64)
        span[rows, unroll[:, 0]] = factor
        extent = (block // span)[rows[:, None], order]
        return first + order, extent, span, np.full((n, 1), first + main), (sizes[main] // depth)[:, None]

    def _copies(self, points: Points) -> Ints:
        """How each read is copied, an index into COPIES; shape (n, reads)."""
        how = np.zeros((len(points), len(self.reads)), np.int64)
        for slot, (what, table) in enumerate(self._hows):
            how[:, slot] = table[self._index(points, what)]
        return how

    def _recomputed(self, points: Points) -> NDArray[np.float64]:
        total = np.zeros(len(points))
        for what, knob in self.knobs.items():
            if what.startswith("keep_"):
                total += np.array([value == "recompute" for value in knob.values], np.float64)[self._index(points, what)]
        return total


def tables(space: CpuSpace, combination: str) -> list[NestTable]:
    return [NestTable(sketch, space.space) for sketch in space.combinations[combination]]


def _flops(stage: Stage) -> int:
    return prod(axis.extent for axis in (*stage.axes, *stage.reduce_axes)) * (
        arithmetic(stage.body) + (1 if stage.reducer else 0)
    )


def _all_stages(sketch: TileSketch | RowSketch) -> Sequence[Stage]:
    """With the epilogue of a tile's group."""
    if isinstance(sketch, RowSketch):
        return sketch.group.stages
    epilogue = sketch.group.epilogue
    return (sketch.group.anchor,) if epilogue is None else (sketch.group.anchor, epilogue)


def _transcendentals(stage: Stage) -> int:
    """Evaluations of functions that no instruction computes."""
    slow = sum(isinstance(node, Unary) and node.op in TRANSCENDENTAL for node in walk(stage.body))
    slow += sum(isinstance(node, Binary) and node.op == "pow" for node in walk(stage.body))
    return slow * prod(axis.extent for axis in (*stage.axes, *stage.reduce_axes))


def _distinct(stages: Sequence[Stage], sketch: TileSketch | RowSketch) -> list[Access]:
    if isinstance(sketch, TileSketch):
        return list(sketch.reads)
    inside = {stage.name for stage in stages}
    found = (one for stage in stages for one in accesses(stage, sketch.shapes) if one.read.tensor not in inside)
    return list({one.read: one for one in found}.values())


def _read_bytes(found: Access, sketch: TileSketch | RowSketch) -> int:
    return DTYPE_BYTES[sketch.dtypes[found.read.tensor]]
