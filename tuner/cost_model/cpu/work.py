"""What the loop nest of each config does: instructions of its innermost body, lives of
its accumulators, copies, borders.

The counts that features and estimated cycles are made of, with what comes through
caches (reuse.py), for a whole batch of configs at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.cost_model.arrays import Floats, Mask, either, products_before
from tuner.cost_model.cpu.nests import (
    NONE,
    PACK,
    PACK_ROOT,
    PAD,
    PAD_PARTS,
    Nests,
    NestTable,
    ReadMap,
)
from tuner.cost_model.cpu.reuse import Brought, brought_in
from tuner.spaces.core.space import Points
from tuner.spaces.cpu.packing import SHORTEST
from tuner.spaces.program.program import NEAR
from tuner.target.target import LINE_BYTES, PAGE_BYTES, Target


@dataclass(frozen=True, kw_only=True)
class Work:
    """n configs of one group. Counts are of the whole kernel unless said otherwise; a
    body is the innermost, unrolled code."""

    nest: Nests
    depth: int  # loop levels
    lanes: int
    brought: Brought
    accumulators: Floats  # (n,) vectors of results that live in registers
    covered: Floats  # (n,) points computed over points wanted, 1 without overlap
    bodies: Floats  # (n,) runs of the body
    # (n,) iterations of the reduction with all accumulators of a tile; without one,
    # tiles
    steps: Floats
    lives: Floats  # (n,) times the accumulators are set up and written back
    loads: Floats  # (n,) vectors loaded by a body
    reused: Floats  # (n,) vectors that a step loads and several accumulators take
    broadcasts: Floats  # (n,) single elements by a body
    picked: (
        Floats  # (n,) shuffles of a body that put vectors together of elements a few places apart
    )
    gathered: Floats  # (n,) elements along the vector farther apart, by a body
    # (n,) broadcast elements, and vectors of a step for one accumulator each, that an
    # unrolled body uses again
    shared: Floats
    paired: Floats  # (n,) broadcast elements whose neighbours in memory the same body uses
    aliased: Floats  # (n,) reads by a body of lines beyond those that the sets they share can hold
    aliased_writes: (
        Floats  # (n,) the same of what is written, each time accumulators are written back
    )
    checked: Floats  # (n,) positions of a body that are compared with a tensor's border
    checked_twice: Floats  # (n,) of these, where two dimensions of the body are
    written: Floats  # (n,) elements stored
    scattered: Floats  # (n,) of these, stored one by one
    padded: Floats  # (n,) elements copied once with a border
    padded_parts: Floats  # (n,) the same, a part at a time where it is used
    packed: Floats  # (n,) elements packed where they are used, repeats included
    packed_first: Floats  # (n,) elements packed before everything else
    # (n,) elements packed where they are used, of operands neither copied in vectors
    # nor turned in rectangles
    singly: Floats
    singly_first: Floats  # (n,) the same, packed before everything else
    slow: Floats  # (n,) evaluations of transcendental functions

    @property
    def held(self) -> Floats:
        """Registers that a step wants at once, shape (n,)."""
        held: Floats = self.accumulators + self.reused + (self.broadcasts > 0)
        return held


def work(table: NestTable, points: Points, target: Target) -> Work:
    """Of one group's nest under each config; points (n, knobs)."""
    nest = table.decode(points)
    depth, spatial = len(nest.axis), table.spatial
    brought = brought_in(table, nest, target)
    lanes = max(nest.lanes, 1)
    tile = nest.span[:spatial].prod(axis=0)
    # Of a row sketch the column's tile is vectors and partial results, not iterations.
    unrolled = 1.0 if table.is_rows else nest.span[spatial:][table.stepped].prod(axis=0)
    bodies = nest.covered / nest.span.prod(axis=0) * table.share
    steps = bodies * unrolled
    inside = (
        nest.extent[depth - table.reductions :].prod(axis=0) * unrolled if table.reductions else 1.0
    )
    accumulators = np.maximum(
        (tile if table.is_rows else np.floor(tile / lanes)) * nest.partials, 1.0
    )
    operands = [
        _operand(table, read, nest, nest.packed[number], accumulators)
        for number, read in enumerate(table.reads[: table.inputs])
    ]
    loads, reused, broadcasts, picked, gathered, shared, paired = (
        np.array(operands).reshape(-1, 7, len(points)).sum(axis=0)
    )
    contiguous = lanes > 1 and table.reads[-1].strides[nest.vector] == 1
    written = nest.covered / max(int(np.prod(table.extents[~table.reads[-1].uses])), 1)
    padded, padded_parts, packed, packed_first, singly, singly_first = _copies(table, nest)
    checked, checked_twice = _checked(table, nest)
    aliased, aliased_writes = _aliased(table, nest, max(target.l1d_bytes // PAGE_BYTES, 1))
    return Work(
        nest=nest,
        depth=depth,
        lanes=lanes,
        brought=brought,
        accumulators=accumulators,
        covered=nest.covered / max(table.points, 1),
        bodies=bodies,
        steps=steps,
        lives=steps / table.share / inside,
        loads=loads,
        reused=reused,
        broadcasts=broadcasts,
        picked=picked,
        gathered=gathered,
        shared=shared,
        paired=paired,
        aliased=aliased,
        aliased_writes=aliased_writes,
        checked=checked,
        checked_twice=checked_twice,
        written=written,
        scattered=np.zeros_like(written) if contiguous else written,
        padded=padded,
        padded_parts=padded_parts,
        packed=packed,
        packed_first=packed_first,
        singly=singly,
        singly_first=singly_first,
        slow=table.transcendentals * (1.0 + nest.recomputed),
    )


def _operand(
    table: NestTable, read: ReadMap, nest: Nests, packed: Mask, accumulators: Floats
) -> tuple[Floats, ...]:
    """(vectors loaded, those of a step that several accumulators take, elements
    broadcast, shuffles, elements gathered, shared, paired) of one read by one body,
    (n,) each.

    Each distinct element counts once: the compiler keeps what an unrolled body uses
    twice. What a single accumulator takes it takes from memory.
    """
    uses = nest.span[read.uses].prod(axis=0)
    none = np.zeros(len(uses), np.float32)
    if table.in_registers:  # of matrices, whole rows at a time
        return uses * (read.dtype_bytes / LINE_BYTES), none, none, none, none, none, none
    distinct = either(packed, uses, np.minimum(uses, read.sizes(nest.span).prod(axis=0)))
    at_once = nest.span[table.spatial :][~table.stepped].prod(axis=0)
    uses, distinct = uses / at_once, distinct / at_once
    if nest.vector >= 0 and read.uses[nest.vector]:
        apart = either(packed, 1, int(read.strides[nest.vector]))  # of neighbours along the vector
        vectors = distinct / max(nest.lanes, 1) * ((apart >= 1) & (apart <= NEAR))
        of_step = nest.span[: table.spatial][read.uses[: table.spatial]].prod(axis=0) / max(
            nest.lanes, 1
        )
        reused = of_step * (of_step < accumulators)
        again = of_step * ((of_step >= accumulators) & (distinct < uses))
        return (
            vectors * apart,
            reused,
            none,
            vectors * (apart - 1),
            distinct * (vectors == 0),
            again,
            none,
        )
    neighbours = np.zeros(len(uses), np.bool_)
    for axis in range(table.spatial, len(table.axes)):
        if read.strides[axis] == 1 and table.stepped[axis - table.spatial]:
            neighbours |= nest.span[axis] > 1
    return none, none, distinct, none, none, distinct * (distinct < uses), distinct * neighbours


def _aliased(table: NestTable, nest: Nests, ways: int) -> tuple[Floats, Floats]:
    """(reads of a body, writes of a tile) of lines that push each other out, because
    they lie a whole part of a page apart and the sets they fall into hold fewer; (n,)
    each. A set of a first-level cache holds `ways` lines.

    Without accumulators between them what is read and what is written as far apart meet
    in the same sets.
    """
    excess = np.zeros((2, nest.span.shape[1]), np.float32)
    pitches = np.stack([np.abs(read.strides) * read.dtype_bytes for read in table.reads])
    for number, read in enumerate(table.reads):
        wide = nest.vector >= 0 and read.strides[nest.vector] == 1
        for axis in range(len(table.axes)):
            apart = int(pitches[number, axis])
            sharing = 1 if nest.kind == 0 else int((pitches[:, axis] == apart).sum())
            room = PAGE_BYTES // int(np.gcd(apart, PAGE_BYTES)) * ways // sharing
            if apart < PAGE_BYTES // 8 or room >= table.extents[axis]:
                continue
            elements = nest.span[read.uses].prod(axis=0) * ~nest.packed[number]
            beyond = np.maximum(1.0 - room / nest.span[axis], 0.0)
            excess[int(number >= table.inputs)] += (
                elements / (max(nest.lanes, 1) if wide else 1) * beyond
            )
    return excess[0], excess[1]


def _checked(table: NestTable, nest: Nests) -> tuple[Floats, Floats]:
    """Vectors that a body loads only after a comparison with the border of a tensor
    read in place; of these, those compared in two dimensions along which the tile
    extends. Along one the compiler compares ahead of the innermost loop."""
    once, twice = np.zeros((2, nest.span.shape[1]), np.float32)
    tile = nest.span.copy()
    tile[table.spatial :] = 1.0
    for number, (read, found) in enumerate(zip(table.reads, table.operands, strict=False)):
        if not found.padded:
            continue
        along = (
            np.zeros(len(read.shape), np.bool_)
            if nest.vector < 0
            else read.coefficients[:, nest.vector] > 0
        )
        sizes = read.sizes(nest.span)
        sizes[along] = np.ceil(sizes[along] / max(nest.lanes, 1))
        bordered = (read.coefficients > 0).sum(axis=1) > 1  # dimensions in which a window moves
        wide = read.sizes(tile)[bordered & ~along] > 1
        loads = sizes.prod(axis=0) * (nest.how[number] == NONE)
        once += loads
        twice += loads * (wide.sum(axis=0) > 1)
    return once, twice


def _copies(table: NestTable, nest: Nests) -> Floats:
    """Elements copied with a border, at once and in parts, packed where used (again for
    each loop outside the last they move with), packed first; and of the last two those
    moved one by one; shape (6, n)."""
    count = nest.span.shape[1]
    copies = np.zeros((6, count), np.float32)
    if table.is_rows:
        return copies
    padded, parts, packed, first, singly, singly_first = copies
    for number, read in enumerate(table.reads[: table.inputs]):
        how, whole, each_call = (
            nest.how[number],
            float(np.prod(read.shape)),
            float(not table.constant[number]),
        )
        padded += whole * each_call * (how == PAD).astype(np.float32)
        parts += whole * (how == PAD_PARTS).astype(np.float32)
        if not nest.packed[number].any():
            continue
        elements = float(np.where(read.uses, table.extents, 1).prod())
        moves, extent = read.uses[nest.axis[: table.spatial + 1]], nest.extent[: table.spatial + 1]
        outside = products_before(np.maximum(extent * ~moves, 1.0))[1:]
        repeats = np.maximum((outside * (moves & (extent > 1))).max(axis=0), 1.0)
        by_one = ~_in_vectors(table, number, nest)
        used, ahead = (
            elements * repeats * (how == PACK),
            elements * each_call * (how == PACK_ROOT).astype(np.float32),
        )
        packed += used
        first += ahead
        singly += used * by_one
        singly_first += ahead * by_one
    return copies


def _in_vectors(table: NestTable, number: int, nest: Nests) -> Mask:
    """Whether a packed copy moves whole vectors, (n,): contiguous along the lanes, or
    along another axis, in rectangles."""
    read, lanes, vector, count = table.reads[number], nest.lanes, nest.vector, nest.span.shape[1]
    if vector >= 0 and read.uses[vector] and read.strides[vector] == 1:
        return np.ones(count, np.bool_)
    if table.instruction_axes:  # contiguous along the numbers that an instruction takes
        taken = bool((read.strides[table.spatial :][~table.stepped] == 1).any())
        whole = table.in_registers or (
            vector >= 0 and bool(read.uses[vector])
        )  # rows, or rectangles of words
        return np.full(count, taken and whole and not table.operands[number].padded)
    found = np.zeros(count, np.bool_)
    if (
        vector < 0
        or read.strides[vector] < 0
        or table.operands[number].padded
        or read.dtype_bytes < 4
        or lanes < SHORTEST
    ):
        return found
    for axis in np.flatnonzero(read.strides == 1):
        block = np.maximum(
            nest.extent[table.spatial] * (nest.axis[table.spatial] == axis), 1.0
        )  # of the reduction
        vectors = nest.span[axis] / lanes
        found |= (
            (table.lengths[axis] >= lanes * block)
            if axis >= table.spatial
            else (vectors == np.floor(vectors))
        )
    if not read.uses[vector]:  # rows of a register tile, beside what the reduction walks
        walked = bool((read.strides[table.spatial :] == 1).any())
        found &= walked & (nest.span[: table.spatial][read.uses[: table.spatial]].prod(axis=0) > 1)
    return found
