"""Lines that push each other out of a set of the first-level cache, for a batch of configs."""

from __future__ import annotations

import numpy as np

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.nests import NestKind, Nests, NestTable
from tuner.target.target import Target


def set_conflicts(table: NestTable, nest: Nests, target: Target) -> tuple[Floats, Floats]:
    """(reads of a body, writes of a tile) beyond those that their sets hold, (n,) each.

    Lines a whole part of a page apart fall into the same sets, which hold `ways` lines
    each. Where no accumulators lie between them, what is read and what is written as
    far apart meet in the same sets.
    """
    page_bytes = table.isa.page_bytes
    ways = max(target.l1d_bytes // page_bytes, 1)
    excess = np.zeros((2, nest.span.shape[1]), np.float32)
    pitches = np.stack([np.abs(read.strides) * read.dtype_bytes for read in table.reads])
    for number, read in enumerate(table.reads):
        in_vectors = nest.vector >= 0 and read.strides[nest.vector] == 1
        for axis in range(len(table.axes.names)):
            pitch = int(pitches[number, axis])
            accumulates = nest.kind is NestKind.REDUCTION
            sharing = 1 if accumulates else int((pitches[:, axis] == pitch).sum())
            lines_held = page_bytes // int(np.gcd(pitch, page_bytes)) * ways // sharing
            if pitch < page_bytes // 8 or lines_held >= table.axes.extents[axis]:
                continue
            elements = nest.span[read.uses].prod(axis=0) * ~nest.packed[number]
            beyond = np.maximum(1.0 - lines_held / nest.span[axis], 0.0)
            accesses = elements / (max(nest.lanes, 1) if in_vectors else 1)
            excess[int(number >= table.inputs)] += accesses * beyond
    return excess[0], excess[1]
