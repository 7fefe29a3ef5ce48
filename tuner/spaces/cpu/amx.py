"""Sums of products in AMX's tile registers: the tile sketch with one reduction axis
taken in steps of a register's width.

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
from tuner.spaces.core.space import Config
from tuner.spaces.cpu.copy_mode import CopyMode
from tuner.spaces.cpu.tile_knobs import TileSketch
from tuner.spaces.cpu.tile_plan import TilePlan
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.dot_products import factors, shared_axes, split_reduction
from tuner.spaces.rewrite.groups import TileGroup
from tuner.target.architectures.x86_64.instructions import AMX
from tuner.workload.expression import DTYPE_BYTES, Axis

DEPTHS = (
    8,
    16,
    32,
    64,
    128,
)  # steps in a block of the reduction: of 4 KiB for two by two registers
# Registers of sums, rows by columns; beside them the operands of one side and at least
# one of the other.
TILES = tuple(
    (rows, columns)
    for rows in (1, 2, 3, 4, 6)
    for columns in (1, 2, 3, 4, 6)
    if rows * columns + min(rows, columns) + 1 <= AMX.registers
)


@dataclass(frozen=True)
class AmxSketch(TileSketch):
    """The group's anchor has a reduction axis cut in three: steps, words of a step and
    numbers of a word, `instruction_axes` at once."""

    row: str = ""  # the axis along which the sums of a register have their rows
    # the reduction axis that goes over products of parts, where factors are numbers in parts
    parts: str | None = None

    @property
    def name(self) -> str:
        return f"amx_{self.vector}"

    @property
    def rate(self) -> float:
        """An instruction takes the time of its rows or of a step's words, whichever are
        more (docs/design-notes/0012)."""
        words = next(
            axis.extent
            for axis in self.group.anchor.reduce_axes
            if axis.name == self.instruction_axes[0]
        )
        unit = self.context.isa.matrix_unit({self.context.dtypes[self.reads[0].read.tensor]})
        assert unit is not None  # the sketch is offered only where there is one
        return unit.rate * min(self.rows, words) / unit.rows

    @property
    def rows(self) -> int:
        """Rows of a register in use: where the axis is no multiple of 16, as many in
        each of as few."""
        extent = self._extent(self.row)
        return -(-extent // -(-extent // AMX.rows))

    @property
    def loads_whole_rows(self) -> bool:
        return True

    def register_values(self) -> list[tuple[int, ...]]:
        def tile(axis: Axis, rows: int, columns: int) -> int:
            return (
                rows * self.rows
                if axis.name == self.row
                else columns * self.lanes
                if axis.name == self.vector
                else 1
            )

        tiles = [tuple(tile(axis, *sizes) for axis in self.group.anchor.axes) for sizes in TILES]
        extents = [axis.extent for axis in self.group.anchor.axes]
        return [
            sizes
            for sizes in tiles
            if all(size <= extent for size, extent in zip(sizes, extents, strict=True))
        ]

    def copy_values(self, access: Access) -> list[CopyMode]:
        values: list[CopyMode] = []
        if self._rows_in_memory(access):
            if access.padded:
                parts = any(
                    axis.extent > 1 and self._fixed(axis) and access.divides(axis.name)
                    for axis in self.group.anchor.axes
                )
                values += [CopyMode.PAD, CopyMode.PAD_PARTS] if parts else [CopyMode.PAD]
            elif access.read.tensor in self.context.exact:
                values.append(CopyMode.NONE)
        if self._grows_little(access) or not values:
            values += [CopyMode.PACK, CopyMode.PACK_ROOT]
        return values

    def _rows_in_memory(self, access: Access) -> bool:
        """Whether a step of the reduction lies side by side, so that a register's rows
        can be loaded from where they are."""
        if self.vector in access.axes or access.gathered:
            return False
        _, numbers = self.instruction_axes
        return access.stride(numbers) == 1 and access.stride(self.row) is not None

    def _depth_values(self) -> list[int]:
        axis = self._main_reduction()
        if axis.name in self.instruction_axes:
            return [axis.extent]
        divisors = [
            size for size in range(min(DEPTHS), axis.extent // 2 + 1) if axis.extent % size == 0
        ]
        near = {
            min(divisors, key=lambda size: abs(size - want))
            for want in DEPTHS
            if divisors and want < axis.extent
        }
        return [*sorted(near), axis.extent]

    def unroll_values(self) -> list[tuple[int, int]]:
        """Never unrolled: (innermost reduction axis, 1). Products of parts are done one
        after another wherever their axis is."""
        axes = self.group.anchor.reduce_axes
        positions = dict.fromkeys(position for position, _ in super().unroll_values())
        return [(position, 1) for position in positions if axes[position].name != self.parts] or [
            (len(axes) - 1, 1)
        ]

    def plan(self, config: Config) -> TilePlan:
        return replace(super().plan(config), register_rows=self.row, factor_parts=self.parts)


def amx_sketch(
    group: TileGroup, context: SpaceContext, vector: str, parts: str | None = None
) -> AmxSketch | None:
    """None where the target has no such registers for the anchor's operands, or the
    anchor is no sum of products with an axis for a register's rows and one for its
    steps. `parts`: its reduction axis over products of parts, if it has one."""
    shapes, dtypes = context.shapes, context.dtypes
    anchor, reads = group.anchor, accesses(group.anchor, shapes)
    operands = factors(anchor)
    if operands is None:
        return None
    unit = context.isa.matrix_unit({dtypes[operand.tensor] for operand in operands})
    if unit is None:
        return None
    if {vector in read.axes for read in reads} != {True, False}:
        return None
    narrow = next(read for read in reads if vector not in read.axes)
    apart = set().union(*(read.axes for read in reads if vector in read.axes))
    rows = [axis for axis in anchor.axes if axis.extent > 1 and axis.name in narrow.axes - apart]
    shared = shared_axes(anchor, reads)
    if not rows or not shared:
        return None
    row = max(rows, key=lambda axis: (min(axis.extent, 2 * unit.rows), anchor.axes.index(axis)))
    numbers = unit.word_bytes // DTYPE_BYTES[dtypes[operands[0].tensor]]
    step_elements = unit.rows * numbers
    longest = sorted(
        shared, key=lambda axis: (-min(axis.extent, step_elements), narrow.stride(axis.name) != 1)
    )
    steps = (
        (axis, (-(-min(axis.extent, step_elements) // numbers), numbers))
        for axis in longest
        if axis.name != parts
    )
    made = next(
        (
            made
            for axis, step in steps
            if (made := split_reduction(anchor, axis, step, shapes, dtypes)) is not None
        ),
        None,
    )
    if made is None:
        return None
    group = replace(group, anchor=made[0])
    sketch = AmxSketch(group, context, vector, row=row.name, instruction_axes=made[1], parts=parts)
    wide = next(read for read in sketch.reads if vector in read.axes)
    packable = (
        not any(read.gathered for read in sketch.reads)
        and sketch.copy_values(wide)[-1] is CopyMode.PACK_ROOT
    )
    return sketch if packable and sketch.register_values() else None
