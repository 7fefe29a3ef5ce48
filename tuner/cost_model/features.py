"""Features of a config for the cost model, from knob values and access maps alone.

Computed for a whole batch at once. Their number is fixed: columns go by role and not by
operator, so that a model trained on one workload can rank another. They say what an
innermost tile holds in registers, what each read brings through each cache, how much is
copied first and how much is computed twice; the last ones are the terms of the
estimated cycles with their shares.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.allocator import keep_freed
from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.cycles import ROUND_COSTS, TERM_NAMES, cycles
from tuner.cost_model.cpu.nests import COPIES, NestKind, NestTable, tables
from tuner.cost_model.cpu.work import NestWork, nest_work
from tuner.spaces.core.space import Points
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.facts import LoopNestFacts
from tuner.target.target import Target

FEATURE_VERSION = 16  # of the meaning of the columns; models are stored with it
MAX_GROUPS = 3  # groups described, the ones with most arithmetic first
READS = 3  # reads described one by one, the largest first
AXES = 4  # of the output, the last ones, whose loops are described
READ_FEATURES = len(COPIES) + 6
GROUP_FEATURES = 22 + 3 * (READS + 2) + READS * READ_FEATURES + 2 * AXES
# Last columns: log2(1 + units) of each term of the estimated cycles, absolute.
TERMS = len(TERM_NAMES)
ESTIMATE = MAX_GROUPS * GROUP_FEATURES + 2  # column: log2 of the estimated cycles
WIDTH = ESTIMATE + 1 + TERMS  # of the columns before them; after the estimate each term's share
# Configs described at once, at most: the arrays of more leave a second-level cache.
BATCH = 2048
LEAST = 1e-9  # of what a logarithm is taken
REFERENCE = 512  # random configs whose mean is typical of a workload


def featurizer(space: TargetSpace[LoopNestFacts]) -> Callable[[Points], NDArray[np.float32]]:
    """Points (n, knobs) → features (n, WIDTH + TERMS), float32, all finite.

    Each of the first WIDTH columns is the difference to its mean over random configs of
    the space. What is typical of a workload says nothing about the order of its
    configs, and a model of few workloads would only learn to tell them apart by it
    (docs/explanation/search.md).
    """
    keep_freed()
    plain = _plain_featurizer(space)
    reference = space.space.sample(np.random.default_rng(0), REFERENCE)
    typical = plain(reference).mean(axis=0, dtype=np.float64).astype(np.float32)
    typical[WIDTH:] = 0.0

    def relative(points: Points) -> NDArray[np.float32]:
        features = plain(points)
        features -= typical
        return features

    return relative


def _plain_featurizer(space: TargetSpace[LoopNestFacts]) -> Callable[[Points], NDArray[np.float32]]:
    combinations = [
        (_nests(space, name), len(sketches), space.units_of(name))
        for name, sketches in space.sketches.items()
    ]

    def features(points: Points) -> NDArray[np.float32]:
        out = np.empty((len(points), WIDTH + TERMS), np.float32)
        for combination in np.unique(points[:, 0]):
            rows = np.flatnonzero(points[:, 0] == combination)
            nests, groups, threads = combinations[combination]
            for batch in np.array_split(rows, -(-len(rows) // BATCH)):
                columns = _described(space.target, nests, groups, threads, points[batch])
                out[batch] = np.ascontiguousarray(columns.T)  # rows go in whole
        return out

    return features


def _nests(space: TargetSpace[LoopNestFacts], combination: str) -> list[NestTable]:
    return sorted(tables(space, combination), key=lambda table: -table.flops)


def _described(
    target: Target, nests: Sequence[NestTable], groups: int, threads: int, points: Points
) -> NDArray[np.float32]:
    """Features of points of one combination of sketches, shape (WIDTH + TERMS, n).

    `threads` share the loops of each kernel. A fused group has several nests.
    """
    columns = np.zeros((WIDTH + TERMS, len(points)), np.float32)
    units = np.zeros((TERMS, len(points)), np.float32)
    for slot, table in enumerate(nests):
        work = nest_work(table, points, target)
        units += cycles(table, work, target) * critical_share(work.nest.tasks, threads)
        if slot < MAX_GROUPS:
            of_group = columns[slot * GROUP_FEATURES : (slot + 1) * GROUP_FEATURES]
            for number, row in enumerate(group_features(table, work, target, threads)):
                of_group[number] = row
    columns[ESTIMATE - 2] = groups
    columns[ESTIMATE - 1] = threads
    costs = units * ROUND_COSTS.astype(np.float32)[:, None]
    total = np.maximum(costs.sum(axis=0), 1.0)
    columns[ESTIMATE] = np.log2(total)
    columns[ESTIMATE + 1 : WIDTH] = np.log2(1e-3 + costs / total)
    columns[WIDTH:] = np.log2(1.0 + units)
    return columns


def critical_share(tasks: Floats, threads: int) -> Floats:
    """Share of the work that the busiest thread does, shape (n,)."""
    busiest: Floats = np.ceil(tasks / threads) / np.maximum(tasks, 1)
    return busiest


def group_features(
    table: NestTable, work: NestWork, target: Target, threads: int
) -> list[Floats | float]:
    """Features of one group's nest, GROUP_FEATURES of shape (n,) or of one number for all."""
    columns = [
        *_of_traffic(table, work),
        *_of_sketch(table, work),
        *_of_tile(table, work, target),
        *_of_levels(table, work, target),
        *_of_choices(work, threads),
    ]
    for number in range(READS):
        columns += _of_read(table, number, work, target)
    return columns + _of_orders(table, work)


