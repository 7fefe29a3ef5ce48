"""What a GPU's kernels take, guessed from their knobs before anything is measured:
costs of single values, which add up.

A cost is in doublings of the time. Its size was chosen by hand on 477 kernels of three
workloads measured on an NVIDIA H200; how well it orders them is in docs/cuda.md. It
knows a sketch's knobs and no operator.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from math import log2, prod

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.cuda.footprint import CudaFootprint, distinct_facts
from tuner.cost_model.cuda.kernels import least_seconds
from tuner.cost_model.encoding import KnobEncoding
from tuner.cost_model.model import Features, Vector
from tuner.spaces.core.roles import KnobRole
from tuner.spaces.core.space import Points, Value
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.facts import KernelFacts, KernelKind
from tuner.spaces.rewrite.algorithm import Algorithm
from tuner.spaces.rewrite.groups import TileGroup

Floats = NDArray[np.float64]

# Doublings between the best kernels of a sketch and those of `mma` where a group has
# both; warpgroups' is the mean of a product's (-0.8) and a convolution's (-1.8).
WITHOUT_TENSOR_CORES, WARPGROUPS = 3.0, -1.3
# Share that is believed of the doublings that multiplications, bytes and launches put
# between two algorithms: few measurements are to overturn them (docs/cuda.md has the
# first).
TRUST = 0.5
SAMPLED = 4096  # random points among which another algorithm's best are looked for
_SHARPNESS = 3.0  # of a doubling as the margin of a pair: half the time is twenty to one


class CudaEstimate:
    """Points (n, knobs) of a space → log2 of their time but for a constant, shape (n,)."""

    def __init__(self, space: TargetSpace[KernelFacts]) -> None:
        self._space = space.space
        self._tables = [np.zeros(len(knob.values)) for knob in self._space.knobs]
        place = {knob.name: number for number, knob in enumerate(self._space.knobs)}
        combinations = [
            [sketch.facts for sketch in sketches] for sketches in space.sketches.values()
        ]
        on_tensor_cores = {
            facts.group.name
            for parts in combinations
            for facts in parts
            if facts.kind is KernelKind.TENSOR_CORES
        }
        shares = _shares(space)
        # The first knob is which combination of sketches it is.
        self._tables[0] = np.array(
            [sum(_level(facts, on_tensor_cores) for facts in parts) for parts in combinations]
        )
        for facts in distinct_facts(space):
            for knob in facts.knobs:
                costs = np.array([_cost(facts, knob.role, value) for value in knob.values])
                self._tables[place[knob.name]] = shares.get(facts.group.name, 1.0) * costs
        algorithms = [*space.algorithms.values()]
        own, *others = space.by_algorithm
        least = self._floor(own)
        for rows in others:
            # Between the best of both, whatever costs their best knobs have.
            self._tables[0][rows] += (
                _doublings(space.algorithm, algorithms[rows[0]]) + least - self._floor(rows)
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
    turns = zip_longest(*(rows for rows in ranks if len(rows) and rows[0] > 0))
    chosen = [row for turn in turns for row in turn if row is not None]
    others: Points = points[chosen[:count]]
    return others


class CudaFeatures:
    """A `Featurizer`: first what the candidate takes by its sketches' estimate
    (`resources.COLUMNS`), then knobs by their values, and the estimated time as the
    last column."""

    def __init__(self, space: TargetSpace[KernelFacts]) -> None:
        self._taken, self._knobs, self._estimate = (
            CudaFootprint(space),
            KnobEncoding(space.space),
            CudaEstimate(space),
        )

    def __call__(self, points: Points) -> Features:
        estimate = self._estimate(points).astype(np.float32)
        return np.concatenate([self._taken(points), self._knobs(points), estimate[:, None]], axis=1)


class CudaOpinion:
    """Ranks by the estimate in the last column."""

    def predict(self, features: Features) -> Vector:
        scores: Vector = (-_SHARPNESS * features[:, -1]).astype(np.float32)
        return scores


def _doublings(own: Algorithm, other: Algorithm) -> float:
    """Between the best kernels of another algorithm and of the expression's own."""
    return TRUST * log2(sum(least_seconds(other).values()) / sum(least_seconds(own).values()))


