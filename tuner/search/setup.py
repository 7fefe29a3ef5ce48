"""What a search strategy is built from, and the options of model-guided search."""

from __future__ import annotations

from dataclasses import dataclass

from tuner.cost_model.model import CostModel, Featurizer
from tuner.measure.objective import FASTEST, Goal
from tuner.search.domain import Domain
from tuner.spaces.core.space import Points


@dataclass(frozen=True, kw_only=True)
class GuidedOptions:
    """How `GuidedSearcher` divides its trials. Counts are of trials, points or configs."""

    first: int = 8  # trials before the first refit
    # Most trials between refits, fewer early on. AutoTVM plans 64, but a refit costs less
    # than a trial here.
    plan: int = 32
    explore: float = 0.05  # share of each batch that is random
    choice: int = 256  # best of the pool's points with new features, to choose a batch from
    # What an entirely new point is worth, in standard deviations of the scores.
    diversity: float = 0.3
    pool: int = 1024  # best points kept of each exploration
    listed: int = 4096  # spaces up to this size are scored as a whole instead of explored
    reference: int = 1024  # random points whose scores set the scale, throughout a search
    good: int = 64  # best measured points that the explorer gets
    # Points lined up beyond the next refit, for what is in flight while it happens.
    reserve: int = 64
    # Rank correlation of the last trials from which the model is trusted without further
    # evidence.
    trust: float = 0.2


@dataclass(frozen=True, kw_only=True)
class SearchSetup:
    """What a job gives to its strategy."""

    domain: Domain
    featurizer: Featurizer
    model: CostModel  # untrained, or warmed up by history
    seed: int
    seeds: Points | None = None  # points to try early
    options: GuidedOptions | None = None  # None: the defaults
    goal: Goal = FASTEST  # what trials are judged by
