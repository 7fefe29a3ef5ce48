"""Hash tables of classes, by signed random projections of their weights.

A sample whose hidden vector has the code of a class in some table computes that class: the
smaller the angle between vector and weights, the likelier it is (SimHash, Charikar 2002).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LOOKED_AT = 3  # classes in the tables for each that is computed


class HashTables:
    """For each table the classes in the order of their codes."""

    def __init__(self, *, classes: int, codes: int, active: int, seed: int) -> None:
        """`codes` are different in a table; of each sample `active` classes are computed."""
        self._classes, self._codes, self._active = classes, codes, active
        self._rng = np.random.default_rng(seed)
        self._everyone = self._rng.permutation(classes).astype(np.int32)

    def fill(self, codes: NDArray[np.int32]) -> None:
        """Puts each class where its codes, (classes, tables), say."""
        self._order = np.argsort(codes, 0, kind="stable").astype(np.int32)
        counts = [np.bincount(column, minlength=self._codes) for column in codes.T]
        self._starts = np.concatenate(
            [np.zeros((codes.shape[1], 1), np.int64), np.cumsum(counts, 1)], 1
        )

    def active(self, labels: NDArray[np.int32], codes: NDArray[np.int32]) -> NDArray[np.int32]:
        """Different classes of each sample, (samples, active): its labels, then those that
        share most codes with it, then any. `codes` are those of the samples."""
        tables = np.arange(codes.shape[1])
        share = -(-LOOKED_AT * self._active // len(tables))
        first, end = self._starts[tables, codes], self._starts[tables, codes + 1]
        length = np.maximum(end - first, 1)[..., None]
        place = self._rng.integers(0, length) + np.arange(share) % length
        place = np.minimum(first[..., None] + place % length, self._classes - 1)
        alike = self._order[place, tables[:, None]].reshape(len(codes), -1)
        start = self._rng.integers(0, self._classes, (len(codes), 1))
        rest = self._everyone[(start + np.arange(self._active)) % self._classes]
        return most_named(labels, alike, rest, self._active)


def most_named(
    first: NDArray[np.int32], often: NDArray[np.int32], last: NDArray[np.int32], count: int
) -> NDArray[np.int32]:
    """Of each row `count` different numbers: those in `first`, then those that are most
    often in `often`, then those in `last`, which has so many."""
    numbers = np.concatenate([first, often, last], 1)
    named = np.zeros(numbers.shape, np.int32)
    named[:, : first.shape[1]] = often.shape[1]
    named[:, first.shape[1] : -last.shape[1]] = 1
    order = np.argsort(numbers, 1, kind="stable")
    numbers, named = (np.take_along_axis(each, order, 1) for each in (numbers, named))
    is_new = np.ones(numbers.shape, np.bool_)
    is_new[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    starts = np.flatnonzero(is_new)
    times = np.full(numbers.size, -1, np.int32)
    times[starts] = np.add.reduceat(named.ravel(), starts)
    chosen = np.argpartition(-times.reshape(numbers.shape), count - 1, 1)[:, :count]
    return np.take_along_axis(numbers, chosen, 1)
