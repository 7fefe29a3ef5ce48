"""A space: all sketches for a workload on a target, with their knobs.

Knobs have finite values, and points of the space are integer vectors.

A sketch's knobs are independent: constraints that tie values together (registers,
divisibility) are built into the values of one knob, a tuple of numbers. So a space's
size is an exact sum of products, each point is reachable, and sampling never rejects.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from tuner.errors import UsageError
from tuner.spaces.core.roles import KnobRole

Value = int | str | tuple[int, ...]
Config = Mapping[str, Value]  # knob name -> value, JSON-able; every knob of the space is present
# shape (n, len(space.knobs)): the index of each knob's value; column 0 is the sketch
Points = NDArray[np.int32]


@dataclass(frozen=True, slots=True, kw_only=True)
class Knob:
    """One column of a space. Combinations that share a knob share its name and values."""

    name: str  # "<group>.<sketch>.<role's word><subject>"
    values: tuple[Value, ...]  # ordered so that adjacent values are similar

    @property
    def role(self) -> KnobRole:
        """What the knob decides."""
        return KnobRole.of(self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Combination:
    """One sketch for each group of a workload, with the knobs of all of them.

    Its name is a value of the knob `sketch`.
    """

    name: str
    knobs: tuple[Knob, ...]

    @property
    def size(self) -> int:
        return prod(len(knob.values) for knob in self.knobs)


@dataclass(frozen=True)
class Space:
    """Points of sketch s vary only the knobs of s; the others stay at index 0, so that
    no two points mean the same."""

    combinations: tuple[Combination, ...]

    @cached_property
    def knobs(self) -> tuple[Knob, ...]:
        chosen = Knob(name="sketch", values=tuple(sketch.name for sketch in self.combinations))
        return (
            chosen,
            *dict.fromkeys(knob for sketch in self.combinations for knob in sketch.knobs),
        )

    @cached_property
    def size(self) -> int:
        return sum(sketch.size for sketch in self.combinations)

    @cached_property
    def columns(self) -> tuple[tuple[int, ...], ...]:
        """For each sketch the columns of its knobs, in its order."""
        column = {knob.name: index for index, knob in enumerate(self.knobs)}
        return tuple(
            tuple(column[knob.name] for knob in sketch.knobs) for sketch in self.combinations
        )

    @cached_property
    def cardinalities(self) -> NDArray[np.int32]:
        """Number of values of each column, shape (len(knobs),)."""
        return np.array([len(knob.values) for knob in self.knobs], np.int32)

    @cached_property
    def active(self) -> NDArray[np.bool_]:
        """Which columns a sketch uses, shape (len(sketches), len(knobs)); column 0
        counts as used where there is a choice."""
        mask = np.zeros((len(self.combinations), len(self.knobs)), np.bool_)
        mask[:, 0] = len(self.combinations) > 1
        for row, columns in enumerate(self.columns):
            mask[row, list(columns)] = True
        return mask

    def sample(self, rng: np.random.Generator, count: int) -> Points:
        """`count` points (with repeats): the sketch uniformly, then each of its knobs uniformly."""
        sketch = rng.integers(len(self.combinations), size=count)
        points = (rng.random((count, len(self.knobs))) * self.cardinalities).astype(np.int32)
        points *= self.active[sketch]
        points[:, 0] = sketch
        return points

    def canonical(self, points: Points) -> Points:
        """The same points with the knobs their sketch does not use at index 0."""
        sketch = points[:, 0].copy()
        kept = (points * self.active[sketch]).astype(np.int32)
        kept[:, 0] = sketch
        return kept

    def points_of(self, part: Space, points: Points) -> Points:
        """Points of a part of this space, which has fewer values of its knobs, as
        points of this one. Raises UsageError where this one lacks a knob or a value of
        the part."""
        points_here = np.zeros((len(points), len(self.knobs)), np.int32)
        columns = {knob.name: column for column, knob in enumerate(part.knobs)}
        if not set(columns) <= {knob.name for knob in self.knobs}:
            raise UsageError("the space has lost a knob")
        for column, knob in enumerate(self.knobs):
            if knob.name not in columns:
                continue
            values = part.knobs[columns[knob.name]].values
            missing = set(values) - set(knob.values)
            if missing:
                raise UsageError(
                    f"knob {knob.name!r} no longer takes {sorted(missing, key=str)[0]!r}"
                )
            index = np.array([knob.values.index(value) for value in values], np.int32)
            points_here[:, column] = index[points[:, columns[knob.name]]]
        return self.canonical(points_here)

    def rank(self, point: NDArray[np.int32]) -> int:
        """The point's number, 0 <= rank < size; sketches in order, then mixed radix
        with the last knob fastest."""
        row = int(point[0])
        number = 0
        for column, knob in zip(self.columns[row], self.combinations[row].knobs, strict=True):
            number = number * len(knob.values) + int(point[column])
        return sum(earlier.size for earlier in self.combinations[:row]) + number

    def unrank(self, rank: int) -> NDArray[np.int32]:
        if not 0 <= rank < self.size:
            raise UsageError(
                f"point {rank} is outside the space; its points are numbered 0 to {self.size - 1}"
            )
        row = 0
        while rank >= self.combinations[row].size:
            rank -= self.combinations[row].size
            row += 1
        point = np.zeros(len(self.knobs), np.int32)
        point[0] = row
        for column, knob in reversed(
            list(zip(self.columns[row], self.combinations[row].knobs, strict=True))
        ):
            rank, point[column] = divmod(rank, len(knob.values))
        return point

    def __iter__(self) -> Iterator[NDArray[np.int32]]:
        """Every point once, by rank."""
        return (self.unrank(rank) for rank in range(self.size))

    def config(self, point: NDArray[np.int32]) -> dict[str, Value]:
        return {
            knob.name: knob.values[int(index)]
            for knob, index in zip(self.knobs, point, strict=True)
        }

    def point(self, config: Config) -> NDArray[np.int32]:
        """The point of a config, which may come from JSON (lists for tuples) and may
        leave out knobs its sketch does not use."""
        point = np.zeros(len(self.knobs), np.int32)
        unknown = set(config) - {knob.name for knob in self.knobs}
        if unknown:
            raise UsageError(
                f"unknown knob {sorted(unknown)[0]!r}; this space has "
                f"{', '.join(knob.name for knob in self.knobs)}"
            )
        for column, knob in enumerate(self.knobs):
            if knob.name not in config:
                continue
            raw = config[knob.name]
            value = tuple(raw) if isinstance(raw, list) else raw
            if value not in knob.values:
                raise UsageError(
                    f"knob {knob.name!r} has no value {value!r}; it takes {list(knob.values)}"
                )
            point[column] = knob.values.index(value)
        canonical: NDArray[np.int32] = self.canonical(point[None, :])[0]
        return canonical
