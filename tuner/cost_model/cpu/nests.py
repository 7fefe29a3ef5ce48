"""Loop nests of many configs at once: knob values turned into arrays of extents, orders
and tiles, one row a config."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.arrays import Floats, Mask
from tuner.spaces.core.space import Knob, Points, Space, Value
from tuner.spaces.cpu.amx import AmxSketch
from tuner.spaces.cpu.prefetch import boxes, parted, walked
from tuner.spaces.cpu.row_knobs import RowSketch
from tuner.spaces.cpu.space import CpuSpace
from tuner.spaces.cpu.store_mode import CACHED, STREAMED
from tuner.spaces.cpu.tile_knobs import TileSketch
from tuner.spaces.program.tiles import fit_block
from tuner.spaces.rewrite.access import Access, accesses, linear
from tuner.spaces.rewrite.groups import COLUMN
from tuner.spaces.rewrite.predicates import operations, share
from tuner.spaces.rewrite.stages import APPROXIMATED
from tuner.target.target import PAGE_BYTES
from tuner.workload.expression import DTYPE_BYTES, Axis, Binary, Stage, Unary, walk

Ints = NDArray[np.int64]
COPIES = ("none", "pad", "pack", "pack_root", "pad_parts")
NONE, PAD, PACK, PACK_ROOT, PAD_PARTS = range(len(COPIES))


@dataclass(frozen=True)
class ReadMap:
    """How a read moves with the axes of a nest; all arrays follow the nest's axes."""

    coefficients: Ints  # (dimensions, axes): absolute steps in each dimension per step of an axis
    shape: Ints  # (dimensions,)
    uses: NDArray[np.bool_]  # (axes,)
    strides: Ints  # (axes,) elements moved; -1 where that is not constant
    dtype_bytes: int
    extents: Ints  # (axes,)

    @cached_property
    def moving(self) -> list[list[tuple[int, float]]]:
        """For each dimension the axes that move in it, with their steps in visited positions."""
        steps = self.coefficients // self._apart[:, None]
        return [[(int(axis), float(row[axis])) for axis in np.flatnonzero(row)] for row in steps]

    @cached_property
    def _apart(self) -> Ints:
        """(dimensions,) positions from one that is visited to the next, 1 along
        contiguous elements, whose lines come whole."""
        apart: Ints = np.maximum(np.gcd.reduce(self.coefficients, axis=1), 1)
        apart[-1] = 1
        return apart

    @cached_property
    def clipped(self) -> NDArray[np.bool_]:
        """(dimensions,) whether the axes move beyond the tensor, as windows do at a border."""
        beyond: NDArray[np.bool_] = self.coefficients @ (self.extents - 1) + 1 > self.shape
        return beyond

    @cached_property
    def pitches(self) -> Ints:
        """(dimensions,) bytes from one visited position to the next."""
        inside = [
            prod(map(int, self.shape[at + 1 :])) * self.dtype_bytes for at in range(len(self.shape))
        ]
        return np.array(inside, np.int64) * self._apart

    @cached_property
    def crossing(self) -> float:
        """Share of the runs of bytes side by side that begin on another page than the
        one before."""
        apart = [
            int(self.pitches[dimension]) for dimension, axes in enumerate(self.moving[:-1]) if axes
        ]
        return min(min(apart) / PAGE_BYTES, 1.0) if apart else 0.0

    def size(self, spans: Floats, dimension: int) -> Floats:
        """Elements of a dimension that each level touches, in the shape of the levels."""
        moving = self.moving[dimension]
        size: Floats
        if len(moving) == 1 and moving[0][1] == 1:
            size = spans[moving[0][0]]
        else:
            size = np.full(spans.shape[1:], 1.0 - sum(step for _, step in moving), np.float32)
            for axis, step in moving:
                size += spans[axis] * step
            if (
                len(moving) > 1 and dimension < len(self.shape) - 1
            ):  # with gaps between where a window is a part of its stride
                size = np.minimum(size, prod(spans[axis] for axis, _ in moving))
        return np.minimum(size, float(self.shape[dimension])) if self.clipped[dimension] else size

    def sizes(self, span: Floats) -> Floats:
        """Elements of each dimension that a body touches, (dimensions, n)."""
        return np.stack([self.size(span, dimension) for dimension in range(len(self.shape))])


