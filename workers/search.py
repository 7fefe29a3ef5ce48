"""Composes a job's searcher: strategy, space, a cost model on features of the loop nest, and points worth trying first."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.cost_model.features import featurizer
from tuner.cost_model.history import TransferRanker
from tuner.cost_model.ranker import Ranker
from tuner.search.domain import Domain
from tuner.search.searcher import Searcher
from tuner.search.seeds import carried_over
from tuner.search.strategies import SearchSetup, build_searcher
from tuner.spaces.cpu import CpuSpace
from tuner.spaces.space import Config

MOST_SEEDS = 8  # points tried before the search's own: an eighth of a small budget


def searcher_for(
    space: CpuSpace, *, strategy: str, seed: int, winners: Sequence[Config] = (), prior: Ranker | None = None
) -> Searcher:
    """A new searcher. `winners` are configs of similar workloads, tried first where the strategy has a model; `prior` is a
    trained ranker of other workloads on the same target, which warms that model up.

    Raises UsageError for an unknown strategy.
    """
    points = carried_over(space.space, winners)[:MOST_SEEDS]
    setup = SearchSetup(
        domain=Domain(space.space),
        featurizer=featurizer(space),
        model=Ranker() if prior is None else TransferRanker(prior),
        seed=seed,
        seeds=points if len(points) else None,
    )
    return build_searcher(strategy, setup)
