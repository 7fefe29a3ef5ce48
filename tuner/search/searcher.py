"""The role that chooses what to measure next: ask for points, tell their outcomes.

A searcher's state depends only on its seed and on what it was told, in order. So a new
searcher that is told the recorded trials equals the old one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from tuner.measure.outcome import Trial
from tuner.spaces.core.space import Config, Points


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What a model-guided searcher did when it refitted its model."""

    # From 1. Points before the first plan are chosen by a model only if history has
    # warmed it up.
    round: int
    trials: int  # that the model has learned from so far
    # Spearman's, of predictions and measurements of the batch since the last plan, before
    # the model was trained on it; None without predictions.
    correlation: float | None
    # Whether the model chose the next batch; else local search and random points did.
    trusted: bool
    candidates: int  # scored while planning


class Searcher(Protocol):
    """Chooses points to measure."""

    def ask(self, count: int) -> Points:
        """Up to `count` points, shape (k, knobs), that were neither told nor asked before.

        Fewer when the searcher has no more.
        """
        ...

    def tell(self, trials: Sequence[Trial]) -> None:
        """Takes outcomes in the order in which they were recorded.

        A trial with an empty config, the default schedule, is ignored. An infrastructure
        failure teaches nothing, and its point is not proposed again.
        """
        ...

    def forecast(self, config: Config) -> float | None:
        """The model's score of a config, higher is better; None without a trained model."""
        ...

    @property
    def plans(self) -> tuple[Plan, ...]:
        """The plans so far, the oldest first; empty for searchers without a model."""
        ...


@runtime_checkable
class TakesSeeds(Searcher, Protocol):
    """A searcher that gets the points to try early after all else of it was made."""

    def take_seeds(self, points: Points) -> None:
        """Takes points to try early, shape (k, knobs), before the first `ask` or `tell`.

        The searcher is then as if it had been made with them.
        """
        ...