@dataclass(frozen=True, kw_only=True)
class Nests:
    """n configs of one group, decoded. Loop levels run outermost first. Configs come
    last, because NumPy's arithmetic on whole rows is several times as fast; numbers of
    iterations and elements are float32, in which they are multiplied."""

    lanes: int
    vector: int  # the vectorised axis, -1 for none
    kind: int  # 0 tile of a reduction, 1 map, 2 rows or lanes
    axis: Ints  # (levels, n) which axis a loop runs over
    extent: Floats  # (levels, n) its trip count
    span: Floats  # (axes, n) elements of each axis in the innermost tile
    partials: Floats  # (n,) accumulators an output element has beside its lanes
    covered: Floats  # (n,) points computed, overlap included
    blocks: Floats  # (n,) cache blocks, each a task of its own
    how: Ints  # (reads, n) index into COPIES
    packed: Mask  # (reads, n)
    polynomial: Mask  # (n,)
    recomputed: Floats  # (n,) stages computed again by each reader
    streamed: Mask  # (n,) whether the output goes past the caches
    # (n,) tiles of rows, bytes of a map, blocks of a reduction that are fetched ahead;
    # 0 for none
    ahead: Floats


@dataclass(frozen=True, kw_only=True)
class _Reductions:
    """Loops over the reduction axes by what decides them: depth and unrolling in a tile
    sketch, the register tile of rows."""

    axis: Ints  # (reductions, values)
    extent: Floats  # (reductions, values)
    span: Floats  # (reductions, values), in the order of the axes
    blocks: Floats  # (values,)


