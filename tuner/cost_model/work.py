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
from tuner.spaces.cpu_pack import SHORTEST
from tuner.spaces.program import NEAR
from tuner.spaces.space import Points
from tuner.target.target import Target

LINE_BYTES = 64
PAGE_BYTES = 4096  # addresses a page apart share the sets of a first-level cache
USABLE = 0.75  # of a cache, before a level counts as too large for it
FOLLOWED_RUNS = 16.0  # that a prefetcher follows at a time: 8 and 32 fit less of what was timed on a Zen 4 (docs/search.md)
PAGES = 64  # whose addresses a core's first-level TLB translates: 64 of AMD's Zen 3, 96 of Zen 5 and Intel's Golden Cove

Floats = NDArray[np.float64]
_ONE: Floats = np.ones(())


@dataclass(frozen=True, kw_only=True)
class Work:
    """n configs of one group. Counts are of the whole kernel unless said otherwise; a body is the innermost, unrolled code."""

    nest: Nests
    depth: int  # loop levels
    lanes: int
    footprint: Floats  # (reads, depth + 1, n) bytes that one iteration of each level touches, the output last
    traffic: tuple[Floats, Floats, Floats]  # (reads, n) bytes that come in from beyond the first, second, third cache
    runs: Floats  # (reads, n) runs of bytes side by side, as which those from beyond the second cache come in
    interleaved: Floats  # (n,) bytes from beyond the second cache, of more runs at a time than a prefetcher follows
    pages: Floats  # (reads, n) pages visited whose addresses the first-level TLB does not hold
    accumulators: Floats  # (n,) vectors of results that live in registers
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
    singly: Floats  # (n,) elements packed where they are used, of operands neither copied in vectors nor turned in rectangles
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
    depth, spatial = len(nest.axis), table.spatial
    spans = _spans(table, nest)
    footprint, room, pages = _footprints(table, spans, nest.packed)
    entered = np.cumprod(np.concatenate([np.ones((1, len(points))), nest.extent]), axis=0)
    reuse = _Reuse(table=table, nest=nest, spans=spans, fetched=_fetched(table, nest, entered), entered=entered)
    last = max(target.l3_bytes // max(target.cores, 1), target.l2_bytes)  # shared: a core counts on its part of it
    cached = partial(_Holder, touched=footprint, taken=_taken(footprint, room), in_pages=False)
    holders = [
        cached(size=target.l1d_bytes),
        cached(size=target.l2_bytes, in_runs=True),
        cached(size=last),
        _Holder(touched=pages, taken=pages.sum(axis=0), size=PAGES, in_pages=True),
    ]
    first, second, runs, third, paged = reuse.beyond(holders)
    lanes = max(nest.lanes, 1)
    tile = nest.span[:spatial].prod(axis=0)
    # Of a row sketch the column's tile is vectors and partial results, not iterations.
    unrolled = 1.0 if table.is_rows else nest.span[spatial:][table.stepped].prod(axis=0)
    bodies = nest.covered / nest.span.prod(axis=0) * table.share
    steps = bodies * unrolled
    inside = nest.extent[depth - table.reductions :].prod(axis=0) * unrolled if table.reductions else 1.0
    operands = [_operand(table, read, nest, nest.packed[number]) for number, read in enumerate(table.reads[: table.inputs])]
    loads, broadcasts, picked, gathered, shared, paired = np.array(operands).reshape(-1, 6, len(points)).sum(axis=0)
    contiguous = lanes > 1 and table.reads[-1].strides[nest.vector] == 1
    written = nest.covered / max(int(np.prod(table.extents[~table.reads[-1].uses])), 1)
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
        interleaved=_interleaved(table, nest, spans, second),
        pages=paged,
        accumulators=np.maximum((tile if table.is_rows else tile // lanes) * nest.partials, 1.0),
        covered=nest.covered / max(table.points, 1),
        bodies=bodies,
        steps=steps,
        lives=steps / table.share / np.maximum(inside, 1.0),
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
        scattered=np.zeros_like(written) if contiguous else written,
        padded=padded,
        padded_parts=padded_parts,
        packed=packed,
        packed_first=packed_first,
        singly=singly,
        singly_first=singly_first,
        slow=table.transcendentals * (1.0 + nest.recomputed),
    )


def _spans(table: NestTable, nest: Nests) -> Floats:
    """Elements of each axis within one iteration of each level, (axes, depth + 1, n); the last level is the innermost tile."""
    depth, count = nest.axis.shape
    spans, configs = np.empty((len(nest.span), depth + 1, count)), np.arange(count)
    spans[:, depth] = nest.span
    for level in reversed(range(depth)):
        spans[:, level] = spans[:, level + 1]
        spans[nest.axis[level], level, configs] *= nest.extent[level]
    clipped: Floats = np.minimum(spans, table.extents[:, None, None], out=spans)
    return clipped


def _footprints(table: NestTable, spans: Floats, packed: NDArray[np.bool_]) -> tuple[Floats, Floats, Floats]:
    """(bytes, room they take in a cache, pages) that each loop level touches, bytes in cache lines, (reads, levels, n) each."""
    footprint, room, pages = np.empty((3, len(table.reads), *spans.shape[1:]))
    for number, read in enumerate(table.reads):
        footprint[number], room[number], pages[number] = _footprint(read, spans)
        if packed[number].any():  # a packed copy is contiguous
            copied = float(read.dtype_bytes) * spans[read.uses].prod(axis=0)
            np.copyto(footprint[number], copied, where=packed[number])
            np.copyto(room[number], copied, where=packed[number])
            np.copyto(pages[number], np.maximum(copied / PAGE_BYTES, 1.0), where=packed[number])
    return footprint, room, pages


def _taken(footprint: Floats, room: Floats) -> Floats:
    """Room in a cache that all reads take together."""
    taken: Floats = np.maximum(footprint.sum(axis=0), room.max(axis=0))
    return taken


def _footprint(read: ReadMap, spans: Floats) -> tuple[Floats, Floats, Floats]:
    """`_footprints` of one read in place, (levels, n) each.

    Lines that lie a part of a page apart fall into the same sets, so a row of a tensor takes as much room as the largest power of
    two that divides its distance to the next, up to a page.
    """
    last = len(read.shape) - 1
    run = reach = _size(read, spans, last) * read.dtype_bytes  # bytes side by side; bytes from first to last
    room, lines, pages = _in_lines(run), _ONE, _ONE
    for dimension in reversed(range(last)):
        if not read.moving[dimension]:
            continue
        pitch, rows = int(read.pitches[dimension]), _size(read, spans, dimension)
        further, sets = rows * pitch - pitch, int(np.gcd(pitch, PAGE_BYTES))
        if pitch < PAGE_BYTES:
            reach = further + reach
        else:
            pages = pages * rows
        room = rows * room if sets <= LINE_BYTES else np.where(rows > 1, rows * np.maximum(room, sets), room)
        joined = (lines == 1) & (np.maximum(run, LINE_BYTES) >= pitch)
        if joined.any():
            lines = np.where(joined, 1.0, lines * rows)
            run = np.where(joined, further + run, run)
            room = np.where(joined, _in_lines(run), room)
        else:
            lines = lines * rows
    return lines * _in_lines(run), room, pages * np.maximum(reach / PAGE_BYTES, 1.0)


def _runs(read: ReadMap, spans: Floats) -> Floats:
    """Runs of bytes side by side of one read, in place, (n,): as `_footprint` has lines, but of one level: that is fast."""
    last = len(read.shape) - 1
    run, runs = _size(read, spans, last) * read.dtype_bytes, _ONE
    for dimension in reversed(range(last)):
        if read.moving[dimension]:
            pitch, rows = int(read.pitches[dimension]), _size(read, spans, dimension)
            joined = (runs == 1) & (np.maximum(run, LINE_BYTES) >= pitch)
            run = np.where(joined, (rows - 1) * pitch + run, run)
            runs = np.where(joined, 1.0, runs * rows)
    return runs


def _interleaved(table: NestTable, nest: Nests, spans: Floats, traffic: Floats) -> Floats:
    """Of what comes in from beyond the second cache, what does so in more runs at a time than a prefetcher follows, (n,) bytes.

    Between two steps along contiguous elements a nest visits as many runs as one iteration of that loop touches.
    """
    depth, count = nest.axis.shape
    found = np.zeros(count)
    for number, read in enumerate(table.reads[: table.inputs]):
        along = (read.strides == 1)[nest.axis] & (nest.extent > 1)
        if not (traffic[number].any() and along.any()):
            continue
        inside = depth - along[::-1].argmax(axis=0)  # of the last of these loops; where there is none, the body
        runs = _runs(read, _flat(spans).take(inside * count + np.arange(count), axis=1))
        beyond = np.where(along.any(axis=0) & ~nest.packed[number], 1.0 - FOLLOWED_RUNS / np.maximum(runs, FOLLOWED_RUNS), 0.0)
        found += traffic[number] * beyond
    return found


def _size(read: ReadMap, spans: Floats, dimension: int) -> Floats:
    """Elements of a dimension that each level touches, in the shape of the levels."""
    moving = read.moving[dimension]
    size: Floats
    if len(moving) == 1 and moving[0][1] == 1:
        size = spans[moving[0][0]]
    else:
        size = np.ones(spans.shape[1:])
        for axis, step in moving:
            size += (spans[axis] - 1.0) * step
        if len(moving) > 1 and dimension < len(read.shape) - 1:  # with gaps between where a window is a part of its stride
            size = np.minimum(size, spans[[axis for axis, _ in moving]].prod(axis=0))
    return np.minimum(size, float(read.shape[dimension])) if read.clipped[dimension] else size


def _fetched(table: NestTable, nest: Nests, entered: Floats) -> Floats:
    """How often the footprint of a level is brought in: the loops outside it, down to the last one the read moves with; (reads,
    depth + 1, n)."""
    uses = np.stack([read.uses for read in table.reads])  # (reads, axes)
    times = np.ones((len(uses), len(nest.axis) + 1, nest.axis.shape[1]))
    times[:, 1:] = np.where(uses.take(nest.axis, axis=1) & (nest.extent > 1), entered[1:], 1.0)
    for level in range(len(nest.axis)):
        np.maximum(times[:, level], times[:, level + 1], out=times[:, level + 1])
    return times


def _in_lines(size: Floats) -> Floats:
    lines: Floats = np.ceil(size * (1 / LINE_BYTES)) * LINE_BYTES
    return lines


@dataclass(frozen=True, kw_only=True)
class _Holder:
    """Something that holds only so much of what each loop level touches: a cache, or the TLB."""

    touched: Floats  # (reads, depth + 1, n)
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
    entered: Floats  # (depth + 1, n) how often each level is

    def beyond(self, holders: Sequence[_Holder]) -> list[Floats]:
        """Of what the levels touch, what comes in from beyond each holder, (reads, n), followed by the runs it does so in where
        they are counted. All at once: most of the time of a batch goes to the number of operations."""
        _, levels, count = self.spans.shape
        configs = np.arange(count)
        fits = np.stack([holder.taken <= USABLE * holder.size for holder in holders])
        level = np.where(fits.any(axis=1), fits.argmax(axis=1), levels - 1)
        # Where two iterations of the loop around it fit, what they share stays: each run of that loop brings in each byte once.
        outer = np.maximum(level - 1, 0)
        at, around = level * count + configs, outer * count + configs  # in arrays whose levels and configs are one dimension
        here = _flat(self.spans).take(at, axis=1)
        twice = here.copy()
        axis, which = self.nest.axis[outer, configs], np.arange(len(holders))[:, None]
        twice[axis, which, configs] = np.minimum(twice[axis, which, configs] * 2, self.table.extents[axis])
        footprint, room, pages = _footprints(self.table, twice, self.nest.packed)
        both = np.where([[holder.in_pages] for holder in holders], pages.sum(axis=0), _taken(footprint, room))
        fetched, entered = _flat(self.fetched).take(at, axis=1), self.entered.ravel().take(around)
        found: list[Floats] = []
        for number, holder in enumerate(holders):
            touched = _flat(holder.touched).take(at[number], axis=1)
            again = touched * fetched[:, number]
            stream = _flat(holder.touched).take(around[number], axis=1) * entered[number]
            few = np.where(both[number] <= USABLE * holder.size, np.minimum(again, stream), again)
            # What fits as a whole stays from one call to the next.
            found.append(np.where(fits[number, 0], 0.0, few))
            if holder.in_runs:
                runs = np.stack([np.broadcast_to(_runs(read, here[:, number]), count) for read in self.table.reads])
                found.append(found[-1] * np.where(self.nest.packed, 1.0, runs) / touched)
        return found


def _flat(levels: Floats) -> Floats:
    return levels.reshape(len(levels), -1)


def _operand(table: NestTable, read: ReadMap, nest: Nests, packed: NDArray[np.bool_]) -> tuple[Floats, ...]:
    """(vectors loaded, elements broadcast, shuffles, elements gathered, shared, paired) of one read by one body, (n,) each.

    Each distinct element counts once: the compiler keeps what an unrolled body uses twice.
    """
    uses = nest.span[read.uses].prod(axis=0)
    none = np.zeros(len(uses))
    if table.in_registers:  # of matrices, whole rows at a time
        return uses * (read.dtype_bytes / LINE_BYTES), none, none, none, none, none
    distinct = np.where(packed, uses, np.minimum(uses, _sizes(read, nest.span).prod(axis=0)))
    at_once = nest.span[table.spatial :][~table.stepped].prod(axis=0)
    uses, distinct = uses / at_once, distinct / at_once
    if nest.vector >= 0 and read.uses[nest.vector]:
        apart = np.where(packed, 1, read.strides[nest.vector])  # of neighbours along the vector
        vectors = np.where((apart >= 1) & (apart <= NEAR), distinct / max(nest.lanes, 1), 0.0)
        return vectors * apart, none, vectors * (apart - 1), np.where(vectors == 0, distinct, 0.0), none, none
    neighbours = np.zeros(len(uses), np.bool_)
    for axis in range(table.spatial, len(table.axes)):
        if read.strides[axis] == 1 and table.stepped[axis - table.spatial]:
            neighbours |= nest.span[axis] > 1
    return none, distinct, none, none, np.where(distinct < uses, distinct, 0.0), np.where(neighbours, distinct, 0.0)


def _sizes(read: ReadMap, span: Floats) -> Floats:
    """Elements of each dimension that a body touches, (dimensions, n)."""
    return np.stack([_size(read, span, dimension) for dimension in range(len(read.shape))])


def _aliased(table: NestTable, nest: Nests, ways: int) -> tuple[Floats, Floats]:
    """(reads of a body, writes of a tile) of lines that push each other out, because they lie a whole part of a page apart and
    the sets they fall into hold fewer; (n,) each. A set of a first-level cache holds `ways` lines.

    Without accumulators between them what is read and what is written as far apart meet in the same sets.
    """
    excess = np.zeros((2, nest.span.shape[1]))
    pitches = np.stack([np.abs(read.strides) * read.dtype_bytes for read in table.reads])
    for number, read in enumerate(table.reads):
        wide = nest.vector >= 0 and read.strides[nest.vector] == 1
        for axis in range(len(table.axes)):
            apart = int(pitches[number, axis])
            sharing = 1 if nest.kind == 0 else int((pitches[:, axis] == apart).sum())
            room = PAGE_BYTES // int(np.gcd(apart, PAGE_BYTES)) * ways // sharing
            if apart < PAGE_BYTES // 8 or room >= table.extents[axis]:
                continue
            elements = np.where(nest.packed[number], 0.0, nest.span[read.uses].prod(axis=0))
            beyond = np.maximum(1.0 - room / nest.span[axis], 0.0)
            excess[int(number >= table.inputs)] += elements / (max(nest.lanes, 1) if wide else 1) * beyond
    return excess[0], excess[1]


def _checked(table: NestTable, nest: Nests) -> tuple[Floats, Floats]:
    """Vectors that a body loads only after a comparison with the border of a tensor read in place; of these, those compared in
    two dimensions along which the tile extends. Along one the compiler compares ahead of the innermost loop."""
    once, twice = np.zeros((2, nest.span.shape[1]))
    tile = nest.span.copy()
    tile[table.spatial :] = 1.0
    for number, (read, found) in enumerate(zip(table.reads, table.found, strict=False)):
        if not found.padded:
            continue
        along = np.zeros(len(read.shape), np.bool_) if nest.vector < 0 else read.coefficients[:, nest.vector] > 0
        sizes = _sizes(read, nest.span)
        sizes[along] = np.ceil(sizes[along] / max(nest.lanes, 1))
        bordered = (read.coefficients > 0).sum(axis=1) > 1  # dimensions in which a window moves
        wide = _sizes(read, tile)[bordered & ~along] > 1
        loads = np.where(nest.how[number] == NONE, sizes.prod(axis=0), 0.0)
        once += loads
        twice += np.where(wide.sum(axis=0) > 1, loads, 0.0)
    return once, twice


def _copies(table: NestTable, nest: Nests) -> Floats:
    """Elements copied with a border, at once and in parts, packed where used (again for each loop outside the last they move
    with), packed first; and of the last two those moved one by one; shape (6, n)."""
    count = nest.span.shape[1]
    copies = np.zeros((6, count))
    if table.is_rows:
        return copies
    padded, parts, packed, first, singly, singly_first = copies
    for number, read in enumerate(table.reads[: table.inputs]):
        how, whole, each_call = nest.how[number], float(np.prod(read.shape)), float(not table.constant[number])
        padded += np.where(how == PAD, whole * each_call, 0.0)
        parts += np.where(how == PAD_PARTS, whole, 0.0)
        if not nest.packed[number].any():
            continue
        elements = float(np.where(read.uses, table.extents, 1).prod())
        moves, extent = read.uses[nest.axis[: table.spatial + 1]], nest.extent[: table.spatial + 1]
        outside = np.cumprod(np.where(moves, 1.0, extent), axis=0)
        repeats = np.where(moves & (extent > 1), outside, 1.0).max(axis=0)
        by_one = ~_in_vectors(table, number, nest)
        used, ahead = np.where(how == PACK, elements * repeats, 0.0), np.where(how == PACK_ROOT, elements * each_call, 0.0)
        packed += used
        first += ahead
        singly += used * by_one
        singly_first += ahead * by_one
    return copies


def _in_vectors(table: NestTable, number: int, nest: Nests) -> NDArray[np.bool_]:
    """Whether a packed copy moves whole vectors, (n,): contiguous along the lanes, or along another axis, in rectangles."""
    read, lanes, vector, count = table.reads[number], nest.lanes, nest.vector, nest.span.shape[1]
    if vector >= 0 and read.uses[vector] and read.strides[vector] == 1:
        return np.ones(count, np.bool_)
    if table.taken:  # contiguous along the numbers that an instruction takes
        taken = bool((read.strides[table.spatial :][~table.stepped] == 1).any())
        whole = table.in_registers or (vector >= 0 and bool(read.uses[vector]))  # rows, or rectangles of words
        return np.full(count, taken and whole and not table.found[number].padded)
    found = np.zeros(count, np.bool_)
    if vector < 0 or read.strides[vector] < 0 or table.found[number].padded or read.dtype_bytes < 4 or lanes < SHORTEST:
        return found
    for axis in np.flatnonzero(read.strides == 1):
        block = np.where(nest.axis[table.spatial] == axis, nest.extent[table.spatial], 1.0)  # of the reduction
        length = table.extents[axis] // block if axis >= table.spatial else nest.span[axis]
        found |= (length >= lanes) if axis >= table.spatial else (length % lanes == 0)
    if not read.uses[vector]:  # rows of a register tile, beside what the reduction walks
        walked = bool((read.strides[table.spatial :] == 1).any())
        found &= walked & (nest.span[: table.spatial][read.uses[: table.spatial]].prod(axis=0) > 1)
    return found
