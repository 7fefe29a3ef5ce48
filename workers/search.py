"""Composes a job's searcher: its strategy over the space, with a cost model on features of the knobs."""

from __future__ import annotations

from tuner.cost_model.encoding import KnobEncoding
from tuner.cost_model.ranker import Ranker
from tuner.search.domain import Domain
from tuner.search.searcher import Searcher
from tuner.search.strategies import SearchSetup, build_searcher
from tuner.spaces.space import Space
from workers.messages import Problem


def searcher_for(problem: Problem, space: Space, *, strategy: str, seed: int) -> Searcher:
    """A new searcher. Raises UsageError for an unknown strategy."""
    setup = SearchSetup(domain=Domain(space), featurizer=KnobEncoding(space), model=Ranker(), seed=seed)
    return build_searcher(strategy, setup)
