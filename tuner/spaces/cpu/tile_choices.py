"""The knobs of a tile sketch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import permutations
from typing import Any

from tuner.spaces.core.choice import Choice, choice
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.cpu.arithmetic import TileValues
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.facts import Unrolling
from tuner.spaces.cpu.memory_values import function_sources, prefetch_distances, tile_store_modes
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.program.program import MathFunctions

# Elements of an axis in a cache block, besides none and the whole extent.
CACHE_BLOCKS = (32, 64, 128, 256, 512, 1024)
# Elements of an axis that fit a register tile. Beyond it, several tiles may share what one
# of them has brought in.
MIN_BLOCK = 4


@dataclass(frozen=True, kw_only=True)
class TileChoices:
    """All decisions of a tile sketch."""

    register_tile: Choice[tuple[int, ...]]  # elements of each axis of the anchor
    cache_blocks: Mapping[str, Choice[int]]  # elements of each major axis; 0 for no blocking
    outer_order: Choice[tuple[str, ...]]
    inner_order: Choice[tuple[str, ...]]
    # Iterations of a block of the longest reduction axis. None for a map.
    reduction_block: Choice[int] | None
    unrolling: Choice[Unrolling] | None  # None for a map
    copies: tuple[Choice[CopyMode], ...]  # how each read is copied
    prefetch: Choice[int]  # bytes of a map, blocks of a reduction, packed parts, gathered rows
    store_mode: Choice[StoreMode]
    math_functions: Choice[MathFunctions]

    @property
    def in_order(self) -> tuple[Choice[Any], ...]:
        """In the order of the knobs."""
        reduction: tuple[Choice[Any], ...] = ()
        if self.reduction_block is not None and self.unrolling is not None:
            reduction = (self.reduction_block, self.unrolling)
        return (
            self.register_tile,
            *self.cache_blocks.values(),
            self.outer_order,
            self.inner_order,
            *reduction,
            *self.copies,
            self.prefetch,
            self.store_mode,
            self.math_functions,
        )


def tile_choices(
    owner: str, stage: TiledStage, values: TileValues, *, copying: bool
) -> TileChoices:
    """The choices of a sketch whose knobs' names begin with `owner`.

    `copying`: whether an operand that can be read in place may be copied instead, or
    prefetched; gathered rows may always be.
    """
    distances = prefetch_distances(stage, copying=copying)
    return TileChoices(
        register_tile=choice(owner, KnobRole.REGISTER_TILE, values.register_tiles, tuple),
        cache_blocks={
            name: choice(owner, KnobRole.CACHE_BLOCK, _block_values(stage, name), int, subject=name)
            for name in stage.major_axes
        },
        outer_order=_orders(owner, KnobRole.OUTER_ORDER, stage),
        inner_order=_orders(owner, KnobRole.INNER_ORDER, stage),
        reduction_block=(
            choice(owner, KnobRole.REDUCTION_BLOCK, values.reduction_blocks, int)
            if stage.is_sum
            else None
        ),
        unrolling=(
            choice(
                owner, KnobRole.UNROLL, values.unrollings, lambda way: (way.position, way.factor)
            )
            if stage.is_sum
            else None
        ),
        copies=_copies(owner, stage, values, copying=copying),
        prefetch=choice(owner, KnobRole.PREFETCH, distances, int),
        store_mode=choice(
            owner, KnobRole.STORE_MODE, tile_store_modes(stage), lambda mode: mode.value
        ),
        math_functions=choice(owner, KnobRole.MATH_FUNCTIONS, function_sources(stage), str),
    )


def _block_values(stage: TiledStage, name: str) -> list[int]:
    """Elements of a cache block, 0 for no blocking."""
    extent = stage.extent(name)
    if extent <= MIN_BLOCK:
        return [0]
    # Of a thread: the longest runs of memory that each can have.
    share = -(-extent // stage.context.units)
    between = {size for size in (*CACHE_BLOCKS, share) if MIN_BLOCK < size < extent}
    return [0, *sorted(between), extent]


def _orders(owner: str, role: KnobRole, stage: TiledStage) -> Choice[tuple[str, ...]]:
    """All axes: those without a say first, then the major ones in every order."""
    major = stage.major_axes
    rest = [axis.name for axis in stage.group.anchor.axes if axis.name not in major]
    stored = tuple(permutations(range(len(major))))
    orders = tuple((*rest, *(major[position] for position in order)) for order in stored)
    return Choice(owner=owner, role=role, values=orders, stored=stored)


def _copies(
    owner: str, stage: TiledStage, values: TileValues, *, copying: bool
) -> tuple[Choice[CopyMode], ...]:
    choices = []
    for number, (read, modes) in enumerate(zip(stage.reads, values.copies, strict=True)):
        in_place = modes[0] is CopyMode.NONE
        choices.append(
            choice(
                owner,
                KnobRole.COPY,
                modes[:1] if in_place and not copying else modes,
                lambda mode: mode.value,
                subject=f"{number}_{read.read.tensor}",
            )
        )
    return tuple(choices)
