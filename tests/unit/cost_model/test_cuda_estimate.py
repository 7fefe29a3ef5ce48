"""The estimate for GPUs on what an H200 measured: how well it orders kernels, and that a search starts from it."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.cost_model.cuda_estimate import CudaEstimate, CudaFeatures, CudaOpinion
from tuner.cost_model.encoding import KnobEncoding
from tuner.spaces.cuda import CudaSpace
from tuner.spaces.space import Points
from tuner.target.detect import parse_target
from tuner.workload.spec import parse_spec
from workers.search import searcher_for

HOPPER = parse_target("cuda:sm_90")
TABLE = Path(__file__).parents[2] / "tables" / "h200.json.gz"
MEASURED: Mapping[str, Any] = json.loads(gzip.decompress(TABLE.read_bytes()))["workloads"]


def measured(spec: str) -> tuple[CudaSpace, Points, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Space, points, seconds, and the sketch of each point by number."""
    space = CudaSpace(parse_spec(spec), HOPPER)
    rest = space.space.config(space.space.unrank(0))
    configs = [
        {**rest, **{name: tuple(value) if isinstance(value, list) else value for name, value in config.items()}}
        for _, config in MEASURED[spec]
    ]
    points = np.stack([space.space.point(config) for config in configs])
    return space, points, np.array([seconds for seconds, _ in MEASURED[spec]]), points[:, 0]


def spearman(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> float:
    first, second = (np.argsort(np.argsort(values, kind="stable"), kind="stable") for values in (one, other))
    return float(np.corrcoef(first, second)[0, 1])


@pytest.mark.parametrize("spec", MEASURED)
def test_measured_kernels_are_ordered(spec: str) -> None:
    space, points, seconds, sketches = measured(spec)
    guessed = CudaEstimate(space)(points)
    for sketch in np.unique(sketches):
        own = sketches == sketch
        assert spearman(guessed[own], seconds[own]) > 0.65, space.space.sketches[sketch].name
        favourites = seconds[own][np.argsort(guessed[own], kind="stable")[:8]]
        assert favourites.min() <= 1.1 * seconds[own].min()


def test_tensor_cores_come_before_other_ways_to_multiply() -> None:
    space, points, seconds, _ = measured("matmul:M=4096,N=4096,K=4096,dtype=float16")
    assert spearman(CudaEstimate(space)(points), seconds) > 0.85


@pytest.mark.parametrize(
    "spec", ["softmax:M=64,N=512", "attention:B=1,H=2,S=64,D=32", "transpose:M=45,N=97", "dense:M=64,N=128,K=192"]
)
def test_every_space_has_an_estimate(spec: str) -> None:
    space = CudaSpace(parse_spec(spec), HOPPER)
    points = space.space.sample(np.random.default_rng(0), 64)
    features = CudaFeatures(space)(points)
    assert features.shape == (64, KnobEncoding(space.space).width + 1) and np.isfinite(features).all()
    scores = CudaOpinion().predict(features)
    assert (np.diff(CudaEstimate(space)(points)[np.argsort(-scores, kind="stable")]) > -1e-5).all()


def test_a_search_begins_with_what_the_estimate_favours() -> None:
    space = CudaSpace(parse_spec("matmul:M=2048,N=2048,K=2048"), HOPPER)
    estimate = CudaEstimate(space)
    asked = searcher_for(space, strategy="annealing", seed=0).ask(16)
    anything = space.space.sample(np.random.default_rng(1), 2000)
    assert np.median(estimate(asked)) < np.quantile(estimate(anything), 0.02)
