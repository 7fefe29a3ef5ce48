"""A product as one persistent kernel whose warps have different tasks.

One warpgroup copies boxes of both operands into a ring of stages in shared memory. The
others multiply and store. Blocks stay on their multiprocessors and take tile after tile.
Terms: PTX ISA, "mbarrier", "cp.async.bulk.tensor", "wgmma", "setmaxnreg".
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from math import prod

from tuner.spaces.program.stream_k import StreamK
from tuner.workload.dtypes import DTYPE_BYTES, ByteFloat, DType
from tuner.workload.expression import Axis, Scalar

ROWS = 64  # of an instruction's fragment
COLUMNS = 64  # of a panel: a part of the right operand that lies together
ROW_BYTES = 128  # of every box in shared memory: what is as deep as a stage
STEP_BYTES = 32  # of a row, that one instruction multiplies
PANEL_BYTES = ROWS * ROW_BYTES
WARPGROUP = 128  # threads
BARRIER_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """What elements of an operand are to the multiplication."""

    kind: str  # PTX's name of the type
    itemsize: int  # bytes
    accumulator: DType
    # Whether sums keep fewer bits than a float32: then only those of a stage are summed so.
    is_summed_short: bool = False
    is_rounded: bool = False  # as it is copied

    @property
    def depth(self) -> int:
        """Elements of a stage's row."""
        return ROW_BYTES // self.itemsize


FACTORS: Mapping[DType, Factor] = {
    "float16": Factor(kind="f16", itemsize=2, accumulator="float32"),
    "bfloat16": Factor(kind="bf16", itemsize=2, accumulator="float32"),
    "int8": Factor(kind="s8", itemsize=1, accumulator="int32"),
    "uint8": Factor(kind="u8", itemsize=1, accumulator="int32"),
}
# Of bytes that stand for such floats. On sm_90 their sums keep 13 bits behind the point of
# the greatest term (SageAttention2, arXiv:2411.10958; DeepSeek-V3, arXiv:2412.19437).
BYTE_FACTORS: Mapping[ByteFloat, Factor] = {
    "float8_e4m3fn": Factor(kind="e4m3", itemsize=1, accumulator="float32", is_summed_short=True),
    "float8_e5m2": Factor(kind="e5m2", itemsize=1, accumulator="float32", is_summed_short=True),
}
# Of float32, of whose mantissa 10 bits are kept.
TF32 = Factor(kind="tf32", itemsize=4, accumulator="float32", is_rounded=True)


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
class Pixels:
    """Rows that are the points of several axes, which a window of the reduction moves.

    A fragment is a box of them, which lies at multiples of the box's sides. The left
    operand has a dimension for each of the axes, and its depth last; the right one one
    for each axis of the window, then depth and columns.
    """

    box: tuple[int, ...]  # points of a fragment along each axis, 64 in all
    window: tuple[Axis, ...]
    strides: tuple[int, ...]  # for each axis, how far a point moves the left operand
    steps: tuple[tuple[int, ...], ...]  # likewise, how far each of the window does
    offsets: tuple[int, ...]  # for each axis, where the first point begins: 0, or in the padding
    extents: tuple[int, ...]  # of the left operand along each axis

    @property
    def taps(self) -> int:
        """Points of the window."""
        return prod(axis.extent for axis in self.window)

    def boxes(self, rows: tuple[Axis, ...]) -> tuple[int, ...]:
        """How many boxes there are along each axis."""
        return tuple(-(-axis.extent // side) for axis, side in zip(rows, self.box, strict=True))


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
    factors: tuple[Factor, Factor]  # the left and the right one, which are as wide
    output_dtype: DType
    # Value of the output at the axes above, where `sums` is read for the sum; None: the sum.
    epilogue: Scalar | None
    sums: str
    tile: PersistentTile
    bands: Bands
    multiprocessors: int
    pixels: Pixels | None = None  # None: rows lie one after another
    shares_depth: bool = False  # of tiles that would leave blocks idle

    @property
    def matrices(self) -> int:
        return prod(axis.extent for axis in self.batch)

    @property
    def height(self) -> int:
        """Rows of a matrix; of pixels those of all boxes."""
        return height_of(self.rows, self.pixels)

    @property
    def chunks(self) -> int:
        """Parts of the depth."""
        return -(-self.depth.extent // self.step)

    @property
    def steps(self) -> int:
        """Stages that a tile goes through."""
        return self.chunks if self.pixels is None else self.pixels.taps * self.chunks

    @property
    def step(self) -> int:
        """Elements of the depth that a stage has."""
        return self.factors[0].depth

    @property
    def accumulator(self) -> DType:
        return self.factors[0].accumulator

    @property
    def is_summed_short(self) -> bool:
        """Whether the sums of a stage are added to the others outside of tensor cores."""
        return any(factor.is_summed_short for factor in self.factors)

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
    def stream_k(self) -> StreamK | None:
        """How blocks share tiles, if they do."""
        shares = StreamK(tiles=self.tiles, steps=self.steps, blocks=self.multiprocessors)
        return shares if self.shares_depth and shares.is_useful else None

    @property
    def grid(self) -> int:
        """Blocks. No more than run at a time."""
        if self.stream_k is not None:
            return self.multiprocessors
        return min(self.tiles, self.multiprocessors)

    @property
    def strip(self) -> int:
        """Columns of the output that lie together in shared memory."""
        return strip_columns(self.output_dtype)

    @property
    def shared_bytes(self) -> int:
        return shared_bytes(self.tile)


def height_of(rows: tuple[Axis, ...], pixels: Pixels | None) -> int:
    """Rows of a matrix; of pixels those of all boxes."""
    if pixels is None:
        return prod(axis.extent for axis in rows)
    return ROWS * prod(pixels.boxes(rows))


def strip_columns(output_dtype: DType) -> int:
    """Columns of a strip, which has rows of 128 bytes."""
    return ROW_BYTES // DTYPE_BYTES[output_dtype]


def shared_bytes(tile: PersistentTile) -> int:
    """Shared memory of a block: the ring, strips of the output, barriers."""
    strips = tile.consumers * STRIPS * PANEL_BYTES
    return tile.stages * (tile.stage_bytes + 2 * BARRIER_BYTES) + strips


# Strips of a consumer in shared memory: one is written while another is stored.
STRIPS = 2
