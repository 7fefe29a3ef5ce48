"""Features of a config for the cost model: computed from knob values and access maps alone, for a whole batch at once.

Fixed length, by role and not by operator, so that a model trained on one workload can rank another: what an innermost tile holds
in registers, what each read brings through each cache, how much is copied first, how much is computed twice; and the terms of the
estimated cycles with their shares in it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.cycles import NAMES, ROUND, cycles
from tuner.cost_model.nests import COPIES, NestTable, tables
from tuner.cost_model.work import Work, work
from tuner.spaces.cpu import CpuSpace
from tuner.spaces.space import Points
from tuner.target.target import Target

FEATURE_VERSION = 7  # of the meaning of the columns; models are stored with it
MAX_GROUPS = 3  # groups described, the ones with most arithmetic first
READS = 3  # reads described one by one, the largest first
AXES = 4  # of the output, the last ones, whose loops are described
READ_FEATURES = len(COPIES) + 5
GROUP_FEATURES = 21 + 3 * (READS + 2) + READS * READ_FEATURES + 2 * AXES
TERMS = len(NAMES)  # last columns: log2(1 + units) of each term of the estimated cycles, absolute
ESTIMATE = MAX_GROUPS * GROUP_FEATURES + 2  # column: log2 of the estimated cycles, the lower the faster
WIDTH = ESTIMATE + 1 + TERMS  # of the columns before them; after the estimate each term's share in it
REFERENCE = 512  # random configs whose mean is typical of a workload

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def featurizer(space: CpuSpace) -> Callable[[Points], NDArray[np.float32]]:
    """Points (n, knobs) → features (n, WIDTH + TERMS), float32, all finite.

    Each of the first WIDTH columns is the difference to its mean over random configs of the space: what is typical of a workload
    says nothing about the order of its configs, and a model of few workloads would only learn to tell them apart by it
    (docs/search.md).
    """
    plain = _plain_featurizer(space)
    typical = plain(space.space.sample(np.random.default_rng(0), REFERENCE)).mean(axis=0, dtype=np.float64).astype(np.float32)
    typical[WIDTH:] = 0.0
    return lambda points: plain(points) - typical


def _plain_featurizer(space: CpuSpace) -> Callable[[Points], NDArray[np.float32]]:
    made = [tables(space, name) for name in space.combinations]

    def features(points: Points) -> NDArray[np.float32]:
        out = np.zeros((len(points), WIDTH + TERMS), np.float32)
        for row, groups in enumerate(made):
            found = np.flatnonzero(points[:, 0] == row)
            count = len(found)
            if not count:
                continue
            chosen = found if count < len(points) else slice(None)  # all need not be gathered and scattered
            units = np.zeros((count, TERMS))
            for slot, table in enumerate(sorted(groups, key=lambda table: -table.flops)):
                done = work(table, points[chosen], space.target)
                share = _critical(done.nest.tasks, space.threads)
                units += cycles(table, done, space.target) * share[:, None]
                if slot < MAX_GROUPS:
                    block = group_features(table, done, space.target, space.threads)
                    out[chosen, slot * GROUP_FEATURES : (slot + 1) * GROUP_FEATURES] = block
            out[chosen, ESTIMATE - 2] = len(groups)
            out[chosen, ESTIMATE - 1] = space.threads
            costs = units * ROUND
            total = np.maximum(costs.sum(axis=1), 1.0)
            out[chosen, ESTIMATE] = np.log2(total)
            out[chosen, ESTIMATE + 1 : WIDTH] = np.log2(1e-3 + costs / total[:, None])
            out[chosen, WIDTH:] = np.log2(1.0 + units)
        return out

    return features


def _critical(tasks: Ints, threads: int) -> Floats:
    """Share of the work that the busiest thread does, shape (n,)."""
    busiest: Floats = np.ceil(tasks / threads) / np.maximum(tasks, 1)
    return busiest


def group_features(table: NestTable, done: Work, target: Target, threads: int) -> NDArray[np.float32]:
    """Features of one group's nest, shape (n, GROUP_FEATURES)."""
    nest, accumulators, lanes = done.nest, done.accumulators, done.lanes
    count, depth = len(lanes), done.depth
    total = done.footprint.sum(axis=-1)  # (depth + 1, n)
    columns: list[Floats] = []
    for traffic in done.traffic:
        columns += [_log(traffic.sum(axis=1) / max(table.flops, 1)), _log(traffic.sum(axis=1) / max(table.nbytes, 1))]
        for number in range(READS):
            columns.append(_log(traffic[:, number] / max(table.nbytes, 1)) if number < len(table.reads) else np.zeros(count))
    per_step = np.maximum(done.steps / np.maximum(done.bodies, 1), 1)
    inner_level = depth - table.reductions
    unrolled = nest.span[:, table.spatial :].prod(axis=1)
    columns += [
        np.ones(count),
        nest.kind == 0,
        nest.kind == 1,
        nest.kind == 2,
        np.full(count, _log(np.array(table.flops / max(table.nbytes, 1)))),
        np.full(count, _log(np.array(float(max(table.flops, 1))))),
        _log(accumulators),
        np.maximum(done.held - target.vector_registers, 0),
        lanes / (target.vector_bytes / table.dtype_bytes),
        _log(unrolled),
        _log(accumulators * unrolled),
        _log(done.covered),
        _log((done.loads + done.broadcasts) / per_step / accumulators),
        _log(np.maximum(done.loads / per_step, 1) / accumulators),
        _log(total[depth] / target.l1d_bytes),
        _log(total[inner_level] / target.l1d_bytes),
        _log(total[max(inner_level - table.spatial, 0)] / target.l2_bytes),
        _log(nest.blocks),
        nest.polynomial,
        nest.recomputed,
        _log(threads / np.maximum(np.minimum(nest.tasks, threads), 1)),
    ]
    for number in range(READS):
        columns += _read_columns(table, number, done, inner_level, target)
    columns += _order_columns(table, done)
    block = np.empty((count, len(columns)), np.float32)
    for number, column in enumerate(columns):
        block[:, number] = column
    return block


