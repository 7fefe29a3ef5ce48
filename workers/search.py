"""Composes a job's searcher: strategy, space, a cost model on features of the loop nest, and points worth trying first."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.cost_model.features import featurizer
from tuner.cost_model.ranker import Ranker
from tuner.search.domain import Domain
from tuner.search.searcher import Searcher
from tuner.search.seeds import carried_over
from tuner.search.strategies import SearchSetup, build_searcher
from tuner.spaces.cpu import CpuSpace
from tuner.spaces.space import Config


def searcher_for(space: CpuSpace, *, strategy: str, seed: int, winners: Sequence[Config] = ()) -> Searcher:
    """A new searcher. `winners` are configs of kernels of the same operator, tried first where the strategy has a model.

    Raises UsageError for an unknown strategy.
    """
    points = carried_over(space.space, winners)
    setup = SearchSetup(
        domain=Domain(space.space),
        featurizer=featurizer(space),
        model=Ranker(),
        seed=seed,
        seeds=points if len(points) else None,
    )
    return build_searcher(strategy, setup)
