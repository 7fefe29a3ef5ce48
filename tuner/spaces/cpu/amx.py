"""Sums of products in AMX's tile registers: tiles with one reduction axis taken in steps of
a register's width.

Intel's Advanced Matrix Extensions (Software Developer's Manual, vol. 1, ch. 18) have
eight registers of 16 rows of 64 bytes. One instruction adds, to a register of 32-bit
sums, the product of a register whose rows hold a step of the reduction with one whose
rows hold, for each two bfloat16 or four 8-bit numbers of the step, those of every lane.
Sums of integers are exact; bfloat16's are of float32, with subnormal numbers taken as
zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tuner.spaces.core.context import SpaceContext
from tuner.spaces.cpu.arithmetic import TileValues
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.facts import Unrolling
from tuner.spaces.cpu.reduction_values import block_sizes, unrollings
from tuner.spaces.cpu.tile_plan import Instruction
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.spaces.cpu.tiled_stage import TiledStage
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.bf16x3 import FactorParts
from tuner.spaces.rewrite.dot_products import factors, shared_axes, split_reduction
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.architectures.x86_64.instructions import AMX
from tuner.target.isa import MatrixUnit
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis, Read, Stage

# Steps in a block of the reduction: of 4 KiB for two by two registers.
STEPS = (8, 16, 32, 64, 128)
# Registers of sums, rows by columns; beside them the operands of one side and at least
# one of the other.
TILES = tuple(
    (rows, columns)
    for rows in (1, 2, 3, 4, 6)
    for columns in (1, 2, 3, 4, 6)
    if rows * columns + min(rows, columns) + 1 <= AMX.registers
)


@dataclass(frozen=True)
class MatrixArithmetic:
    """The anchor has a reduction axis cut in three: steps, words of a step and numbers of
    a word, of which an instruction takes the last two at once."""

    row: str  # the axis along which the sums of a register have their rows

    def name(self, stage: TiledStage) -> str:
        return f"amx_{stage.vector}"

    def rate(self, stage: TiledStage) -> float:
        """An instruction takes the time of its rows or of a step's words, whichever are
        more (docs/design-notes/0012)."""
        axes = {axis.name: axis for axis in stage.group.anchor.reduce_axes}
        words = axes[stage.instruction.axes[0]].extent
        unit = stage.context.isa.matrix_unit({stage.context.dtypes[stage.reads[0].read.tensor]})
        assert unit is not None  # the sketch is offered only where there is one
        return unit.rate * min(self.rows(stage), words) / unit.rows

    def rows(self, stage: TiledStage) -> int:
        """Rows of a register in use: where the axis is no multiple of 16, as many in
        each of as few."""
        extent = stage.extent(self.row)
        return -(-extent // -(-extent // AMX.rows))

    def values(self, stage: TiledStage) -> TileValues:
        return TileValues(
            register_tiles=self.register_tiles(stage),
            reduction_blocks=_reduction_blocks(stage),
            unrollings=_unrollings(stage),
            copies=[self.copy_modes(stage, read) for read in stage.reads],
        )

    def register_tiles(self, stage: TiledStage) -> list[tuple[int, ...]]:
        """Whole registers along their rows and along the lanes."""

        def size(axis: Axis, rows: int, columns: int) -> int:
            if axis.name == self.row:
                return rows * self.rows(stage)
            return columns * stage.lanes if axis.name == stage.vector else 1

        axes = stage.group.anchor.axes
        tiles = (tuple(size(axis, *registers) for axis in axes) for registers in TILES)
        return [
            tile
            for tile in tiles
            if all(size <= axis.extent for size, axis in zip(tile, axes, strict=True))
        ]

    def copy_modes(self, stage: TiledStage, access: Access) -> list[CopyMode]:
        """Without a copy only where a register's rows can be loaded from where they are."""
        modes: list[CopyMode] = []
        if self._rows_in_memory(stage, access):
            if access.padded:
                modes.append(CopyMode.PAD)
                modes += [CopyMode.PAD_PARTS] if stage.pads_in_parts(access) else []
            elif access.read.tensor in stage.context.exact:
                modes.append(CopyMode.NONE)
        if stage.grows_little(access) or not modes:
            modes += [CopyMode.PACK, CopyMode.PACK_ROOT]
        return modes

    def _rows_in_memory(self, stage: TiledStage, access: Access) -> bool:
        """Whether a step of the reduction lies side by side in a register's rows."""
        if stage.vector in access.axes or access.gathered:
            return False
        _, numbers = stage.instruction.axes
        return access.stride(numbers) == 1 and access.stride(self.row) is not None