def _log(values: NDArray[np.generic] | Floats) -> Floats:
    return np.log2(np.maximum(np.asarray(values, np.float64), 1e-9))


def _read_columns(table: NestTable, number: int, done: Work, inner_level: int, target: Target) -> list[Floats]:
    """What becomes of one read: its copy, its stride along the vector, how much of it an innermost loop touches."""
    nest, count = done.nest, len(done.lanes)
    if number >= table.inputs:
        return [np.zeros(count)] * READ_FEATURES
    read = table.reads[number]
    stride = np.where(nest.vector >= 0, read.strides[np.maximum(nest.vector, 0)], 0)
    return [
        *((nest.how[:, number] == code).astype(np.float64) for code in range(len(COPIES))),
        (stride == 0).astype(np.float64),
        (stride == 1).astype(np.float64),
        _log(done.footprint[inner_level, :, number] / target.l1d_bytes),
        _log(done.footprint[0, :, number] / target.l2_bytes),
        _log(done.footprint[-1, :, number]),
    ]


def _order_columns(table: NestTable, done: Work) -> list[Floats]:
    """How often each loop over the output is begun, log2, 0 for one that runs once: these tell all orders of loops apart."""
    nest, count, rows = done.nest, len(done.lanes), np.arange(len(done.lanes))
    begun = np.cumsum(_log(nest.extent), axis=1) - _log(nest.extent)
    begun = np.where(nest.extent > 1, 1.0 + begun, 0.0)
    columns: list[Floats] = [np.zeros(count) for _ in range(2 * AXES)]
    for half, first in enumerate((0, table.spatial + 1)):
        for axis in range(max(table.spatial - AXES, 0), table.spatial):
            level = first + (nest.axis[:, first : first + table.spatial] == axis).argmax(axis=1)
            columns[half * AXES + table.spatial - 1 - axis] = begun[rows, level]
    return columns
