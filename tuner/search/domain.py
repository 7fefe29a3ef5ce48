"""The points that a search may propose, with keys, samples and neighbours.

They are all points of a space, or those of a recorded table. Everything here works on
matrices of points, because annealing takes hundreds of thousands of neighbours a plan.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tuner.errors import UsageError
from tuner.spaces.core.space import Points, Space

Keys = NDArray[np.uint64]  # shape (n,), one number for each point, equal exactly for equal points

_WORD = 1 << 64
# Share of moves that go to an adjacent value, to climb; the others go to any value, to
# leave a local optimum.
_SMALL_STEP = 0.6


class Domain:
    """A space, or the points `only` of it, each once."""

    def __init__(self, space: Space, only: Points | None = None) -> None:
        self.space = space
        self._weights, self._offsets = _linear_key(space)
        self._only: Points | None = None
        if only is not None:
            rows = np.ascontiguousarray(only, np.int32)
            if rows.ndim != 2 or rows.shape[1] != len(space.knobs):
                raise UsageError(
                    f"points of shape {rows.shape} do not fit a space of {len(space.knobs)} knobs"
                )
            keys = self.keys(rows)
            order = np.argsort(keys, kind="stable")
            self._only, self._only_keys = rows[order], keys[order]
            if len(np.unique(keys)) != len(keys):
                raise UsageError(
                    f"the table names some of its {len(keys)} points twice; each config may "
                    f"stand in it once"
                )

    @property
    def size(self) -> int:
        """The number of points."""
        return self.space.size if self._only is None else len(self._only)

    def keys(self, points: Points) -> Keys:
        """Keys of canonical points, shape (n,).

        They are the ranks in a space of less than 2**64 points, and hashes in a larger one.
        """
        sketch = points[:, 0]
        weights = self._weights[sketch] if len(self._weights) > 1 else self._weights
        tail: Keys = (points[:, 1:].astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
        return tail + self._offsets[sketch]

    def points(self) -> Points:
        """All points by rank, for small domains: 4 bytes for each knob of each point."""
        if self._only is not None:
            return self._only.copy()
        parts = []
        for row, sketch in enumerate(self.space.combinations):
            part = np.zeros((sketch.size, len(self.space.knobs)), np.int32)
            part[:, 0] = row
            columns = list(self.space.columns[row])
            shape = tuple(len(knob.values) for knob in sketch.knobs)
            if shape:
                part[:, columns] = np.stack(np.unravel_index(np.arange(sketch.size), shape), axis=1)
            parts.append(part)
        return np.concatenate(parts)

    def unrank(self, rank: int) -> NDArray[np.int32]:
        """The point number `rank` of the domain, 0 <= rank < size."""
        return self.space.unrank(rank) if self._only is None else self._only[rank]

    def sample(self, rng: np.random.Generator, count: int) -> Points:
        """`count` random points, shape (count, knobs); repeats are possible."""
        if self._only is not None:
            return self._only[rng.integers(len(self._only), size=count)]
        return self.space.sample(rng, count)

    def contains(self, points: Points) -> NDArray[np.bool_]:
        """Whether each row belongs to the domain, shape (n,)."""
        if self._only is None:
            return np.ones(len(points), np.bool_)
        return is_in(self.keys(points), self._only_keys)

    def neighbours(
        self, rng: np.random.Generator, points: Points, *, sketch_change: float = 0.02
    ) -> Points:
        """One neighbour of each point, in the shape of `points`.

        One or two knobs are changed; with probability `sketch_change` the neighbour is a
        random point, which may have another sketch. A row whose neighbour would leave the
        domain stays as it is.
        """
        moved = points.copy()
        self._step(rng, moved, np.ones(len(points), np.bool_))
        self._step(rng, moved, rng.random(len(points)) < 0.4)
        if len(self.space.combinations) > 1:
            jump = rng.random(len(points)) < sketch_change
            moved[jump] = self.sample(rng, int(jump.sum()))
        if self._only is not None:
            outside = ~self.contains(moved)
            moved[outside] = points[outside]
        return moved

    def _step(self, rng: np.random.Generator, points: Points, which: NDArray[np.bool_]) -> None:
        """Changes one knob of the rows in the mask `which`, in place.

        Numbers are drawn for all rows, so that the sequence does not depend on the mask.
        """
        columns, counts = self._free
        sketch = points[:, 0]
        pick, near, sign, far = rng.random((4, len(points)))
        rows = np.flatnonzero(which & (counts[sketch] > 0))
        if not len(rows):
            return
        column = columns[sketch[rows], (pick[rows] * counts[sketch[rows]]).astype(np.int64)]
        size = self.space.cardinalities[column]
        now = points[rows, column]
        step = np.where(sign[rows] < 0.5, -1, 1)
        step = np.where((now + step < 0) | (now + step >= size), -step, step)
        other = (now + 1 + (far[rows] * (size - 1)).astype(np.int32)) % size
        points[rows, column] = np.where(near[rows] < _SMALL_STEP, now + step, other)

    @cached_property
    def _free(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """For each sketch its columns with more than one value, padded with 0, and their number."""
        free = self.space.active & (self.space.cardinalities > 1)
        free[:, 0] = False
        counts = free.sum(axis=1)
        columns = np.zeros((len(free), max(1, int(counts.max()))), np.int64)
        for row, mask in enumerate(free):
            columns[row, : counts[row]] = np.flatnonzero(mask)
        return columns, counts.astype(np.int64)


def is_in(keys: Keys, among: Keys) -> NDArray[np.bool_]:
    """Whether each of `keys` occurs in the sorted array `among`, shape (n,)."""
    if not len(among):
        return np.zeros(len(keys), np.bool_)
    occurs: NDArray[np.bool_] = (
        among[np.minimum(np.searchsorted(among, keys), len(among) - 1)] == keys
    )
    return occurs


def _linear_key(space: Space) -> tuple[Keys, Keys]:
    """Weights, shape (sketches, knobs - 1), and offsets, shape (sketches,), of the rank.

    The rank of a point is offset + indices·weights of its sketch. A column that a sketch
    does not use has weight 0 there. Where ranks do not fit 64 bits, weights are fixed
    random odd numbers, and two points collide with probability 2**-63.
    """
    count, width = len(space.combinations), len(space.knobs) - 1
    if space.size >= _WORD:
        rng = np.random.default_rng(0x7475)
        row = rng.integers(_WORD - 1, size=width, dtype=np.uint64) | np.uint64(1)
        return np.tile(row, (count, 1)), rng.integers(_WORD - 1, size=count, dtype=np.uint64)
    weights, offsets = np.zeros((count, width), np.uint64), np.zeros(count, np.uint64)
    before = 0
    for number, (sketch, columns) in enumerate(zip(space.combinations, space.columns, strict=True)):
        offsets[number] = before
        before += sketch.size
        weight = 1
        for column, knob in reversed(list(zip(columns, sketch.knobs, strict=True))):
            weights[number, column - 1] = weight
            weight *= len(knob.values)
    return weights, offsets