def _reduction_blocks(stage: TiledStage) -> list[int]:
    """Blocks of steps; what an instruction takes is not cut."""
    axis = stage.main_reduction
    if axis.name in stage.instruction.axes:
        return [axis.extent]
    return block_sizes(axis.extent, STEPS)


def _unrollings(stage: TiledStage) -> list[Unrolling]:
    """Never unrolled. Products of parts are done one after another wherever their axis is."""
    axes, parts = stage.group.anchor.reduce_axes, stage.instruction.factor_parts
    over_parts = None if parts is None else parts.axis
    positions = dict.fromkeys(way.position for way in unrollings(stage))
    kept = [position for position in positions if axes[position].name != over_parts]
    return [Unrolling(position=position, factor=1) for position in kept or [len(axes) - 1]]


def amx_sketch(
    group: TileGroup, context: SpaceContext, vector: str, parts: FactorParts | None = None
) -> TileSketch | None:
    """None where the target has no such registers for the anchor's operands, or the
    anchor is no sum of products with an axis for a register's rows and one for its
    steps. `parts`: its products of parts, if it sums such."""
    anchor, reads = group.anchor, accesses(group.anchor, context.shapes)
    operands = factors(anchor)
    if operands is None:
        return None
    unit = context.isa.matrix_unit({context.dtypes[operand.tensor] for operand in operands})
    if unit is None:
        return None
    if {vector in read.axes for read in reads} != {True, False}:
        return None
    narrow = next(read for read in reads if vector not in read.axes)
    apart = set().union(*(read.axes for read in reads if vector in read.axes))
    rows = [axis for axis in anchor.axes if axis.extent > 1 and axis.name in narrow.axes - apart]
    over_parts = None if parts is None else parts.axis
    steps = [axis for axis in shared_axes(anchor, reads) if axis.name != over_parts]
    if not rows or not steps:
        return None
    row = max(rows, key=lambda axis: (min(axis.extent, 2 * unit.rows), anchor.axes.index(axis)))
    made = _cut(anchor, steps, narrow, unit, operands[0], context)
    if made is None:
        return None
    stage = TiledStage(
        group=replace(group, anchor=made[0]),
        context=context,
        vector=vector,
        instruction=Instruction(axes=made[1], register_rows=row.name, factor_parts=parts),
    )
    arithmetic = MatrixArithmetic(row.name)
    wide = next(read for read in stage.reads if vector in read.axes)
    if any(read.gathered for read in stage.reads):
        return None
    if arithmetic.copy_modes(stage, wide)[-1] is not CopyMode.PACK_ROOT:
        return None
    return (
        TileSketch(stage=stage, arithmetic=arithmetic) if arithmetic.register_tiles(stage) else None
    )


def _cut(
    anchor: Stage,
    axes: list[Axis],
    narrow: Access,
    unit: MatrixUnit,
    operand: Read,
    context: SpaceContext,
) -> tuple[Stage, tuple[str, ...]] | None:
    """The anchor with the longest axis that can be cut into steps, words and numbers, and
    the names of the axes of the last two."""
    numbers = unit.word_bytes // DTYPE_BYTES[context.dtypes[operand.tensor]]
    elements = unit.rows * numbers  # of a step
    longest = sorted(
        axes, key=lambda axis: (-min(axis.extent, elements), narrow.stride(axis.name) != 1)
    )
    for axis in longest:
        words = -(-min(axis.extent, elements) // numbers)
        made = split_reduction(anchor, axis, (words, numbers), context.shapes, context.dtypes)
        if made is not None:
            return made
    return None