def _of_traffic(table: NestTable, work: NestWork) -> list[Floats | float]:
    """For each cache its misses by arithmetic and by size, and those of each read."""
    columns: list[Floats | float] = []
    for missed in work.memory.missed:
        whole = missed.sum(axis=0)
        columns += [_log(whole / max(table.flops, 1)), _log(whole / max(table.nbytes, 1))]
        columns += [
            _log(missed[number] / max(table.nbytes, 1)) if number < len(table.reads) else 0.0
            for number in range(READS)
        ]
    return columns


def _of_sketch(table: NestTable, work: NestWork) -> list[Floats | float]:
    """Which kind of nest it is, and its arithmetic: the same for all configs."""
    kind = work.nest.kind
    return [
        1.0,
        float(kind is NestKind.REDUCTION),
        float(kind is NestKind.MAP),
        float(kind is NestKind.ROWS),
        math.log2(max(table.flops / max(table.nbytes, 1), LEAST)),
        math.log2(max(table.flops, 1)),
    ]


def _of_tile(table: NestTable, work: NestWork, target: Target) -> list[Floats | float]:
    """The unrolled body: registers, vectors, loads for each multiply-add."""
    accumulators, operands = work.accumulators, work.operands
    unrolled = work.nest.span[table.spatial :].prod(axis=0)
    return [
        _log(accumulators),
        np.maximum(work.registers_needed - target.vector_registers, 0),
        work.lanes / (target.vector_bytes / table.dtype_bytes),
        _log(unrolled),
        _log(accumulators * unrolled),
        _log(work.overlap),
        _log(operands.total / work.steps_per_body / accumulators),
        _log(np.maximum(operands.loads / work.steps_per_body, 1) / accumulators),
    ]


def _of_levels(table: NestTable, work: NestWork, target: Target) -> list[Floats | float]:
    """What the tile, the reduction and the cache block touch, beside the caches."""
    total = work.memory.footprint.sum(axis=0)  # (depth + 1, n)
    reduction = work.depth - table.reductions
    return [
        _log(total[work.depth] / target.l1d_bytes),
        _log(total[reduction] / target.l1d_bytes),
        _log(total[max(reduction - table.spatial, 0)] / target.l2_bytes),
    ]


def _of_choices(work: NestWork, threads: int) -> list[Floats | float]:
    """Choices beside tiles and orders, and how many threads have no task."""
    nest = work.nest
    return [
        _log(nest.blocks),
        nest.polynomial.astype(np.float32),
        nest.recomputed,
        np.log2(1.0 + nest.prefetch_distance),
        _log(threads / np.maximum(np.minimum(nest.tasks, threads), 1)),
    ]


def _of_read(table: NestTable, number: int, work: NestWork, target: Target) -> list[Floats | float]:
    """One read: its copy, its strides along the vector and the innermost loop, its footprint."""
    if number >= table.inputs:
        return [0.0] * READ_FEATURES
    nest, footprint = work.nest, work.memory.footprint[number]
    strides = table.reads[number].strides
    vector_stride = strides[nest.vector] if nest.vector >= 0 else 0
    return [
        *((nest.copy_mode[number] == code).astype(np.float32) for code in range(len(COPIES))),
        float(vector_stride == 0),
        float(vector_stride == 1),
        np.log2(1.0 + np.abs(strides)).astype(np.float32).take(nest.axis[-1]),
        _log(footprint[work.depth - table.reductions] / target.l1d_bytes),
        _log(footprint[0] / target.l2_bytes),
        _log(footprint[-1]),
    ]


def _of_orders(table: NestTable, work: NestWork) -> list[Floats | float]:
    """How often each loop over the output is begun, log2; 0 for one that runs once.

    These columns tell all orders of loops apart.
    """
    nest, configs = work.nest, np.arange(len(work.bodies))
    begun = np.ones(len(configs), np.float32)
    columns = np.zeros((2, max(table.spatial, AXES), len(configs)), np.float32)
    for level in range(2 * table.spatial + 1):
        half, place = divmod(level, table.spatial + 1)
        if place < table.spatial:  # beside the loop over blocks of the reduction
            last_first = table.spatial - 1 - nest.axis[level]
            columns[half, last_first, configs] = begun * (nest.extent[level] > 1)
        begun = begun + np.log2(nest.extent[level])
    return list(columns[:, :AXES].reshape(2 * AXES, -1))


def _log(values: Floats) -> Floats:
    return np.log2(np.maximum(values, LEAST))
