"""Annealing finds what random search does not, within the same number of trials, and quickly."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.support.synthetic_spaces import Response, large_space, measured
from tuner.cost_model.encoding import KnobEncoding
from tuner.cost_model.model import Vector
from tuner.cost_model.ranker import Ranker
from tuner.measure.outcome import Candidate, Timed
from tuner.search.annealing import Annealing, AnnealingOptions
from tuner.search.domain import Domain
from tuner.search.evolutionary import Evolution
from tuner.search.explorer import Explorer
from tuner.search.pool import Pool
from tuner.search.setup import SearchSetup
from tuner.search.strategies import build_searcher
from tuner.spaces.core.space import Points

SPACE = large_space()
DOMAIN = Domain(SPACE)
RESPONSE = Response(space=SPACE)
SEEDS = 20


def best_so_far(strategy: str, seed: int, trials: int) -> list[float]:
    setup = SearchSetup(domain=DOMAIN, featurizer=KnobEncoding(SPACE), model=Ranker(), seed=seed)
    searcher = build_searcher(strategy, setup)
    curve = [np.inf]
    for first in range(0, trials, 4):
        batch = [
            measured(SPACE, RESPONSE, Candidate(number=first + offset, config=SPACE.config(point)))
            for offset, point in enumerate(searcher.ask(4), 1)
        ]
        searcher.tell(batch)
        for trial in batch:
            curve.append(
                min(curve[-1], trial.outcome.median_s)
                if isinstance(trial.outcome, Timed)
                else curve[-1]
            )
    return curve


@cache
def median_curve(strategy: str, trials: int) -> list[float]:
    curves = [best_so_far(strategy, seed, trials) for seed in range(SEEDS)]
    return [float(value) for value in np.median(np.array(curves), axis=0)]


@pytest.mark.slow
@pytest.mark.xdist_group("annealing")
@pytest.mark.parametrize(("strategy", "trials"), [("annealing", 80), ("evolutionary", 64)])
def test_guided_by_the_model_64_trials_beat_320_random_ones(strategy: str, trials: int) -> None:
    assert median_curve(strategy, trials)[64] < 0.95 * median_curve("random", 320)[-1]


@pytest.mark.slow
@pytest.mark.xdist_group("annealing")
def test_80_annealed_trials_come_within_5_percent_of_the_best_of_thousands() -> None:
    sample = RESPONSE.seconds(SPACE.sample(np.random.default_rng(99), 20_000))
    assert median_curve("annealing", 80)[-1] < 1.05 * sample.min()


def peak(points: Points) -> Vector:
    """A score with one best point and many local ones."""
    x = points.astype(np.float64)
    waves = np.cos(2.0 * x[:, 1]) + np.cos(1.7 * x[:, 2])
    score: Vector = (-0.05 * np.abs(x - 3).sum(axis=1) + 0.4 * waves).astype(np.float32)
    return score


@pytest.mark.parametrize(
    ("explorer", "share"), [(Annealing(), 0.99), (Evolution(), 0.9)], ids=["annealing", "evolution"]
)
def test_an_explorer_fills_the_pool_with_good_untried_points(
    explorer: Explorer, share: float
) -> None:
    tried = np.sort(DOMAIN.keys(SPACE.sample(np.random.default_rng(1), 500)))
    pool = Pool(DOMAIN, capacity=64, tried=tried)
    best = SPACE.sample(np.random.default_rng(2), 8)
    explorer.explore(domain=DOMAIN, score=peak, best=best, pool=pool, rng=np.random.default_rng(3))
    points, scores = pool.best()
    keys = DOMAIN.keys(points)
    assert len(points) == 64 == len(set(keys.tolist()))
    assert not set(keys.tolist()) & set(tried.tolist())
    assert np.allclose(scores, peak(points)) and (np.diff(scores) <= 0).all()
    chance = peak(SPACE.sample(np.random.default_rng(4), 2000))
    assert np.median(scores) > np.quantile(chance, share)


def test_annealing_finds_the_best_point_of_a_rugged_score() -> None:
    best = float(peak(DOMAIN.points()).max())
    pool = Pool(DOMAIN, capacity=16, tried=np.zeros(0, np.uint64))
    Annealing().explore(
        domain=DOMAIN, score=peak, best=DOMAIN.points()[:0], pool=pool, rng=np.random.default_rng(0)
    )
    assert pool.best()[1][0] == pytest.approx(best)


def test_chains_persist_between_plans_and_follow_the_new_scores() -> None:
    annealing = Annealing(AnnealingOptions(chains=128, steps=60))
    rng = np.random.default_rng(0)
    none = DOMAIN.points()[:0]
    warm = Pool(DOMAIN, capacity=8, tried=np.zeros(0, np.uint64))
    annealing.explore(domain=DOMAIN, score=peak, best=none, pool=warm, rng=rng)
    seen: list[float] = []

    def watched(points: Points) -> Vector:
        scores = peak(points)
        seen.append(float(np.median(scores)))
        return scores

    annealing.explore(domain=DOMAIN, score=watched, best=none, pool=warm, rng=rng)
    assert seen[0] > float(np.median(peak(SPACE.sample(rng, 2000)))), (
        "the first batch scored is where the last plan ended"
    )
