"""An estimate's favourite, and what it likes nearly as much, made otherwise: near the
best, unlike each other, reproducible."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.amx import TARGET
from tests.support.spaces import shared_space
from tests.support.targets import ZEN5
from tuner.cost_model.cpu.cycles import ROUND_COSTS
from tuner.cost_model.features import TERMS, WIDTH, featurizer
from tuner.cost_model.history import Prior
from tuner.search.alternatives import BEHIND, COUNT, alternatives
from tuner.search.domain import Domain
from tuner.search.seeds import MOST_SEEDS, carried_over, first_points
from tuner.spaces.core.space import Combination, Knob, Points, Space
from tuner.spaces.core.target_space import TargetSpace
from tuner.workers.jobs.search import searcher_for

SPECS = (
    "matmul:M=512,N=512,K=512",
    "conv2d:N=1,H=28,W=28,CI=32,CO=64,KH=3,KW=3,pad=1",
    "dense:M=64,N=512,K=256,bias=true,act=gelu",
)
PRIOR = Prior()


@pytest.mark.parametrize("spec", SPECS)
def test_they_are_near_the_best_and_differ_in_choices(spec: str) -> None:
    space = shared_space(spec, ZEN5)
    domain, features = Domain(space.space), featurizer(space)
    points = alternatives(domain, features, PRIOR, seed=3)
    least = PRIOR.log_cycles(features(domain.sample(np.random.default_rng(0), 4000))).min()
    times = PRIOR.log_cycles(features(points))
    assert 2 <= len(points) <= 1 + COUNT and (times < least + BEHIND + 0.05).all()
    assert times[0] < least + 0.02, "the favourite comes first"
    choices = [
        column for column, knob in enumerate(space.space.knobs) if isinstance(knob.values[0], str)
    ]
    assert len(np.unique(points[:, choices], axis=0)) >= min(2, len(points)), (
        "not one way of making it alone"
    )
    assert np.array_equal(points, alternatives(domain, features, PRIOR, seed=3))
    assert np.array_equal(points[:1], alternatives(domain, features, PRIOR, seed=3, count=0))
    assert np.array_equal(points, space.space.canonical(points))


def of_four_algorithms() -> TargetSpace[Any]:
    """The sum, two of Winograd's, and three products of bfloat16."""
    spec = "conv2d:N=1,H=28,W=28,CI=64,CO=64,KH=3,KW=3,pad=1,numerics=fast"
    space = shared_space(spec, TARGET)
    assert sorted(place for places in space.by_algorithm for place in places) == list(
        range(len(space.space.combinations))
    )
    assert len(space.by_algorithm) == 4
    return space


def test_the_best_of_each_algorithm_is_among_them_however_far_behind() -> None:
    space = of_four_algorithms()
    points = alternatives(Domain(space.space), featurizer(space), PRIOR, space.by_algorithm, seed=3)
    assert all(np.isin(points[:5, 0], places).any() for places in space.by_algorithm)


@pytest.mark.parametrize("spec", SPECS)
def test_a_history_does_not_keep_a_search_from_what_the_estimate_likes(spec: str) -> None:
    """Were the history's favourites all wrong, the estimate's own would be among the
    first tried."""
    space = shared_space(spec, TARGET)
    features = featurizer(space)
    misled = Prior()  # a cost of each term that is the lower the more it costs
    misled.load(
        json.dumps(json.loads(PRIOR.save()) | {"costs": (1e-3 / ROUND_COSTS**3).tolist()}).encode()
    )
    asked = searcher_for(space, strategy="annealing", seed=0, prior=misled).ask(8)
    least = PRIOR.log_cycles(
        features(Domain(space.space).sample(np.random.default_rng(0), 4000))
    ).min()
    assert PRIOR.log_cycles(features(asked[:4])).min() < least + 0.02


def test_winners_leave_room_for_each_algorithm() -> None:
    space = of_four_algorithms()
    domain = Domain(space.space)
    winners = [
        space.space.config(point)
        for point in domain.sample(np.random.default_rng(0), 200)
        if point[0] == 0
    ]
    assert len(winners) > MOST_SEEDS
    points = first_points(domain, featurizer(space), PRIOR, winners, space.by_algorithm, seed=3)
    assert len(points) <= MOST_SEEDS
    assert all(np.isin(points[:, 0], places).any() for places in space.by_algorithm)
    assert np.array_equal(points[1::2][:3], carried_over(space.space, winners)[:3]), (
        "in turn with what won elsewhere"
    )


def test_first_points_lie_in_a_domain_of_few_rows() -> None:
    """A table of sampled configs has hardly one of those that won elsewhere."""
    space = shared_space(SPECS[0], TARGET)
    drawn = np.unique(space.space.sample(np.random.default_rng(2), 400), axis=0)
    domain = Domain(space.space, drawn[:200])
    winners = [space.space.config(point) for point in drawn[196:204]]
    points = first_points(domain, featurizer(space), PRIOR, winners, seed=1)
    assert (
        domain.contains(points).all()
        and np.isin(domain.keys(drawn[196:199]), domain.keys(points)).all()
    )


@pytest.mark.parametrize(
    "spec", ["reduce_sum:M=3,N=2,axis=1", "transpose:M=1,N=1", "matmul:M=1,N=1,K=1"]
)
def test_a_space_of_few_points_has_few(spec: str) -> None:
    space = shared_space(spec, ZEN5)
    domain = Domain(space.space)
    points = alternatives(domain, featurizer(space), PRIOR, seed=0, count=3)
    assert points.shape[1] == len(space.space.knobs) and len(points) <= min(3, domain.size)
    assert np.isin(domain.keys(points), domain.keys(domain.points())).all()


def test_of_equally_good_points_every_look_takes_the_same() -> None:
    """Where an estimate cannot tell some values of a knob apart, a search and a look do
    not differ in what they call the best."""
    cared = tuple(Knob(name=f"a.x{number}", values=tuple(range(4))) for number in range(3))
    space = Space((Combination(name="a", knobs=(*cared, Knob(name="a.any", values=(0, 1, 2)))),))

    def features(points: Points) -> NDArray[np.float32]:
        features = np.zeros((len(points), WIDTH + TERMS), np.float32)
        features[:, WIDTH] = 10 + points[:, 1:4].sum(axis=1)
        return features

    favourites = {
        tuple(alternatives(Domain(space), features, PRIOR, seed=seed)[0].tolist())
        for seed in range(12)
    }
    assert favourites == {(0,) * 5}
