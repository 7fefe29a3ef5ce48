"""Instructions with which an innermost body loads its operands, for a batch of configs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.cost_model.arrays import Floats, Mask, either
from tuner.cost_model.cpu.nests import Nests, NestTable
from tuner.cost_model.cpu.reads import ReadMap
from tuner.spaces.program.program import LARGEST_SHUFFLED_STRIDE


@dataclass(frozen=True, kw_only=True)
class OperandCounts:
    """What one body loads. All arrays have shape (n,)."""

    loads: Floats  # vectors
    reused: Floats  # of these, vectors of a step that several accumulators use
    broadcasts: Floats  # single elements that all vector lanes share
    shuffles: Floats  # that make vectors of elements a few places apart
    gathered: Floats  # elements along the vector that lie farther apart
    kept: Floats  # vectors and elements that an unrolled body uses again
    adjacent: Floats  # broadcast elements whose neighbours in memory the body uses too

    @property
    def total(self) -> Floats:
        """Loads of vectors and of single elements."""
        total: Floats = self.loads + self.broadcasts
        return total

    def __add__(self, other: OperandCounts) -> OperandCounts:
        return OperandCounts(
            loads=self.loads + other.loads,
            reused=self.reused + other.reused,
            broadcasts=self.broadcasts + other.broadcasts,
            shuffles=self.shuffles + other.shuffles,
            gathered=self.gathered + other.gathered,
            kept=self.kept + other.kept,
            adjacent=self.adjacent + other.adjacent,
        )


def operand_counts(table: NestTable, nest: Nests, accumulators: Floats) -> OperandCounts:
    """Loads of all inputs by one body.

    Each distinct element counts once: the compiler keeps what an unrolled body uses
    twice. What a single accumulator uses comes from memory.
    """
    counts = _counts(nest.span.shape[1])
    for number, read in enumerate(table.reads[: table.inputs]):
        in_order = nest.packed[number] & ~nest.boxed[number]
        counts += _of_read(table, read, nest, in_order, accumulators)
    return counts


def _of_read(
    table: NestTable, read: ReadMap, nest: Nests, packed: Mask, accumulators: Floats
) -> OperandCounts:
    uses = nest.span[read.uses].prod(axis=0)
    if table.facts.loads_whole_rows:  # of matrices, whole rows at a time
        return _counts(len(uses), loads=uses * (read.dtype_bytes / table.isa.line_bytes))
    distinct = either(packed, uses, np.minimum(uses, read.sizes(nest.span).prod(axis=0)))
    if table.facts.multiplies_matrices:  # of both sides whole vectors
        vectors = distinct * (read.dtype_bytes / (nest.lanes * table.dtype_bytes))
        moves = bool(nest.vector >= 0 and read.uses[nest.vector])
        return _counts(len(uses), loads=vectors, reused=vectors if moves else None)
    in_one_instruction = nest.span[table.spatial :][~table.axes.stepped].prod(axis=0)
    uses, distinct = uses / in_one_instruction, distinct / in_one_instruction
    if nest.vector >= 0 and read.uses[nest.vector]:
        return _vectors(table, read, nest, packed, accumulators, uses=uses, distinct=distinct)
    adjacent = np.zeros(len(uses), np.bool_)
    for axis in range(table.spatial, len(table.axes.names)):
        if read.strides[axis] == 1 and table.axes.stepped[axis - table.spatial]:
            adjacent |= nest.span[axis] > 1
    return _counts(
        len(uses),
        broadcasts=distinct,
        kept=distinct * (distinct < uses),
        adjacent=distinct * adjacent,
    )


def _vectors(
    table: NestTable,
    read: ReadMap,
    nest: Nests,
    packed: Mask,
    accumulators: Floats,
    *,
    uses: Floats,
    distinct: Floats,
) -> OperandCounts:
    """Of a read that moves with the vectorised axis; `uses` and `distinct` count elements."""
    vector_lanes = max(nest.lanes, 1)
    stride = either(packed, 1, int(read.strides[nest.vector]))
    vectors = distinct / vector_lanes * ((stride >= 1) & (stride <= LARGEST_SHUFFLED_STRIDE))
    of_tile = nest.span[: table.spatial][read.uses[: table.spatial]]
    of_step = of_tile.prod(axis=0) / vector_lanes
    return _counts(
        len(uses),
        loads=vectors * stride,
        reused=of_step * (of_step < accumulators),
        shuffles=vectors * (stride - 1),
        gathered=distinct * (vectors == 0),
        kept=of_step * ((of_step >= accumulators) & (distinct < uses)),
    )


def _counts(
    configs: int,
    *,
    loads: Floats | None = None,
    reused: Floats | None = None,
    broadcasts: Floats | None = None,
    shuffles: Floats | None = None,
    gathered: Floats | None = None,
    kept: Floats | None = None,
    adjacent: Floats | None = None,
) -> OperandCounts:
    """The given counts, zeros for the others."""
    none: Floats = np.zeros(configs, np.float32)
    return OperandCounts(
        loads=none if loads is None else loads,
        reused=none if reused is None else reused,
        broadcasts=none if broadcasts is None else broadcasts,
        shuffles=none if shuffles is None else shuffles,
        gathered=none if gathered is None else gathered,
        kept=none if kept is None else kept,
        adjacent=none if adjacent is None else adjacent,
    )
