"""The role that looks for promising points within one plan: annealing, or evolution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from tuner.cost_model.model import Vector
from tuner.search.domain import Domain
from tuner.search.pool import Collector
from tuner.spaces.core.space import Points

# Scores of a batch of points, shape (n,). They are standardised: the scores of random
# points have mean 0 and standard deviation 1.
Score = Callable[[Points], Vector]


class Explorer(Protocol):
    """Looks for points with high scores."""

    def explore(
        self,
        *,
        domain: Domain,
        score: Score,
        best: Points,
        pool: Collector,
        rng: np.random.Generator,
    ) -> None:
        """Adds the points that it visits to `pool`.

        `best` has the best measured points, shape (k, knobs), the best first; it may be
        empty.
        """
        ...
