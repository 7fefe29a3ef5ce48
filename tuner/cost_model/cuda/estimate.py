"""What a GPU's kernels take, guessed from what their sketches choose before anything is
measured: costs of single values, which add up.

A cost is in doublings of the time. Its size was chosen by hand on 477 kernels of three
workloads measured on an NVIDIA H200; how well it orders them is in
docs/design-notes/0019. The target's own are the rates by which algorithms and units are
compared, measured ones where there are any, and what blocks leave of its registers. The
estimate knows a sketch's facts and no operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from math import log2, prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.cuda.footprint import CudaFootprint, distinct_facts
from tuner.cost_model.cuda.kernels import least_seconds
from tuner.cost_model.cuda.rates import MEASURED_RATES, GpuRates, gpu_rates
from tuner.cost_model.encoding import KnobEncoding
from tuner.cost_model.model import Features, Vector
from tuner.spaces.core.choice import Choice
from tuner.spaces.core.space import Points
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.block_shapes import (
    BlockShape,
    FragmentTile,
    PatchShape,
    RowShape,
    TileShape,
    WarpgroupTile,
)
from tuner.spaces.cuda.copy_mode import SharedCopy
from tuner.spaces.cuda.facts import ComputeUnit, KernelFacts
from tuner.spaces.cuda.limits import Footprint
from tuner.spaces.cuda.pipelining import Overlap, Pipelining
from tuner.spaces.program.persistent import PersistentTile
from tuner.spaces.rewrite.algorithm import Algorithm
from tuner.target.cuda import REGISTERS_PER_BLOCK

Floats = NDArray[np.float64]

# Doublings between the best kernels of a sketch and those of `mma` where a group has
# both; warpgroups' is the mean of a product's (-0.8) and a convolution's (-1.8), from which
# persistent products are 0.4 away.
WITHOUT_TENSOR_CORES, WARPGROUPS, SPECIALIZED_WARPGROUPS = 3.0, -1.3, -1.7
# Share that is believed of the doublings that multiplications, bytes and launches put
# between two algorithms: few measurements are to overturn them (docs/design-notes/0019 has
# the first).
TRUST = 0.5
SAMPLED = 4096  # random points among which another algorithm's best are looked for
_SHARPNESS = 3.0  # of a doubling as the margin of a pair: half the time is twenty to one


class CudaEstimate:
    """Points (n, knobs) of a space → log2 of their time but for a constant, shape (n,)."""

    def __init__(self, space: TargetSpace[KernelFacts]) -> None:
        self._space = space.space
        self._tables = [np.zeros(len(knob.values)) for knob in self._space.knobs]
        columns = {knob.name: column for column, knob in enumerate(self._space.knobs)}
        combinations = [
            [sketch.facts for sketch in sketches] for sketches in space.sketches.values()
        ]
        on_tensor_cores = {
            facts.group
            for parts in combinations
            for facts in parts
            if facts.unit is ComputeUnit.TENSOR_CORES
        }
        multiplied = {
            facts.group
            for parts in combinations
            for facts in parts
            if facts.unit is not ComputeUnit.CUDA_CORES
        }
        rates = gpu_rates(space.target)
        shares = _shares(space, rates, multiplied)
        # The first knob is which combination of sketches it is.
        self._tables[0] = np.array(
            [
                sum(_level(facts, on_tensor_cores, rates) for facts in parts)
                for parts in combinations
            ]
        )
        for facts in distinct_facts(space):
            share = shares.get(facts.group, 1.0)
            for declared, costs in _costs(facts):
                if declared.is_open:
                    self._tables[columns[declared.name]] = share * np.array(costs)
        algorithms = [*space.algorithms.values()]
        own, *others = space.by_algorithm
        least = self._floor(own)
        for rows in others:
            # Between the best of both, whatever costs their best knobs have.
            self._tables[0][rows] += (
                _doublings(space.algorithm, algorithms[rows[0]], rates, multiplied)
                + least
                - self._floor(rows)
            )

    def _floor(self, rows: Sequence[int]) -> float:
        """The costs of the best combination of sketches with its best knobs."""
        return min(
            float(
                self._tables[0][row]
                + sum(self._tables[column].min() for column in self._space.columns[row] if column)
            )
            for row in rows
        )

    def __call__(self, points: Points) -> Floats:
        active = self._space.active[points[:, 0]]
        active[:, 0] = True
        total = np.zeros(len(points))
        for column, table in enumerate(self._tables):
            total += np.where(active[:, column], table[points[:, column]], 0.0)
        return total


def other_algorithms(space: TargetSpace[KernelFacts], count: int, seed: int) -> Points:
    """The points that the estimate favours most of those by each other algorithm than
    its favourite's, the best of each first; shape (≤ count, knobs).

    None where there is one algorithm. The estimate orders kernels of one algorithm;
    between two it may be wrong, and a search that follows it might never see the other.
    """
    points = space.space.sample(np.random.default_rng((seed, SAMPLED)), SAMPLED)
    points = points[np.argsort(CudaEstimate(space)(points), kind="stable")]
    ranks = [np.flatnonzero(np.isin(points[:, 0], rows)) for rows in space.by_algorithm]
    rounds = zip_longest(*(rows for rows in ranks if len(rows) and rows[0] > 0))
    chosen = [row for rank in rounds for row in rank if row is not None]
    others: Points = points[chosen[:count]]
    return others


class CudaFeatures:
    """A `Featurizer`: first what the candidate takes by its sketches' estimate
    (`resources.COLUMNS`), then knobs by their values, and the estimated time as the
    last column."""

    def __init__(self, space: TargetSpace[KernelFacts]) -> None:
        self._footprint = CudaFootprint(space)
        self._knobs = KnobEncoding(space.space)
        self._estimate = CudaEstimate(space)

    def __call__(self, points: Points) -> Features:
        estimate = self._estimate(points).astype(np.float32)
        parts = [self._footprint(points), self._knobs(points), estimate[:, None]]
        return np.concatenate(parts, axis=1)


class CudaOpinion:
    """Ranks by the estimate in the last column."""

    def predict(self, features: Features) -> Vector:
        scores: Vector = (-_SHARPNESS * features[:, -1]).astype(np.float32)
        return scores


def _doublings(
    own: Algorithm, other: Algorithm, rates: GpuRates, multiplied: Collection[str]
) -> float:
    """Between the best kernels of another algorithm and of the expression's own."""
    seconds, own_seconds = (
        sum(least_seconds(algorithm, rates, multiplied).values()) for algorithm in (other, own)
    )
    return TRUST * log2(seconds / own_seconds)


