"""Loop nests of many configs at once.

Knob values become arrays of extents, orders and tiles, one column a config.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from math import prod
from typing import Any

import numpy as np

from tuner.cost_model.arrays import Floats, Mask
from tuner.cost_model.cpu.axes import Ints, NestAxes, nest_axes
from tuner.cost_model.cpu.lookups import (
    BlockLookup,
    ChoiceColumns,
    ReductionLookup,
    TileLookup,
    block_lookup,
    order_lookup,
    reduction_lookup,
    region_lookup,
    tile_lookup,
)
from tuner.cost_model.cpu.reads import ReadMap, input_map, output_map
from tuner.spaces.core.choice import Choice
from tuner.spaces.core.space import Points, Space
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.program.nest import MOST, TASKS
from tuner.spaces.rewrite.access import Access
from tuner.spaces.rewrite.predicates import term_operations
from tuner.spaces.rewrite.stages import approximated_functions
from tuner.target.isa import IsaDescription
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Binary, Stage, walk

# The order in which features have them.
COPIES = (CopyMode.NONE, CopyMode.PAD, CopyMode.PACK, CopyMode.PACK_ROOT, CopyMode.PAD_PARTS)
NONE, PAD, PACK, PACK_ROOT, PAD_PARTS = range(len(COPIES))


class NestKind(IntEnum):
    """The value is a feature."""

    REDUCTION = 0  # in tiles
    MAP = 1
    ROWS = 2  # and reductions along a row


@dataclass(frozen=True, kw_only=True)
class Nests:
    """n configs of one group, decoded. Loop levels run outermost first.

    Configs come last, because NumPy's arithmetic on whole rows is several times as
    fast. Numbers of iterations and elements are float32, in which they are multiplied.
    """

    lanes: int
    vector: int  # the vectorised axis, -1 for none
    kind: NestKind
    axis: Ints  # (levels, n) which axis a loop runs over
    extent: Floats  # (levels, n) its trip count
    span: Floats  # (axes, n) elements of each axis in the innermost tile
    partials: Floats  # (n,) accumulators an output element has beside its vector's
    computed: Floats  # (n,) points computed, overlap included
    blocks: Floats  # (n,) cache blocks
    tasks: Floats  # (n,) that threads share: cache blocks, or those of the outermost loops
    copy_mode: Ints  # (reads, n) index into COPIES
    packed: Mask  # (reads, n) whether elements lie in the order in which the nest reads them
    boxed: Mask  # (reads, n) whether a box of the tensor lies in a buffer of a tile's size
    pitch: Floats  # (reads, n) elements from one row to the next of such a buffer
    polynomial: Mask  # (n,)
    recomputed: Floats  # (n,) stages computed again by each reader
    held_bytes: Floats  # (n,) of the buffers in which fused stages hand on to each other
    copied: Floats  # (n,) elements of the copies that each tile of fused stages has of its own
    non_temporal: Mask  # (n,) whether the output is stored past the caches
    # (n,) tiles of rows, bytes of a map, blocks of a reduction; 0 without prefetching
    prefetch_distance: Floats


@dataclass(frozen=True, kw_only=True)
class NestTable:
    """Lookup tables of one group's sketch in a space; `decode` is pure NumPy."""

    facts: LoopNestFacts
    isa: IsaDescription
    axes: NestAxes
    choices: ChoiceColumns
    operands: tuple[Access, ...]  # what the nest reads, the largest tensor first
    places: tuple[int, ...]  # of the operands among the facts' reads
    constant: tuple[bool, ...]  # operands that are copied before the first call, where at all
    reads: tuple[ReadMap, ...]  # of the operands, then of the output
    held: Mask  # (reads,) whether fused stages hand it on in a buffer of a tile's size
    tiles: TileLookup
    blocks: tuple[BlockLookup, ...]  # of the spatial axes
    outer_order: Ints  # (spatial, values)
    inner_order: Ints  # (spatial, values)
    reduction: ReductionLookup

    # --- the same for all configs

    @property
    def is_rows(self) -> bool:
        """Whether the nest goes over rows, pass by pass along a column."""
        return self.facts.columns is not None

    @property
    def kind(self) -> NestKind:
        """Which kind of nest it is."""
        if self.is_rows:
            return NestKind.ROWS
        return NestKind.REDUCTION if self.reductions else NestKind.MAP

    @property
    def spatial(self) -> int:
        """Number of spatial axes."""
        return len(self.axes.spatial)

    @property
    def reductions(self) -> int:
        """Number of reduction axes."""
        return len(self.axes.reduced)

    @property
    def inputs(self) -> int:
        """Number of operands; the output follows them among the reads."""
        return len(self.operands)

    @property
    def dtype_bytes(self) -> int:
        """Bytes of an accumulator, or of an element of a map."""
        return _dtype_bytes(self.facts)

    @cached_property
    def share(self) -> float:
        """Share of the points that are computed; of one point at least, to be divided by."""
        return max(self.facts.computed_share, 1 / self.axes.points)

    @cached_property
    def flops(self) -> float:
        """Arithmetic operations of all stages but the epilogue."""
        stated = self.facts.operations
        total = sum(
            stage.points * (term_operations(stage) if stated is None else stated)
            for stage in self.facts.stages
        )
        return total * self.share

    @cached_property
    def transcendentals(self) -> int:
        """Evaluations of functions that no instruction computes, epilogue included."""
        facts = self.facts
        stages = facts.stages if facts.epilogue is None else (*facts.stages, facts.epilogue)
        return sum(_transcendentals(stage) for stage in stages)

    @cached_property
    def nbytes(self) -> int:
        """Bytes of all that is read and written."""
        return sum(int(np.prod(read.shape)) * read.dtype_bytes for read in self.reads)

    # --- decoding

    def decode(self, points: Points) -> Nests:
        """The nests of points (n, knobs)."""
        facts, choices, axes = self.facts, self.choices, self.axes
        fusion = facts.fusion
        tile = choices.index(points, facts.register_tile)
        rows = np.empty((self.spatial, 3, len(points)), np.float32)
        for number, lookup in enumerate(self.blocks):
            rows[number] = lookup.decode(points, choices, tile)
        block, blocks, sizes = rows[:, 0], rows[:, 1], rows[:, 2]
        reduction = self._reduction_index(points, tile)
        axis, extent = self._loops(points, reduction, block=block, blocks=blocks)
        copy_mode = self._copy_modes(points, axis, extent)
        tasks = self._of_tile(points, fusion.tasks) if fusion else None
        pitch = self._pitches(points)
        boxed = self.held[:, None] | (pitch > 0)
        vector = -1 if facts.vector is None else axes.names.index(facts.vector)
        polynomial = np.array([value == "polynomial" for value in facts.math_functions.values])
        non_temporal = np.array(
            [mode is StoreMode.NON_TEMPORAL for mode in facts.store_mode.values]
        )
        distances = np.array(facts.prefetch.values, np.float32)
        reduced_points = prod(reduced.extent for reduced in axes.reduced)
        return Nests(
            lanes=facts.lanes,
            vector=vector,
            kind=self.kind,
            axis=axis,
            extent=extent,
            span=np.concatenate([sizes, self.reduction.span[:, reduction]]),
            partials=self.tiles.partials[tile],
            computed=(blocks * block * sizes).prod(axis=0) * reduced_points,
            blocks=blocks.prod(axis=0) if tasks is None else tasks,
            tasks=self._shared(axis, extent, copy_mode) if tasks is None else tasks,
            copy_mode=copy_mode,
            packed=(copy_mode == PACK) | (copy_mode == PACK_ROOT) | boxed,
            boxed=boxed,
            pitch=pitch,
            polynomial=polynomial[choices.index(points, facts.math_functions)],
            recomputed=self._recomputed(points),
            held_bytes=self._of_tile(points, fusion.held_bytes if fusion else None),
            copied=self._of_tile(points, fusion.copied if fusion else None),
            non_temporal=non_temporal[choices.index(points, facts.store_mode)],
            prefetch_distance=distances[choices.index(points, facts.prefetch)]
            * self._prefetches(copy_mode, extent),
        )

    def _loops(
        self, points: Points, reduction: Ints, *, block: Floats, blocks: Floats
    ) -> tuple[Ints, Floats]:
        """(axis, extent) of each level, (levels, n) each.

        Outermost first: cache blocks, reduction blocks, register tiles, the reduction.
        """
        spatial, configs = self.spatial, len(points)
        levels = 2 * spatial + 1 + self.reductions
        axis, extent = (
            np.empty((levels, configs), np.int64),
            np.empty((levels, configs), np.float32),
        )
        for first, choice, order, iterations in (
            (0, self.facts.outer_order, self.outer_order, blocks),
            (spatial + 1, self.facts.inner_order, self.inner_order, block),
        ):
            rows = slice(first, first + spatial)
            axis[rows] = order[:, self.choices.index(points, choice)]
            extent[rows] = np.take_along_axis(iterations, axis[rows], axis=0)
        axis[spatial] = self.reduction.divided
        extent[spatial] = self.reduction.blocks[reduction]
        axis[2 * spatial + 1 :] = self.reduction.axis[:, reduction]
        extent[2 * spatial + 1 :] = self.reduction.extent[:, reduction]
        return axis, extent

    def _reduction_index(self, points: Points, tile: Ints) -> Ints:
        """Which value of the reduction's lookup each point has, (n,)."""
        if self.is_rows:
            return tile
        unrolling = self.facts.unrolling
        count = 1 if unrolling is None else len(unrolling.values)
        block = self.choices.index(points, self.facts.reduction_block)
        return block * count + self.choices.index(points, unrolling)

    def _copy_modes(self, points: Points, axis: Ints, extent: Floats) -> Ints:
        """How each read is copied, an index into COPIES, (reads, n).

        `axis` and `extent` are those of the loops.
        """
        modes = np.zeros((len(self.reads), len(points)), np.int64)
        if self.facts.fusion is not None:
            copied = (self._pitches(points) > 0) & ~self.held[:, None]
            return np.where(copied, PACK, NONE)
        for number, place in enumerate(self.places if self.facts.copies else ()):
            choice = self.facts.copies[place]
            codes = np.array([COPIES.index(mode) for mode in choice.values], np.int64)
            modes[number] = codes[self.choices.index(points, choice)]
        if self.facts.context.units == 1 and self.reductions:
            # Of a sum, a `pack` copy that no outer loop moves stands at the root, as
            # one of `pack_root` does. They differ only where threads share the work of
            # the latter.
            outside = slice(0, self.spatial + 1)
            for number, read in enumerate(self.reads):
                moved = (read.uses[axis[outside]] & (extent[outside] > 1)).any(axis=0)
                modes[number][(modes[number] == PACK) & ~moved] = PACK_ROOT
        return modes

    def _shared(self, axis: Ints, extent: Floats, copy_mode: Ints) -> Floats:
        """Iterations of the loops that threads share, (n,), as `parallel_prefix` chooses them.

        `axis` and `extent` are those of the loops. Copies of parts stand under loops of a
        sum that nothing is fused across.
        """
        threads = self.facts.context.units
        tasks = np.ones(extent.shape[1], np.float32)
        ended = np.zeros(extent.shape[1], np.bool_)
        for level in range(self.spatial):
            tasks = np.where(ended, tasks, tasks * extent[level])
            most = np.ceil(tasks / threads) * threads
            ended |= (tasks >= TASKS * threads) & (20 * most <= MOST * tasks)
            for number, read in enumerate(self.reads if self.reductions else ()):
                within = (copy_mode[number] == PACK) & read.uses[axis[level]]
                ended |= within & (extent[level] > 1)
        return tasks

    def _pitches(self, points: Points) -> Floats:
        """Elements of a row of each buffer of a tile's size, (reads, n); 0 without one."""
        pitches = np.zeros((len(self.reads), len(points)), np.float32)
        if self.facts.fusion is not None:
            for number, operand in enumerate(self.operands):
                pitches[number] = self._of_tile(points, self.facts.fusion.pitches[operand.read])
            if self.held[-1]:  # of the result, elements along the vectors side by side
                row = self.facts.cache_blocks[str(self.facts.vector)]
                pitches[-1] = self._of_tile(points, row)
        return pitches

    def _prefetches(self, copy_mode: Ints, extent: Floats) -> Mask | bool:
        """Whether there is anything to prefetch, (n,), or the same for all configs."""
        if self.is_rows or not self.reductions or not self.facts.prefetch.is_open:
            return True
        prefetches = np.zeros(copy_mode.shape[1], np.bool_)
        numbers = {access.read: number for number, access in enumerate(self.operands)}
        for prefetched in self.facts.prefetched:
            mode = copy_mode[numbers[prefetched.read.read]]
            if prefetched.in_place:
                prefetches |= (mode == NONE) & (extent[self.spatial] > 1)
            if prefetched.packed:
                prefetches |= mode == PACK
            if prefetched.whole:
                prefetches |= mode == PACK_ROOT
        return prefetches

    def _of_tile(self, points: Points, choice: Choice[Any] | None) -> Floats:
        """A number that the tile of fused stages says of itself, (n,); 0 without fusion."""
        if choice is None:
            return np.zeros(len(points), np.float32)
        values = np.array(choice.values, np.float32)
        of_points: Floats = values[self.choices.index(points, choice)]
        return of_points

    def _recomputed(self, points: Points) -> Floats:
        total = np.zeros(len(points), np.float32)
        for choice in self.facts.columns.recompute if self.facts.columns is not None else ():
            total += np.array(choice.values, np.float32)[self.choices.index(points, choice)]
        return total


