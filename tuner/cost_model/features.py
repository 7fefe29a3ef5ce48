"""Features of a config for the cost model: computed from knob values and access maps
alone, for a whole batch at once.

Fixed length, by role and not by operator, so that a model trained on one workload can
rank another: what an innermost tile holds in registers, what each read brings through
each cache, how much is copied first, how much is computed twice; and the terms of the
estimated cycles with their shares in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.allocator import keep_freed
from tuner.cost_model.arrays import Floats
from tuner.cost_model.cpu.cycles import NAMES, ROUND, cycles
from tuner.cost_model.cpu.nests import COPIES, NestTable, tables
from tuner.cost_model.cpu.work import Work, work
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
TERMS = len(NAMES)  # last columns: log2(1 + units) of each term of the estimated cycles, absolute
ESTIMATE = (
    MAX_GROUPS * GROUP_FEATURES + 2
)  # column: log2 of the estimated cycles, the lower the faster
WIDTH = (
    ESTIMATE + 1 + TERMS
)  # of the columns before them; after the estimate each term's share in it
# most configs described at once: more, and the arrays of a nest leave a second-level
# cache
BATCH = 2048
LEAST = 1e-9  # of what a logarithm is taken
REFERENCE = 512  # random configs whose mean is typical of a workload


def featurizer(space: TargetSpace[LoopNestFacts]) -> Callable[[Points], NDArray[np.float32]]:
    """Points (n, knobs) → features (n, WIDTH + TERMS), float32, all finite.

    Each of the first WIDTH columns is the difference to its mean over random configs of
    the space: what is typical of a workload says nothing about the order of its
    configs, and a model of few workloads would only learn to tell them apart by it
    (docs/search.md).
    """
    keep_freed()
    plain = _plain_featurizer(space)
    typical = (
        plain(space.space.sample(np.random.default_rng(0), REFERENCE))
        .mean(axis=0, dtype=np.float64)
        .astype(np.float32)
    )
    typical[WIDTH:] = 0.0

    def relative(points: Points) -> NDArray[np.float32]:
        found = plain(points)
        found -= typical
        return found

    return relative


def _plain_featurizer(space: TargetSpace[LoopNestFacts]) -> Callable[[Points], NDArray[np.float32]]:
    made = [(_groups(space, name), space.units_of(name)) for name in space.sketches]

    def features(points: Points) -> NDArray[np.float32]:
        out = np.empty((len(points), WIDTH + TERMS), np.float32)
        for row in np.unique(points[:, 0]):
            found = np.flatnonzero(points[:, 0] == row)
            groups, threads = made[row]
            for chosen in np.array_split(found, -(-len(found) // BATCH)):
                columns = _described(space.target, groups, threads, points[chosen])
                out[chosen] = np.ascontiguousarray(columns.T)  # rows go in whole
        return out

    return features


def _groups(space: TargetSpace[LoopNestFacts], combination: str) -> list[NestTable]:
    return sorted(tables(space, combination), key=lambda table: -table.flops)


def _described(
    target: Target, groups: Sequence[NestTable], threads: int, points: Points
) -> NDArray[np.float32]:
    """Features of points of one combination of sketches, which so many threads share,
    shape (WIDTH + TERMS, n)."""
    found = np.zeros((WIDTH + TERMS, len(points)), np.float32)
    units = np.zeros((TERMS, len(points)), np.float32)
    for slot, table in enumerate(groups):
        done = work(table, points, target)
        units += cycles(table, done, target) * _critical(done.nest.blocks, threads)
        if slot < MAX_GROUPS:
            of_group = found[slot * GROUP_FEATURES : (slot + 1) * GROUP_FEATURES]
            for number, row in enumerate(group_features(table, done, target, threads)):
                of_group[number] = row
    found[ESTIMATE - 2] = len(groups)
    found[ESTIMATE - 1] = threads
    costs = units * ROUND.astype(np.float32)[:, None]
    total = np.maximum(costs.sum(axis=0), 1.0)
    found[ESTIMATE] = np.log2(total)
    found[ESTIMATE + 1 : WIDTH] = np.log2(1e-3 + costs / total)
    found[WIDTH:] = np.log2(1.0 + units)
    return found


def _critical(tasks: Floats, threads: int) -> Floats:
    """Share of the work that the busiest thread does, shape (n,)."""
    busiest: Floats = np.ceil(tasks / threads) / np.maximum(tasks, 1)
    return busiest


def group_features(
    table: NestTable, done: Work, target: Target, threads: int
) -> list[Floats | float]:
    """Features of one group's nest, GROUP_FEATURES of shape (n,) or of one number for all."""
    nest, accumulators, depth = done.nest, done.accumulators, done.depth
    total = done.brought.footprint.sum(axis=0)  # (depth + 1, n)
    rows: list[Floats | float] = []
    for traffic in done.brought.traffic:
        whole = traffic.sum(axis=0)
        rows += [_log(whole / max(table.flops, 1)), _log(whole / max(table.nbytes, 1))]
        for number in range(READS):
            rows.append(
                _log(traffic[number] / max(table.nbytes, 1)) if number < len(table.reads) else 0.0
            )
    per_step = np.maximum(done.steps / np.maximum(done.bodies, 1), 1)
    inner_level = depth - table.reductions
    unrolled = nest.span[table.spatial :].prod(axis=0)
    rows += [
        1.0,
        float(nest.kind == 0),
        float(nest.kind == 1),
        float(nest.kind == 2),
        math.log2(max(table.flops / max(table.nbytes, 1), LEAST)),
        math.log2(max(table.flops, 1)),
        _log(accumulators),
        np.maximum(done.held - target.vector_registers, 0),
        done.lanes / (target.vector_bytes / table.dtype_bytes),
        _log(unrolled),
        _log(accumulators * unrolled),
        _log(done.covered),
        _log((done.loads + done.broadcasts) / per_step / accumulators),
        _log(np.maximum(done.loads / per_step, 1) / accumulators),
        _log(total[depth] / target.l1d_bytes),
        _log(total[inner_level] / target.l1d_bytes),
        _log(total[max(inner_level - table.spatial, 0)] / target.l2_bytes),
        _log(nest.blocks),
        nest.polynomial.astype(np.float32),
        nest.recomputed,
        np.log2(1.0 + nest.ahead),
        _log(threads / np.maximum(np.minimum(nest.blocks, threads), 1)),
    ]
    for number in range(READS):
        rows += _of_read(table, number, done, inner_level, target)
    return rows + _of_orders(table, done)


