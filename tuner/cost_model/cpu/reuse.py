"""What a loop nest brings in from beyond the caches and the TLB, for a whole batch of
configs at once.

The loop-nest model of reuse: a read is fetched again for every loop outside the deepest
level at which everything still fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.arrays import Floats, Mask, either, products_before
from tuner.cost_model.cpu.nests import Nests, NestTable, ReadMap
from tuner.target.target import LINE_BYTES, PAGE_BYTES, Target

USABLE = 0.75  # of a cache, before a level counts as too large for it
FILLS = 16.0  # lines that a first-level cache awaits at once: of Intel's Golden Cove
# that a prefetcher follows at a time: 8 and 32 fit less of what was timed on a Zen 4
# (docs/search.md)
FOLLOWED_RUNS = 16.0
# whose addresses a core's first-level TLB translates: 64 of AMD's Zen 3, 96 of Zen 5
# and Intel's Golden Cove
PAGES = 64

_ONE: Floats = np.ones((), np.float32)


@dataclass(frozen=True, kw_only=True)
class Brought:
    """Of n configs; reads include the output, the last."""

    # (reads, depth + 1, n) bytes that one iteration of each level touches, the output
    # last
    footprint: Floats
    traffic: tuple[
        Floats, Floats, Floats
    ]  # (reads, n) bytes that come in from beyond the first, second, third cache
    # (reads, n) runs of bytes side by side, as which those from beyond the second cache
    # come in
    runs: Floats
    crossings: Floats  # (n,) runs from beyond the first cache that begin on a page of their own
    # (n,) bytes from beyond the second cache, of more runs at a time than a prefetcher
    # follows
    interleaved: Floats
    pages: Floats  # (reads, n) pages visited whose addresses the first-level TLB does not hold
    passes: tuple[
        Floats, Floats
        # (reads, n) over what comes in from beyond the first, second cache, which it does
        # in the first
    ]


def brought_in(table: NestTable, nest: Nests, target: Target) -> Brought:
    """Of one group's nest."""
    spans = _spans(table, nest)
    footprint, room, pages, runs_touched = _footprints(table, spans, nest.packed)
    entered = products_before(nest.extent)
    fetched = _fetched(table, nest, entered)
    reuse = _Reuse(
        table=table, nest=nest, spans=spans, fetched=fetched, entered=entered, runs=runs_touched
    )
    last = max(
        target.l3_bytes // max(target.cores, 1), target.l2_bytes
    )  # shared: a core counts on its part of it
    cached = partial(_Holder, touched=footprint)
    caches = [
        cached(taken=taken, size=size)
        for taken in (_taken(footprint, room), footprint.sum(axis=0))
        for size in (target.l1d_bytes, target.l2_bytes, last)
    ]
    *found, paged = reuse.beyond(
        [*caches, _Holder(touched=pages, taken=pages.sum(axis=0), size=PAGES, in_pages=True)]
    )
    (first, short), (second, runs), (third, _) = (
        _each(room, *both) for both in zip(found[:3], found[3:], caches[3:], strict=True)
    )
    return Brought(
        footprint=footprint,
        traffic=(first, second, third),
        runs=runs,
        crossings=np.array([read.crossing for read in table.reads], np.float32) @ short,
        interleaved=_interleaved(table, nest, runs_touched, second),
        pages=paged.traffic,
        passes=(reuse.passes(footprint, found[3].level), reuse.passes(footprint, found[4].level)),
    )


def _spans(table: NestTable, nest: Nests) -> Floats:
    """Elements of each axis within one iteration of each level, (axes, depth + 1, n);
    the last level is the innermost tile."""
    depth, count = nest.axis.shape
    spans, configs = np.empty((len(nest.span), depth + 1, count), np.float32), np.arange(count)
    spans[:, depth] = nest.span
    for level in reversed(range(depth)):
        spans[:, level] = spans[:, level + 1]
        spans[nest.axis[level], level, configs] *= nest.extent[level]
    clipped: Floats = np.minimum(spans, table.lengths[:, None, None], out=spans)
    return clipped


