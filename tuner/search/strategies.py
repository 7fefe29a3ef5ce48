"""The strategies by name: one literal table, read where a job is composed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from tuner.cost_model.model import CostModel, Featurizer
from tuner.errors import UsageError
from tuner.search.annealing import Annealing
from tuner.search.domain import Domain
from tuner.search.evolutionary import Evolution
from tuner.search.explorer import Explorer
from tuner.search.grid import grid_searcher
from tuner.search.guided import GuidedOptions, GuidedSearcher
from tuner.search.random import random_searcher
from tuner.search.searcher import Searcher
from tuner.spaces.core.space import Points

Strategy = Literal["annealing", "evolutionary", "random", "grid"]


@dataclass(frozen=True, kw_only=True)
class SearchSetup:
    domain: Domain
    featurizer: Featurizer
    model: CostModel  # untrained, or warmed up by history
    seed: int
    seeds: Points | None = None  # points to try early
    options: GuidedOptions | None = None  # None: the defaults


def _guided(explorer: Callable[[], Explorer]) -> Callable[[SearchSetup], Searcher]:
    return lambda setup: GuidedSearcher(
        domain=setup.domain,
        featurizer=setup.featurizer,
        model=setup.model,
        explorer=explorer(),
        seed=setup.seed,
        options=setup.options,
        seeds=setup.seeds,
    )


STRATEGIES: Mapping[Strategy, Callable[[SearchSetup], Searcher]] = {
    "annealing": _guided(Annealing),
    "evolutionary": _guided(Evolution),
    "random": lambda setup: random_searcher(setup.domain, seed=setup.seed),
    "grid": lambda setup: grid_searcher(setup.domain, seed=setup.seed),
}

LEARNING: tuple[Strategy, ...] = (
    "annealing",
    "evolutionary",
)  # those with a cost model, which history can warm up


def build_searcher(strategy: str, setup: SearchSetup) -> Searcher:
    for name, build in STRATEGIES.items():
        if name == strategy:
            return build(setup)
    raise UsageError(f"unknown strategy {strategy!r}; it is one of {', '.join(STRATEGIES)}")
