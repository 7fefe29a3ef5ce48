"""Lookup tables from the indices of a sketch's choices to extents, orders and tiles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.axes import Ints, NestAxes
from tuner.spaces.core.choice import Choice
from tuner.spaces.core.space import Points
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.spaces.program.tiles import fit_block
from tuner.workload.expression import Axis


@dataclass(frozen=True, kw_only=True)
class ChoiceColumns:
    """Which column of a space's points holds each choice, by the choice's name."""

    columns: Mapping[str, int]

    def index(self, points: Points, choice: Choice[Any] | None) -> Ints:
        """The index of each point's value, (n,); zeros where there is no choice."""
        if choice is None or not choice.is_open:
            return np.zeros(len(points), np.int64)
        return points[:, self.columns[choice.name]].astype(np.int64)


@dataclass(frozen=True, kw_only=True)
class TileLookup:
    """Register tiles, by index of their choice's value."""

    choice: Choice[tuple[int, ...]]
    sizes: Floats  # (spatial, values) elements of each axis
    column: Floats  # (values,) of the column, of rows; else of the last tiled axis
    partials: Floats  # (values,) accumulators that an output element has beside its vector's


def tile_lookup(facts: LoopNestFacts, axes: NestAxes) -> TileLookup:
    """Of the register tiles of a sketch."""
    values = facts.register_tile.values
    tiles = np.array(values, np.int64).reshape(len(values), -1)
    ones = np.ones(len(values), np.int64)
    sizes = [
        tiles[:, facts.tiled.index(axis.name)] if axis.name in facts.tiled else ones
        for axis in axes.spatial
    ]
    column = (tiles[:, -1] if tiles.size else ones).astype(np.float32)
    vectors = np.maximum(column // max(facts.lanes, 1), 1.0)
    return TileLookup(
        choice=facts.register_tile,
        sizes=np.array(sizes, np.float32),
        column=column,
        partials=np.ones_like(column) if facts.columns is None else vectors,
    )


@dataclass(frozen=True, kw_only=True)
class BlockLookup:
    """Cache blocks of one spatial axis, by index of the register tile and of the block."""

    choice: Choice[int] | None
    values: int  # of the choice
    # (3, tiles * values): register tiles of a cache block, cache blocks, and elements of a
    # register tile
    table: Floats

    def decode(self, points: Points, columns: ChoiceColumns, tile: Ints) -> Floats:
        """What the table has of each point, (3, n)."""
        return self.table[:, tile * self.values + columns.index(points, self.choice)]


def block_lookup(axis: Axis, tiles: Floats, choice: Choice[int] | None) -> BlockLookup:
    """Of an axis whose register tiles have these sizes; without a choice there are no blocks."""
    elements = (0,) if choice is None else choice.values
    rows = []
    for tile in map(int, tiles):
        count = -(-axis.extent // tile)
        fitting = [fit_block(count, -(-size // tile)) for size in elements]
        rows += [(block, -(-count // block), tile) for block in fitting]
    table = np.array(rows, np.float32).T.copy()
    return BlockLookup(choice=choice, values=len(elements), table=table)


def region_lookup(
    tiles: Floats, regions: Choice[int], loops: Choice[int], lanes: int
) -> BlockLookup:
    """Of an axis of a fused stage, whose cache blocks are its regions.

    A register tile has whole vectors of `lanes`, of fewer lanes where a region has fewer
    elements. `loops` over tiles of the last stage move the region.
    """
    choice = regions if regions.is_open else loops
    region = np.broadcast_to(np.array(regions.values, np.float32), len(choice.values))
    fitting = np.minimum(lanes, np.exp2(np.floor(np.log2(region))))
    size = np.maximum(np.minimum(tiles[:, None], region) // fitting * fitting, fitting)
    moved = np.broadcast_to(np.array(loops.values, np.float32), size.shape)
    table = np.stack([np.ceil(region / size), moved, size]).reshape(3, -1)
    return BlockLookup(choice=choice, values=len(region), table=table.astype(np.float32))


def order_lookup(orders: Choice[tuple[str, ...]], axes: NestAxes) -> Ints:
    """Positions of the spatial axes in loop order, by index of the choice's value.

    Shape (spatial, values).
    """
    names = [axis.name for axis in axes.spatial]
    positions = [[names.index(name) for name in order if name in names] for order in orders.values]
    return np.array(positions, np.int64).reshape(len(positions), len(names)).T.copy()


@dataclass(frozen=True, kw_only=True)
class ReductionLookup:
    """Loops over the reduction axes, by index of what decides them.

    That is the block and the unrolling of a tile sketch, the register tile of rows.
    """

    divided: int  # the axis that reduction blocks divide
    axis: Ints  # (reductions, values) which axis a loop runs over, outermost first
    extent: Floats  # (reductions, values) iterations of a loop
    span: Floats  # (reductions, values) elements of each axis in a body, in the axes' order
    blocks: Floats  # (values,) reduction blocks


@dataclass(frozen=True, kw_only=True)
class _ReductionTile:
    """One value of a reduction's choices."""

    block: int  # iterations of a block of the longest axis
    innermost: int  # the position of the innermost axis
    unrolled: int  # its iterations in a body


def reduction_lookup(facts: LoopNestFacts, axes: NestAxes, column: Floats) -> ReductionLookup:
    """Of the reduction of a sketch; `column` has the tiles of rows along their column."""
    reduction, spatial = facts.reduction, len(axes.spatial)
    looped = [reduction.index(axis) for axis in axes.reduced]
    longest = _longest(reduction)
    order, extent, span, blocks = [], [], [], []
    for tile in _reduction_tiles(facts, column):
        block = [axis.extent for axis in reduction]
        body = [axis.extent if axis.name in axes.instruction_axes else 1 for axis in reduction]
        if reduction:
            block[longest] = tile.block
            if reduction[tile.innermost].name not in axes.instruction_axes:
                body[tile.innermost] = tile.unrolled
        loops = sorted(looped, key=lambda position: position == tile.innermost)
        order.append([spatial + looped.index(position) for position in loops])
        extent.append([-(-block[position] // body[position]) for position in loops])
        span.append([body[position] for position in looped])
        blocks.append(reduction[longest].extent // tile.block if reduction else 1)
    shape = (len(blocks), len(looped))
    return ReductionLookup(
        divided=_divided(reduction, axes),
        axis=np.array(order, np.int64).reshape(shape).T.copy(),
        extent=np.array(extent, np.float32).reshape(shape).T.copy(),
        span=np.array(span, np.float32).reshape(shape).T.copy(),
        blocks=np.array(blocks, np.float32),
    )


def _reduction_tiles(facts: LoopNestFacts, column: Floats) -> list[_ReductionTile]:
    reduction = facts.reduction
    if not reduction:
        return [_ReductionTile(block=1, innermost=0, unrolled=1)]
    longest, last = _longest(reduction), len(reduction) - 1
    blocks, unrollings = facts.reduction_block, facts.unrolling
    if blocks is None or unrollings is None:  # of rows
        return [
            _ReductionTile(block=reduction[longest].extent, innermost=last, unrolled=int(elements))
            for elements in column
        ]
    tiles = []
    for block in blocks.values:
        for unrolling in unrollings.values:
            innermost = unrolling.position
            iterations = block if innermost == longest else reduction[innermost].extent
            unrolled = unrolling.factor if iterations % unrolling.factor == 0 else 1
            tiles.append(_ReductionTile(block=block, innermost=innermost, unrolled=unrolled))
    return tiles


def _longest(axes: Sequence[Axis]) -> int:
    """The reduction axis that blocks divide: the first of the longest."""
    return max(range(len(axes)), key=lambda position: (axes[position].extent, -position), default=0)


def _divided(reduction: Sequence[Axis], axes: NestAxes) -> int:
    """The number of the axis that reduction blocks divide.

    Where it has no loop of its own, the first reduction axis; without any, the first axis.
    """
    longest = reduction[_longest(reduction)].name if reduction else None
    if longest in axes.names:
        return axes.names.index(longest)
    return len(axes.spatial) if axes.reduced else 0
