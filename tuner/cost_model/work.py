"""What the loop nest of each config does: instructions of its innermost body, lives of its accumulators, bytes through caches.

The counts that features and estimated cycles are made of, for a whole batch of configs at once. Reuse follows the loop-nest
model: a read is fetched again for every loop outside the deepest level at which everything still fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.nests import NONE, PACK, PACK_ROOT, PAD, PAD_PARTS, Nests, NestTable, ReadMap
from tuner.spaces.program import NEAR
from tuner.spaces.space import Points
from tuner.target.target import Target

LINE_BYTES = 64
PAGE_BYTES = 4096  # addresses a page apart share the sets of a first-level cache
USABLE = 0.75  # of a cache, before a level counts as too large for it
PAGES = 64  # whose addresses a core's first-level TLB translates: 64 of AMD's Zen 3, 96 of Zen 5 and Intel's Golden Cove

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class Work:
    """n configs of one group. Counts are of the whole kernel unless said otherwise; a body is the innermost, unrolled code."""

    nest: Nests
    depth: int  # loop levels
    lanes: Ints  # (n,)
    footprint: Floats  # (depth + 1, n, reads) bytes that one iteration of each level touches, the output last
    traffic: tuple[Floats, Floats, Floats]  # (n, reads) bytes that come in from beyond the first, second, third cache
    runs: Floats  # (n, reads) runs of bytes side by side, as which those from beyond the second cache come in
    pages: Floats  # (n, reads) pages visited whose addresses the first-level TLB does not hold
    accumulators: Ints  # (n,) vectors of results that live in registers
    covered: Floats  # (n,) points computed over points wanted, 1 without overlap
    bodies: Floats  # (n,) runs of the body
    steps: Floats  # (n,) iterations of the reduction with all accumulators of a tile; without one, tiles
    lives: Floats  # (n,) times the accumulators are set up and written back
    loads: Floats  # (n,) vectors loaded by a body
    broadcasts: Floats  # (n,) single elements by a body
    picked: Floats  # (n,) shuffles of a body that put vectors together of elements a few places apart
    gathered: Floats  # (n,) elements along the vector farther apart, by a body
    shared: Floats  # (n,) broadcast elements that several iterations of an unrolled body use
    paired: Floats  # (n,) broadcast elements whose neighbours in memory the same body uses
    aliased: Floats  # (n,) reads by a body of lines beyond those that the sets they share can hold
    aliased_writes: Floats  # (n,) the same of what is written, each time accumulators are written back
    checked: Floats  # (n,) positions of a body that are compared with a tensor's border
    checked_twice: Floats  # (n,) of these, where two dimensions of the body are
    written: Floats  # (n,) elements stored
    scattered: Floats  # (n,) of these, stored one by one
    padded: Floats  # (n,) elements copied once with a border
    padded_parts: Floats  # (n,) the same, a part at a time where it is used
    packed: Floats  # (n,) elements packed where they are used, repeats included
    packed_first: Floats  # (n,) elements packed before everything else
    singly: Floats  # (n,) elements packed where they are used, of operands neither copied in vectors nor turned in squares
    singly_first: Floats  # (n,) the same, packed before everything else
    slow: Floats  # (n,) evaluations of transcendental functions

    @property
    def held(self) -> Floats:
        """Registers that a step wants at once, shape (n,)."""
        held: Floats = self.accumulators + self.loads / np.maximum(self.steps / np.maximum(self.bodies, 1), 1)
        return held


def work(table: NestTable, points: Points, target: Target) -> Work:
    """Of one group's nest under each config; points (n, knobs)."""
    nest = table.decode(points)
    depth = nest.axis.shape[1]
    spans = _spans(table, nest)
    footprint, room, pages = _footprints(table, spans, nest.packed)
    fetched = _fetched(table, nest.axis, nest.extent)
    entered = np.cumprod(np.concatenate([np.ones((len(points), 1)), nest.extent], axis=1), axis=1)
    reuse = _Reuse(table=table, nest=nest, spans=spans, fetched=fetched, entered=entered)
    last = max(target.l3_bytes // max(target.cores, 1), target.l2_bytes)  # shared: a core counts on its part of it
    cached = partial(_Holder, touched=footprint, taken=_taken(footprint, room), in_pages=False)
    holders = [
        cached(size=target.l1d_bytes),
        cached(size=target.l2_bytes, in_runs=True),
        cached(size=last),
        _Holder(touched=pages, taken=pages.sum(axis=-1), size=PAGES, in_pages=True),
    ]
    first, second, runs, third, paged = reuse.beyond(holders)
    lanes = np.maximum(nest.lanes, 1)
    tile = np.maximum(nest.span[:, : table.spatial].prod(axis=1), 1)
    # Of a row sketch the column's tile is vectors and partial results, not iterations.
    unrolled = np.ones(len(points), np.int64) if table.is_rows else np.maximum(nest.span[:, table.spatial :].prod(axis=1), 1)
    bodies = nest.covered / np.maximum(nest.span.prod(axis=1), 1)
    steps = bodies * unrolled
    inside = nest.extent[:, depth - table.reductions :].prod(axis=1) * unrolled if table.reductions else np.ones(len(points))
    operands = [_operand(table, read, nest, nest.packed[:, number]) for number, read in enumerate(table.reads[: table.inputs])]
    loads, broadcasts, picked, gathered, shared, paired = np.array(operands).reshape(-1, 6, len(points)).sum(axis=0)
    stride = np.where(nest.vector >= 0, table.reads[-1].strides[np.maximum(nest.vector, 0)], 0)
    written = nest.covered / max(int(np.prod(table.extents[table.spatial :])), 1)
    padded, padded_parts, packed, packed_first, singly, singly_first = _copies(table, nest)
    checked, checked_twice = _checked(table, nest)
    aliased, aliased_writes = _aliased(table, nest, max(target.l1d_bytes // PAGE_BYTES, 1))
    return Work(
        nest=nest,
        depth=depth,
        lanes=lanes,
        footprint=footprint,
        traffic=(first, second, third),
        runs=runs,
        pages=paged,
        accumulators=np.maximum(tile // lanes * nest.partials, 1),
        covered=nest.covered / max(table.points, 1),
        bodies=bodies,
        steps=steps,
        lives=steps / np.maximum(inside, 1),
        loads=loads,
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
        scattered=np.where((lanes > 1) & (stride == 1), 0.0, written),
        padded=padded,
        padded_parts=padded_parts,
        packed=packed,
        packed_first=packed_first,
        singly=singly,
        singly_first=singly_first,
        slow=table.transcendentals * (1.0 + nest.recomputed),
    )


def _spans(table: NestTable, nest: Nests) -> Floats:
    """Elements of each axis within one iteration of each level, shape (axes, depth + 1, n); the last level is the innermost tile.
    Axes come first, and all is float64, because arithmetic on whole rows is several times as fast."""
    count, depth = nest.axis.shape
    spans, rows = np.empty((nest.span.shape[1], depth + 1, count)), np.arange(count)
    spans[:, depth] = nest.span.T
    for level in reversed(range(depth)):
        spans[:, level] = spans[:, level + 1]
        spans[nest.axis[:, level], level, rows] *= nest.extent[:, level]
    clipped: Floats = np.minimum(spans, table.extents[:, None, None], out=spans)
    return clipped


def _footprints(table: NestTable, spans: Floats, packed: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """`_footprint` of all reads along a last axis."""
    touched = [_footprint(read, spans, packed[:, number]) for number, read in enumerate(table.reads)]
    footprint, room, pages = (np.moveaxis(np.stack(parts), 0, -1) for parts in zip(*touched, strict=True))
    return footprint, room, pages


def _taken(footprint: Floats, room: Floats) -> Floats:
    """Room in a cache that all reads take together."""
    taken: Floats = np.maximum(footprint.sum(axis=-1), room.max(axis=-1))
    return taken


def _footprint(read: ReadMap, spans: Floats, packed: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """(bytes, room they take in a cache, pages) of one read that each loop level touches, bytes in cache lines, (levels, n) each.

    Lines that lie a part of a page apart fall into the same sets, so a row of a tensor takes as much room as the largest power of
    two that divides its distance to the next, up to a page. A packed copy is contiguous.
    """
    run = reach = _size(read, spans, len(read.shape) - 1) * read.dtype_bytes  # bytes side by side; bytes from first to last
    lines, pages = np.ones_like(run), np.ones_like(run)
    room = _in_lines(run)
    pitch = read.dtype_bytes
    for dimension in reversed(range(len(read.shape) - 1)):
        pitch *= int(read.shape[dimension + 1])
        if read.shape[dimension] == 1:
            continue
        rows = _size(read, spans, dimension)
        joined = (lines == 1) & (np.maximum(run, LINE_BYTES) >= pitch)
        run = np.where(joined, (rows - 1) * pitch + run, run)
        lines = np.where(joined, 1.0, lines * rows)
        apart = np.where(rows > 1, rows * np.maximum(room, int(np.gcd(pitch, PAGE_BYTES))), room)
        room = np.where(joined, _in_lines(run), apart)
        if pitch < PAGE_BYTES:
            reach = (rows - 1) * pitch + reach
        else:
            pages = pages * rows
    pages = pages * np.maximum(reach / PAGE_BYTES, 1.0)
    in_place = lines * _in_lines(run)
    if not packed.any():
        return in_place, room, pages
    copied = float(read.dtype_bytes) * spans[read.uses].prod(axis=0)
    return (
        np.where(packed, copied, in_place),
        np.where(packed, copied, room),
        np.where(packed, np.maximum(copied / PAGE_BYTES, 1.0), pages),
    )


def _runs(read: ReadMap, spans: Floats) -> Floats:
    """Runs of bytes side by side of one read, in place, (n,): as `_footprint` has lines, but of one level: that is fast."""
    last = len(read.shape) - 1
    run, runs = _size(read, spans, last) * read.dtype_bytes, np.ones(spans.shape[1:])
    pitch = read.dtype_bytes
    for dimension in reversed(range(last)):
        pitch *= int(read.shape[dimension + 1])
        rows = _size(read, spans, dimension)
        joined = (runs == 1) & (np.maximum(run, LINE_BYTES) >= pitch)
        run = np.where(joined, (rows - 1) * pitch + run, run)
        runs = np.where(joined, 1.0, runs * rows)
    return runs


def _size(read: ReadMap, spans: Floats, dimension: int) -> Floats:
    """Elements of a dimension that each level touches, (levels, n)."""
    moving = np.flatnonzero(read.coefficients[dimension])
    if len(moving) == 1 and read.coefficients[dimension, moving[0]] == 1:
        size: Floats = spans[moving[0]].copy()
    else:
        size = np.ones(spans.shape[1:])
        for axis in moving:
            size += (spans[axis] - 1.0) * float(read.coefficients[dimension, axis])
    clipped: Floats = np.minimum(size, float(read.shape[dimension]), out=size)
    return clipped


def _fetched(table: NestTable, axis: Ints, extent: Ints) -> Floats:
    """How often the footprint of a level is brought in: the loops outside it, down to the last one the read moves with."""
    count, depth = axis.shape
    times = np.ones((depth + 1, count, len(table.reads)))
    outside = np.ones(count)
    uses = np.stack([read.uses for read in table.reads], axis=1)  # (axes, reads)
    for level in range(depth):
        outside = outside * extent[:, level]
        moves = uses[axis[:, level]] & (extent[:, level] > 1)[:, None]
        times[level + 1] = np.where(moves, outside[:, None], times[level])
    return times


def _in_lines(size: Floats) -> Floats:
    lines: Floats = np.ceil(size / LINE_BYTES) * LINE_BYTES
    return lines


@dataclass(frozen=True, kw_only=True)
class _Holder:
    """Something that holds only so much of what each loop level touches: a cache, or the TLB."""

    touched: Floats  # (depth + 1, n, reads)
    taken: Floats  # (depth + 1, n) room that all reads take there
    size: float
    in_pages: bool
    in_runs: bool = False  # whether runs of bytes side by side are counted too


@dataclass(frozen=True, kw_only=True)
class _Reuse:
    """What a nest brings in again and again from beyond something that holds only so much."""

    table: NestTable
    nest: Nests
    spans: Floats
    fetched: Floats
    entered: Floats  # (n, depth + 1) how often each level is

    def beyond(self, holders: Sequence[_Holder]) -> list[Floats]:
        """Of what the levels touch, what comes in from beyond each holder, (n, reads), followed by the runs it does so in where
        they are counted. All at once: most of the time of a batch goes to the number of operations."""
        depth, rows = len(self.spans[0]) - 1, np.arange(self.spans.shape[2])
        fits = np.stack([holder.taken <= USABLE * holder.size for holder in holders])
        level = np.where(fits.any(axis=1), fits.argmax(axis=1), depth)
        # Where two iterations of the loop around it fit, what they share stays: each run of that loop brings in each byte once.
        outer = np.maximum(level - 1, 0)
        here = self.spans[:, level, rows]
        twice = here.copy()
        axis, which = self.nest.axis[rows, outer], np.arange(len(holders))[:, None]
        twice[axis, which, rows] = np.minimum(twice[axis, which, rows] * 2, self.table.extents[axis])
        footprint, room, pages = _footprints(self.table, twice, self.nest.packed)
        both = np.where([[holder.in_pages] for holder in holders], pages.sum(axis=-1), _taken(footprint, room))
        found: list[Floats] = []
        for number, holder in enumerate(holders):
            at, around = level[number], outer[number]
            again = holder.touched[at, rows] * self.fetched[at, rows]
            stream = holder.touched[around, rows] * self.entered[rows, around][:, None]
            few = np.where((both[number] <= USABLE * holder.size)[:, None], np.minimum(again, stream), again)
            # What fits as a whole stays from one call to the next.
            found.append(np.where(fits[number, 0][:, None], 0.0, few))
            if holder.in_runs:
                runs = np.stack([_runs(read, here[:, number]) for read in self.table.reads], axis=-1)
                found.append(found[-1] * np.where(self.nest.packed, 1.0, runs) / holder.touched[at, rows])
        return found


def _operand(table: NestTable, read: ReadMap, nest: Nests, packed: NDArray[np.bool_]) -> tuple[Floats, ...]:
    """(vectors loaded, elements broadcast, shuffles, elements gathered, shared, paired) of one read by one body, (n,) each.

    Each distinct element counts once: the compiler keeps what an unrolled body uses twice.
    """
    uses = np.where(read.uses, nest.span, 1).prod(axis=1).astype(np.float64)
    sizes = np.minimum((nest.span - 1) @ read.coefficients.T + 1, read.shape).prod(axis=1)
    distinct = np.where(packed, uses, np.minimum(uses, sizes))
    vector = np.maximum(nest.vector, 0)
    along = (nest.vector >= 0) & read.uses[vector]
    apart = np.where(packed, 1, np.where(nest.vector >= 0, read.strides[vector], 0))  # of neighbours along the vector
    vectors = np.where(along & (apart >= 1) & (apart <= NEAR), distinct / np.maximum(nest.lanes, 1), 0.0)
    neighbours = np.zeros(len(uses), np.bool_)
    for axis in range(table.spatial, len(table.axes)):
        neighbours |= read.uses[axis] & (nest.span[:, axis] > 1) & (read.strides[axis] == 1)
    return (
        vectors * apart,
        np.where(along, 0.0, distinct),
        vectors * (apart - 1),
        np.where(along & (vectors == 0), distinct, 0.0),
        np.where(~along & (distinct < uses), distinct, 0.0),
        np.where(~along & neighbours, distinct, 0.0),
    )


def _aliased(table: NestTable, nest: Nests, ways: int) -> tuple[Floats, Floats]:
    """(reads of a body, writes of a tile) of lines that push each other out, because they lie a whole part of a page apart and
    the sets they fall into hold fewer; (n,) each. A set of a first-level cache holds `ways` lines."""
    excess = np.zeros((2, len(nest.span)))
    vector, lanes = np.maximum(nest.vector, 0), np.maximum(nest.lanes, 1)
    for number, read in enumerate(table.reads):
        elements = np.where(read.uses, nest.span, 1).prod(axis=1)
        wide = (nest.vector >= 0) & (read.strides[vector] == 1)
        accesses = np.where(nest.packed[:, number], 0.0, elements / np.where(wide, lanes, 1))
        for axis in range(len(table.axes)):
            apart = abs(int(read.strides[axis])) * read.dtype_bytes
            if apart < PAGE_BYTES // 8:
                continue
            room = PAGE_BYTES // int(np.gcd(apart, PAGE_BYTES)) * ways
            excess[int(number >= table.inputs)] += accesses * np.maximum(1.0 - room / nest.span[:, axis], 0.0)
    return excess[0], excess[1]


def _checked(table: NestTable, nest: Nests) -> tuple[Floats, Floats]:
    """Vectors that a body loads only after a comparison with the border of a tensor read in place; of these, those compared in
    two dimensions along which the tile extends. Along one the compiler compares ahead of the innermost loop."""
    once, twice = np.zeros(len(nest.how)), np.zeros(len(nest.how))
    vector = np.maximum(nest.vector, 0)
    lanes = np.maximum(nest.lanes, 1)[:, None]
    tile = nest.span.copy()
    tile[:, table.spatial :] = 1
    for number, (read, found) in enumerate(zip(table.reads, table.found, strict=False)):
        if not found.padded:
            continue
        along = (read.coefficients[:, vector].T > 0) & (nest.vector >= 0)[:, None]
        sizes = np.minimum((nest.span - 1) @ read.coefficients.T + 1, read.shape)
        sizes = np.where(along, -(-sizes // lanes), sizes)
        bordered = (read.coefficients > 0).sum(axis=1) > 1  # dimensions in which a window moves
        wide = (np.minimum((tile - 1) @ read.coefficients.T + 1, read.shape) > 1) & bordered & ~along
        loads = np.where(nest.how[:, number] == NONE, sizes.prod(axis=1), 0)
        once += loads
        twice += np.where(wide.sum(axis=1) > 1, loads, 0)
    return once, twice


def _copies(table: NestTable, nest: Nests) -> tuple[Floats, ...]:
    """Elements copied with a border, at once and in parts, packed where used (again for each loop outside the last they move
    with), packed first; and of the last two those moved one by one."""
    count = len(nest.how)
    padded, parts, packed, first, singly, singly_first = np.zeros((6, count))
    if table.is_rows:
        return padded, parts, packed, first, singly, singly_first
    for number, read in enumerate(table.reads[: table.inputs]):
        how = nest.how[:, number]
        elements = float(np.where(read.uses, table.extents, 1).prod())
        repeats, outside = np.ones(count), np.ones(count)
        for level in range(table.spatial + 1):
            axis, extent = nest.axis[:, level], nest.extent[:, level]
            outside = outside * np.where(read.uses[axis], 1, extent)
            repeats = np.where(read.uses[axis] & (extent > 1), outside, repeats)
        padded += np.where(how == PAD, float(np.prod(read.shape)), 0.0)
        parts += np.where(how == PAD_PARTS, float(np.prod(read.shape)), 0.0)
        by_one = ~_in_vectors(table, number, nest)
        packed += np.where(how == PACK, elements * repeats, 0.0)
        first += np.where(how == PACK_ROOT, elements, 0.0)
        singly += np.where((how == PACK) & by_one, elements * repeats, 0.0)
        singly_first += np.where((how == PACK_ROOT) & by_one, elements, 0.0)
    return padded, parts, packed, first, singly, singly_first


def _in_vectors(table: NestTable, number: int, nest: Nests) -> NDArray[np.bool_]:
    """Whether a packed copy moves whole vectors, (n,): contiguous along the lanes, or along another axis in squares of lanes."""
    read, count, lanes = table.reads[number], len(nest.how), np.maximum(nest.lanes, 1)
    vector = int(nest.vector[0]) if count else -1
    if vector < 0 or not read.uses[vector]:
        return np.zeros(count, np.bool_)
    if read.strides[vector] == 1:
        return np.ones(count, np.bool_)
    if table.found[number].padded or read.strides[vector] <= 0 or read.dtype_bytes < 4:
        return np.zeros(count, np.bool_)
    found = np.zeros(count, np.bool_)
    for axis in np.flatnonzero(read.strides == 1):
        block = np.where(nest.axis[:, table.spatial] == axis, nest.extent[:, table.spatial], 1)  # of the reduction
        length = table.extents[axis] // block if axis >= table.spatial else nest.span[:, axis]
        found |= (length % lanes == 0) & (lanes >= 4)
    return found
