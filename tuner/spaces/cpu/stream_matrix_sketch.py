"""The stream sketch with both products in matrix registers, of bfloat16."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from tuner.spaces.core.choice import Choice, choice
from tuner.spaces.core.context import SpaceContext
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Config
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.spaces.cpu.stream_matrix_nest import PARTS, TERMS, MatrixStreamNest
from tuner.spaces.cpu.stream_sketch import StreamSketch
from tuner.spaces.program.nest import Nest
from tuner.spaces.rewrite.stream_group import StreamGroup
from tuner.spaces.rewrite.stream_products import StreamProducts, stream_products
from tuner.target.architectures.x86_64.instructions import AMX
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Axis

BLOCKS = (64, 128, 256, 512, 32)  # points of the streamed axis, which words of two divide
# Registers of sums, those below each other and those side by side, as AMX has room for.
ROWS = (2, 4, 1, 3)  # vectors of rows side by side
HIGH = (2, 1, 4, 3, 6)  # registers of points, or of columns


@dataclass(frozen=True)
class MatrixStreamSketch(StreamSketch):
    """As the stream sketch, of operands that matrix registers take."""

    operands: StreamProducts

    @property
    def name(self) -> str:
        return "stream_amx"

    @cached_property
    def tile(self) -> Choice[tuple[int, ...]]:
        """(rows, points of the streamed axis, columns) in registers of sums."""
        columns = self.group.columns[-1].extent
        tiles = [
            (vectors * AMX.rows, points * AMX.rows, high * AMX.rows)
            for vectors in ROWS
            if vectors * AMX.rows <= self.vector.extent
            for points in HIGH
            if _fits(points, vectors) and points * AMX.rows <= self.group.stream.extent
            for high in HIGH
            if _fits(high, vectors) and high * AMX.rows <= columns
        ]
        return choice(self._owner, KnobRole.REGISTER_TILE, tiles, tuple)

    @cached_property
    def block(self) -> Choice[int]:
        extent = self.group.stream.extent
        values = [block for block in BLOCKS if block <= extent]
        return choice(self._owner, KnobRole.REDUCTION_BLOCK, values, int)

    @cached_property
    def facts(self) -> LoopNestFacts:
        """At the rate of both products together, of which the last is done part by part."""
        unit = self.context.isa.matrix_unit({"bfloat16"})
        assert unit is not None  # the sketch is offered only where there is one
        depth, columns = self.operands.depth.extent, self.group.columns[-1].extent
        rate = unit.rate * (depth + columns) / (depth + PARTS * columns)
        return replace(super().facts, rate=rate, loads_whole_rows=True)

    def nest(self, config: Config) -> Nest:
        context = self.context
        return MatrixStreamNest(
            self.plan(config), self.operands, context.shapes, context.dtypes
        ).build()


def matrix_stream_sketch(group: StreamGroup, context: SpaceContext) -> MatrixStreamSketch | None:
    """None where the target has no matrix registers for bfloat16, or an operand does not fill
    them: rows and columns in sixteens, terms of both products in thirty-twos, of the streamed
    axis as many or more in pairs."""
    lanes = context.target.vector_bytes // DTYPE_BYTES[group.dtype]
    if context.isa.matrix_unit({"bfloat16"}) is None or lanes != AMX.rows:
        return None
    shared = [axis for axis in group.shared_rows if axis.extent >= AMX.rows]
    if not shared:
        return None
    vector: Axis = max(shared, key=lambda axis: axis.extent)
    operands = stream_products(group, vector, context.shapes, context.dtypes, context.exact)
    if operands is None:
        return None
    streamed = group.stream.extent
    if operands.depth.extent % TERMS or group.columns[-1].extent % AMX.rows:
        return None
    if streamed < TERMS or streamed % 2:
        return None
    return MatrixStreamSketch(group, context, vector, operands)


def _fits(high: int, wide: int) -> bool:
    """Whether there are registers for the sums, one side's operands and one of the other's."""
    return high * wide + min(high, wide) + 1 <= AMX.registers
