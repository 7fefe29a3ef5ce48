"""The best points ever seen while exploring: bounded, each point once, without those already tried and twins of others.

What an explorer returns is this pool, not where its chains happened to end.
"""

from __future__ import annotations

import numpy as np

from tuner.cost_model.model import Vector
from tuner.search.domain import Domain, Keys, is_in
from tuner.search.twins import Twins
from tuner.spaces.space import Points


class Pool:
    def __init__(self, domain: Domain, *, capacity: int, tried: Keys, twins: Twins | None = None) -> None:
        """`tried` is sorted; its points never enter, nor do twins of any where `twins` tells them."""
        self._domain, self._capacity, self._tried, self._twins = domain, capacity, tried, twins
        self._points = np.zeros((0, len(domain.space.knobs)), np.int32)
        self._scores: Vector = np.zeros(0, np.float32)
        self._fresh: list[tuple[Points, Vector]] = []
        self._waiting = 0
        self._floor = -np.inf
        self.seen = 0  # candidates offered, repeats counted

    def add(self, points: Points, scores: Vector) -> None:
        self.seen += len(points)
        good = scores > self._floor
        self._fresh.append((points[good], scores[good]))
        self._waiting += int(good.sum())
        if self._waiting > 4 * self._capacity:
            self._compact()

    def best(self) -> tuple[Points, Vector]:
        """Points (k, knobs) and scores (k,), best first, k at most the capacity."""
        self._compact()
        return self._points, self._scores

    def _compact(self) -> None:
        points = np.concatenate([self._points, *(points for points, _ in self._fresh)])
        scores = np.concatenate([self._scores, *(scores for _, scores in self._fresh)])
        self._fresh, self._waiting = [], 0
        keys, first = np.unique(self._domain.keys(points), return_index=True)
        first = first[~is_in(keys, self._tried)]
        order = first[np.argsort(-scores[first], kind="stable")]
        if self._twins is not None:
            order = order[self._twins.without(points[order], scores[order])]
        order = order[: self._capacity]
        self._points, self._scores = points[order], scores[order]
        if len(order) == self._capacity:
            self._floor = float(self._scores[-1])
