"""Composes a job's searcher: strategy, space, a cost model on loop nests, points worth
trying first; or given points alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.cost_model.cuda.estimate import CudaFeatures, CudaOpinion, other_algorithms
from tuner.cost_model.features import featurizer
from tuner.cost_model.history import Prior, TransferRanker
from tuner.cost_model.model import CostModel, Featurizer
from tuner.measure.outcome import Trial
from tuner.search.domain import Domain
from tuner.search.searcher import Plan, Searcher
from tuner.search.seeds import MOST_SEEDS, carried_over, first_points
from tuner.search.setup import SearchSetup
from tuner.search.strategies import LEARNING, build_searcher
from tuner.spaces.core.space import Config, Points, Space
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.fully_unrolled import FULLY_UNROLLED

OTHERS = 4  # of the first points by another algorithm than the one a GPU's estimate favours


def searcher_for(
    space: TargetSpace[Any],
    *,
    strategy: str,
    seed: int,
    winners: Sequence[Config] = (),
    prior: Prior | None = None,
) -> Searcher:
    """A new searcher. `winners` are configs of similar workloads, tried early where the
    strategy has a model; `prior` is the estimate of cycles that other workloads of the
    same target taught, which warms that model up; without it one of round costs.

    Raises UsageError for an unknown strategy.
    """
    prior = prior or Prior()
    domain, (described, model) = Domain(space.space), _model(space, prior)
    winners = (
        {"sketch": FULLY_UNROLLED},
        *winners,
    )  # where there is one: no estimate knows what the compiler makes of it
    if space.target.kind == "cpu" and strategy in LEARNING:
        points = first_points(domain, described, Prior(), winners, space.by_algorithm, seed=seed)
    else:
        points = carried_over(space.space, winners)[:MOST_SEEDS]
    if space.target.kind == "cuda":
        others = other_algorithms(space, OTHERS, seed)
        points = np.concatenate([points[: MOST_SEEDS - len(others)], others])
    setup = SearchSetup(
        domain=domain,
        featurizer=described,
        model=model,
        seed=seed,
        seeds=points if len(points) else None,
    )
    return build_searcher(strategy, setup)


def _model(space: TargetSpace[Any], prior: Prior) -> tuple[Featurizer, CostModel]:
    """An estimate, corrected by what is measured: on a CPU from the loop nests, on a
    GPU from the knobs."""
    if space.target.kind == "cpu":
        return featurizer(space), TransferRanker(prior)
    return CudaFeatures(space), TransferRanker(CudaOpinion())


class GivenPoints:
    """A searcher of given configs alone, carried over into the space: what a preparing
    job tries beside the default."""

    def __init__(self, space: Space, configs: Sequence[Config]) -> None:
        self._space = space
        self._left = [point for point in carried_over(space, configs)]

    @property
    def count(self) -> int:
        """Points that were neither told nor handed out."""
        return len(self._left)

    def ask(self, count: int) -> Points:
        given, self._left = self._left[:count], self._left[count:]
        return np.stack(given) if given else np.zeros((0, len(self._space.knobs)), np.int32)

    def tell(self, trials: Sequence[Trial]) -> None:
        """Forgets what was tried before."""
        told = [self._space.point(trial.config) for trial in trials if trial.config]
        self._left = [
            point for point in self._left if not any(np.array_equal(point, one) for one in told)
        ]

    def forecast(self, config: Config) -> float | None:
        return None

    @property
    def plans(self) -> tuple[Plan, ...]:
        return ()