def _footprints(table: NestTable, spans: Floats, packed: Mask) -> Floats:
    """(bytes, room they take in a cache, pages, runs of bytes side by side) that each
    loop level touches, bytes in cache lines; (4, reads, levels, n)."""
    found = np.empty((4, len(table.reads), *spans.shape[1:]), np.float32)
    footprint, room, pages, runs = found
    for number, read in enumerate(table.reads):
        footprint[number], room[number], pages[number], runs[number] = _footprint(read, spans)
        if packed[number].any():  # a packed copy is contiguous
            copied = float(read.dtype_bytes) * spans[read.uses].prod(axis=0)
            np.copyto(footprint[number], copied, where=packed[number])
            np.copyto(room[number], copied, where=packed[number])
            np.copyto(pages[number], np.maximum(copied / PAGE_BYTES, 1.0), where=packed[number])
            np.copyto(runs[number], 1.0, where=packed[number])
    return found


def _taken(footprint: Floats, room: Floats) -> Floats:
    """Room in a cache that all reads take together."""
    taken: Floats = np.maximum(footprint.sum(axis=0), room.max(axis=0))
    return taken


def _footprint(read: ReadMap, spans: Floats) -> tuple[Floats, Floats, Floats, Floats]:
    """`_footprints` of one read in place, (levels, n) each.

    Lines that lie a part of a page apart fall into the same sets, so a row of a tensor
    takes as much room as the largest power of two that divides its distance to the
    next, up to a page.
    """
    last = len(read.shape) - 1
    run = reach = (
        read.size(spans, last) * read.dtype_bytes
    )  # bytes side by side; bytes from first to last
    lines = room = _in_lines(run)
    runs = pages = _ONE
    for dimension in reversed(range(last)):
        if not read.moving[dimension]:
            continue
        pitch, rows = int(read.pitches[dimension]), read.size(spans, dimension)
        further, sets = rows * pitch - pitch, int(np.gcd(pitch, PAGE_BYTES))
        if pitch < PAGE_BYTES:
            reach = further + reach
        else:
            pages = pages * rows
        if sets > LINE_BYTES:
            room = np.maximum(room, sets * (rows > 1).astype(np.float32))
        joined = (runs == 1) & (np.maximum(run, LINE_BYTES) >= pitch)
        if joined.any():
            together = joined.astype(np.float32)
            apart = 1 - together
            rows = np.maximum(rows * apart, 1)
            run = run + further * together
            lines = _in_lines(run)
            room = np.maximum(room * apart, lines)
        room, runs = room * rows, runs * rows
    return runs * lines, room, pages * np.maximum(reach / PAGE_BYTES, 1.0), runs


def _interleaved(table: NestTable, nest: Nests, touched: Floats, traffic: Floats) -> Floats:
    """Of what comes in from beyond the second cache, what does so in more runs at a
    time than a prefetcher follows, (n,) bytes.

    Between two steps along contiguous elements a nest visits as many runs as one
    iteration of that loop touches: `touched`, (reads, depth + 1, n).
    """
    depth, count = nest.axis.shape
    found = np.zeros(count, np.float32)
    for number, read in enumerate(table.reads[: table.inputs]):
        along = (read.strides == 1)[nest.axis] & (nest.extent > 1)
        if not (traffic[number].any() and along.any()):
            continue
        inside = depth - along[::-1].argmax(
            axis=0
        )  # of the last of these loops; where there is none, the body
        runs = touched[number, inside, np.arange(count)]
        beyond = 1.0 - FOLLOWED_RUNS / np.maximum(runs, FOLLOWED_RUNS)
        found += traffic[number] * beyond * (along.any(axis=0) & ~nest.packed[number])
    return found


def _fetched(table: NestTable, nest: Nests, entered: Floats) -> Floats:
    """How often the footprint of a level is brought in: the loops outside it, down to
    the last one the read moves with; (reads, depth + 1, n)."""
    uses = np.stack([read.uses for read in table.reads])  # (reads, axes)
    times = np.ones((len(uses), len(nest.axis) + 1, nest.axis.shape[1]), np.float32)
    np.maximum(
        entered[1:] * (uses.take(nest.axis, axis=1) & (nest.extent > 1)), 1.0, out=times[:, 1:]
    )
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
    in_pages: bool = False

    @property
    def fits(self) -> Mask:
        """Whether what a level touches is held from one of its iterations to the next,
        (depth + 1, n)."""
        fits: Mask = self.taken <= USABLE * self.size
        return fits


