"""What the loop nest of each config does, for a whole batch of configs at once.

Features and estimated cycles are made of these counts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.borders import border_checks
from tuner.cost_model.cpu.conflicts import set_conflicts
from tuner.cost_model.cpu.copies import CopyCounts, copy_counts
from tuner.cost_model.cpu.nests import Nests, NestTable
from tuner.cost_model.cpu.operands import OperandCounts, operand_counts
from tuner.cost_model.cpu.reuse import MemoryTraffic, memory_traffic
from tuner.spaces.core.space import Points
from tuner.target.target import Target


@dataclass(frozen=True, kw_only=True)
class NestWork:
    """Counts of n configs of one group; of the whole kernel unless said otherwise.

    A body is the innermost, unrolled code. All arrays have shape (n,).
    """

    nest: Nests
    depth: int  # loop levels
    lanes: int  # of a vector; 1 without vectors
    memory: MemoryTraffic
    operands: OperandCounts  # of a body
    copies: CopyCounts
    accumulators: Floats  # vectors of results that live in registers
    # points computed for each point of the result; 1 without overlap and recomputation
    overlap: Floats
    bodies: Floats  # runs of the body
    steps: Floats  # iterations of the reduction with all accumulators of a tile; else tiles
    lives: Floats  # times that the accumulators are set up and written back
    conflicting_reads: Floats  # of a body, of lines beyond those that their cache sets hold
    conflicting_writes: Floats  # the same of one write-back of the accumulators
    border_checks: Floats  # of a body: vectors compared with a tensor's border
    border_checks_2d: Floats  # of these, those compared in two dimensions of the tile
    written: Floats  # elements stored
    scattered: Floats  # of these, elements stored one by one
    transcendentals: Floats  # evaluations of transcendental functions

    @property
    def steps_per_body(self) -> Floats:
        """Iterations of the reduction that a body unrolls."""
        steps: Floats = np.maximum(self.steps / np.maximum(self.bodies, 1), 1)
        return steps

    @property
    def registers_needed(self) -> Floats:
        """Vector registers that a step needs at once."""
        operands = self.operands
        needed: Floats = self.accumulators + operands.reused + (operands.broadcasts > 0)
        return needed


def nest_work(table: NestTable, points: Points, target: Target) -> NestWork:
    """Counts of one group's nest under each config; points (n, knobs)."""
    nest = table.decode(points)
    depth, spatial = len(nest.axis), table.spatial
    lanes = max(nest.lanes, 1)
    # The column of a row sketch is tiled in vectors and partial results, not in iterations.
    unrolled = 1.0 if table.is_rows else nest.span[spatial:][table.axes.stepped].prod(axis=0)
    bodies = nest.computed / nest.span.prod(axis=0) * table.share
    steps = bodies * unrolled
    iterations = (
        nest.extent[depth - table.reductions :].prod(axis=0) * unrolled if table.reductions else 1.0
    )
    tile = nest.span[:spatial].prod(axis=0)
    vectors = tile if table.is_rows else np.floor(tile / lanes)
    accumulators = np.maximum(vectors * nest.partials, 1.0)
    output = table.reads[-1]
    written = nest.computed / max(int(np.prod(table.axes.extents[~output.uses])), 1)
    contiguous = lanes > 1 and output.strides[nest.vector] == 1
    conflicting_reads, conflicting_writes = set_conflicts(table, nest, target)
    checks, checks_2d = border_checks(table, nest)
    overlap = nest.computed / max(table.axes.points, 1)
    # Overlap within a nest of one group is counted with the arithmetic alone.
    evaluated = 1.0 if table.facts.fusion is None else overlap
    return NestWork(
        nest=nest,
        depth=depth,
        lanes=lanes,
        memory=memory_traffic(table, nest, target),
        operands=operand_counts(table, nest, accumulators),
        copies=copy_counts(table, nest),
        accumulators=accumulators,
        overlap=overlap,
        bodies=bodies,
        steps=steps,
        lives=steps / table.share / iterations,
        conflicting_reads=conflicting_reads,
        conflicting_writes=conflicting_writes,
        border_checks=checks,
        border_checks_2d=checks_2d,
        written=written,
        scattered=np.zeros_like(written) if contiguous else written,
        transcendentals=table.transcendentals * (1.0 + nest.recomputed) * evaluated,
    )
