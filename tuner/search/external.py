"""A search whose points a caller proposes, from outside this program.

What was proposed is kept elsewhere and read again by a rebuilt searcher, so its state, too,
is what it was told.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tuner.measure.outcome import Trial
from tuner.search.domain import Domain
from tuner.search.ledger import Ledger, Row
from tuner.search.searcher import Plan
from tuner.spaces.core.space import Config, Points

# Seconds without a proposal after which the caller is given up: a lane is held meanwhile.
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposals:
    """What was proposed of a task since it was last asked for."""

    configs: tuple[Config, ...]
    closed: bool  # whether the caller has said that no more will come


class ExternalSearcher:
    """A `Searcher`. Configs that mean the same point are measured once."""

    def __init__(
        self,
        domain: Domain,
        proposed: Callable[[int], Proposals],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`proposed` gives what follows the first so many proposals."""
        self._ledger, self._proposed, self._clock = Ledger(domain), proposed, clock
        self._queue: deque[Row] = deque()
        self._read = 0
        self._closed = False
        self._heard_s = clock()

    @property
    def waiting(self) -> bool:
        """Whether points may still come though the last `ask` gave too few."""
        return not self._closed and self._clock() - self._heard_s < PATIENCE_S

    @property
    def plans(self) -> tuple[Plan, ...]:
        return ()

    def forecast(self, config: Config) -> float | None:
        return None

    def tell(self, trials: Sequence[Trial]) -> None:
        for trial in trials:
            self._ledger.tell(trial)
        self._heard_s = self._clock()

    def ask(self, count: int) -> Points:
        if len(self._queue) < count and not self._closed:
            self._fetch()
        rows: list[Row] = []
        while self._queue and len(rows) < count:
            row = self._queue.popleft()
            if self._ledger.hand_out(row):
                rows.append(row)
        return self._ledger.stack(rows)

    def _fetch(self) -> None:
        recent = self._proposed(self._read)
        self._read += len(recent.configs)
        self._closed = recent.closed
        self._queue.extend(self._ledger.domain.space.point(config) for config in recent.configs)
        if recent.configs:
            self._heard_s = self._clock()
