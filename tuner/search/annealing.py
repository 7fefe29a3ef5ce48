"""Simulated annealing under the cost model, with many chains in one matrix operation.

Chains persist between plans. Each plan restarts the worst chains near the best measured
points and continues under the refitted model.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.cost_model.model import Vector
from tuner.search.domain import Domain
from tuner.search.explorer import Score
from tuner.search.guided import GuidedSearcher, guided_searcher
from tuner.search.pool import Collector
from tuner.search.setup import SearchSetup
from tuner.spaces.core.space import Points


@dataclass(frozen=True, kw_only=True)
class AnnealingOptions:
    """Temperatures are in standard deviations of the scores of random points.

    AutoTVM runs 128 chains for 500 steps, one candidate at a time. The same number of
    predictions is cheaper in wider batches and finds equally good points
    (docs/design-notes/0001 has the table).
    """

    chains: int = 2048
    steps: int = 20  # of the first plan
    # Steps of later plans, whose chains continue under a model that changed only a little.
    resumed: int = 3
    hot: float = 1.0
    cold: float = 0.02
    restarted: float = 0.3  # share of chains restarted near the best measured points
    renewed: float = 0.1  # share of chains restarted anywhere


class Annealing:
    """An `Explorer`."""

    def __init__(self, options: AnnealingOptions | None = None) -> None:
        self.options = options or AnnealingOptions()
        self._chains: Points | None = None
        self._scores: Vector = np.zeros(self.options.chains, np.float32)

    def explore(
        self,
        *,
        domain: Domain,
        score: Score,
        best: Points,
        pool: Collector,
        rng: np.random.Generator,
    ) -> None:
        chains, scores = self._start(domain, score, best, rng)
        pool.add(chains, scores)
        options = self.options
        steps = options.steps if self._chains is None else options.resumed
        for temperature in np.geomspace(options.hot, options.cold, steps):
            moved = domain.neighbours(rng, chains)
            gained = score(moved)
            pool.add(moved, gained)
            accepted = rng.random(len(chains)) < np.exp(
                np.minimum(0.0, (gained - scores) / temperature)
            )
            chains[accepted], scores[accepted] = moved[accepted], gained[accepted]
        self._chains, self._scores = chains, scores

    def _start(
        self, domain: Domain, score: Score, best: Points, rng: np.random.Generator
    ) -> tuple[Points, Vector]:
        """Chains to begin with, shape (chains, knobs), and their scores."""
        options = self.options
        chains = domain.sample(rng, options.chains) if self._chains is None else self._chains.copy()
        # By the scores of the previous model: scoring them again costs as much as a step.
        worst = np.argsort(self._scores, kind="stable")
        near = int(options.chains * options.restarted) if len(best) else 0
        anew = int(options.chains * options.renewed)
        if near:
            origin = best[np.arange(near) % len(best)]
            chains[worst[:near]] = domain.neighbours(rng, origin)
        chains[worst[near : near + anew]] = domain.sample(rng, anew)
        return chains, score(chains)


def annealing_searcher(setup: SearchSetup) -> GuidedSearcher:
    """The searcher of the strategy `annealing`."""
    return guided_searcher(setup, Annealing())
