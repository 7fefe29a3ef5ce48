"""Axes of a GPU's nest: a spatial one as blocks of threads of registers of lanes, a
reduction as blocks of steps.

A block that does not divide its extent is moved back to end at the extent, as tiles on
a CPU are, so that no store is predicated. A reduction cannot visit a point twice: its
last block runs over, and what lies beyond counts as the reduction's identity. A square
that does not divide its extent is cut short: what would lie beyond is the last element
once more.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.spaces.program.loops import Level
from tuner.spaces.program.tiles import add, at_most, constant, times
from tuner.workload.expression import Axis, Binary, Const, Scalar, Var


@dataclass(frozen=True, slots=True, kw_only=True)
class GridAxis:
    """Neighbouring threads take neighbouring vectors; a thread's further vectors lie a
    whole row of threads apart."""

    axis: Axis
    threads: int = 1
    register: int = 1  # vectors of one thread
    lanes: int = 1  # elements of a vector; threads * register * lanes is at most the extent

    @property
    def block(self) -> int:
        """Elements of a thread block."""
        return self.threads * self.register * self.lanes

    @property
    def outer(self) -> Axis:
        return Level.BLOCK.axis(self.axis.name, -(-self.axis.extent // self.block))

    @property
    def thread(self) -> Axis:
        return Level.THREAD.axis(self.axis.name, self.threads)

    @property
    def vectors(self) -> Axis:
        return Level.REGISTER.axis(self.axis.name, self.register)

    @property
    def lane(self) -> Axis:
        return Level.VECTOR_LANE.axis(self.axis.name, self.lanes)

    @property
    def base(self) -> Scalar:
        """The first element of the current block."""
        first = times(Var(self.outer.name), self.block)
        return (
            at_most(first, self.axis.extent - self.block)
            if self.axis.extent % self.block
            else first
        )

    @property
    def within(self) -> Scalar:
        """The element within the current block."""
        row: Scalar = Var(self.thread.name) if self.threads > 1 else constant(0)
        if self.register > 1:
            row = add(times(Var(self.vectors.name), self.threads), row)
        row = times(row, self.lanes) if row != constant(0) else row
        return add(row, Var(self.lane.name)) if self.lanes > 1 else row

    @property
    def index(self) -> Scalar:
        return add(self.base, self.within)

    def starts_at_multiples_of(self, width: int) -> bool:
        """Whether every block begins at a multiple of `width` elements."""
        return self.block % width == 0 and (
            self.axis.extent % self.block == 0 or (self.axis.extent - self.block) % width == 0
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class SquareAxis(GridAxis):
    """Each thread takes a whole square, of `lanes` elements; `register` is 1. The
    extent may be shorter than the last square."""

    @property
    def squares(self) -> int:
        return -(-self.axis.extent // self.lanes)

    @property
    def outer(self) -> Axis:
        return Level.BLOCK.axis(self.axis.name, -(-self.squares // self.threads))

    @property
    def number(self) -> Scalar:
        """Which square it is."""
        if self.squares == 1:
            return constant(0)
        first = times(Var(self.outer.name), self.threads)
        first = (
            at_most(first, self.squares - self.threads) if self.squares % self.threads else first
        )
        return add(first, Var(self.thread.name)) if self.threads > 1 else first

    @property
    def place(self) -> Scalar:
        """The element's within the square."""
        here = Var(self.lane.name)
        if self.axis.extent % self.lanes == 0:
            return here
        last = constant(self.axis.extent - 1)
        return Binary("min", here, Binary("sub", last, times(self.number, self.lanes)))

    @property
    def index(self) -> Scalar:
        return self.place if self.squares == 1 else add(times(self.number, self.lanes), self.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthAxis:
    """A reduction axis as blocks of steps of unrolled iterations; the last block may
    run over the extent."""

    axis: Axis
    depth: int  # iterations of a block, at most the extent
    unroll: int = 1  # divides `depth`

    @property
    def outer(self) -> Axis:
        return Level.BLOCK.axis(self.axis.name, -(-self.axis.extent // self.depth))

    @property
    def inner(self) -> Axis:
        return Level.TILE.axis(self.axis.name, self.depth // self.unroll)

    @property
    def unrolled(self) -> Axis:
        return Level.REGISTER.axis(self.axis.name, self.unroll)

    @property
    def base(self) -> Scalar:
        return times(Var(self.outer.name), self.depth)

    @property
    def within(self) -> Scalar:
        step = times(Var(self.inner.name), self.unroll)
        return add(step, Var(self.unrolled.name)) if self.unroll > 1 else step

    @property
    def index(self) -> Scalar:
        return add(self.base, self.within)

    @property
    def counts(self) -> Scalar | None:
        """The condition under which the iteration is one of the axis, None where all are."""
        if self.axis.extent % self.depth == 0:
            return None
        return Binary("lt", self.index, Const(self.axis.extent, "int64"))

    @property
    def axes(self) -> tuple[Axis, ...]:
        return (self.outer, self.inner, self.unrolled)
