"""What a loop nest brings in from beyond the caches and the TLB, for a batch of configs.

The loop-nest model of reuse: a read is fetched again for every loop outside the deepest
level at which everything still fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.arrays import Floats, Mask, either, products_before
from tuner.cost_model.cpu.footprint import Footprints, footprints, level_spans
from tuner.cost_model.cpu.nests import Nests, NestTable
from tuner.target.target import Target

USABLE = 0.75  # of a cache, before a level counts as too large for it
# Runs that a prefetcher follows at a time: 8 and 32 fit less of what was timed on a Zen 4
# (docs/design-notes/0003).
FOLLOWED_RUNS = 16.0
# Pages whose addresses a core's first-level TLB translates: 64 of AMD's Zen 3, 96 of Zen 5
# and Intel's Golden Cove.
TLB_PAGES = 64


@dataclass(frozen=True, kw_only=True)
class MemoryTraffic:
    """Of n configs; reads include the output, the last. Caches are numbered from 0."""

    footprint: Floats  # (reads, depth + 1, n) bytes that one iteration of each level touches
    # (reads, n) bytes from beyond the first, second and third cache
    missed: tuple[Floats, Floats, Floats]
    runs: Floats  # (reads, n) runs of adjacent bytes, as which bytes beyond the second cache come
    page_crossings: Floats  # (n,) runs from beyond the first cache that begin on another page
    # (n,) bytes from beyond the second cache, of more runs at a time than a prefetcher follows
    interleaved: Floats
    tlb_misses: Floats  # (reads, n) pages visited that the first-level TLB does not hold
    # (reads, n) passes over what comes from beyond the first and second cache; it comes in
    # during the first of them
    passes: tuple[Floats, Floats]


def memory_traffic(table: NestTable, nest: Nests, target: Target) -> MemoryTraffic:
    """Of one group's nest."""
    spans = level_spans(table, nest)
    touched = footprints(table, nest, spans)
    entered = products_before(nest.extent)
    reuse = _Reuse(
        table=table,
        nest=nest,
        spans=spans,
        repeats=_repeats(table, nest, entered),
        entered=entered,
        runs=touched.runs,
    )
    # The last cache is shared: a core counts on its part of it.
    last = max(target.l3_bytes // max(target.cores, 1), target.l2_bytes)
    sizes = (target.l1d_bytes, target.l2_bytes, last)
    with_conflicts = [_bytes_cache(touched, touched.occupied, size) for size in sizes]
    without = [_bytes_cache(touched, touched.nbytes.sum(axis=0), size) for size in sizes]
    tlb = _Cache(
        touched=touched.pages, occupied=touched.pages.sum(axis=0), size=TLB_PAGES, in_pages=True
    )
    *misses, tlb_misses = reuse.misses([*with_conflicts, *without, tlb])
    separate = [
        _read_by_read(touched.room, conflicting, alone, cache)
        for conflicting, alone, cache in zip(misses[:3], misses[3:], without, strict=True)
    ]
    for (traffic, runs), size in zip(separate, sizes, strict=True):
        # A tile's buffers stay in a cache that holds them, from one tile to the next.
        stays = table.held[:, None] & (nest.held_bytes <= USABLE * size)
        traffic *= ~stays
        runs *= ~stays
    (first, first_runs), (second, second_runs), (third, _) = separate
    page_bytes = table.isa.page_bytes
    crossing = np.array([read.crossing(page_bytes) for read in table.reads], np.float32)
    return MemoryTraffic(
        footprint=touched.nbytes,
        missed=(first, second, third),
        runs=second_runs,
        page_crossings=crossing @ first_runs,
        interleaved=_interleaved(table, nest, touched.runs, second),
        tlb_misses=tlb_misses.traffic,
        passes=(
            reuse.passes(touched.nbytes, misses[3].level),
            reuse.passes(touched.nbytes, misses[4].level),
        ),
    )


def _interleaved(table: NestTable, nest: Nests, runs: Floats, traffic: Floats) -> Floats:
    """Bytes from beyond the second cache in more runs at a time than a prefetcher follows.

    Shape (n,). Between two steps along contiguous elements a nest visits as many runs
    as one iteration of that loop touches: `runs`, (reads, depth + 1, n).
    """
    depth, configs = nest.axis.shape
    interleaved = np.zeros(configs, np.float32)
    for number, read in enumerate(table.reads[: table.inputs]):
        contiguous = (read.strides == 1)[nest.axis] & (nest.extent > 1)
        if not (traffic[number].any() and contiguous.any()):
            continue
        # The level inside the last of these loops; where there is none, the body.
        inside = depth - contiguous[::-1].argmax(axis=0)
        visited = runs[number, inside, np.arange(configs)]
        beyond = 1.0 - FOLLOWED_RUNS / np.maximum(visited, FOLLOWED_RUNS)
        in_place = contiguous.any(axis=0) & ~nest.packed[number]
        interleaved += traffic[number] * beyond * in_place
    return interleaved


def _repeats(table: NestTable, nest: Nests, entered: Floats) -> Floats:
    """How often the footprint of a level is brought in, (reads, depth + 1, n).

    The product of the loops outside it, down to the last one that the read moves with.
    """
    uses = np.stack([read.uses for read in table.reads])  # (reads, axes)
    repeats = np.ones((len(uses), len(nest.axis) + 1, nest.axis.shape[1]), np.float32)
    moves = uses.take(nest.axis, axis=1) & (nest.extent > 1)
    np.maximum(entered[1:] * moves, 1.0, out=repeats[:, 1:])
    for level in range(len(nest.axis)):
        np.maximum(repeats[:, level], repeats[:, level + 1], out=repeats[:, level + 1])
    return repeats


@dataclass(frozen=True, kw_only=True)
class _Cache:
    """Something that holds only so much of what each loop level touches: a cache, or the TLB."""

    touched: Floats  # (reads, depth + 1, n)
    occupied: Floats  # (depth + 1, n) room that all reads take there
    size: float
    in_pages: bool = False

    @property
    def fits(self) -> Mask:
        """Whether what a level touches is kept from one of its iterations to the next.

        Shape (depth + 1, n).
        """
        fits: Mask = self.occupied <= USABLE * self.size
        return fits


def _bytes_cache(touched: Footprints, occupied: Floats, size: float) -> _Cache:
    return _Cache(touched=touched.nbytes, occupied=occupied, size=size)


@dataclass(frozen=True, kw_only=True)
class _Misses:
    """What comes in from beyond one cache."""

    traffic: Floats  # (reads, n) of what the levels touch
    runs: Floats  # (reads, n) runs of adjacent bytes, as which it comes in
    # (n,) the outermost level of which the cache keeps everything, the last where there is none
    level: NDArray[np.intp]


def _read_by_read(
    room: Floats, conflicting: _Misses, alone: _Misses, cache: _Cache
) -> tuple[Floats, Floats]:
    """Traffic and runs of a cache where each read is kept or not by itself, (reads, n) each.

    Rows that push each other out of their sets leave the others' lines where they are.
    `conflicting` counts such rows for all reads, `alone` for none.
    """
    kept = room[:, alone.level, np.arange(room.shape[2])] <= USABLE * cache.size
    return (
        either(kept, alone.traffic, conflicting.traffic),
        either(kept, alone.runs, conflicting.runs),
    )


@dataclass(frozen=True, kw_only=True)
class _Reuse:
    """What a nest brings in again and again from beyond something that holds only so much."""

    table: NestTable
    nest: Nests
    spans: Floats
    repeats: Floats
    entered: Floats  # (depth + 1, n) how often each level is
    runs: Floats  # (reads, depth + 1, n) of adjacent bytes that a level touches

    def misses(self, caches: Sequence[_Cache]) -> list[_Misses]:
        """What comes in from beyond each cache.

        All caches at once: most of the time of a batch goes to the number of operations.
        """
        _, levels, configs = self.spans.shape
        fits = np.stack([cache.fits for cache in caches])
        level = np.where(fits.any(axis=1), fits.argmax(axis=1), levels - 1)
        outer = np.maximum(level - 1, 0)
        # Indices into arrays whose levels and configs are one dimension.
        inside, around = (place * configs + np.arange(configs) for place in (level, outer))
        touched, outside = (
            np.stack(
                [
                    _flat(cache.touched).take(place, axis=1)
                    for cache, place in zip(caches, places, strict=True)
                ],
                axis=1,
            )
            for places in (inside, around)
        )
        again = touched * _flat(self.repeats).take(inside, axis=1)
        stream = outside * self.entered.ravel().take(around)
        streams = self._fits_twice(caches, inside, outer)
        loaded = either(streams, np.minimum(again, stream), again)
        # What fits as a whole stays from one call to the next.
        traffic = loaded * ~fits[:, 0]
        runs = traffic * (_flat(self.runs).take(inside, axis=1) / touched)
        return [
            _Misses(traffic=traffic[:, number], runs=runs[:, number], level=level[number])
            for number in range(len(caches))
        ]

    def _fits_twice(
        self, caches: Sequence[_Cache], inside: NDArray[np.intp], outer: NDArray[np.intp]
    ) -> Mask:
        """Whether a cache holds two iterations of the loop around what it keeps.

        Shape (reads, caches, n). What the two share then stays: each run of that loop
        brings in each byte once. `inside` are the kept levels, as indices of all levels
        and configs in one dimension; `outer`, (caches, n), are the levels around them.
        """
        configs = np.arange(self.spans.shape[2])
        spans = _flat(self.spans).take(inside, axis=1)
        axis, which = self.nest.axis[outer, configs], np.arange(len(caches))[:, None]
        spans[axis, which, configs] = np.minimum(
            spans[axis, which, configs] * 2, self.table.axes.lengths[axis]
        )
        touched = footprints(self.table, self.nest, spans)
        # The bytes of all reads, or the room of one whose own rows conflict.
        occupied = np.maximum(touched.nbytes.sum(axis=0), touched.room)
        in_pages = [number for number, cache in enumerate(caches) if cache.in_pages]
        occupied[:, in_pages] = touched.pages[:, in_pages].sum(axis=0)
        fits: Mask = occupied <= USABLE * np.array([[cache.size] for cache in caches])
        return fits

    def passes(self, footprint: Floats, kept: NDArray[np.intp]) -> Floats:
        """How often each read goes over what it touches within the kept level, (reads, n).

        Passes over so little that the next part is awaited while a core computes with
        this one are none.
        """
        axis, extent = self.nest.axis, self.nest.extent
        inside = (np.arange(len(axis))[:, None] >= kept) & (extent > 1)
        in_flight_bytes = self.table.isa.line_fill_buffers * self.table.isa.line_bytes
        passes = np.empty((len(self.table.reads), axis.shape[1]), np.float32)
        for number, read in enumerate(self.table.reads):
            awaited = footprint[number, 1:] > in_flight_bytes
            again = inside & ~read.uses[axis] & awaited
            passes[number] = np.maximum(extent * again, 1.0).prod(axis=0)
        return passes


def _flat(levels: Floats) -> Floats:
    return levels.reshape(len(levels), -1)