def _shares(space: TargetSpace[KernelFacts]) -> Mapping[str, float]:
    """What share of another algorithm each of its groups is, by the group's name: how
    much of the whole is doubled where one kernel's time is."""
    shares: dict[str, float] = {}
    for algorithm in space.algorithms.values():
        seconds = least_seconds(algorithm)
        if algorithm is not space.algorithm:
            shares |= {name: one / sum(seconds.values()) for name, one in seconds.items()}
    return shares


def _level(facts: KernelFacts, on_tensor_cores: set[str]) -> float:
    """Doublings of a sketch's best kernels beside those of tensor cores."""
    if facts.kind is KernelKind.TILE and facts.group.name in on_tensor_cores:
        return WITHOUT_TENSOR_CORES
    return WARPGROUPS if facts.kind is KernelKind.WARPGROUPS else 0.0


def _cost(facts: KernelFacts, role: KnobRole, value: Value) -> float:
    """Doublings that a knob's value costs beside its best."""
    match role:
        case KnobRole.BLOCK_TILE | KnobRole.ROW_SHAPE if isinstance(value, tuple):
            return _SHAPE_COSTS[facts.kind](facts, value)
        case KnobRole.SHARED_COPY:
            return 1.0 if value == "direct" else 0.1 * (str(value).split()[1] == "1")
        case KnobRole.PIPELINE:
            through_registers = 0.2 if facts.kind is KernelKind.TENSOR_CORES else 0.0
            return {"none": 0.5, "registers": through_registers}.get(str(value), 0.0)
        case KnobRole.SHARED_ROWS:
            return 0.3 if value == "plain" else 0.0
    return 0.0


def _tile(facts: KernelFacts, tile: tuple[int, ...]) -> float:
    axes = [tile[place : place + 3] for place in range(0, len(tile) - 2, 3)]
    threads, sums = prod(one[0] for one in axes), prod(one[1] * one[2] for one in axes)
    crowd = 0.1 * abs(log2(threads / 256))
    if isinstance(facts.group, TileGroup) and facts.group.anchor.reducer is None:
        return crowd + 0.1 * abs(log2(sums / 8)) - 0.1 * log2(prod(one[2] for one in axes))
    # Operands that a thread reads for each of its products, and registers beyond what
    # lets two blocks of 256 threads in.
    operands = sum(one[1] * one[2] for one in axes) / sums
    registers = max(0.0, log2(facts.footprint(tile).registers / 128))
    return crowd + 0.8 * operands + 0.2 * abs(log2(tile[-1] / 16)) + 0.25 * registers


def _fragments(_facts: KernelFacts, tile: tuple[int, ...]) -> float:
    rows, columns = tile[0] * tile[1] * 16, tile[2] * tile[3] * 16
    shape = 0.4 * abs(log2(rows / 128)) + 0.4 * abs(log2(columns / 128))
    return shape + 0.2 * abs(log2(tile[4] / 32)) + 0.2 * abs(log2(tile[0] * tile[2] / 4))


def _panels(_facts: KernelFacts, tile: tuple[int, ...]) -> float:
    down, squares, across, panels, stages = tile
    rows, columns = down * squares * 64, across * panels * 64
    shape = 0.2 * abs(log2(rows / 128)) + 0.2 * abs(log2(columns / 128))
    return shape + 0.2 * abs(log2(down * across / 2)) + 0.1 * abs(stages - 3)


def _rows(_facts: KernelFacts, shape: tuple[int, ...]) -> float:
    rows, threads, lanes, _ = shape
    return 0.1 * abs(log2(rows * threads / 256)) + 0.1 * log2(rows) - 0.1 * log2(lanes)


def _patch(_facts: KernelFacts, tile: tuple[int, ...]) -> float:
    return 0.1 * abs(log2(prod(tile[:-1]) / 256)) - 0.1 * log2(tile[-1])


_SHAPE_COSTS: Mapping[KernelKind, Callable[[KernelFacts, tuple[int, ...]], float]] = {
    KernelKind.TILE: _tile,
    KernelKind.TENSOR_CORES: _fragments,
    KernelKind.WARPGROUPS: _panels,
    KernelKind.ROWS: _rows,
    KernelKind.PATCH: _patch,
}