def _shares(
    space: TargetSpace[KernelFacts], rates: GpuRates, multiplied: Collection[str]
) -> Mapping[str, float]:
    """What share of another algorithm each of its groups is, by the group's name: how
    much of the whole is doubled where one kernel's time is."""
    shares: dict[str, float] = {}
    for algorithm in space.algorithms.values():
        seconds = least_seconds(algorithm, rates, multiplied)
        if algorithm is not space.algorithm:
            total = sum(seconds.values())
            shares |= {name: own / total for name, own in seconds.items()}
    return shares


def _level(facts: KernelFacts, on_tensor_cores: set[str], rates: GpuRates) -> float:
    """Doublings of a sketch's best kernels beside those of tensor cores."""
    if facts.unit is ComputeUnit.CUDA_CORES and facts.group in on_tensor_cores:
        return WITHOUT_TENSOR_CORES + log2(rates.tensor_ratio / MEASURED_RATES.tensor_ratio)
    match facts.unit:
        case ComputeUnit.WARPGROUPS:
            return WARPGROUPS
        case ComputeUnit.SPECIALIZED_WARPGROUPS:
            return SPECIALIZED_WARPGROUPS
        case _:
            return 0.0


def _costs(facts: KernelFacts) -> Iterator[tuple[Choice[Any], list[float]]]:
    """The choices of a sketch that cost anything: doublings of each value beside the best."""
    shapes: tuple[BlockShape, ...] = facts.block.values
    footprints = zip(shapes, facts.footprints, strict=True)
    yield facts.block, [_block_cost(shape, footprint) for shape, footprint in footprints]
    for copy in facts.copies:
        yield copy, [_copy_cost(mode) for mode in copy.values]
    if facts.pipelining is not None:
        yield facts.pipelining, [_pipelining_cost(facts, way) for way in facts.pipelining.values]
    if facts.padded_rows is not None:
        yield facts.padded_rows, [0.0 if padded else 0.3 for padded in facts.padded_rows.values]


