"""The range of a tensor that its 8-bit integers cover, of what was seen of it.

`max` takes all that was seen. `percentile` cuts both ends off, half of what is left out at
each. `entropy` cuts where the distribution of the integers is nearest to that of the
numbers, by the divergence of Kullback and Leibler (Migacz, 8-bit inference with TensorRT,
GTC 2017).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

import numpy as np

from tuner.models.arrays import Array

Method: TypeAlias = Literal["max", "percentile", "entropy"]
METHODS: tuple[Method, ...] = get_args(Method)
Counts: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]

LEVELS = 256
_BINS = 2048  # from zero to the greatest number of the first array
_MOST_BINS = 8 * _BINS  # later arrays may be wider; then two bins become one
_LEAST_WIDTH = float(np.finfo(np.float32).tiny)  # of a bin
_LEAST_BINS = 128  # on a side, that entropy may leave
_CANDIDATES = 64  # ends that entropy compares


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """What is covered, ends included. Zero always is."""

    low: float
    high: float

    def scale_and_zero(self) -> tuple[np.float32, np.uint8]:
        """Of `real = scale * (integer - zero)` with integers of 0 to 255."""
        low, high = min(self.low, 0.0), max(self.high, 0.0)
        scale = np.float32((high - low) / (LEVELS - 1))
        if not np.isfinite(scale) or scale < np.finfo(np.float32).tiny:
            return np.float32(1), np.uint8(0)
        return scale, np.uint8(np.clip(np.rint(-low / float(scale)), 0, LEVELS - 1))


class Histogram:
    """How often numbers of a tensor were seen, in bins of one width that begin at
    multiples of it."""

    def __init__(self) -> None:
        self.low, self.high = 0.0, 0.0
        self._width = 0.0  # 0 until something else than zeros was seen
        self._first = 0  # the number of the lowest bin
        self._counts: Counts = np.zeros(0, np.int64)
        self._zeros = 0  # numbers that are 0, which are in no bin

    def add(self, array: Array) -> None:
        """Counts the numbers of an array. All must be finite."""
        every = np.asarray(array, np.float64).reshape(-1)
        numbers = every[every != 0]
        self._zeros += every.size - numbers.size
        if not numbers.size:
            return
        low, high = float(numbers.min()), float(numbers.max())
        self.low, self.high = min(self.low, low), max(self.high, high)
        if self._width == 0:
            self._width = max(-low / _BINS, high / _BINS, _LEAST_WIDTH)
        while (max(-self.low, self.high) / self._width) > _MOST_BINS:
            self._halve()
        places = np.floor(numbers / self._width).astype(np.int64)
        self._cover(int(places.min()), int(places.max()))
        self._counts += np.bincount(places - self._first, minlength=self._counts.size)

    def range(self, method: Method, percentile: float) -> Range:
        """The range to cover. `percentile` is the share that is kept, in percent."""
        whole = Range(low=self.low, high=self.high)
        if method == "max" or self._width == 0:
            return whole
        if method == "percentile":
            counts = self._counts.copy()
            counts[-self._first] += self._zeros
            return self._within(whole, *_central(counts, percentile / 100))
        # Zeros are integers whatever the range, and as many as a ReLU makes would decide.
        return self._within(whole, *_most_alike(self._counts, self._first))

    def _halve(self) -> None:
        """Makes bins twice as wide."""
        if self._counts.size:
            padded = np.concatenate([np.zeros(self._first % 2, np.int64), self._counts])
            padded = np.concatenate([padded, np.zeros(padded.size % 2, np.int64)])
            self._counts, self._first = padded.reshape(-1, 2).sum(1), self._first // 2
        self._width *= 2

    def _cover(self, low: int, high: int) -> None:
        """Adds bins so that there are those with the numbers `low` to `high`, and 0."""
        first = min(self._first, low, 0)
        last = max(self._first + self._counts.size - 1, high, 0)
        counts = np.zeros(last - first + 1, np.int64)
        begin = self._first - first
        counts[begin : begin + self._counts.size] = self._counts
        self._counts, self._first = counts, first

    def _within(self, whole: Range, first: int, last: int) -> Range:
        """The range of the bins at some places, at most all that was seen."""
        low = (self._first + first) * self._width
        high = (self._first + last + 1) * self._width
        return Range(low=min(max(low, whole.low), 0.0), high=max(min(high, whole.high), 0.0))


def _central(counts: Counts, share: float) -> tuple[int, int]:
    """The first and last bin without the lowest and highest, which hold half of what is not
    in the share each."""
    below = np.cumsum(counts)
    cut = (1 - share) / 2 * int(below[-1])
    first = int(np.searchsorted(below, cut, side="right"))
    last = int(np.searchsorted(below, below[-1] - cut, side="left"))
    return first, max(first, last)


def _most_alike(counts: Counts, first: int) -> tuple[int, int]:
    """The first and last bin of those within one distance of zero whose integers are most
    like all of the numbers."""
    zero, end = -first, counts.size
    farthest = max(zero, end - zero)
    step = max((farthest - _LEAST_BINS) // _CANDIDATES, 1)
    best, least = (0, end - 1), np.inf
    for distance in (*range(min(_LEAST_BINS, farthest), farthest, step), farthest):
        begin, behind = max(zero - distance, 0), min(zero + distance, end)
        divergence = _divergence(counts, begin, behind)
        if divergence < least:
            best, least = (begin, behind - 1), divergence
    return best


def _divergence(counts: Counts, begin: int, behind: int) -> float:
    """Of the numbers, those outside at the ends, from integers that cover some bins."""
    inside = counts[begin:behind].astype(np.float64)
    if not inside.any():
        return float("inf")
    numbers = inside.copy()
    numbers[0] += counts[:begin].sum()
    numbers[-1] += counts[behind:].sum()
    levels = min(LEVELS - 1, inside.size)
    level = np.arange(inside.size) * levels // inside.size
    filled = inside > 0
    sums = np.bincount(level, inside, levels)
    bins = np.bincount(level, filled, levels)
    integers = np.where(filled, (sums / np.maximum(bins, 1))[level], 0.0)
    numbers, integers = numbers / numbers.sum(), integers / integers.sum()
    present = numbers > 0
    # Of a bin at an end that has only what was cut off: as if nearly nothing was there.
    nearest = np.maximum(integers[present], 1e-4 / inside.size)
    return float((numbers[present] * np.log(numbers[present] / nearest)).sum())
