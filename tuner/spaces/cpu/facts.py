"""What a CPU sketch says of its loop nests: all that the cost model knows of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tuner.spaces.core.choice import Choice
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.store_mode import StoreMode
from tuner.spaces.program.program import MathFunctions
from tuner.spaces.rewrite.access import Access
from tuner.workload.expression import Axis, Read, Stage


@dataclass(frozen=True, slots=True, kw_only=True)
class Unrolling:
    """The innermost loop of a reduction tile."""

    position: int  # of the reduction axis that is innermost, among the anchor's
    factor: int  # iterations of it in the unrolled body


@dataclass(frozen=True, slots=True, kw_only=True)
class RowColumns:
    """Facts of nests that share rows: each tile runs along a column, pass by pass."""

    written: bool  # whether the output has the column too, so that whole rows are written
    recompute: tuple[Choice[bool], ...]  # of each optional stage: whether each reader computes it


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefetchedRead:
    """A read of a sum that may be prefetched."""

    read: Access
    in_place: bool  # its next block of the reduction, or gathered rows, where it is not copied
    packed: bool  # its next part, where parts are packed
    whole: bool  # what follows in the packed copy of all of it


@dataclass(frozen=True, slots=True, kw_only=True)
class Fusion:
    """Facts of the nest of one stage of several that share the tiles of the last one.

    Cache blocks are the stage's regions: register tiles are no larger than these, and those
    side by side may overlap. What stages hand on to each other is held in buffers of a
    tile's size, in which elements along the vectors lie side by side.
    """

    loops: Mapping[str, Choice[int]]  # by axis, over the tiles with which the region moves
    # of `spatial`, with one element: those of the last stage along which tiles compute all again
    repeated: tuple[str, ...]
    tasks: Choice[int]  # that threads share
    held: frozenset[str]  # names of what is handed on, in `reads` and as a result
    held_bytes: Choice[int]  # of all buffers for what is handed on, and of copies
    # by read the elements from one row to the next of a tile's copy, 0 where it is in place
    pitches: Mapping[Read, Choice[int]]
    copied: Choice[float]  # elements of these copies, in the whole kernel
    inner: tuple[LoopNestFacts, ...] = ()  # of the last stage, the nests of all others


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopNestFacts:
    """The loop nests of one sketch of one group, as far as their time depends on it."""

    context: SpaceContext
    stages: tuple[Stage, ...]  # in the nest; the one that reduces is the anchor, else the first
    epilogue: Stage | None  # done on the finished tile
    spatial: tuple[Axis, ...]
    reduction: tuple[Axis, ...]  # of rows the column last
    # None for a nest of tiles. With columns, `reduction_block` and `unrolling` are None: the
    # register tile says how rows are reduced.
    columns: RowColumns | None = None
    vector: str | None  # the vectorised axis
    lanes: int  # elements of a vector
    tiled: tuple[str, ...]  # the axes of a register tile, in the order of its sizes
    register_tile: Choice[tuple[int, ...]]  # elements of each tiled axis, of rows the column last
    cache_blocks: Mapping[str, Choice[int]] = field(default_factory=dict)  # elements; 0 for none
    outer_order: Choice[tuple[str, ...]]  # all spatial axes, loops over cache blocks
    inner_order: Choice[tuple[str, ...]]  # all spatial axes, loops over register tiles
    reduction_block: Choice[int] | None = None  # iterations of the longest reduction axis
    unrolling: Choice[Unrolling] | None = None
    reads: tuple[Access, ...]
    copies: tuple[Choice[CopyMode], ...] = ()  # one for each read, or none at all
    # how far: bytes of a map, blocks or gathered rows of a sum, tiles of rows
    prefetch: Choice[int]
    prefetched: tuple[PrefetchedRead, ...] = ()
    store_mode: Choice[StoreMode]
    math_functions: Choice[MathFunctions]
    # Reduction axes that one instruction takes as a whole (dot products, matrix registers).
    instruction_axes: tuple[str, ...] = ()
    rate: float = 1.0  # multiply-adds in the time that one vector of float32 takes, by lane
    loads_whole_rows: bool = False  # every operand goes to matrix registers, row by row
    multiplies_matrices: bool = False  # every operand is in vectors that hold small matrices
    operations: float | None = None  # of each point, where they are not those of the stages' bodies
    fusion: Fusion | None = None  # None for a nest of one group
    computed_share: float = 1.0  # of the points, those that conditions do not exclude

    @property
    def nests(self) -> tuple[LoopNestFacts, ...]:
        """These, and those of the other stages of a fused group."""
        return (self,) if self.fusion is None else (self, *self.fusion.inner)

    @property
    def result(self) -> str:
        """The name of what is written."""
        return self.stages[0].name if self.epilogue is None else self.epilogue.name
