"""What one thread block computes, as the first knob of each sketch chooses it.

Each shape has a stored form: the tuple of numbers that configs, recorded tables and the
database hold.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from tuner.spaces.program.persistent import PersistentTile


@dataclass(frozen=True, slots=True, kw_only=True)
class AxisSplit:
    """One axis of a block: threads, the vectors of each thread, the lanes of a vector."""

    threads: int = 1
    vectors: int = 1  # of one thread
    lanes: int = 1  # elements of a vector

    @property
    def held(self) -> int:
        """Elements of one thread."""
        return self.vectors * self.lanes

    @property
    def block(self) -> int:
        """Elements of the thread block."""
        return self.threads * self.held

    @property
    def stored(self) -> tuple[int, int, int]:
        return self.threads, self.vectors, self.lanes


@dataclass(frozen=True, slots=True, kw_only=True)
class TileShape:
    """A tile in the registers of each thread."""

    axes: tuple[AxisSplit, ...]  # those with threads, the one written along last
    depth: int | None  # iterations of a block of the longest reduction axis; None for a map

    @property
    def threads(self) -> int:
        return prod(split.threads for split in self.axes)

    @property
    def accumulators(self) -> int:
        """Elements of one thread."""
        return prod(split.held for split in self.axes)

    @property
    def operands(self) -> int:
        """Elements of one thread's tile along all its sides together."""
        return sum(split.held for split in self.axes)

    @property
    def lanes(self) -> int:
        """Elements of a vector, over all axes."""
        return prod(split.lanes for split in self.axes)

    @property
    def stored(self) -> tuple[int, ...]:
        sizes = tuple(size for split in self.axes for size in split.stored)
        return sizes if self.depth is None else (*sizes, self.depth)


class RowStorage(Enum):
    """What becomes of rows that are read more than once; the value is the stored number."""

    RECOMPUTED = 0  # read, or computed, again
    REGISTERS = 1
    SHARED = 2
    PRELOADED = 3  # in registers, as are rows that only the output reads, before all else

    @property
    def in_registers(self) -> bool:
        return self in (RowStorage.REGISTERS, RowStorage.PRELOADED)


@dataclass(frozen=True, slots=True, kw_only=True)
class RowShape:
    """Rows side by side, each with threads along its column."""

    rows: int  # of a block
    threads: int  # along the column
    lanes: int  # elements of a load
    storage: RowStorage

    @property
    def width(self) -> int:
        """Elements of the column that all threads take in one step."""
        return self.threads * self.lanes

    @property
    def stored(self) -> tuple[int, ...]:
        return self.rows, self.threads, self.lanes, self.storage.value


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpSplit:
    """One axis of a block on tensor cores: warps, and the fragments of each warp."""

    warps: int
    fragments: int  # of one warp


@dataclass(frozen=True, slots=True, kw_only=True)
class FragmentTile:
    """Fragments of tensor cores, dealt out to the warps of a block."""

    rows: WarpSplit
    columns: WarpSplit
    depth: int  # iterations of a block of the reduction
    # Whether windows lie inside a block's boxes or are walked one by one; None without any.
    window_inside: bool | None

    @property
    def warps(self) -> int:
        return self.rows.warps * self.columns.warps

    @property
    def stored(self) -> tuple[int, ...]:
        rows, columns = self.rows, self.columns
        window = () if self.window_inside is None else (int(self.window_inside),)
        return rows.warps, rows.fragments, columns.warps, columns.fragments, self.depth, *window


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpgroupTile:
    """`down` by `across` warpgroups, each with fragments of 64 rows and panels of 64 columns."""

    down: int
    fragments: int  # of 64 rows, of one warpgroup
    across: int
    panels: int  # of 64 columns, of one warpgroup
    stages: int  # copies of the operands in shared memory

    @property
    def warpgroups(self) -> int:
        return self.down * self.across

    @property
    def stored(self) -> tuple[int, ...]:
        return self.down, self.fragments, self.across, self.panels, self.stages


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchShape:
    """A patch of a map for each thread."""

    threads: tuple[int, ...]  # of each axis with threads, the one written along last
    lanes: int  # elements of a vector along the last axis

    @property
    def stored(self) -> tuple[int, ...]:
        return *self.threads, self.lanes


BlockShape = TileShape | RowShape | FragmentTile | WarpgroupTile | PatchShape | PersistentTile


def stored_shape(shape: BlockShape) -> tuple[int, ...]:
    """The shape as configs hold it."""
    return shape.stored
