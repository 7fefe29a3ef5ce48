"""Chooses a batch that is good and varied: greedily by score and novelty."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.model import Vector
from tuner.spaces.core.space import Points


def choose(points: Points, scores: Vector, *, count: int, weight: float) -> NDArray[np.int64]:
    """Indices of up to `count` rows, in the order in which they are chosen.

    `points` has shape (n, knobs), `scores` shape (n,). A row's value is its score in
    standard deviations of all scores, plus `weight` times its novelty: the share of its
    columns with a value that no chosen row has. So an entirely new point is worth
    `weight` standard deviations, whatever the model's scale.
    """
    count = min(count, len(points))
    if not count:
        return np.zeros(0, np.int64)
    spread = float(scores.std())
    base = (scores - scores.mean()) / spread if spread > 0 else np.zeros(len(scores), np.float32)
    columns = np.flatnonzero((points != points[:1]).any(axis=0))
    novelty = np.ones(len(points), np.float64)
    share = 1.0 / max(1, len(columns))
    seen: list[set[int]] = [set() for _ in columns]
    value = base + weight * novelty
    chosen = np.zeros(count, np.int64)
    for position in range(count):
        best = int(np.argmax(value))
        chosen[position] = best
        for column, values in zip(columns, seen, strict=True):
            used = int(points[best, column])
            if used not in values:
                values.add(used)
                value[points[:, column] == used] -= weight * share
        value[best] = -np.inf
    return chosen
