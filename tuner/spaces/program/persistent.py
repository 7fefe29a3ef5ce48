"""A product as one persistent kernel whose warps have different tasks.

One warpgroup copies boxes of both operands into a ring of stages in shared memory. The
others multiply and store. Blocks stay on their multiprocessors and take tile after tile.
Terms: PTX ISA, "mbarrier", "cp.async.bulk.tensor", "wgmma", "setmaxnreg".
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from math import prod

from tuner.workload.expression import DTYPE_BYTES, Axis, DType, Scalar

ROWS = 64  # of an instruction's fragment
COLUMNS = 64  # of a panel: a part of the right operand that lies together
DEPTH = 64  # of a stage: a row of 128 bytes
ROW_BYTES = 128  # of every box in shared memory
PANEL_BYTES = ROWS * ROW_BYTES
WARPGROUP = 128  # threads
BARRIER_BYTES = 8


class Side(Enum):
    """An operand of a product. The value is the word that configs hold."""

    LEFT = "left"
    RIGHT = "right"


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentTile:
    """What a thread block computes at once, and how its warpgroups share that."""

    consumers: int  # warpgroups that multiply
    fragments: int  # of 64 rows, of one consumer
    panels: int  # of 64 columns
    alternating: bool  # consumers take tiles in turn ("ping-pong"), else parts of each tile
    stages: int  # boxes of both operands in shared memory

    @property
    def rows(self) -> int:
        return ROWS * self.fragments * (1 if self.alternating else self.consumers)

    @property
    def columns(self) -> int:
        return COLUMNS * self.panels

    @property
    def threads(self) -> int:
        return WARPGROUP * (1 + self.consumers)

    @property
    def stage_bytes(self) -> int:
        return (self.rows + self.columns) * ROW_BYTES

    @property
    def accumulators(self) -> int:
        """32-bit registers of a consumer's thread."""
        return self.fragments * self.panels * COLUMNS // 2

    @property
    def stored(self) -> tuple[int, ...]:
        return self.consumers, self.fragments, self.panels, int(self.alternating), self.stages


@dataclass(frozen=True, slots=True, kw_only=True)
class Bands:
    """The order of tiles: bands of adjacent ones along one side, walked along the other.

    What runs at a time then reads few rows and few columns.
    """

    along: Side  # the operand along whose side a band has `width` tiles
    width: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """An operand or the result, as matrices one after another in memory."""

    tensor: str
    batched: bool  # has a matrix for each of the batch, else the same one for all
    transposed: bool = False  # of the right operand: columns before the depth


@dataclass(frozen=True, slots=True, kw_only=True)
class PersistentProduct:
    """The whole kernel."""

    batch: tuple[Axis, ...]
    rows: tuple[Axis, ...]
    columns: Axis
    depth: Axis
    left: Matrix
    right: Matrix
    output: Matrix
    dtype: DType  # of both operands
    output_dtype: DType
    # Value of the output at the axes above, where `sums` is read for the sum; None: the sum.
    epilogue: Scalar | None
    sums: str
    tile: PersistentTile
    bands: Bands
    multiprocessors: int

    @property
    def matrices(self) -> int:
        return prod(axis.extent for axis in self.batch)

    @property
    def height(self) -> int:
        """Rows of a matrix."""
        return prod(axis.extent for axis in self.rows)

    @property
    def steps(self) -> int:
        """Stages that a tile goes through."""
        return -(-self.depth.extent // DEPTH)

    @property
    def down(self) -> int:
        """Tiles from a matrix's top to its bottom."""
        return -(-self.height // self.tile.rows)

    @property
    def across(self) -> int:
        """Tiles side by side."""
        return -(-self.columns.extent // self.tile.columns)

    @property
    def tiles(self) -> int:
        return self.matrices * self.down * self.across

    @property
    def grid(self) -> int:
        """Blocks. No more than run at a time."""
        return min(self.tiles, self.multiprocessors)

    @property
    def strip(self) -> int:
        """Columns of the output that lie together in shared memory."""
        return ROW_BYTES // DTYPE_BYTES[self.output_dtype]

    @property
    def shared_bytes(self) -> int:
        return shared_bytes(self.tile)


def shared_bytes(tile: PersistentTile) -> int:
    """Shared memory of a block: the ring, strips of the output, barriers."""
    strips = tile.consumers * STRIPS * PANEL_BYTES
    return tile.stages * (tile.stage_bytes + 2 * BARRIER_BYTES) + strips


# Strips of a consumer in shared memory: one is written while another is stored.
STRIPS = 2
