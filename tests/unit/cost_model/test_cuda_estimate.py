"""The estimate for GPUs on what an H200 measured: how well it orders kernels, and that
a search starts from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.cuda_measurements import MEASURED, measured
from tests.support.spaces import shared_space
from tests.support.synthetic_spaces import CONDITIONS
from tests.support.targets import SM_90
from tuner.cost_model.cuda.estimate import CudaEstimate, CudaFeatures
from tuner.cost_model.cuda.history import WIDTH, CudaPrior
from tuner.cost_model.encoding import KnobEncoding
from tuner.measure.outcome import Timed, Trial
from tuner.spaces.core.space import Config
from tuner.workers.jobs.search import searcher_for


def spearman(first_values: np.ndarray[Any, Any], second_values: np.ndarray[Any, Any]) -> float:
    first, second = (
        np.argsort(np.argsort(values, kind="stable"), kind="stable")
        for values in (first_values, second_values)
    )
    return float(np.corrcoef(first, second)[0, 1])


@pytest.mark.slow
@pytest.mark.parametrize("spec", MEASURED)
def test_measured_kernels_are_ordered(spec: str) -> None:
    space, points, seconds, sketches = measured(spec)
    guessed = CudaEstimate(space)(points)
    for sketch in np.unique(sketches):
        own = sketches == sketch
        if seconds[own].max() > 2 * seconds[own].min():  # closer ones are ordered by noise
            assert spearman(guessed[own], seconds[own]) > 0.65, space.space.combinations[
                sketch
            ].name
        favourites = seconds[own][np.argsort(guessed[own], kind="stable")[:8]]
        assert favourites.min() <= 1.1 * seconds[own].min()


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(spec, marks=pytest.mark.slow if "conv2d" in spec else ())
        for spec in MEASURED
        if "float16" in spec
    ],
)
def test_warpgroups_come_before_warps_on_tensor_cores_and_these_before_other_ways_to_multiply(
    spec: str,
) -> None:
    space, points, seconds, _ = measured(spec)
    guessed = CudaEstimate(space)(points)
    assert spearman(guessed, seconds) > 0.9
    first = space.space.config(points[np.argmin(guessed)])
    assert str(first["sketch"]).endswith("warpgroup")


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_search_for_a_large_product_begins_with_large_persistent_tiles(dtype: str) -> None:
    """Those that an H200 measured as the fastest (docs/design-notes/0034)."""
    space = shared_space(f"matmul:M=4096,N=4096,K=4096,dtype={dtype}", SM_90)
    asked = [
        space.space.config(point)
        for point in searcher_for(space, strategy="annealing", seed=0).ask(16)
    ]
    tiles = {config.get("C.persistent.tile") for config in asked}
    assert tiles & {(2, 2, 2, 1, 5), (2, 1, 4, 0, 4)}
    persistent = [config for config in asked if config["sketch"] == "C:persistent"]
    assert len(persistent) > len(asked) / 2


@pytest.mark.slow
@pytest.mark.parametrize(
    "spec",
    [
        "softmax:M=64,N=512",
        "attention:B=1,H=2,S=64,D=32",
        "transpose:M=45,N=97",
        "dense:M=64,N=128,K=192",
    ],
)
def test_every_space_has_an_estimate(spec: str) -> None:
    space = shared_space(spec, SM_90)
    points = space.space.sample(np.random.default_rng(0), 64)
    features = CudaFeatures(space)(points)
    assert (
        features.shape == (64, WIDTH + KnobEncoding(space.space).width)
        and np.isfinite(features).all()
    )
    scores = CudaPrior().predict(features)
    assert (np.diff(CudaEstimate(space)(points)[np.argsort(-scores, kind="stable")]) > -1e-4).all()


def test_a_search_begins_with_what_the_estimate_favours() -> None:
    space = shared_space("matmul:M=2048,N=2048,K=2048", SM_90)
    estimate = CudaEstimate(space)
    asked = searcher_for(space, strategy="annealing", seed=0).ask(16)
    anything = space.space.sample(np.random.default_rng(1), 2000)
    assert np.median(estimate(asked)) < np.quantile(estimate(anything), 0.02)


def best_of_algorithms(images: str) -> tuple[float, float]:
    """The least estimate of a 3x3 convolution's own sketches and of Winograd's."""
    space = shared_space(f"conv2d:{images},KH=3,KW=3,pad=1,numerics=fast", SM_90)
    points = space.space.sample(np.random.default_rng(2), 4000)
    own, winograd, *_ = (np.isin(points[:, 0], rows) for rows in space.by_algorithm)
    costs = CudaEstimate(space)(points)
    return float(costs[own].min()), float(costs[winograd].min())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("images", "fewer_multiplications_win"),
    [
        ("N=32,H=14,W=14,CI=256,CO=256", True),
        ("N=1,H=14,W=14,CI=256,CO=256", False),  # four launches for eight microseconds of work
        (
            "N=32,H=224,W=224,CI=3,CO=64",
            False,
        ),  # sixteen products of three channels are more to write than to multiply
    ],
)
def test_algorithms_are_told_apart_by_multiplications_bytes_and_launches(
    images: str, fewer_multiplications_win: bool
) -> None:
    plain, winograd = best_of_algorithms(images)
    assert (winograd < plain) == fewer_multiplications_win


def test_another_algorithm_changes_nothing_in_the_order_of_the_others() -> None:
    spec = "conv2d:N=2,H=14,W=14,CI=16,CO=32,KH=3,KW=3,pad=1"
    alone, both = (shared_space(text, SM_90) for text in (spec, f"{spec},numerics=fast"))
    points = alone.space.sample(np.random.default_rng(0), 64)
    same = np.stack([both.space.point(alone.space.config(point)) for point in points])
    np.testing.assert_array_equal(CudaEstimate(alone)(points), CudaEstimate(both)(same))


@pytest.mark.slow
def test_a_kernel_counts_for_its_share_of_the_whole() -> None:
    """The weights' transformation takes a twentieth of the products' time or less: how
    it is done matters as little."""
    space = shared_space("conv2d:N=32,H=14,W=14,CI=256,CO=256,KH=3,KW=3,pad=1,numerics=fast", SM_90)
    name = next(name for name, algorithm in space.algorithms.items() if algorithm.rewritten)
    rest = next(
        space.space.config(p)
        for p in space.space.sample(np.random.default_rng(0), 16)
        if space.space.config(p)["sketch"] == name
    )
    spread = {}
    for part in ("u", "m"):
        knob = next(
            knob
            for knob in space.space.knobs
            if knob.name.endswith(".tile") and f"{part}win." in knob.name
        )
        points = np.stack([space.space.point({**rest, knob.name: value}) for value in knob.values])
        spread[part] = np.ptp(CudaEstimate(space)(points))
    assert 0 < 10 * spread["u"] < spread["m"]


@pytest.mark.slow
def test_a_search_soon_tries_either_algorithm_and_follows_measurements_over_estimates() -> None:
    """Were the favoured algorithm twice as slow as the estimate has it, most of a
    search's later kernels are of the other one."""
    space = shared_space("conv2d:N=32,H=14,W=14,CI=256,CO=256,KH=3,KW=3,pad=1,numerics=fast", SM_90)
    rewritten = np.array([algorithm.rewritten for algorithm in space.algorithms.values()])
    searcher, estimate = searcher_for(space, strategy="annealing", seed=0), CudaEstimate(space)
    shares = []
    for _ in range(4):
        asked = searcher.ask(16)
        shares.append(rewritten[asked[:, 0]].mean())
        seconds = 1e-4 * 2 ** (estimate(asked) + 1.2 * rewritten[asked[:, 0]])
        searcher.tell(
            [
                timed(space.space.config(point), elapsed)
                for point, elapsed in zip(asked, seconds, strict=True)
            ]
        )
    assert 0.5 < shares[0] < 0.9 and shares[-1] < 0.5, shares


def timed(config: Config, seconds: float) -> Trial:
    outcome = Timed(
        samples_s=(seconds,), max_rel_error=0.0, conditions=CONDITIONS, artifact="f" * 64
    )
    return Trial(number=1, config=config, outcome=outcome)