def _copy_cost(mode: SharedCopy | None) -> float:
    if mode is None:
        return 1.0
    return 0.1 if mode.width == 1 else 0.0


def _pipelining_cost(facts: KernelFacts, way: Pipelining) -> float:
    match way.overlap:
        case Overlap.NONE:
            return 0.5
        case Overlap.REGISTERS:
            return 0.2 if facts.unit is ComputeUnit.TENSOR_CORES else 0.0
        case Overlap.ASYNC:
            return 0.0


def _block_cost(shape: BlockShape, footprint: Footprint) -> float:
    match shape:
        case TileShape():
            return _tile_cost(shape, footprint)
        case RowShape():
            return _row_cost(shape)
        case FragmentTile():
            return _fragment_cost(shape)
        case WarpgroupTile():
            return _warpgroup_cost(shape)
        case PersistentTile():
            return _persistent_cost(shape)
        case PatchShape():
            return 0.1 * abs(log2(prod(shape.threads) / 256)) - 0.1 * log2(shape.lanes)


def _tile_cost(tile: TileShape, footprint: Footprint) -> float:
    threads = 0.1 * abs(log2(tile.threads / 256))
    if tile.depth is None:
        return threads + 0.1 * abs(log2(tile.accumulators / 8)) - 0.1 * log2(tile.lanes)
    # Operands that a thread reads for each of its products, and registers beyond what
    # lets two blocks of 256 threads in.
    operands = tile.operands / tile.accumulators
    registers = max(0.0, log2(footprint.registers * 2 * 256 / REGISTERS_PER_BLOCK))
    return threads + 0.8 * operands + 0.2 * abs(log2(tile.depth / 16)) + 0.25 * registers


def _fragment_cost(tile: FragmentTile) -> float:
    rows, columns = (side.warps * side.fragments * 16 for side in (tile.rows, tile.columns))
    shape = 0.4 * abs(log2(rows / 128)) + 0.4 * abs(log2(columns / 128))
    return shape + 0.2 * abs(log2(tile.depth / 32)) + 0.2 * abs(log2(tile.warps / 4))


def _warpgroup_cost(tile: WarpgroupTile) -> float:
    rows, columns = tile.down * tile.fragments * 64, tile.across * tile.panels * 64
    shape = 0.2 * abs(log2(rows / 128)) + 0.2 * abs(log2(columns / 128))
    return shape + 0.2 * abs(log2(tile.warpgroups / 2)) + 0.1 * abs(tile.stages - 3)


def _persistent_cost(tile: PersistentTile) -> float:
    # What copies bring for each multiplication, beside the largest tile's, how many are
    # on their way, whether stores overlap with multiplications, and sums that leave few
    # registers (docs/design-notes/0034).
    traffic = (tile.rows + tile.columns) / (tile.rows * tile.columns) * 128 * 256 / (128 + 256)
    overlap = -0.1 if tile.alternating else 0.0
    consumers = 0.0 if tile.consumers > 1 else 0.5
    sums = 0.1 if tile.accumulators > 128 else 0.0
    return 0.3 * log2(traffic) + overlap + consumers + sums + 0.15 * max(4 - tile.stages, 0)


def _row_cost(shape: RowShape) -> float:
    threads = 0.1 * abs(log2(shape.rows * shape.threads / 256))
    return threads + 0.1 * log2(shape.rows) - 0.1 * log2(shape.lanes)
