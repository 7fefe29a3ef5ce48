"""Random search, the baseline of all other strategies.

Each seed has one fixed sequence of points, so a rebuilt searcher continues where the old
one stopped.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tuner.measure.outcome import Trial
from tuner.search.domain import Domain
from tuner.search.ledger import Ledger, Row
from tuner.search.searcher import Plan
from tuner.search.setup import SearchSetup
from tuner.spaces.core.space import Config, Points

# Spaces up to this size are shuffled as a whole, so that every point comes once.
_ENUMERATED = 1 << 16
_BLOCK = 64  # points drawn together from a larger space
_FRUITLESS = 4096  # draws without a new point after which the space counts as exhausted


class SequenceSearcher:
    """A `Searcher` that takes the free points of a fixed sequence in order."""

    def __init__(self, domain: Domain, sequence: Iterator[Row]) -> None:
        self._ledger = Ledger(domain)
        self._sequence = sequence

    @property
    def plans(self) -> tuple[Plan, ...]:
        return ()

    def forecast(self, config: Config) -> float | None:
        return None

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            self._ledger.tell(trial)

    def ask(self, count: int) -> Points:
        rows: list[Row] = []
        fruitless = 0
        while len(rows) < count and fruitless < _FRUITLESS and self._ledger.remaining:
            row = next(self._sequence, None)
            if row is None:
                break
            if self._ledger.hand_out(row):
                rows.append(row)
                fruitless = 0
            else:
                fruitless += 1
        return self._ledger.stack(rows)


def random_searcher(setup: SearchSetup) -> SequenceSearcher:
    """The searcher of the strategy `random`."""
    return SequenceSearcher(setup.domain, random_sequence(setup.domain, setup.seed))


def random_sequence(domain: Domain, seed: int) -> Iterator[Row]:
    """Random points: each once where the domain is small, else endless with repeats."""
    if domain.size <= _ENUMERATED:
        order = domain.points()
        np.random.default_rng((seed, 0)).shuffle(order)
        yield from order
        return
    block = 0
    while True:
        yield from domain.sample(np.random.default_rng((seed, block)), _BLOCK)
        block += 1
