"""A bounded pool of the best untried points that an explorer visited, each once.

An explorer's result is this pool, not the points where its chains ended. Configs with
equal features have equal scores. Only a few of each score are kept, because those that
resemble the best trials would leave no room for others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from tuner.cost_model.model import Vector
from tuner.search.domain import Domain, Keys, is_in
from tuner.spaces.core.space import Points

ALIKE = 8  # points of one score that are kept; their features may differ


class Collector(Protocol):
    """Takes the points that an explorer visits."""

    def add(self, points: Points, scores: Vector) -> None:
        """Offers points, shape (n, knobs), with their scores, shape (n,)."""
        ...


class Pools:
    """A collector for several explorations at once, whose points come one after the other."""

    def __init__(self, pools: Sequence[Collector]) -> None:
        self._pools = pools

    def add(self, points: Points, scores: Vector) -> None:
        """Offers each pool its part; all are of one length."""
        count = len(self._pools)
        parts = zip(np.split(points, count), np.split(scores, count), strict=True)
        for pool, (own, standing) in zip(self._pools, parts, strict=True):
            pool.add(own, standing)


class Pool:
    """The best points so far."""

    def __init__(
        self, domain: Domain, *, capacity: int, tried: Keys, measured: Vector | None = None
    ) -> None:
        """`tried` has sorted keys of points that are never kept.

        `measured` has the scores of tried points. Of the points with one of these scores
        only one is kept.
        """
        self._domain, self._capacity, self._tried = domain, capacity, tried
        self._measured = np.zeros(0, np.float32) if measured is None else measured
        self._points = np.zeros((0, len(domain.space.knobs)), np.int32)
        self._scores: Vector = np.zeros(0, np.float32)
        self._fresh: list[tuple[Points, Vector]] = []
        self._waiting = 0
        self._floor = -np.inf
        self.seen = 0  # candidates offered, repeats counted

    def add(self, points: Points, scores: Vector) -> None:
        """Offers points, shape (n, knobs), with their scores, shape (n,)."""
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
        """Merges the points offered since the last time and drops all but the best."""
        points = np.concatenate([self._points, *(points for points, _ in self._fresh)])
        scores = np.concatenate([self._scores, *(scores for _, scores in self._fresh)])
        self._fresh, self._waiting = [], 0
        keys, first = np.unique(self._domain.keys(points), return_index=True)
        first = first[~is_in(keys, self._tried)]
        order = first[np.argsort(-scores[first], kind="stable")]
        order = order[self._few_alike(scores[order])][: self._capacity]
        self._points, self._scores = points[order], scores[order]
        if len(order) == self._capacity:
            self._floor = float(self._scores[-1])

    def _few_alike(self, scores: Vector) -> NDArray[np.bool_]:
        """Which of the scores, in descending order, to keep; shape (n,)."""
        places = np.arange(len(scores))
        begins = (
            np.concatenate([[True], scores[1:] != scores[:-1]])
            if len(scores)
            else np.zeros(0, np.bool_)
        )
        place = places - np.maximum.accumulate(np.where(begins, places, 0))
        kept: NDArray[np.bool_] = place < np.where(np.isin(scores, self._measured), 1, ALIKE)
        return kept
