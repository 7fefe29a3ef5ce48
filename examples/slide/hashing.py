"""Hash tables of classes, and the classes of each sample that they and draws choose.

A sample whose hidden vector has the code of a class in some table computes that class: the
smaller the angle between vector and weights, the likelier it is (SimHash, Charikar 2002).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from tuner.runtime.loader import aligned_empty

NONE = -1  # in place of a class
HALF_WORD = 16  # bits of the numbers that NumPy sorts by their digits


class HashTables:
    """For each table and code so many classes as a bucket has room for."""

    def __init__(self, *, classes: int, tables: int, codes: int, room: int, seed: int) -> None:
        """`codes` are different in a table, and a bucket takes `room` classes."""
        self._buckets = np.full((tables, codes, room), NONE, np.int32)
        # Which classes a full bucket keeps is chance, not their number.
        self._order = np.random.default_rng(seed).permutation(classes).astype(np.int32)

    def fill(self, codes: NDArray[np.int32]) -> None:
        """Puts each class where its codes, (classes, tables), say."""
        self._buckets.fill(NONE)
        count, room = self._buckets.shape[1:]
        for bucket, column in zip(self._buckets, codes[self._order].T, strict=True):
            order = stable_order(column)
            code = column[order]
            starts = np.searchsorted(code, np.arange(count))
            rank = np.arange(len(code)) - starts[code]
            kept = rank < room
            bucket[code[kept], rank[kept]] = self._order[order[kept]]

    def alike(self, codes: NDArray[np.int32]) -> NDArray[np.int32]:
        """The classes in the buckets of each sample, (samples, tables * room), and `NONE`s;
        `codes` are those of the samples, (samples, tables)."""
        buckets = self._buckets[np.arange(codes.shape[1]), codes]
        return buckets.reshape(len(codes), -1)


def stable_order(numbers: NDArray[np.int32]) -> NDArray[np.int64]:
    """The order of numbers from 0 on, equal ones as they come.

    NumPy sorts 16 bits by their digits, in a time in proportion to their count.
    """
    order = np.argsort(numbers.astype(np.uint16), kind="stable")
    high = numbers >> HALF_WORD
    if high.any():
        order = order[np.argsort(high[order].astype(np.uint16), kind="stable")]
    return order


def most_named(first: NDArray[np.int32], often: NDArray[np.int32], count: int) -> NDArray[np.int32]:
    """Of each row `count` different numbers, or fewer and then `NONE`s: those in `first`,
    then those that are most often in `often`."""
    # Twice the number, and 1 more of those in `often`: they come behind an equal one of `first`.
    keys = np.sort(np.concatenate([2 * first, 2 * often + 1], 1), 1)
    numbers = keys >> 1
    is_new = np.ones(keys.shape, np.bool_)
    is_new[:, 1:] = numbers[:, 1:] != numbers[:, :-1]
    starts = np.flatnonzero(is_new)
    times = np.diff(starts, append=keys.size)
    keys, numbers = keys.ravel()[starts], numbers.ravel()[starts]
    times[keys % 2 == 0] = often.shape[1] + 1
    # How often above the number, so that a partition of integers finds the most named.
    ranked = np.full(is_new.size, NONE, np.int64)
    ranked[starts] = np.where(numbers == NONE, NONE, times << 32 | numbers)
    width = first.shape[1] + often.shape[1]
    chosen = np.partition(ranked.reshape(-1, width), width - count, 1)[:, -count:]
    return np.where(chosen == NONE, NONE, chosen & 0xFFFFFFFF).astype(np.int32)


@dataclass(frozen=True, kw_only=True)
class Active:
    """The classes that samples compute, (samples, active), all in range."""

    classes: NDArray[np.int32]
    offsets: NDArray[np.float32]  # to add to their logits; -inf of those that count for nothing


class Draws:
    """Classes drawn for neighbouring samples of a batch, to stand for those that they did not
    choose.

    A class is drawn the likelier the more often it is a label; half of the draws may be any
    class. The logarithm of the chance is taken off its logit, so that the sum over the drawn
    classes is that over all, in expectation (sampled softmax, Jean et al. 2015). Where all
    samples have the same ones, their errors do not cancel, and learning is slow.
    """

    def __init__(
        self, counts: NDArray[np.int64], *, samples: int, count: int, groups: int, seed: int
    ) -> None:
        """`counts` says how often each class is a label; `count` are drawn for each of the
        groups of a batch, which has so many samples."""
        shares = 0.5 * counts / counts.sum() + 0.5 / len(counts)
        self._limits, self._shape = np.cumsum(shares), (groups, count)
        chance = -np.expm1(count * np.log1p(-shares))
        self._offsets = -np.log(chance).astype(np.float32)
        self._rng = np.random.default_rng(seed)
        self._group = np.arange(samples) * groups // samples
        self._is_own = np.zeros((samples, len(counts) + 1), np.bool_)  # `NONE` is the last column

    def beside(self, own: NDArray[np.int32]) -> Active:
        """The classes of each sample, (samples, own) or `NONE`, and those drawn beside them."""
        # In order, so that each search begins where the one before it ended.
        numbers = np.sort(self._rng.random(self._shape), 1) * self._limits[-1]
        drawn = np.searchsorted(self._limits, numbers, side="right").astype(np.int32)
        drawn = np.minimum(drawn, len(self._limits) - 1)
        weights = self._offsets[drawn]
        weights[:, 1:][drawn[:, 1:] == drawn[:, :-1]] = -np.inf
        drawn, weights = drawn[self._group], weights[self._group]
        samples, width = own.shape
        classes = aligned_empty((samples, width + drawn.shape[1]), "int32")
        offsets = aligned_empty(classes.shape, "float32")
        classes[:, :width] = np.where(own == NONE, drawn[:, :1], own)
        classes[:, width:] = drawn
        offsets[:, :width] = np.where(own == NONE, -np.inf, 0)
        offsets[:, width:] = np.where(self._are_own(own, drawn), -np.inf, weights)
        return Active(classes=classes, offsets=offsets)

    def _are_own(self, own: NDArray[np.int32], drawn: NDArray[np.int32]) -> NDArray[np.bool_]:
        """Which of the drawn classes a sample chose itself: they must count once."""
        samples = np.arange(len(own))[:, None]
        self._is_own[samples, own] = True
        are_own = self._is_own[samples, drawn]
        self._is_own[samples, own] = False
        return are_own
