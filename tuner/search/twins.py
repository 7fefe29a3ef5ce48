"""Configs of one description nearly always compile to the same code (the order of loops that run once, blocks as large as the
whole): one of them is enough to try.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.model import Featurizer, Vector
from tuner.spaces.space import Points


class Twins:
    """Tells those whose features a tried config has, or one before them."""

    def __init__(self, featurizer: Featurizer, tried: Collection[bytes], scores: Vector | None = None) -> None:
        """`tried` are features as bytes; `scores` (m,) are their scores, where twins are looked for among scored points."""
        self._featurizer, self._tried = featurizer, tried
        self._scores = np.zeros(0, np.float32) if scores is None else np.unique(scores)

    def without(self, points: Points, scores: Vector | None = None) -> NDArray[np.int64]:
        """Rows that are the first of their description. Equal descriptions have equal scores: where scores (n,) are given, only
        points that share theirs are described, which takes a model's time."""
        suspected = np.ones(len(points), np.bool_)
        if scores is not None:
            _, number, counts = np.unique(scores, return_inverse=True, return_counts=True)
            suspected = (counts[number.ravel()] > 1) | np.isin(scores, self._scores)
        kept, seen = ~suspected, set(self._tried)
        rows = np.flatnonzero(suspected)
        for row, described in zip(rows, map(bytes, self._featurizer(points[rows])) if len(rows) else (), strict=True):
            kept[row] = described not in seen
            seen.add(described)
        return np.flatnonzero(kept)
