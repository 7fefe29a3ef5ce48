"""What compilers say of a GPU's candidates: figures of a few correct the sketches'
estimates of the others, on real ones."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest

from tests.support.cuda_measurements import MEASURED, TABLE, measured
from tests.support.spaces import shared_space
from tests.support.targets import SM_90
from tuner.cost_model.cuda.estimate import CudaFeatures
from tuner.cost_model.cuda.footprint import CudaFootprint
from tuner.cost_model.cuda.history import CudaPrior
from tuner.cost_model.cuda.resources import COLUMNS, SPILLED_BYTES, ResourceForecast
from tuner.cost_model.history import TransferRanker
from tuner.cost_model.metrics import spearman as spearman_of
from tuner.cost_model.model import Features
from tuner.measure.gpu.resources import Resources
from tuner.spaces.core.space import Points
from tuner.spaces.core.target_space import TargetSpace

# Of the same kernels, in the same order: registers, bytes spilled, bytes of shared
# memory of a block, resident warps.
SAID: Mapping[str, Any] = json.loads(
    gzip.decompress(TABLE.with_name("ptxas_sm_90.json.gz").read_bytes())
)["workloads"]
FEW = 16


def known(spec: str) -> tuple[TargetSpace[Any], Points, list[Resources], np.ndarray[Any, Any]]:
    """Space, points, what ptxas said of them, their seconds."""
    space, points, seconds, _ = measured(spec)
    said = [
        Resources(
            registers=registers, spill_bytes=spilled, shared_bytes=shared, resident_warps=warps
        )
        for registers, spilled, shared, warps in SAID[spec]
    ]
    assert len(said) == len(points)
    return space, points, said, seconds


def spearman(first: np.ndarray[Any, Any], second: np.ndarray[Any, Any]) -> float:
    return float(spearman_of(first, second) or 0.0)


def parts(count: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Rows whose figures are told, and all others."""
    order = np.random.default_rng(seed).permutation(count)
    return order[:FEW], order[FEW:]


def told(said: Sequence[Resources], rows: np.ndarray[Any, Any]) -> list[Resources | None]:
    return [resources if row in set(rows.tolist()) else None for row, resources in enumerate(said)]


@pytest.mark.slow
@pytest.mark.parametrize("spec", MEASURED)
def test_figures_of_a_few_kernels_tell_those_of_the_others(spec: str) -> None:
    space, points, said, _ = known(spec)
    features = CudaFeatures(space)(points)
    actual = np.log2(
        np.array([(resources.registers, resources.resident_warps) for resources in said])
    )
    before, after, ranks = [], [], []
    for seed in range(8):
        few, others = parts(len(said), seed)
        forecast = ResourceForecast()
        forecast.fit(features, told(said, few))
        expected = forecast.corrected(features)
        before.append(np.abs(features[others, :COLUMNS] - actual[others]).mean(axis=0))
        after.append(np.abs(expected[others, :COLUMNS] - actual[others]).mean(axis=0))
        ranks.append(
            [
                spearman(expected[others, column], actual[others, column])
                for column in range(COLUMNS)
            ]
        )
        assert np.array_equal(expected[:, COLUMNS:], features[:, COLUMNS:])
    assert (np.mean(after, axis=0) < 0.8 * np.mean(before, axis=0)).all(), (
        np.mean(before, axis=0),
        np.mean(after, axis=0),
    )
    assert np.min(np.mean(ranks, axis=0)) > 0.75


def test_a_ranker_of_few_trials_orders_better_by_what_kernels_take() -> None:
    """Of products without tensor cores, where it is registers and warps that differ."""
    space, points, said, seconds = known("matmul:M=2048,N=2048,K=2048")
    features, labels = CudaFeatures(space)(points), (seconds.min() / seconds).astype(np.float32)

    def ordered(
        described: Features, few: np.ndarray[Any, Any], others: np.ndarray[Any, Any]
    ) -> float:
        model = TransferRanker(CudaPrior())
        model.fit(described[few], labels[few], np.zeros(len(few), np.int64))
        return spearman(model.predict(described[others]), labels[others])

    blind = features.copy()
    blind[:, :COLUMNS] = 0.0
    without, with_it = [], []
    for seed in range(12):
        few, others = parts(len(said), seed)
        forecast = ResourceForecast()
        forecast.fit(features, told(said, few))
        without.append(ordered(blind, few, others))
        with_it.append(ordered(forecast.corrected(features), few, others))
    assert np.mean(with_it) > max(float(np.mean(without)) + 0.01, 0.75), (
        np.mean(without),
        np.mean(with_it),
    )


def test_nothing_is_corrected_before_enough_is_known() -> None:
    features = np.random.default_rng(0).random((40, 6)).astype(np.float32)
    spilling = Resources(registers=200, spill_bytes=4096, shared_bytes=0, resident_warps=8)
    for known_rows in (0, 7):
        forecast = ResourceForecast()
        forecast.fit(features, [spilling] * known_rows + [None] * (40 - known_rows))
        assert (
            np.array_equal(forecast.corrected(features), features)
            and not forecast.penalty(features).any()
        )


def test_candidates_like_those_that_spilled_much_are_ranked_down_not_for_a_few_bytes() -> None:
    features = np.random.default_rng(0).random((200, 6)).astype(np.float32)
    crowded = features[:, 3] > 0.7
    for spilled, least in ((SPILLED_BYTES, -1.0), (SPILLED_BYTES - 8, 0.0)):
        said = [
            Resources(
                registers=255, spill_bytes=spilled * int(spills), shared_bytes=0, resident_warps=8
            )
            for spills in crowded
        ]
        forecast = ResourceForecast()
        forecast.fit(features, said)
        penalty = forecast.penalty(features)
        assert np.median(penalty[crowded]) <= least and np.median(penalty[~crowded]) > -0.1


def test_of_several_kernels_the_worst_counts_and_unused_knobs_do_not() -> None:
    space = shared_space("attention:B=1,H=2,S=64,D=32", SM_90)
    points = space.space.sample(np.random.default_rng(0), 64)
    figures = CudaFootprint(space)(points)
    for point, (registers, warps) in zip(points, figures, strict=True):
        config = space.space.config(point)
        sketches = list(space.sketches.values())[point[0]]
        footprints = [
            footprint
            for sketch in sketches
            if sketch.facts.block.is_open
            for stored, footprint in zip(
                sketch.facts.block.stored, sketch.facts.footprints, strict=True
            )
            if stored == config[sketch.facts.block.name]
        ]
        assert (
            2**registers == pytest.approx(max(each.registers for each in footprints))
            and 0 <= warps <= 6
        )
