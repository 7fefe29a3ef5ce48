"""A filter learned from failures: lowers the score of candidates that will probably not
build, run or answer right.

The ranker alone cannot do it: it sees failures as very slow candidates, and a few of
them teach it little about where they lie.
"""

from __future__ import annotations

import numpy as np

from tuner.cost_model.model import Features, Vector
from tuner.cost_model.ranker import FailureClassifier

_LEAST = 3  # failures, and successes, before anything is learned; two alike may be chance
_CERTAIN = 0.99  # a probability is not believed beyond this, so that nothing is excluded for ever


class ValidityFilter:
    """Which candidates will probably fail, learned from those that did."""

    def __init__(self, *, seed: int = 0) -> None:
        self._seed = seed
        self._classifier: FailureClassifier | None = None

    def fit(self, features: Features, failed: Vector) -> None:
        """`failed` (n,) is 1 for a candidate's own fault, 0 for a timed one. With too
        few of either the filter stays open."""
        failures = int(np.sum(failed))
        if min(failures, len(failed) - failures) < _LEAST:
            self._classifier = None
            return
        self._classifier = FailureClassifier(seed=self._seed)
        self._classifier.fit(features, failed)

    def penalty(self, features: Features) -> Vector:
        """log(probability that the candidate is valid), shape (n,), at most 0: -0.7 at
        even odds, -4.6 at worst."""
        if self._classifier is None:
            return np.zeros(len(features), np.float32)
        failing = np.minimum(self._classifier.predict(features), _CERTAIN)
        penalty: Vector = np.log1p(-failing).astype(np.float32)
        return penalty
