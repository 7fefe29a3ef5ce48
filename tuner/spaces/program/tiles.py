"""Tiles of one axis: the iterators it is split into and the index they make, without
ever leaving the extent.

A tile that does not divide its extent is moved back so that it ends at the extent: the
last tiles overlap and write the same values twice. No predicate stands in an inner loop
and nothing is padded, so primes run as fast as powers of two.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain

from tuner.spaces.program.loops import Level
from tuner.workload.expression import Axis, Binary, Const, Scalar, Var


def add(a: Scalar, b: Scalar) -> Scalar:
    """The sum, without a term that is zero."""
    if isinstance(a, Const) and a.value == 0:
        return b
    if isinstance(b, Const) and b.value == 0:
        return a
    return Binary("add", a, b)


def times(a: Scalar, factor: int) -> Scalar:
    return a if factor == 1 else Binary("mul", a, Const(factor, "int64"))


def divided(a: Scalar, by: int) -> Scalar:
    return a if by == 1 else Binary("floordiv", a, constant(by))


def at_most(a: Scalar, limit: int) -> Scalar:
    return Binary("min", a, Const(limit, "int64"))


def constant(value: int) -> Const:
    return Const(value, "int64")


@dataclass(frozen=True, slots=True, kw_only=True)
class TiledAxis:
    """An axis as blocks of tiles of elements; a vectorised one as blocks of tiles of
    vectors of lanes."""

    axis: Axis
    tile: int = 1  # elements of a register tile, at most the extent
    block: int = 1  # register tiles of a cache block, at most the number of tiles
    lanes: int = 1  # of a vector; divides the tile

    @property
    def tiles(self) -> int:
        return -(-self.axis.extent // self.tile)

    @property
    def blocks(self) -> int:
        return -(-self.tiles // self.block)

    @property
    def outer(self) -> Axis:
        return Level.BLOCK.axis(self.axis.name, self.blocks)

    @property
    def inner(self) -> Axis:
        return Level.TILE.axis(self.axis.name, self.block)

    @property
    def register(self) -> tuple[Axis, ...]:
        """The unrolled iterators within a tile; the last one of a vectorised axis is its lanes."""
        if self.lanes == 1:
            return (Level.REGISTER.axis(self.axis.name, self.tile),)
        vectors = Level.REGISTER.axis(self.axis.name, self.tile // self.lanes)
        return (vectors, Level.VECTOR_LANE.axis(self.axis.name, self.lanes))

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (self.outer, self.inner, *self.register)

    @property
    def base(self) -> Scalar:
        """The first element of the current tile."""
        number = times(Var(self.outer.name), self.block)
        if self.tiles % self.block:
            number = at_most(number, self.tiles - self.block)
        number = add(number, Var(self.inner.name)) if self.block > 1 else number
        first = times(number, self.tile)
        return (
            at_most(first, self.axis.extent - self.tile) if self.axis.extent % self.tile else first
        )

    @property
    def offset(self) -> Scalar:
        """The element within the current tile."""
        if self.lanes == 1:
            return Var(Level.REGISTER.name_of(self.axis.name)) if self.tile > 1 else constant(0)
        vector = (
            times(Var(Level.REGISTER.name_of(self.axis.name)), self.lanes)
            if self.tile > self.lanes
            else constant(0)
        )
        return add(vector, Var(Level.VECTOR_LANE.name_of(self.axis.name)))

    @property
    def index(self) -> Scalar:
        return add(self.base, self.offset)


def fit_block(tiles: int, preferred: int) -> int:
    """A number of tiles near `preferred` for a cache block, such that at most a tenth of
    all work is overlap."""
    preferred = max(1, min(preferred, tiles))
    low, high = (1, tiles) if tiles <= 64 else (max(1, preferred // 2), min(tiles, preferred * 2))
    farthest = max(preferred - low, high - preferred)
    near = (
        block
        for apart in range(farthest + 1)
        for block in dict.fromkeys((preferred - apart, preferred + apart))
        if low <= block <= high
    )
    return next(
        (
            block
            for block in chain(near, (tiles,))
            if (-(-tiles // block) * block - tiles) * 10 <= tiles
        ),
        1,
    )
