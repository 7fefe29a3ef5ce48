"""Composes a job's searcher from strategy, space, cost model and first points."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from tuner.cost_model.history import Opinion
from tuner.measure.objective import FASTEST, Goal
from tuner.measure.outcome import Trial
from tuner.search.domain import Domain
from tuner.search.searcher import Plan, Searcher, TakesSeeds
from tuner.search.seeds import carried_over
from tuner.search.setup import SearchSetup
from tuner.search.strategies import LEARNING, build_searcher
from tuner.spaces.core.space import Config, Points, Space
from tuner.spaces.core.target_space import TargetSpace
from tuner.workers.backends.table import backend_of

Begin = Callable[[Sequence[Config]], Searcher]
"""Gives a prepared searcher, once, by configs of similar workloads to try early."""


def searcher_for(
    space: TargetSpace[object],
    *,
    strategy: str,
    seed: int,
    winners: Sequence[Config] = (),
    prior: Opinion | None = None,
    goal: Goal = FASTEST,
) -> Searcher:
    """A new searcher.

    `winners` are configs of similar workloads, tried early by strategies with a model.
    `prior` is the estimate that other workloads taught, from which the model starts;
    without it, it starts from rounded costs. Trials are judged by
    `goal`. Raises UsageError for an unknown strategy.
    """
    return prepared_search(space, strategy=strategy, seed=seed, prior=prior, goal=goal)(winners)


def prepared_search(
    space: TargetSpace[object],
    *,
    strategy: str,
    seed: int,
    prior: Opinion | None = None,
    goal: Goal = FASTEST,
    single: bool = False,
) -> Begin:
    """A searcher that lacks its winners; arguments as of `searcher_for`.

    Nearly all the time that a new searcher takes is spent here. So it can be made before it
    is known what wins elsewhere, and proposes the same then. For a `single` trial less has to
    be made.
    """
    backend, domain = backend_of(space.target), Domain(space.space)
    features, model = backend.cost_model(space, prior or backend.transfer.prior())
    learns = strategy in LEARNING
    first = backend.first_points(space, domain, features, learns=learns, seed=seed, single=single)
    setup = SearchSetup(domain=domain, featurizer=features, model=model, seed=seed, goal=goal)
    searcher = build_searcher(strategy, setup)

    def begun(winners: Sequence[Config]) -> Searcher:
        points = first(winners)
        if not len(points):
            return searcher
        if isinstance(searcher, TakesSeeds):
            searcher.take_seeds(points)
            return searcher
        return build_searcher(strategy, replace(setup, seeds=points))

    return begun


class GivenPoints:
    """A searcher of given configs alone, for jobs that prepare a kernel or time it again.

    The configs are carried over into the space.
    """

    def __init__(self, space: Space, configs: Sequence[Config]) -> None:
        self._space = space
        self._left = [point for point in carried_over(space, configs)]

    @property
    def count(self) -> int:
        """The number of points left to hand out."""
        return len(self._left)

    def ask(self, count: int) -> Points:
        given, self._left = self._left[:count], self._left[count:]
        return np.stack(given) if given else np.zeros((0, len(self._space.knobs)), np.int32)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Forgets points that were tried before."""
        tried = [self._space.point(trial.config) for trial in trials if trial.config]
        self._left = [
            point
            for point in self._left
            if not any(np.array_equal(point, other) for other in tried)
        ]

    def forecast(self, config: Config) -> float | None:
        return None

    @property
    def plans(self) -> tuple[Plan, ...]:
        return ()
