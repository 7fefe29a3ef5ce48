"""Loop nests of many configs at once: knob values turned into arrays of extents, orders
and tiles, one row a config."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.arrays import Floats, Mask
from tuner.spaces.core.choice import Choice
from tuner.spaces.core.space import Points, Space
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.program.tiles import fit_block
from tuner.spaces.rewrite.access import Access, linear
from tuner.spaces.rewrite.predicates import operations
from tuner.spaces.rewrite.stages import APPROXIMATED
from tuner.target.target import PAGE_BYTES
from tuner.workload.expression import DTYPE_BYTES, Axis, Binary, Stage, Unary, walk

Ints = NDArray[np.int64]
# The order in which features have them.
COPIES = (CopyMode.NONE, CopyMode.PAD, CopyMode.PACK, CopyMode.PACK_ROOT, CopyMode.PAD_PARTS)
NONE, PAD, PACK, PACK_ROOT, PAD_PARTS = range(len(COPIES))


class NestKind(IntEnum):
    """The value is a feature."""

    REDUCTION = 0  # in tiles
    MAP = 1
    ROWS = 2  # and reductions along a row


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
    kind: NestKind
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

    def __init__(self, facts: LoopNestFacts, space: Space, constants: Collection[str] = ()) -> None:
        self.facts = facts
        self.columns = {knob.name: column for column, knob in enumerate(space.knobs)}
        self.is_rows = facts.columns is not None
        stages = facts.stages
        anchor = next((stage for stage in stages if stage.reducer is not None), stages[0])
        self.rows = _looped(facts.spatial)
        self.reduced = (
            (*_looped(facts.reduction[:-1], 0), facts.reduction[-1])
            if self.is_rows
            else _looped(facts.reduction)
        )
        self.axes = (*self.rows, *self.reduced)
        self.spatial, self.reductions = len(self.rows), len(self.reduced)
        self.extents = np.array([axis.extent for axis in self.axes], np.int64)
        self.lengths = self.extents.astype(np.float32)  # the same, to bound numbers of elements by
        self.points = prod(axis.extent for axis in self.axes)
        self.dtype_bytes = DTYPE_BYTES[anchor.accumulator if anchor.reducer else anchor.dtype]
        # Of the points those that are computed; one at least, to be divided by.
        self.share = max(facts.computed_share, 1 / self.points)
        self.flops = sum(_flops(stage) for stage in stages) * self.share
        self.instruction_axes = frozenset(facts.instruction_axes)
        # reductions by iterations
        self.stepped = np.array(
            [axis.name not in self.instruction_axes for axis in self.reduced], np.bool_
        )
        self.rate = facts.rate
        self.in_registers = facts.loads_whole_rows
        every_stage = stages if facts.epilogue is None else (*stages, facts.epilogue)
        self.transcendentals = sum(_transcendentals(stage) for stage in every_stage)
        # The largest tensor first, each with its place among the facts' reads.
        by_size = sorted(
            enumerate(facts.reads),
            key=lambda numbered: -prod(facts.context.shapes[numbered[1].read.tensor]),
        )
        self.operands = [access for _, access in by_size]
        self.inputs = len(self.operands)
        # copied ahead of time where the nest wants a copy
        self.constant = [access.read.tensor in constants for access in self.operands]
        self.reads = [*(self._map(access) for access in self.operands), self._output()]
        self.nbytes = sum(int(np.prod(read.shape)) * read.dtype_bytes for read in self.reads)
        names = [axis.name for axis in self.axes]
        self.vector = -1 if facts.vector is None else names.index(facts.vector)
        self._tabulate_tiles()
        self._orders = [self._order_table(facts.outer_order), self._order_table(facts.inner_order)]
        self._loops = self._reduction_table(facts.reduction)
        self._divided = self._blocked_axis(facts.reduction)
        place = {access.read: number for number, access in enumerate(self.operands)}
        # reads that may be prefetched: their number, whether in place, and packed
        self._prefetched = [
            (place[read.read.read], read.in_place, read.packed) for read in facts.prefetched
        ]
        self._copies = [
            self._copy_table(facts.copies[number]) for number, _ in by_size if facts.copies
        ]

    def _tabulate_tiles(self) -> None:
        """Register tiles and cache blocks, by index of their knobs' values."""
        facts = self.facts
        registers = np.array(facts.register_tile.values, np.int64)
        registers = registers.reshape(len(facts.register_tile.values), -1)
        ones = np.ones(len(registers), np.int64)
        tiles = [
            registers[:, facts.tiled.index(axis.name)] if axis.name in facts.tiled else ones
            for axis in self.rows
        ]
        self._tiles = np.array(tiles, np.float32)
        self._column = (registers[:, -1] if registers.size else ones).astype(np.float32)
        of_rows = np.maximum(self._column // max(facts.lanes, 1), 1.0)
        self._partials = of_rows if self.is_rows else np.ones_like(self._column)
        self._blocks = [
            self._block_table(axis, tile) for axis, tile in zip(self.rows, tiles, strict=True)
        ]

    def _blocked_axis(self, axes: Sequence[Axis]) -> int:
        """The axis that blocks of the reduction divide; where it has no loop of its own
        the first reduction axis, and without any the first axis."""
        longest = axes[_main(axes)] if axes else None
        if longest in self.axes:
            return self.axes.index(longest)
        return self.spatial if self.reductions else 0

    def _block_table(self, axis: Axis, tiles: Ints) -> tuple[Choice[int] | None, int, Floats]:
        """The choice, how many values it has, and (tiles of a cache block, blocks) by
        index of the register tile times that, plus index of the cache block."""
        blocks = self.facts.cache_blocks.get(axis.name)
        elements = (0,) if blocks is None else blocks.values
        pairs = []
        for tile in map(int, tiles):
            count = -(-axis.extent // tile)
            fitting = [fit_block(count, -(-size // tile)) for size in elements]
            pairs += [(block, -(-count // block)) for block in fitting]
        return blocks, len(elements), np.array(pairs, np.float32).T.copy()

    def _order_table(self, orders: Choice[tuple[str, ...]]) -> Ints:
        """Positions of the spatial axes in loop order, by index of the choice's value;
        shape (spatial, values)."""
        names = [axis.name for axis in self.rows]
        positions = [
            [names.index(name) for name in order if name in names] for order in orders.values
        ]
        return np.array(positions, np.int64).reshape(len(positions), self.spatial).T.copy()

    def _reduction_table(self, axes: Sequence[Axis]) -> _Reductions:
        order, extent, span, blocks = [], [], [], []
        kept = [axes.index(axis) for axis in self.reduced]
        for depth, last, factor in self._reduction_choices(axes):
            main = _main(axes)
            block = [depth if at == main else axis.extent for at, axis in enumerate(axes)]
            once = [
                axis.extent if axis.name in self.instruction_axes else factor if at == last else 1
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
        blocks, unrollings = self.facts.reduction_block, self.facts.unrolling
        if blocks is None or unrollings is None:  # of rows
            return [(longest, last, int(column)) for column in self._column]
        choices = []
        for depth in blocks.values:
            for unrolling in unrollings.values:
                position = unrolling.position
                block = depth if position == _main(axes) else axes[position].extent
                divides = block % unrolling.factor == 0
                choices.append((depth, position, unrolling.factor if divides else 1))
        return choices

    def _copy_table(self, copy: Choice[CopyMode]) -> tuple[Choice[CopyMode], Ints]:
        """The choice, and by index of its value the index into COPIES."""
        return copy, np.array([COPIES.index(mode) for mode in copy.values], np.int64)

    def _output(self) -> ReadMap:
        """What is written: an element of each row, or of a row sketch whose output has
        its column too, the whole row."""
        columns = self.facts.columns
        whole = columns is not None and columns.written
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
        shape = self.facts.context.shapes[found.read.tensor]
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
            dtype_bytes=DTYPE_BYTES[self.facts.context.dtypes[found.read.tensor]],
            extents=self.extents,
        )

    # --- decoding
    # ------------------------------------------------------------------------------

    def _index(self, points: Points, choice: Choice[Any] | None) -> Ints:
        """The index of each point's value, shape (n,); zeros where there is no choice."""
        if choice is None or not choice.is_open:
            return np.zeros(len(points), np.int64)
        return points[:, self.columns[choice.name]].astype(np.int64)

    def decode(self, points: Points) -> Nests:
        """Of points (n, knobs)."""
        n, spatial, levels = len(points), self.spatial, 2 * self.spatial + 1 + self.reductions
        register = self._index(points, self.facts.register_tile)
        block, blocks = np.empty((2, spatial, n), np.float32)
        for position, (choice, values, counts) in enumerate(self._blocks):
            block[position], blocks[position] = counts[
                :, register * values + self._index(points, choice)
            ]
        loops = self._loop_index(points, register)
        axis, extent = np.empty((levels, n), np.int64), np.empty((levels, n), np.float32)
        outer, inner = self._orders
        for first, order, table, iterations in (
            (0, self.facts.outer_order, outer, blocks),
            (spatial + 1, self.facts.inner_order, inner, block),
        ):
            here = slice(first, first + spatial)
            axis[here] = table[:, self._index(points, order)]
            extent[here] = np.take_along_axis(iterations, axis[here], axis=0)
        axis[spatial] = self._divided
        extent[spatial] = self._loops.blocks[loops]
        axis[2 * spatial + 1 :], extent[2 * spatial + 1 :] = (
            self._loops.axis[:, loops],
            self._loops.extent[:, loops],
        )
        tiles = self._tiles[:, register]
        how = self._copied(points, axis, extent)
        facts = self.facts
        polynomial = np.array([value == "polynomial" for value in facts.math_functions.values])
        non_temporal = np.array(
            [mode is StoreMode.NON_TEMPORAL for mode in facts.store_mode.values]
        )
        distances = np.array(facts.prefetch.values, np.float32)
        return Nests(
            lanes=facts.lanes,
            vector=self.vector,
            kind=self._kind,
            axis=axis,
            extent=extent,
            span=np.concatenate([tiles, self._loops.span[:, loops]]),
            partials=self._partials[register],
            covered=(blocks * block * tiles).prod(axis=0)
            * prod(axis.extent for axis in self.reduced),
            blocks=blocks.prod(axis=0),
            how=how,
            packed=(how == PACK) | (how == PACK_ROOT),
            polynomial=polynomial[self._index(points, facts.math_functions)],
            recomputed=self._recomputed(points),
            streamed=non_temporal[self._index(points, facts.store_mode)],
            ahead=distances[self._index(points, facts.prefetch)] * self._fetching(how, extent),
        )

    @property
    def _kind(self) -> NestKind:
        if self.is_rows:
            return NestKind.ROWS
        return NestKind.REDUCTION if self.reductions else NestKind.MAP

    def _fetching(self, how: Ints, extent: Floats) -> NDArray[np.bool_] | bool:
        """Whether there is anything to prefetch, shape (n,) or of all; arguments as of Nests."""
        if self.is_rows or not self.reductions or not self.facts.prefetch.is_open:
            return True
        fetching = np.zeros(how.shape[1], np.bool_)
        for number, in_place, packed in self._prefetched:
            if in_place:
                fetching |= (how[number] == NONE) & (extent[self.spatial] > 1)
            if packed:
                fetching |= how[number] == PACK
        return fetching

    def _loop_index(self, points: Points, register: Ints) -> Ints:
        """Which value of `_loops`, shape (n,)."""
        if self.is_rows:
            return register
        unrolling = self.facts.unrolling
        count = 1 if unrolling is None else len(unrolling.values)
        return self._index(points, self.facts.reduction_block) * count + self._index(
            points, unrolling
        )

    def _copied(self, points: Points, axis: Ints, extent: Floats) -> Ints:
        """How each read is copied, an index into COPIES; shape (reads, n). `axis` and
        `extent` are those of the loops."""
        how = np.zeros((len(self.reads), len(points)), np.int64)
        for slot, (copy, table) in enumerate(self._copies):
            how[slot] = table[self._index(points, copy)]
        if self.facts.context.units == 1 and self.reductions:
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
        for choice in self.facts.columns.recompute if self.facts.columns is not None else ():
            total += np.array(choice.values, np.float32)[self._index(points, choice)]
        return total


def _looped(axes: Sequence[Axis], least: int = 1) -> tuple[Axis, ...]:
    """Those of more than one element; the last `least` where none has more."""
    return tuple(axis for axis in axes if axis.extent > 1) or tuple(axes[len(axes) - least :])


def _main(axes: Sequence[Axis]) -> int:
    """The reduction axis that blocks divide, the first of the longest."""
    return max(range(len(axes)), key=lambda at: (axes[at].extent, -at), default=0)


def tables(space: TargetSpace[LoopNestFacts], combination: str) -> list[NestTable]:
    return [
        NestTable(sketch.facts, space.space, space.constants)
        for sketch in space.sketches[combination]
    ]


def _flops(stage: Stage) -> int:
    return stage.points * operations(stage)


def _transcendentals(stage: Stage) -> int:
    """Evaluations of functions that no instruction computes."""
    slow = sum(isinstance(node, Unary) and node.op in APPROXIMATED for node in walk(stage.body))
    slow += sum(isinstance(node, Binary) and node.op == "pow" for node in walk(stage.body))
    return slow * stage.points
