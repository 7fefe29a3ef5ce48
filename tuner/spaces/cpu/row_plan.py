"""A config of the row sketch for CPUs, decoded, and the loops that it makes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tuner.spaces.program.program import MathFunctions
from tuner.spaces.program.tiles import TiledAxis
from tuner.workload.expression import Axis, Scalar, Var


@dataclass(frozen=True, slots=True, kw_only=True)
class RowPlan:
    """A config of the sketch, decoded."""

    rows: tuple[TiledAxis, ...]
    outer_order: tuple[str, ...]  # row axes, cache-block loops, outermost first
    inner_order: tuple[str, ...]  # row axes, tile loops within a cache block
    column: TiledAxis  # the column in tiles of vectors
    recomputed: frozenset[str]  # stages inlined into their readers instead of kept
    math_functions: MathFunctions
    # tiles of rows that what the first pass reads is fetched ahead of it, by the second
    # pass; 0 for not at all
    prefetch: int
    threads: int
    non_temporal: bool = False  # whether an output of whole rows is written past the caches
    group_values: bool = False  # whether what groups of terms share is computed before them

    def row(self, name: str) -> TiledAxis:
        return next(tiled for tiled in self.rows if tiled.axis.name == name)


@dataclass(frozen=True)
class RowLoops:
    """Loops over rows on each level under one plan, outermost first, and along a tile of
    the column."""

    plan: RowPlan

    @cached_property
    def outer(self) -> list[Axis]:
        """Over cache blocks of rows."""
        return [self.plan.row(name).outer for name in self.plan.outer_order]

    @cached_property
    def inner(self) -> list[Axis]:
        """Over tiles of rows in a cache block."""
        return [self.plan.row(name).inner for name in self.plan.inner_order]

    @cached_property
    def register(self) -> list[Axis]:
        """Over the rows of a tile, unrolled."""
        return [axis for tiled in self.plan.rows for axis in tiled.register]

    @cached_property
    def spatial(self) -> list[Axis]:
        """Over all rows."""
        return [*self.outer, *self.inner, *self.register]

    @cached_property
    def row(self) -> tuple[Scalar, ...]:
        """The row that the spatial loops are at, as buffers of the nest are indexed."""
        return tuple(Var(axis.name) for axis in self.spatial)

    @cached_property
    def indices(self) -> dict[str, Scalar]:
        """The index of each row axis."""
        return {tiled.axis.name: tiled.index for tiled in self.plan.rows}

    @property
    def vectors(self) -> Axis:
        """Over the vectors of a tile of the column, unrolled."""
        return self.plan.column.register[0]

    @property
    def lanes(self) -> Axis:
        """Over the lanes of a vector."""
        return self.plan.column.register[1]
