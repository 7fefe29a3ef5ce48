"""Chooses a batch that is good and varied: greedily by score plus the share of knob
values the batch has not shown yet."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.model import Vector
from tuner.spaces.core.space import Points


def choose(points: Points, scores: Vector, *, count: int, weight: float) -> NDArray[np.int64]:
    """Indices of up to `count` rows in the order chosen.

    A row's value is its score in standard deviations of the scores given, plus `weight`
    times the share of its columns whose value no row chosen before has. So `weight`
    says how many deviations an entirely new point is worth, whatever the model's scale.
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
            shown = int(points[best, column])
            if shown not in values:
                values.add(shown)
                value[points[:, column] == shown] -= weight * share
        value[best] = -np.inf
    return chosen