def tables(space: TargetSpace[LoopNestFacts], combination: str) -> list[NestTable]:
    """Of each group's sketch in a combination; of a fused group one for each of its nests."""
    return [
        nest_table(nest, space.space, space.constants)
        for sketch in space.sketches[combination]
        for nest in sketch.facts.nests
    ]


def nest_table(facts: LoopNestFacts, space: Space, constants: Collection[str] = ()) -> NestTable:
    """Of the sketch that the facts describe; `constants` names tensors known in advance."""
    axes = nest_axes(facts)
    tiles = tile_lookup(facts, axes)
    by_size = sorted(
        range(len(facts.reads)),
        key=lambda place: -prod(facts.context.shapes[facts.reads[place].read.tensor]),
    )
    operands = tuple(facts.reads[place] for place in by_size)
    read_by = [operand.read for operand in operands]
    fusion = facts.fusion
    held = fusion.held if fusion is not None else frozenset()
    handed = [read.tensor in held for read in read_by]
    maps = [input_map(access, axes, facts.context) for access in operands]
    if fusion is not None and facts.vector is not None:
        vector = axes.names.index(facts.vector)
        moved = zip(maps, read_by, handed, strict=True)
        maps = [
            each.turned(vector) if hold or all(fusion.pitches[read].values) else each
            for each, read, hold in moved
        ]
    output = output_map(
        axes,
        _dtype_bytes(facts),
        is_rows=facts.columns is not None,
        whole_rows=facts.columns is not None and facts.columns.written,
    )
    return NestTable(
        facts=facts,
        isa=facts.context.isa,
        axes=axes,
        choices=ChoiceColumns(
            columns={knob.name: column for column, knob in enumerate(space.knobs)}
        ),
        operands=operands,
        places=tuple(by_size),
        constant=tuple(access.read.tensor in constants for access in operands),
        reads=(*maps, output),
        held=np.array([*handed, facts.result in held]),
        tiles=tiles,
        blocks=tuple(
            _blocks(facts, axis, sizes)
            for axis, sizes in zip(axes.spatial, tiles.sizes, strict=True)
        ),
        outer_order=order_lookup(facts.outer_order, axes),
        inner_order=order_lookup(facts.inner_order, axes),
        reduction=reduction_lookup(facts, axes, tiles.column),
    )


def _blocks(facts: LoopNestFacts, axis: Axis, tiles: Floats) -> BlockLookup:
    """Of one spatial axis, register tiles of these sizes."""
    choice = facts.cache_blocks.get(axis.name)
    if facts.fusion is None:
        return block_lookup(axis, tiles, choice)
    assert choice is not None  # regions have an extent along each axis
    lanes = facts.lanes if axis.name == facts.vector else 1
    return region_lookup(tiles, choice, facts.fusion.loops[axis.name], lanes)


def _dtype_bytes(facts: LoopNestFacts) -> int:
    anchor = next((stage for stage in facts.stages if stage.reducer is not None), facts.stages[0])
    return DTYPE_BYTES[anchor.accumulator if anchor.reducer else anchor.dtype]


def _transcendentals(stage: Stage) -> int:
    """Evaluations of functions that no instruction computes."""
    powers = sum(isinstance(node, Binary) and node.op == "pow" for node in walk(stage.body))
    return (approximated_functions(stage.body) + powers) * stage.points