def _log(values: Floats) -> Floats:
    return np.log2(np.maximum(values, LEAST))


def _of_read(
    table: NestTable, number: int, done: Work, inner_level: int, target: Target
) -> list[Floats | float]:
    """What becomes of one read: its copy, its strides along the vector and the
    innermost loop, how much of it that touches."""
    nest = done.nest
    if number >= table.inputs:
        return [0.0] * READ_FEATURES
    stride = table.reads[number].strides[nest.vector] if nest.vector >= 0 else 0
    return [
        *((nest.how[number] == code).astype(np.float32) for code in range(len(COPIES))),
        float(stride == 0),
        float(stride == 1),
        np.log2(1.0 + np.abs(table.reads[number].strides)).astype(np.float32).take(nest.axis[-1]),
        _log(done.brought.footprint[number, inner_level] / target.l1d_bytes),
        _log(done.brought.footprint[number, 0] / target.l2_bytes),
        _log(done.brought.footprint[number, -1]),
    ]


def _of_orders(table: NestTable, done: Work) -> list[Floats | float]:
    """How often each loop over the output is begun, log2, 0 for one that runs once:
    these tell all orders of loops apart."""
    nest, configs = done.nest, np.arange(len(done.bodies))
    begun, rows = (
        np.ones(len(configs), np.float32),
        np.zeros((2, max(table.spatial, AXES), len(configs)), np.float32),
    )
    for level in range(2 * table.spatial + 1):
        half, place = divmod(level, table.spatial + 1)
        if place < table.spatial:  # beside the loop over blocks of the reduction
            rows[half, table.spatial - 1 - nest.axis[level], configs] = begun * (
                nest.extent[level] > 1
            )
        begun = begun + np.log2(nest.extent[level])
    return list(rows[:, :AXES].reshape(2 * AXES, -1))
