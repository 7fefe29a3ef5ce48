"""Features of a config for the cost model: computed from knob values and access maps alone, for a whole batch at once.

Fixed length, by role and not by operator, so that a model trained on one workload can rank another: what an innermost tile holds
in registers, what each read brings through each cache (the loop-nest model of reuse: a read is fetched again for every loop
outside the deepest level at which everything still fits), how much is copied first, how much is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.nests import NestTable, tables
from tuner.spaces.cpu import CpuSpace
from tuner.spaces.space import Points
from tuner.target.target import Target

FEATURE_VERSION = 2  # of the meaning of the columns; models are stored with it
MAX_GROUPS = 3  # groups described, the ones with most arithmetic first
READS = 3  # reads described one by one, the largest first
ESTIMATE = 40  # column: log2 of the estimated cycles of the group with most arithmetic, the lower the faster
REFERENCE = 512  # random configs whose mean is typical of a workload
LINE_BYTES = 64
USABLE = 0.75  # of a cache, before a level counts as too large for it

# Cycles by which a nest is judged before anything is measured: round numbers of current x86 cores, good for an order alone.
FMA_CHAINS = 8.0  # accumulators that keep two multiply-add units of four cycles' latency busy
LIBM_CYCLES, POLYNOMIAL_CYCLES = 25.0, 10.0  # of a transcendental function: scalar call; vector of polynomials
COPY_CYCLES = 0.5  # an element written into a copy
LOOP_CYCLES = 1.5  # of a trip of the innermost loop

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def featurizer(space: CpuSpace) -> Callable[[Points], NDArray[np.float32]]:
    """Points (n, knobs) → features (n, MAX_GROUPS * GROUP_FEATURES + 2), float32, all finite.

    Each column is the difference to its mean over random configs of the space: what is typical of a workload says nothing about
    the order of its configs, and a model of few workloads would only learn to tell them apart by it (docs/search.md).
    """
    plain = _plain_featurizer(space)
    typical = plain(space.space.sample(np.random.default_rng(0), REFERENCE)).mean(axis=0, dtype=np.float64).astype(np.float32)
    return lambda points: plain(points) - typical


def _plain_featurizer(space: CpuSpace) -> Callable[[Points], NDArray[np.float32]]:
    made = [tables(space, name) for name in space.combinations]
    width = MAX_GROUPS * GROUP_FEATURES

    def features(points: Points) -> NDArray[np.float32]:
        out = np.zeros((len(points), width + 2), np.float32)
        for row, groups in enumerate(made):
            chosen = np.flatnonzero(points[:, 0] == row)
            if not len(chosen):
                continue
            described = sorted(groups, key=lambda table: -table.flops)[:MAX_GROUPS]
            for slot, table in enumerate(described):
                block = group_features(table, points[chosen], space.target, space.threads)
                out[chosen, slot * GROUP_FEATURES : (slot + 1) * GROUP_FEATURES] = block
            out[chosen, width] = len(groups)
            out[chosen, width + 1] = space.threads
        return out

    return features


GROUP_FEATURES = 30 + 3 * (READS + 2) + READS * 9


def group_features(table: NestTable, points: Points, target: Target, threads: int) -> NDArray[np.float32]:
    """Features of one group's nest, shape (n, GROUP_FEATURES)."""
    nest = table.decode(points)
    count = len(points)
    rows = np.arange(count)
    depth = nest.axis.shape[1]
    spans = np.empty((depth + 1, count, nest.span.shape[1]), np.int64)
    spans[depth] = nest.span
    for level in reversed(range(depth)):
        spans[level] = spans[level + 1]
        spans[level][rows, nest.axis[:, level]] *= nest.extent[:, level]
    np.minimum(spans, table.extents, out=spans)
    footprint = np.stack(
        [_footprint(table, number, spans, nest.packed[:, number]) for number in range(len(table.reads))], axis=-1
    )
    total = footprint.sum(axis=-1)  # (depth + 1, n)
    fetched = _fetched(table, nest.axis, nest.extent)  # (depth + 1, n, reads)
    caches = (target.l1d_bytes, target.l2_bytes, max(target.l3_bytes // max(target.cores, 1), target.l2_bytes))
    columns: list[Floats] = []
    traffic_of: list[Floats] = []
    for size in caches:
        fits = total <= USABLE * size
        level = np.where(fits.any(axis=0), fits.argmax(axis=0), depth)
        traffic = footprint[level, rows] * fetched[level, rows]
        traffic_of.append(traffic.sum(axis=1))
        columns += [_log(traffic.sum(axis=1) / max(table.flops, 1)), _log(traffic.sum(axis=1) / max(table.nbytes, 1))]
        for number in range(READS):
            columns.append(_log(traffic[:, number] / max(table.nbytes, 1)) if number < len(table.reads) else np.zeros(count))
    lanes = np.maximum(nest.lanes, 1)
    accumulators = np.maximum(nest.span[:, : table.spatial].prod(axis=1) // lanes * nest.partials, 1)
    covered = nest.covered / max(table.points, 1)
    loads, broadcasts = _operands(table, nest.span, nest.vector, lanes)
    peak = lanes * 2 * 2.0
    steps = covered * table.points / np.maximum(nest.span.prod(axis=1), 1)  # runs of the innermost tile
    depth_inside = np.maximum(nest.span[:, table.spatial :].prod(axis=1), 1)
    latency = np.maximum(FMA_CHAINS / accumulators, 1.0) if table.reductions else np.ones(count)
    ports = np.maximum((loads + broadcasts) / accumulators, 1.0)
    held = accumulators + loads
    spilled = 1.0 + np.maximum(held - target.vector_registers, 0) / target.vector_registers
    scattered = _scattered(table, nest.vector, lanes) * nest.span[:, : table.spatial].prod(axis=1)
    once = steps / (depth_inside if table.reductions else 1)  # a tile is written once, however deep its reduction
    once = once / np.maximum(_reduction_trips(table, nest.span), 1)
    slow = table.transcendentals * (1.0 + nest.recomputed)
    cycles_slow = slow * np.where(nest.polynomial > 0, POLYNOMIAL_CYCLES / lanes, LIBM_CYCLES)
    cycles_inner = table.flops * covered / peak * np.maximum(latency, ports) * spilled + steps * LOOP_CYCLES
    cycles_inner = cycles_inner + cycles_slow + scattered * once
    cycles_compute = table.flops * covered / peak
    cycles_l2 = traffic_of[0] / 48
    cycles_l3 = traffic_of[1] / 16
    cycles_memory = traffic_of[2] / 6
    cycles_copy = nest.copied * COPY_CYCLES
    ideal = np.maximum(table.flops / peak, table.nbytes / 48)
    cycles_caches = np.maximum.reduce([cycles_l2, cycles_l3, cycles_memory])
    tasks = np.minimum(nest.tasks, threads)
    inner_level = depth - table.reductions
    columns += [
        np.ones(count),
        nest.kind == 0,
        nest.kind == 1,
        nest.kind == 2,
        np.full(count, _log(np.array(table.flops / max(table.nbytes, 1)))),
        np.full(count, _log(np.array(float(max(table.flops, 1))))),
        _log(accumulators),
        np.maximum(accumulators + loads - target.vector_registers, 0),
        lanes / (target.vector_bytes / table.dtype_bytes),
        _log(nest.span[:, table.spatial :].prod(axis=1)),
        _log(accumulators * nest.span[:, table.spatial :].prod(axis=1)),
        _log(covered),
        _log((loads + broadcasts) / accumulators),
        _log(np.maximum(loads, 1) / accumulators),
        _log(total[depth] / target.l1d_bytes),
        _log(total[inner_level] / target.l1d_bytes),
        _log(total[max(inner_level - table.spatial, 0)] / target.l2_bytes),
        _log(nest.blocks),
        _log(1 + nest.copied / max(table.points, 1)),
        nest.polynomial,
        nest.recomputed,
        _log(threads / np.maximum(tasks, 1)),
        _log((cycles_compute + cycles_l2 + cycles_l3 + cycles_memory + cycles_copy) / ideal),
        _log((np.maximum(cycles_compute, cycles_caches) + cycles_copy) / ideal),
        _log((np.maximum(cycles_inner, cycles_caches) + cycles_copy) / ideal),
        _log((cycles_inner + cycles_caches + cycles_copy) / ideal),
        _log(cycles_inner / ideal),
        _log(latency),
        _log(ports),
        _log(1.0 + cycles_slow / np.maximum(cycles_compute, 1.0)),
    ]
    for number in range(READS):
        columns += _read_columns(table, number, nest.how, nest.vector, footprint, inner_level, target)
    stacked = np.stack([np.broadcast_to(column, (count,)) for column in columns], axis=1)
    return stacked.astype(np.float32)


def _log(values: NDArray[np.generic] | Floats) -> Floats:
    return np.log2(np.maximum(np.asarray(values, np.float64), 1e-9))


def _footprint(table: NestTable, number: int, spans: Ints, packed: NDArray[np.bool_]) -> Floats:
    """Bytes of one read that each loop level touches, in cache lines; a packed copy is contiguous. Shape (depth + 1, n)."""
    read = table.reads[number]
    sizes = np.minimum((spans - 1) @ read.coefficients.T + 1, read.shape).astype(np.float64)
    sizes[..., -1] = np.ceil(sizes[..., -1] * read.dtype_bytes / LINE_BYTES) * LINE_BYTES
    in_place = sizes.prod(axis=-1)
    copied = np.where(read.uses, spans, 1).prod(axis=-1) * float(read.dtype_bytes)
    touched: Floats = np.where(packed, copied, in_place)
    return touched


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


def _operands(table: NestTable, span: Ints, vector: Ints, lanes: Ints) -> tuple[Floats, Floats]:
    """Vector loads and scalar broadcasts of one step of the innermost tile."""
    loads = np.zeros(len(span))
    broadcasts = np.zeros(len(span))
    for read in table.reads[: table.inputs]:
        elements = np.where(read.uses[: table.spatial], span[:, : table.spatial], 1).prod(axis=1)
        along = (vector >= 0) & read.uses[np.maximum(vector, 0)]
        stride = np.where(vector >= 0, read.strides[np.maximum(vector, 0)], 0)
        loads += np.where(along, elements / np.where(stride == 1, lanes, 1), 0)  # without unit stride, one by one
        broadcasts += np.where(along, 0, elements)
    return loads, broadcasts


def _reduction_trips(table: NestTable, span: Ints) -> Floats:
    """Runs of the innermost tile that add to the same elements."""
    whole = table.extents[table.spatial :]
    trips: Floats = np.ceil(whole / np.maximum(span[:, table.spatial :], 1)).prod(axis=1)
    return trips


def _scattered(table: NestTable, vector: Ints, lanes: Ints) -> Floats:
    """Cycles an element of an innermost tile costs because its write cannot be a vector: 0 where the vector lies in a row."""
    stride = np.where(vector >= 0, table.reads[-1].strides[np.maximum(vector, 0)], 0)
    return np.where((lanes > 1) & (stride == 1), 0.0, 1.0)


def _read_columns(
    table: NestTable, number: int, how: Ints, vector: Ints, footprint: Floats, inner_level: int, target: Target
) -> list[Floats]:
    """What becomes of one read: its copy, its stride along the vector, how much of it an innermost loop touches."""
    count = len(vector)
    if number >= table.inputs:
        return [np.zeros(count)] * 9
    read = table.reads[number]
    stride = np.where(vector >= 0, read.strides[np.maximum(vector, 0)], 0)
    return [
        *((how[:, number] == code).astype(np.float64) for code in range(4)),
        (stride == 0).astype(np.float64),
        (stride == 1).astype(np.float64),
        _log(footprint[inner_level, :, number] / target.l1d_bytes),
        _log(footprint[0, :, number] / target.l2_bytes),
        _log(footprint[-1, :, number]),
    ]
