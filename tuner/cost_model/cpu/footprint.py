"""Bytes, cache room, pages and runs that each level of a nest touches, for a batch of configs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.nests import Nests, NestTable
from tuner.cost_model.cpu.reads import ReadMap
from tuner.target.isa import IsaDescription

_ONE: Floats = np.ones((), np.float32)


@dataclass(frozen=True, kw_only=True)
class Footprints:
    """What one iteration of each loop level touches. Shapes are (reads, levels, n)."""

    nbytes: Floats  # in whole cache lines
    room: Floats  # bytes of a cache, whose sets rows at powers of two apart share
    pages: Floats
    runs: Floats  # runs of adjacent bytes

    @property
    def occupied(self) -> Floats:
        """Room in a cache that all reads take together, (levels, n)."""
        occupied: Floats = np.maximum(self.nbytes.sum(axis=0), self.room.max(axis=0))
        return occupied


def level_spans(table: NestTable, nest: Nests) -> Floats:
    """Elements of each axis within one iteration of each level, (axes, depth + 1, n).

    The last level is the innermost tile.
    """
    depth, count = nest.axis.shape
    spans, configs = np.empty((len(nest.span), depth + 1, count), np.float32), np.arange(count)
    spans[:, depth] = nest.span
    for level in reversed(range(depth)):
        spans[:, level] = spans[:, level + 1]
        spans[nest.axis[level], level, configs] *= nest.extent[level]
    clipped: Floats = np.minimum(spans, table.axes.lengths[:, None, None], out=spans)
    return clipped


def footprints(table: NestTable, nest: Nests, spans: Floats) -> Footprints:
    """Footprints of levels whose iterations span (axes, levels, n) elements.

    A packed copy is contiguous, in the order of reading. So are buffers of a
    tile's size, which have each element of a box once.
    """
    touched = np.empty((4, len(table.reads), *spans.shape[1:]), np.float32)
    nbytes, room, pages, runs = touched
    for number, read in enumerate(table.reads):
        nbytes[number], room[number], pages[number], runs[number] = _in_place(
            read, spans, table.isa
        )
        packed, boxed = nest.packed[number] & ~nest.boxed[number], nest.boxed[number]
        if boxed.any():
            of_box = _in_box(read, nest, number, spans, table.isa)
            for place, values in enumerate(of_box):
                np.copyto(touched[place, number], values, where=boxed)
        if packed.any():
            copied = float(read.dtype_bytes) * spans[read.uses].prod(axis=0)
            np.copyto(nbytes[number], copied, where=packed)
            np.copyto(room[number], copied, where=packed)
            np.copyto(pages[number], np.maximum(copied / table.isa.page_bytes, 1.0), where=packed)
            np.copyto(runs[number], 1.0, where=packed)
    return Footprints(nbytes=nbytes, room=room, pages=pages, runs=runs)


def _in_place(
    read: ReadMap, spans: Floats, isa: IsaDescription
) -> tuple[Floats, Floats, Floats, Floats]:
    """(bytes, room, pages, runs) of one read in place, (levels, n) each.

    Lines that lie a part of a page apart fall into the same sets. So a row of a tensor
    takes as much room as the largest power of two that divides its distance to the
    next, up to a page.
    """
    last = len(read.shape) - 1
    run = read.size(spans, last) * read.dtype_bytes  # adjacent bytes
    reach = run  # bytes from the first to the last
    lines = room = _in_lines(run, isa.line_bytes)
    runs = pages = _ONE
    for dimension in reversed(range(last)):
        if not read.moving[dimension]:
            continue
        pitch, rows = int(read.pitches[dimension]), read.size(spans, dimension)
        further, sets = rows * pitch - pitch, int(np.gcd(pitch, isa.page_bytes))
        if pitch < isa.page_bytes:
            reach = further + reach
        else:
            pages = pages * rows
        if sets > isa.line_bytes:
            room = np.maximum(room, sets * (rows > 1).astype(np.float32))
        joined = (runs == 1) & (np.maximum(run, isa.line_bytes) >= pitch)
        if joined.any():
            together = joined.astype(np.float32)
            apart = 1 - together
            rows = np.maximum(rows * apart, 1)
            run = run + further * together
            lines = _in_lines(run, isa.line_bytes)
            room = np.maximum(room * apart, lines)
        room, runs = room * rows, runs * rows
    return runs * lines, room, pages * np.maximum(reach / isa.page_bytes, 1.0), runs


def _in_box(
    read: ReadMap, nest: Nests, number: int, spans: Floats, isa: IsaDescription
) -> tuple[Floats, Floats, Floats, Floats]:
    """As `_in_place`, of a buffer of a tile's size, whose rows lie a pitch apart."""
    last = read.last(nest.vector)
    sizes = read.sizes(spans)
    run, pitch = sizes[last] * read.dtype_bytes, nest.pitch[number] * read.dtype_bytes
    rows = np.delete(sizes, last, axis=0).prod(axis=0)
    whole = run >= pitch
    reach = np.where(whole, rows * run, (rows - 1) * pitch + run)
    lines = np.where(
        whole, _in_lines(rows * run, isa.line_bytes), rows * _in_lines(run, isa.line_bytes)
    )
    sets = np.gcd(pitch.astype(np.int64), isa.page_bytes).astype(np.float32)
    apart = ~whole & (sets > isa.line_bytes) & (rows > 1)
    room = np.where(apart, np.maximum(lines, rows * sets), lines)
    pages = np.maximum(np.minimum(reach / isa.page_bytes, rows), 1.0)
    return lines, room, pages, np.where(whole, 1.0, rows)


def _in_lines(size: Floats, line_bytes: int) -> Floats:
    lines: Floats = np.ceil(size * (1 / line_bytes)) * line_bytes
    return lines
