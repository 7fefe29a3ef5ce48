"""Evolutionary search under the cost model, with MetaSchedule's settings.

Population 512, 4 generations, mutation probability 0.85, a fifth of the first generation
from the best measured points: the defaults of TVM 0.27. It is there to compare annealing
with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tuner.search.domain import Domain
from tuner.search.explorer import Score
from tuner.search.guided import GuidedSearcher, guided_searcher
from tuner.search.pool import Collector
from tuner.search.setup import SearchSetup
from tuner.spaces.core.space import Points


@dataclass(frozen=True, kw_only=True)
class EvolutionOptions:
    """Sizes and probabilities of the evolution."""

    population: int = 512
    generations: int = 4
    mutation: float = 0.85
    measured: float = 0.2  # share of the first generation taken from the best measured points


class Evolution:
    """An `Explorer`."""

    def __init__(self, options: EvolutionOptions | None = None) -> None:
        self.options = options or EvolutionOptions()

    def explore(
        self,
        *,
        domain: Domain,
        score: Score,
        best: Points,
        pool: Collector,
        rng: np.random.Generator,
    ) -> None:
        options = self.options
        kept = min(len(best), int(options.population * options.measured))
        population = np.concatenate([best[:kept], domain.sample(rng, options.population - kept)])
        for generation in range(options.generations + 1):
            scores = score(population)
            pool.add(population, scores)
            if generation == options.generations:
                break
            weights = np.maximum(scores - scores.min(), 1e-8).astype(np.float64)
            parents = population[
                rng.choice(len(population), size=options.population, p=weights / weights.sum())
            ]
            mutants = domain.neighbours(rng, parents)
            mutated = rng.random(options.population) < options.mutation
            population = np.where(mutated[:, None], mutants, parents).astype(np.int32)


def evolutionary_searcher(setup: SearchSetup) -> GuidedSearcher:
    """The searcher of the strategy `evolutionary`."""
    return guided_searcher(setup, Evolution())
