"""What a GPU's kernels take, guessed from what their sketches choose before anything is
measured: terms of single values, which add up.

A term's cost is in doublings of the time. Round costs were chosen by hand on kernels of
three workloads measured on an NVIDIA H200; how well they order them is in
docs/design-notes/0019. The target's own are the rates by which algorithms and units are
compared, measured ones where there are any, and what blocks leave of its registers. The
estimate knows a sketch's facts and no operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import zip_longest
from math import log2
from typing import Any

import numpy as np

from tuner.cost_model.cuda.footprint import CudaFootprint
from tuner.cost_model.cuda.kernels import least_seconds
from tuner.cost_model.cuda.rates import MEASURED_RATES, GpuRates, gpu_rates
from tuner.cost_model.cuda.terms import (
    COSTS,
    Floats,
    Units,
    block_terms,
    copy_terms,
    device_constants,
    device_terms,
    padding_terms,
    pipelining_terms,
    priced,
    row_of,
    unit_terms,
)
from tuner.cost_model.encoding import KnobEncoding
from tuner.cost_model.model import Features
from tuner.spaces.core.choice import Choice
from tuner.spaces.core.space import Points
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.block_shapes import BlockShape
from tuner.spaces.cuda.facts import ComputeUnit, KernelFacts
from tuner.spaces.rewrite.algorithm import Algorithm
from tuner.target.target import Target

# Share that is believed of the doublings that multiplications, bytes and launches put
# between two algorithms: few measurements are to overturn them (docs/design-notes/0019 has
# the first).
TRUST = 0.5
SAMPLED = 4096  # random points among which another algorithm's best are looked for


class CudaTerms:
    """Points (n, knobs) of a space → units of the terms (`terms.TERM_NAMES`), (n, T).

    `tables` has them of each value of each knob, (values, T).
    """

    def __init__(self, space: TargetSpace[KernelFacts]) -> None:
        self._space = space.space
        self.tables = [np.zeros((len(knob.values), len(COSTS))) for knob in self._space.knobs]
        columns = {knob.name: column for column, knob in enumerate(self._space.knobs)}
        combinations = [
            [sketch.facts for sketch in sketches] for sketches in space.sketches.values()
        ]
        on_tensor_cores = _groups(combinations, {ComputeUnit.TENSOR_CORES})
        multiplied = _groups(combinations, set(ComputeUnit) - {ComputeUnit.CUDA_CORES})
        rates = gpu_rates(space.target)
        shares = _shares(space, rates, multiplied)
        # The first knob is which combination of sketches it is.
        for row, parts in enumerate(combinations):
            for facts in parts:
                self.tables[0][row] += row_of(
                    unit_terms(
                        facts.unit,
                        has_tensor_cores=facts.group in on_tensor_cores,
                        ratio=rates.tensor_ratio / MEASURED_RATES.tensor_ratio,
                    )
                )
        for facts, algorithm in _distinct(space):
            share = shares.get(facts.group, 1.0)
            for declared, units in _terms(facts, algorithm, space.target, rates):
                if declared.is_open:
                    own_units = np.stack([row_of(each) for each in units])
                    self.tables[columns[declared.name]] = share * own_units
        algorithms = [*space.algorithms.values()]
        own, *others = space.by_algorithm
        least = self._floor(own)
        for rows in others:
            # Between the best of both, whatever costs their best knobs have.
            doublings = _doublings(space.algorithm, algorithms[rows[0]], rates, multiplied)
            between = doublings + least - self._floor(rows)
            self.tables[0][rows] += row_of({"algorithm": between})
        self._rounded = [table.astype(np.float32) for table in self.tables]

    def _floor(self, rows: Sequence[int]) -> float:
        """The round costs of the best combination of sketches with its best knobs."""
        costs = [priced(table) for table in self.tables]
        return min(
            float(
                costs[0][row]
                + sum(costs[column].min() for column in self._space.columns[row] if column)
            )
            for row in rows
        )

    def __call__(self, points: Points) -> Features:
        active = self._space.active[points[:, 0]]
        active[:, 0] = True
        total = np.zeros((len(points), len(COSTS)), np.float32)
        for column, table in enumerate(self._rounded):
            total += table[points[:, column]] * active[:, column, None]
        return total


class CudaEstimate:
    """Points (n, knobs) of a space → log2 of their time but for a constant, shape (n,).

    By the terms' round costs.
    """

    def __init__(self, space: TargetSpace[KernelFacts]) -> None:
        self._space = space.space
        self._tables = [priced(table) for table in CudaTerms(space).tables]

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


class CudaDescription:
    """A `Featurizer` whose columns mean the same for every workload and GPU.

    First what the candidate takes by its sketches' estimate (`resources.COLUMNS`), then
    the terms, the time that they make, and the device's constants.
    """

    def __init__(self, space: TargetSpace[KernelFacts]) -> None:
        self._footprint = CudaFootprint(space)
        self._terms = CudaTerms(space)
        self._device = device_constants(space.target)

    def __call__(self, points: Points) -> Features:
        terms = self._terms(points)
        estimate = terms @ COSTS.astype(np.float32)
        device = np.tile(self._device, (len(points), 1))
        return np.concatenate([self._footprint(points), terms, estimate[:, None], device], axis=1)


class CudaFeatures:
    """A `Featurizer`: the description, then knobs by their values."""

    def __init__(self, space: TargetSpace[KernelFacts]) -> None:
        self._description, self._knobs = CudaDescription(space), KnobEncoding(space.space)

    def __call__(self, points: Points) -> Features:
        return np.concatenate([self._description(points), self._knobs(points)], axis=1)


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


def _groups(
    combinations: Sequence[Sequence[KernelFacts]], units: Collection[ComputeUnit]
) -> set[str]:
    """Groups that some sketch computes by one of the units."""
    return {facts.group for parts in combinations for facts in parts if facts.unit in units}


def _distinct(space: TargetSpace[KernelFacts]) -> list[tuple[KernelFacts, Algorithm]]:
    """The facts of every sketch in the space, once each, with its algorithm."""
    every = (
        (sketch.facts, space.algorithms[name])
        for name, sketches in space.sketches.items()
        for sketch in sketches
    )
    return [*{facts.owner: (facts, algorithm) for facts, algorithm in every}.values()]


def _terms(
    facts: KernelFacts, algorithm: Algorithm, target: Target, rates: GpuRates
) -> Iterator[tuple[Choice[Any], list[Units]]]:
    """The choices of a sketch that matter, and the units of each of their values."""
    shapes: tuple[BlockShape, ...] = facts.block.values
    yield (
        facts.block,
        [
            {
                **block_terms(shape, footprint),
                **device_terms(facts, shape, footprint, algorithm, target, rates),
            }
            for shape, footprint in zip(shapes, facts.footprints, strict=True)
        ],
    )
    for copy in facts.copies:
        yield copy, [copy_terms(mode) for mode in copy.values]
    if facts.pipelining is not None:
        ways = facts.pipelining.values
        yield facts.pipelining, [pipelining_terms(facts.unit, way) for way in ways]
    if facts.padded_rows is not None:
        yield facts.padded_rows, [padding_terms(padded) for padded in facts.padded_rows.values]