@dataclass(frozen=True, kw_only=True)
class _Beyond:
    """What comes in from beyond a holder: of what the levels touch, and the runs of
    bytes side by side it does so in; (reads, n) each. And the outermost level of which
    the holder keeps everything, the last where there is none, (n,)."""

    traffic: Floats
    runs: Floats
    level: NDArray[np.intp]


def _each(room: Floats, crowded: _Beyond, alone: _Beyond, cache: _Holder) -> tuple[Floats, Floats]:
    """Traffic and runs of a cache where each read is kept or not by itself, (reads, n)
    each: rows that push each other out of their sets leave the others' lines where they
    are. `crowded` counts them for all, `alone` for none."""
    configs = np.arange(room.shape[2])
    kept = room[:, alone.level, configs] <= USABLE * cache.size
    return either(kept, alone.traffic, crowded.traffic), either(kept, alone.runs, crowded.runs)


@dataclass(frozen=True, kw_only=True)
class _Reuse:
    """What a nest brings in again and again from beyond something that holds only so much."""

    table: NestTable
    nest: Nests
    spans: Floats
    fetched: Floats
    entered: Floats  # (depth + 1, n) how often each level is
    runs: Floats  # (reads, depth + 1, n) of bytes side by side that a level touches

    def beyond(self, holders: Sequence[_Holder]) -> list[_Beyond]:
        """For each holder. All at once: most of the time of a batch goes to the number
        of operations."""
        _, levels, count = self.spans.shape
        configs = np.arange(count)
        fits = np.stack([holder.fits for holder in holders])
        level = np.where(fits.any(axis=1), fits.argmax(axis=1), levels - 1)
        # Where two iterations of the loop around it fit, what they share stays: each
        # run of that loop brings in each byte once.
        outer = np.maximum(level - 1, 0)
        at, around = (
            level * count + configs,
            outer * count + configs,
        )  # in arrays whose levels and configs are one dimension
        twice = _flat(self.spans).take(at, axis=1)
        axis, which = self.nest.axis[outer, configs], np.arange(len(holders))[:, None]
        twice[axis, which, configs] = np.minimum(
            twice[axis, which, configs] * 2, self.table.lengths[axis]
        )
        footprint, room, pages, _ = _footprints(self.table, twice, self.nest.packed)
        touched, outside = (
            np.stack(
                [
                    _flat(holder.touched).take(here, axis=1)
                    for holder, here in zip(holders, places, strict=True)
                ],
                axis=1,
            )
            for places in (at, around)
        )
        again, stream = (
            touched * _flat(self.fetched).take(at, axis=1),
            outside * self.entered.ravel().take(around),
        )
        both = np.maximum(footprint.sum(axis=0), room)
        paged = [number for number, holder in enumerate(holders) if holder.in_pages]
        both[:, paged] = pages[:, paged].sum(axis=0)
        few = either(
            both <= USABLE * np.array([[holder.size] for holder in holders]),
            np.minimum(again, stream),
            again,
        )
        # What fits as a whole stays from one call to the next.
        traffic = few * ~fits[:, 0]
        runs = traffic * (_flat(self.runs).take(at, axis=1) / touched)
        return [
            _Beyond(traffic=traffic[:, number], runs=runs[:, number], level=level[number])
            for number in range(len(holders))
        ]

    def passes(self, footprint: Floats, kept: NDArray[np.intp]) -> Floats:
        """How often each read goes over what it touches within the level that a cache
        keeps, (reads, n). Passes over so little that the next part is awaited while a
        core computes with this one are none.
        """
        axis, extent = self.nest.axis, self.nest.extent
        inside = (np.arange(len(axis))[:, None] >= kept) & (extent > 1)
        found = np.empty((len(self.table.reads), axis.shape[1]), np.float32)
        for number, read in enumerate(self.table.reads):
            again = inside & ~read.uses[axis] & (footprint[number, 1:] > FILLS * LINE_BYTES)
            found[number] = np.maximum(extent * again, 1.0).prod(axis=0)
        return found


def _flat(levels: Floats) -> Floats:
    return levels.reshape(len(levels), -1)
