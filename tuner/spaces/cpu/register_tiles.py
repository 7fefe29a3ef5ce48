"""The register tiles that a target's vector registers leave of a stage."""

from __future__ import annotations

from collections.abc import Collection
from itertools import product
from math import prod

from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.rewrite.stages import is_expensive
from tuner.workload.expression import Axis

MAX_REGISTER_TILE = 16  # elements of an axis that is not vectorised
MAX_COSTLY_VECTORS = 4  # vectors of a tile whose points each cost transcendental functions


def register_tiles(
    stage: TiledStage, undivided: Collection[str] = (), least: int = 8
) -> list[tuple[int, ...]]:
    """Register tiles, one number an axis; 1 for each axis in `undivided`.

    As many accumulators as registers allow, and enough of them to hide latency: `least`
    or more where that is possible.
    """
    axes = stage.group.anchor.axes
    budget = _accumulator_budget(stage)
    counted = []
    choices = ([1] if axis.name in undivided else _tile_sizes(stage, axis) for axis in axes)
    for tile in product(*choices):
        sizes = {axis.name: size for axis, size in zip(axes, tile, strict=True)}
        plain = (sizes[name] for name in sizes if name not in (stage.vector, stage.across))
        if sum(size > 1 for size in plain) > 2:
            continue
        vectors = 1 if stage.vector is None else sizes[stage.vector] // stage.lanes
        accumulators = prod(tile) // (stage.lanes if stage.vector else 1)
        if accumulators + (_operands(stage, vectors) if stage.is_sum else 0) <= budget:
            counted.append((accumulators, tile))
    most = max(accumulators for accumulators, _ in counted)
    least = min(least, most) if stage.is_sum and len(stage.reads) > 1 else 1
    in_order = sorted(counted, key=lambda entry: entry[1][::-1])
    return [tile for accumulators, tile in in_order if accumulators >= least]


def _tile_sizes(stage: TiledStage, axis: Axis) -> list[int]:
    """Elements of one axis in a register tile."""
    if axis.name in (stage.vector, stage.across):
        counts = (1, 2, 3, 4, 6, 8) if axis.name == stage.vector else (1, 2, 4)
        return [count * stage.lanes for count in counts if count * stage.lanes <= axis.extent]
    if axis.extent == 1 or (stage.is_sum and stage.is_batch(axis)):
        return [1]
    return list(range(1, min(axis.extent, MAX_REGISTER_TILE) + 1))


def _accumulator_budget(stage: TiledStage) -> int:
    """Accumulators, with the operands of a step, that a register tile may take."""
    # Transcendental functions are unrolled with the tile: beyond a few of them the
    # compiler takes seconds and gains nothing.
    costly = not stage.is_sum and is_expensive(stage.group.anchor.body)
    budget = MAX_COSTLY_VECTORS if costly else stage.context.target.vector_registers
    # The smallest tile that is transposed in registers is a square.
    return budget if stage.across is None else max(budget, stage.lanes)


def _operands(stage: TiledStage, vectors: int) -> int:
    """Registers that the operands of a step take: one operand's vectors, and the element
    that lanes share.

    AVX-512 broadcasts that element from memory for free where one vector takes it. For
    several the compiler keeps it. Where accumulators leave no register for it, it stores
    and loads some of them in every step (docs/design-notes/0010).
    """
    shared = any(stage.vector not in read.axes for read in stage.reads)
    free = stage.context.target.vector_bytes >= 64 and (vectors == 1 or not shared)
    return vectors if free else vectors + 1
