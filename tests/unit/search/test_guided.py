"""The model-guided searcher: when it plans, what it trusts, what it starts from."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.synthetic_spaces import Response, large_space, measured
from tuner.cost_model.encoding import KnobEncoding
from tuner.cost_model.model import CostModel, Features, Groups, Vector
from tuner.cost_model.ranker import Ranker
from tuner.measure.outcome import Candidate, Failed, FailureKind, Trial
from tuner.search.annealing import Annealing
from tuner.search.domain import Domain
from tuner.search.explorer import Score
from tuner.search.guided import GuidedSearcher
from tuner.search.pool import Collector, Pool
from tuner.search.seeds import carried_over
from tuner.search.setup import GuidedOptions
from tuner.spaces.core.space import Combination, Config, Knob, Points, Space

SPACE = large_space()
DOMAIN = Domain(SPACE)
RESPONSE = Response(space=SPACE)


class Misled:
    """A cost model that is sure of the slower sketch and knows nothing else."""

    def __init__(self) -> None:
        self.trained = False
        self._rng = np.random.default_rng(0)

    def fit(self, features: Features, labels: Vector, groups: Groups) -> None:
        self.trained = True

    def predict(self, features: Features) -> Vector:
        return (10 * features[:, 0] + self._rng.random(len(features))).astype(np.float32)

    def save(self) -> bytes:
        return b""

    def load(self, data: bytes) -> None:
        self.trained = bool(data)


def new(
    model: CostModel | None = None,
    *,
    seeds: Points | None = None,
    options: GuidedOptions | None = None,
) -> GuidedSearcher:
    return GuidedSearcher(
        domain=DOMAIN,
        featurizer=KnobEncoding(SPACE),
        model=model or Ranker(),
        explorer=Annealing(),
        seed=3,
        options=options,
        seeds=seeds,
    )


def play(searcher: GuidedSearcher, trials: int, response: Response = RESPONSE) -> list[Trial]:
    done: list[Trial] = []
    while len(done) < trials:
        batch = [
            measured(
                SPACE, response, Candidate(number=len(done) + offset, config=SPACE.config(point))
            )
            for offset, point in enumerate(searcher.ask(4), 1)
        ]
        searcher.tell(batch)
        done += batch
    return done


def test_plans_come_often_at_first_and_then_every_32_trials() -> None:
    searcher = new()
    play(searcher, 150)
    assert [plan.trials for plan in searcher.plans] == [8, 16, 24, 36, 54, 81, 113, 145]


def test_a_useful_model_is_trusted_and_its_correlation_reported() -> None:
    searcher = new()
    play(searcher, 120)
    assert all(plan.trusted for plan in searcher.plans)
    assert searcher.plans[0].correlation is None
    correlations = [plan.correlation for plan in searcher.plans[1:]]
    assert np.mean([value for value in correlations if value is not None]) > 0.2


def test_a_model_that_loses_to_random_points_is_given_up_for_local_search() -> None:
    searcher = new(Misled())
    trials = play(searcher, 200)
    distrusted = [plan for plan in searcher.plans if not plan.trusted]
    assert len(distrusted) >= len(searcher.plans) // 2
    labels = np.array([_seconds(trial) for trial in trials])
    random = np.array(
        [_seconds(trial) for trial in play(new(options=GuidedOptions(first=10_000)), 200)]
    )
    # The best point, not the median one: half of each batch is random, and the medians
    # differ by less than chance does.
    assert labels.min() < 0.9 * random.min(), (
        "local search on measured values still does better than random"
    )


def test_infrastructure_failures_are_not_taught() -> None:
    searcher = new()
    points = searcher.ask(40)
    lost = Failed(kind=FailureKind.INFRASTRUCTURE, message="worker lost")
    searcher.tell(
        [
            Trial(number=number, config=SPACE.config(point), outcome=lost)
            for number, point in enumerate(points, 1)
        ]
    )
    assert searcher.plans == ()


def test_own_failures_are_taught_and_avoided_later() -> None:
    strict = Response(space=SPACE, registers=32)
    trials = play(new(), 160, strict)
    failed = np.array([isinstance(trial.outcome, Failed) for trial in trials])
    by_chance = np.mean(np.isinf(strict.seconds(SPACE.sample(np.random.default_rng(0), 1000))))
    assert by_chance > 0.15
    assert failed[48:].mean() < 0.5 * by_chance


def test_seeds_are_proposed_first() -> None:
    seeds = SPACE.sample(np.random.default_rng(11), 5)
    assert np.array_equal(new(seeds=seeds).ask(5), seeds)


@pytest.mark.parametrize("trained", [False, True])
def test_seeds_that_come_late_make_the_same_searcher(trained: bool) -> None:
    models = Misled(), Misled()
    for model in models:
        model.trained = trained
    seeds = SPACE.sample(np.random.default_rng(11), 5)
    early, late = new(models[0], seeds=seeds), new(models[1])
    assert not np.array_equal(new(Misled()).ask(9), new(Misled(), seeds=seeds).ask(9))
    late.take_seeds(seeds)
    for _ in range(6):
        points = early.ask(5)
        assert np.array_equal(points, late.ask(5))
        trials = [
            measured(SPACE, RESPONSE, Candidate(number=number, config=SPACE.config(point)))
            for number, point in enumerate(points, 1)
        ]
        early.tell(trials)
        late.tell(trials)
    assert early.plans == late.plans and len(early.plans) == 3


def test_seeds_take_turns_with_what_a_warm_model_likes() -> None:
    warm, again = Misled(), Misled()
    warm.trained = again.trained = True
    seeds = SPACE.sample(np.random.default_rng(11), 5)
    asked = new(warm, seeds=seeds).ask(10)
    assert np.array_equal(asked[::2], new(again).ask(5))
    assert np.array_equal(asked[1::2], seeds)


def test_a_batch_holds_random_points_beside_the_models() -> None:
    class Remembering(Annealing):
        def explore(
            self,
            *,
            domain: Domain,
            score: Score,
            best: Points,
            pool: Collector,
            rng: np.random.Generator,
        ) -> None:
            super().explore(domain=domain, score=score, best=best, pool=pool, rng=rng)
            assert isinstance(pool, Pool)
            kept.append(set(domain.keys(pool.best()[0]).tolist()))

    kept: list[set[int]] = []
    searcher = GuidedSearcher(
        domain=DOMAIN,
        featurizer=KnobEncoding(SPACE),
        model=Ranker(),
        explorer=Remembering(),
        seed=3,
        options=GuidedOptions(first=64, explore=0.25),
    )
    play(searcher, 64)
    asked = DOMAIN.keys(searcher.ask(64)).tolist()
    strangers = sum(key not in kept[-1] for key in asked)
    assert 6 <= strangers <= 28, "a quarter of 64, give or take three deviations"


def test_the_first_point_is_the_favourite_however_many_are_random() -> None:
    """A search may have one trial only."""

    class Sure(Misled):
        def predict(self, features: Features) -> Vector:
            scores: Vector = features.sum(axis=1).astype(np.float32)
            return scores

    model = Sure()
    model.trained = True
    points = new(model, options=GuidedOptions(explore=1.0)).ask(9)
    first, *others = model.predict(KnobEncoding(SPACE)(points)).tolist()
    assert first > max(others)


def test_winners_of_another_space_are_carried_over_by_name_and_nearest_value() -> None:
    other: Config = {
        "sketch": "tiled",
        "tiled.i": (4, 7),
        "tiled.j": (2, 16),
        "tiled.k": 32,
        "tiled.order": "kij",
        "elsewhere.x": 3,
    }
    points = carried_over(SPACE, [other, {"sketch": "unknown"}, other])
    assert len(points) == 1
    config = SPACE.config(points[0])
    assert (config["tiled.i"], config["tiled.j"], config["tiled.k"], config["tiled.order"]) == (
        (4, 8),
        (2, 16),
        16,
        "kij",
    )
    empty = carried_over(
        Space((Combination(name="z", knobs=(Knob(name="z.a", values=(1, 2)),)),)), [other]
    )
    assert empty.shape == (0, 2)


def _seconds(trial: Trial) -> float:
    return 1.0 if isinstance(trial.outcome, Failed) else trial.outcome.median_s