class NestTable:
    """Lookup tables of one group's sketch in a space; `decode` is pure NumPy.

    Axes of one element are left out where others remain, since their loops do nothing.
    """

    def __init__(
        self, sketch: TileSketch | RowSketch, space: Space, constants: Collection[str] = ()
    ) -> None:
        self.sketch = sketch
        self.columns = {knob.name: column for column, knob in enumerate(space.knobs)}
        self.knobs = {knob.name.removeprefix(sketch.prefix + "."): knob for knob in sketch.knobs}
        self.is_rows = isinstance(sketch, RowSketch)
        stages = sketch.group.stages if isinstance(sketch, RowSketch) else (sketch.group.anchor,)
        anchor = next((stage for stage in stages if stage.reducer is not None), stages[0])
        every_row = sketch.group.rows if isinstance(sketch, RowSketch) else anchor.axes
        reduce_axes = anchor.reduce_axes
        if isinstance(sketch, RowSketch):
            reduce_axes = (
                *(axis for axis in reduce_axes if axis.name != COLUMN),
                sketch.group.column,
            )
        self.rows = _looped(every_row)
        self.reduced = (
            (*_looped(reduce_axes[:-1], 0), reduce_axes[-1])
            if self.is_rows
            else _looped(reduce_axes)
        )
        self.axes = (*self.rows, *self.reduced)
        self.spatial, self.reductions = len(self.rows), len(self.reduced)
        self.extents = np.array([axis.extent for axis in self.axes], np.int64)
        self.lengths = self.extents.astype(np.float32)  # the same, to bound numbers of elements by
        self.points = prod(axis.extent for axis in self.axes)
        self.dtype_bytes = DTYPE_BYTES[anchor.accumulator if anchor.reducer else anchor.dtype]
        # Of the points those that are computed: neither rows nor instructions that take
        # several leave any out.
        self.share = 1.0
        if isinstance(sketch, TileSketch) and anchor.reducer is not None and not sketch.taken:
            self.share = max(
                share(anchor, sketch.group.needed), 1 / self.points
            )  # one at least, to be divided by
        self.flops = sum(_flops(stage) for stage in stages) * self.share
        self.taken = frozenset(sketch.taken if isinstance(sketch, TileSketch) else ())
        self.stepped = np.array(
            [axis.name not in self.taken for axis in self.reduced], np.bool_
        )  # reductions by iterations
        self.rate = sketch.rate if isinstance(sketch, TileSketch) else 1.0
        self.in_registers = isinstance(
            sketch, AmxSketch
        )  # of matrices: every operand is loaded in whole rows
        self.transcendentals = sum(_transcendentals(stage) for stage in _all_stages(sketch))
        self.found = _distinct(stages, sketch)
        self.found.sort(key=lambda one: -prod(sketch.shapes[one.read.tensor]))
        self.inputs = len(self.found)
        self.constant = [
            one.read.tensor in constants for one in self.found
        ]  # copied ahead of time where the nest wants a copy
        self.reads = [*(self._map(one) for one in self.found), self._output()]
        self.nbytes = sum(int(np.prod(read.shape)) * read.dtype_bytes for read in self.reads)
        names = [axis.name for axis in self.axes]
        vector = COLUMN if isinstance(sketch, RowSketch) else sketch.vector
        self.vector = -1 if vector is None else names.index(vector)

        width = len(sketch.register_values()[0])
        registers = np.array(
            self._values("register", sketch.register_values()[0]), np.int64
        ).reshape(-1, width)
        tiled = [
            axis.name
            for axis in (sketch.tiled_rows() if isinstance(sketch, RowSketch) else anchor.axes)
        ]
        ones = np.ones(len(registers), np.int64)
        tiles = [
            registers[:, tiled.index(axis.name)] if axis.name in tiled else ones
            for axis in self.rows
        ]
        self._tiles = np.array(tiles, np.float32)
        self._column = registers[:, -1].astype(np.float32)
        of_rows = np.maximum(self._column // max(self.sketch.lanes, 1), 1.0)
        self._partials = of_rows if self.is_rows else np.ones_like(self._column)
        self._blocks = [
            self._block_table(axis, tile) for axis, tile in zip(self.rows, tiles, strict=True)
        ]
        self._orders = {what: self._order_table(what) for what in ("outer_order", "inner_order")}
        self._loops = self._reduction_table(reduce_axes)
        longest = reduce_axes[_main(reduce_axes)] if reduce_axes else None
        self._divided = (
            self.axes.index(longest)
            if longest in self.axes
            else self.spatial * (self.reductions > 0)
        )
        self._fetched: list[
            tuple[int, bool, bool]
        ] = []  # reads that may come ahead: their number, whether in place, and packed
        if isinstance(sketch, TileSketch):
            apart = {one.read for one in boxes(anchor, sketch.shapes)}
            numbered = [(number, one) for number, one in enumerate(self.found) if one.read in apart]
            self._fetched = [
                (number, walked(one, anchor, sketch.vector), parted(one, anchor))
                for number, one in numbered
            ]
        self._hows = (
            []
            if isinstance(sketch, RowSketch)
            else [self._how_table(sketch, one) for one in self.found]
        )

    def _block_table(self, axis: Axis, tiles: Ints) -> tuple[str, int, Floats]:
        """The knob, how many values it has, and (tiles of a cache block, blocks) by
        number of the register knob's value times that, plus number of the block knob's
        value."""
        what = f"block_{axis.name}"
        wanted = [int(str(value)) for value in self._values(what, 0)]
        pairs = []
        for tile in map(int, tiles):
            count = -(-axis.extent // tile)
            fitting = [fit_block(count, -(-want // tile)) for want in wanted]
            pairs += [(block, -(-count // block)) for block in fitting]
        return what, len(wanted), np.array(pairs, np.float32).T.copy()

    def _order_table(self, what: str) -> Ints:
        """Positions of the spatial axes in loop order, by index of the knob's value;
        shape (spatial, values)."""
        names = [axis.name for axis in self.rows]
        orders = [
            [names.index(name) for name in self.sketch.order(value) if name in names]
            for value in self._values(what, None)
        ]
        return np.array(orders, np.int64).reshape(len(orders), self.spatial).T.copy()

    def _reduction_table(self, axes: Sequence[Axis]) -> _Reductions:
        order, extent, span, blocks = [], [], [], []
        kept = [axes.index(axis) for axis in self.reduced]
        for depth, last, factor in self._reduction_choices(axes):
            main = _main(axes)
            block = [depth if at == main else axis.extent for at, axis in enumerate(axes)]
            once = [
                axis.extent if axis.name in self.taken else factor if at == last else 1
                for at, axis in enumerate(axes)
            ]
            loops = sorted(kept, key=lambda at: at == last)
            order.append([self.spatial + kept.index(at) for at in loops])
            extent.append([-(-block[at] // once[at]) for at in loops])
            span.append([once[at] for at in kept])
            blocks.append(axes[main].extent // depth if axes else 1)
        shape = (len(blocks), self.reductions)
        return _Reductions(
            axis=np.array(order, np.int64).reshape(shape).T.copy(),
            extent=np.array(extent, np.float32).reshape(shape).T.copy(),
            span=np.array(span, np.float32).reshape(shape).T.copy(),
            blocks=np.array(blocks, np.float32),
        )

    def _reduction_choices(self, axes: Sequence[Axis]) -> list[tuple[int, int, int]]:
        """(iterations of a block of the longest axis, the innermost axis, its
        iterations in a body) of each value."""
        if not axes:
            return [(1, 0, 1)]
        longest, last = axes[_main(axes)].extent, len(axes) - 1
        if self.is_rows:
            return [(longest, last, int(column)) for column in self._column]
        assert isinstance(self.sketch, TileSketch)
        found = []
        for depth in self._values("depth", longest):
            for position, factor in self._values("unroll", self.sketch.unroll_values()[0]):
                block = depth if position == _main(axes) else axes[position].extent
                found.append((depth, position, factor if block % factor == 0 else 1))
        return found

    def _how_table(self, sketch: TileSketch, found: Access) -> tuple[str, Ints]:
        """The knob of a read's copy, and by index of its value the index into COPIES."""
        what = f"copy{sketch.reads.index(found)}_{found.read.tensor}"
        values = self._values(what, sketch.copy_values(found)[0])
        return what, np.array([COPIES.index(str(value)) for value in values], np.int64)

    def _output(self) -> ReadMap:
        """What is written: an element of each row, or of a row sketch whose output has
        its column too, the whole row."""
        whole = (
            isinstance(self.sketch, RowSketch)
            and self.sketch.group.column in self.sketch.group.output.axes
        )
        uses = np.arange(len(self.axes)) < self.spatial
        uses[-1] |= whole
        written = self.extents[uses]
        strides = np.full(
            len(self.axes), int(self.is_rows), np.int64
        )  # elements of rows are written one after the other
        strides[uses] = [prod(map(int, written[at + 1 :])) for at in range(len(written))]
        return ReadMap(
            coefficients=np.eye(len(self.axes), dtype=np.int64)[uses],
            shape=written,
            uses=uses,
            strides=strides,
            dtype_bytes=self.dtype_bytes,
            extents=self.extents,
        )

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
            extents=self.extents,
        )

    # --- decoding
    # ------------------------------------------------------------------------------

    def _index(self, points: Points, what: str) -> Ints:
        knob = self.knobs.get(what)
        return (
            points[:, self.columns[knob.name]].astype(np.int64)
            if knob is not None
            else np.zeros(len(points), np.int64)
        )

    def _values(self, what: str, default: Value | None) -> Sequence[Any]:
        knob: Knob | None = self.knobs.get(what)
        return knob.values if knob is not None else (default,)

    def decode(self, points: Points) -> Nests:
        """Of points (n, knobs)."""
        n, spatial, levels = len(points), self.spatial, 2 * self.spatial + 1 + self.reductions
        register = self._index(points, "register")
        block, blocks = np.empty((2, spatial, n), np.float32)
        for position, (what, values, table) in enumerate(self._blocks):
            block[position], blocks[position] = table[
                :, register * values + self._index(points, what)
            ]
        loops = self._loop_index(points, register)
        axis, extent = np.empty((levels, n), np.int64), np.empty((levels, n), np.float32)
        for first, what, iterations in (
            (0, "outer_order", blocks),
            (spatial + 1, "inner_order", block),
        ):
            here = slice(first, first + spatial)
            axis[here] = self._orders[what][:, self._index(points, what)]
            extent[here] = np.take_along_axis(iterations, axis[here], axis=0)
        axis[spatial] = self._divided
        extent[spatial] = self._loops.blocks[loops]
        axis[2 * spatial + 1 :], extent[2 * spatial + 1 :] = (
            self._loops.axis[:, loops],
            self._loops.extent[:, loops],
        )
        tiles = self._tiles[:, register]
        how = self._copies(points, axis, extent)
        return Nests(
            lanes=self.sketch.lanes, vector=self.vector,
            kind=2 if self.is_rows else int(self.reductions == 0),
            axis=axis, extent=extent, span=np.concatenate([tiles, self._loops.span[:, loops]]),
            partials=self._partials[register],
            covered=(blocks * block * tiles).prod(axis=0) * prod(axis.extent for axis in self.reduced),  # noqa: E501
            blocks=blocks.prod(axis=0), how=how, packed=(how == PACK) | (how == PACK_ROOT),
            polynomial=np.array([value == "polynomial" for value in self._values("mathematics",
            "libm")])[
                self._index(points, "mathematics")
            ],
            recomputed=self._recomputed(points),
            streamed=np.array([value == STREAMED for value in self._values("stores",
            CACHED)])[self._index(points, "stores")],
            ahead=np.array(self._values("ahead", 0), np.float32)[self._index(points, "ahead")]
            * self._fetching(how, extent),
        )  # fmt: skip

    def _fetching(self, how: Ints, extent: Floats) -> NDArray[np.bool_] | bool:
        """Whether there is anything to fetch ahead, shape (n,) or of all; arguments as of Nests."""
        if self.is_rows or not self.reductions or "ahead" not in self.knobs:
            return True
        found = np.zeros(how.shape[1], np.bool_)
        for number, in_place, packed in self._fetched:
            if in_place:
                found |= (how[number] == NONE) & (extent[self.spatial] > 1)
            if packed:
                found |= how[number] == PACK
        return found

    def _loop_index(self, points: Points, register: Ints) -> Ints:
        """Which value of `_loops`, shape (n,)."""
        if self.is_rows:
            return register
        return self._index(points, "depth") * len(self._values("unroll", None)) + self._index(
            points, "unroll"
        )

    def _copies(self, points: Points, axis: Ints, extent: Floats) -> Ints:
        """How each read is copied, an index into COPIES; shape (reads, n). `axis` and
        `extent` are those of the loops."""
        how = np.zeros((len(self.reads), len(points)), np.int64)
        for slot, (what, table) in enumerate(self._hows):
            how[slot] = table[self._index(points, what)]
        if self.sketch.threads == 1 and self.reductions:
            # Of a sum, a `pack` copy that no outer loop moves stands at the root, as
            # one of `pack_root` does; they differ with threads alone, which share the
            # work of the latter.
            around = slice(0, self.spatial + 1)
            for slot, read in enumerate(self.reads):
                depends = (read.uses[axis[around]] & (extent[around] > 1)).any(axis=0)
                how[slot][(how[slot] == PACK) & ~depends] = PACK_ROOT
        return how

    def _recomputed(self, points: Points) -> Floats:
        total = np.zeros(len(points), np.float32)
        for what, knob in self.knobs.items():
            if what.startswith("keep_"):
                total += np.array([value == "recompute" for value in knob.values], np.float32)[
                    self._index(points, what)
                ]
        return total


def _looped(axes: Sequence[Axis], least: int = 1) -> tuple[Axis, ...]:
    """Those of more than one element; the last `least` where none has more."""
    return tuple(axis for axis in axes if axis.extent > 1) or tuple(axes[len(axes) - least :])


def _main(axes: Sequence[Axis]) -> int:
    """The reduction axis that blocks divide, the first of the longest."""
    return max(range(len(axes)), key=lambda at: (axes[at].extent, -at), default=0)


def tables(space: CpuSpace, combination: str) -> list[NestTable]:
    return [
        NestTable(sketch, space.space, space.constants)
        for sketch in space.combinations[combination]
    ]


def _flops(stage: Stage) -> int:
    return stage.points * operations(stage)


def _all_stages(sketch: TileSketch | RowSketch) -> Sequence[Stage]:
    """With the epilogue of a tile's group."""
    if isinstance(sketch, RowSketch):
        return sketch.group.stages
    epilogue = sketch.group.epilogue
    return (sketch.group.anchor,) if epilogue is None else (sketch.group.anchor, epilogue)


def _transcendentals(stage: Stage) -> int:
    """Evaluations of functions that no instruction computes."""
    slow = sum(isinstance(node, Unary) and node.op in APPROXIMATED for node in walk(stage.body))
    slow += sum(isinstance(node, Binary) and node.op == "pow" for node in walk(stage.body))
    return slow * stage.points


def _distinct(stages: Sequence[Stage], sketch: TileSketch | RowSketch) -> list[Access]:
    if isinstance(sketch, TileSketch):
        return list(sketch.reads)
    inside = {stage.name for stage in stages}
    found = (
        one
        for stage in stages
        for one in accesses(stage, sketch.shapes)
        if one.read.tensor not in inside
    )
    return list({one.read: one for one in found}.values())


def _read_bytes(found: Access, sketch: TileSketch | RowSketch) -> int:
    return DTYPE_BYTES[sketch.dtypes[found.read.tensor]]
