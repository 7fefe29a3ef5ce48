"""The role that chooses what to measure next: ask for points, tell what became of them.

A searcher is a function of (seed, what it was told, in its order): telling a new one
the recorded trials rebuilds it exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tuner.measure.outcome import Trial
from tuner.spaces.core.space import Config, Points


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a model-guided searcher did when it refitted; the correlation was taken
    before training on the batch it judges."""

    # from 1; the points before the first plan are not chosen by a model, unless history
    # warms it up
    round: int
    trials: int  # taught to the model so far
    correlation: (
        float | None
        # Spearman, predicted against measured, of the batch since the last plan; None
        # without a prediction
    )
    # whether the model chose the next batch; else local search on measured values and
    # random points
    trusted: bool
    candidates: int  # scored while planning


class Searcher(Protocol):
    def ask(self, count: int) -> Points:
        """Up to `count` points, shape (k, knobs), that were neither told nor handed out
        before; fewer when no more were found."""
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """Takes outcomes in the order they were recorded. A trial with an empty config
        (the default schedule) is ignored, one that failed for infrastructure is not
        proposed again but teaches nothing."""
        ...

    def forecast(self, config: Config) -> float | None:
        """The model's score of a config that was not told yet, higher is better; None
        without a trained model."""
        ...

    @property
    def plans(self) -> tuple[Plan, ...]:
        """One entry for each refit so far, oldest first; empty for searchers without a model."""
        ...
