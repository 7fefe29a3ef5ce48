"""The role that looks for promising points under a fixed scoring, within one plan:
annealing, or evolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from tuner.cost_model.model import Vector
from tuner.search.domain import Domain
from tuner.search.pool import Pool
from tuner.spaces.core.space import Points

Score = Callable[
    [Points], Vector
]  # a whole batch at once; standardised: 0 and 1 are mean and deviation of random points


class Explorer(Protocol):
    def explore(
        self, *, domain: Domain, score: Score, best: Points, pool: Pool, rng: np.random.Generator
    ) -> None:
        """Offers what it visits to `pool`. `best` (k, knobs) are the best measured
        points, best first, possibly none."""
        ...
