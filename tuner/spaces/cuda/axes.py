"""Axes of a GPU's nest: a spatial one as blocks, threads, vectors and lanes; a reduction
as blocks of iterations.

A spatial block that does not divide its extent is moved back to end at the extent, as
tiles on a CPU are, so that no store needs a predicate. A reduction cannot visit a point
twice: its last block runs over, and what lies beyond counts as the reduction's identity.
A patch that does not divide its extent is cut short: what would lie beyond is the last
element once more.
"""

from __future__ import annotations

from dataclasses import dataclass

from tuner.spaces.program.loops import Level
from tuner.spaces.program.tiles import add, at_most, constant, times
from tuner.workload.expression import Axis, Binary, Const, Scalar, Var


@dataclass(frozen=True, slots=True, kw_only=True)
class GridAxis:
    """A spatial axis: adjacent threads take adjacent vectors, and a thread's further
    vectors lie a whole row of threads apart."""

    axis: Axis
    threads: int = 1
    vectors: int = 1  # of one thread
    lanes: int = 1  # elements of a vector; threads * vectors * lanes is at most the extent

    @property
    def block(self) -> int:
        """Elements of a thread block."""
        return self.threads * self.vectors * self.lanes

    @property
    def outer(self) -> Axis:
        """The loop over blocks."""
        return Level.BLOCK.axis(self.axis.name, -(-self.axis.extent // self.block))

    @property
    def thread(self) -> Axis:
        """The loop over threads."""
        return Level.THREAD.axis(self.axis.name, self.threads)

    @property
    def vector(self) -> Axis:
        """The loop over a thread's vectors."""
        return Level.REGISTER.axis(self.axis.name, self.vectors)

    @property
    def lane(self) -> Axis:
        """The loop over the elements of a vector."""
        return Level.VECTOR_LANE.axis(self.axis.name, self.lanes)

    @property
    def base(self) -> Scalar:
        """The first element of the current block."""
        return block_start(self.outer, self.block, self.axis.extent)

    @property
    def within(self) -> Scalar:
        """The element within the current block."""
        row: Scalar = Var(self.thread.name) if self.threads > 1 else constant(0)
        if self.vectors > 1:
            row = add(times(Var(self.vector.name), self.threads), row)
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


def block_start(loop: Axis, block: int, extent: int) -> Scalar:
    """The first element of the loop's current block, moved back where blocks do not
    divide the extent."""
    start = times(Var(loop.name), block)
    return at_most(start, extent - block) if extent % block else start


@dataclass(frozen=True, slots=True, kw_only=True)
class PatchAxis(GridAxis):
    """A spatial axis in patches of `lanes` elements, one for each thread; `vectors` is 1.

    The extent may be shorter than the last patch.
    """

    @property
    def patches(self) -> int:
        return -(-self.axis.extent // self.lanes)

    @property
    def outer(self) -> Axis:
        return Level.BLOCK.axis(self.axis.name, -(-self.patches // self.threads))

    @property
    def patch(self) -> Scalar:
        """The index of the current patch."""
        if self.patches == 1:
            return constant(0)
        start = block_start(self.outer, self.threads, self.patches)
        return add(start, Var(self.thread.name)) if self.threads > 1 else start

    @property
    def offset(self) -> Scalar:
        """The current element within its patch."""
        lane = Var(self.lane.name)
        if self.axis.extent % self.lanes == 0:
            return lane
        last = constant(self.axis.extent - 1)
        return Binary("min", lane, Binary("sub", last, times(self.patch, self.lanes)))

    @property
    def index(self) -> Scalar:
        return self.offset if self.patches == 1 else add(times(self.patch, self.lanes), self.offset)


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthAxis:
    """A reduction axis as blocks of unrolled iterations; the last block may run over the
    extent."""

    axis: Axis
    depth: int  # iterations of a block, at most the extent
    unroll: int = 1  # divides `depth`

    @property
    def outer(self) -> Axis:
        """The loop over blocks."""
        return Level.BLOCK.axis(self.axis.name, -(-self.axis.extent // self.depth))

    @property
    def inner(self) -> Axis:
        """The loop over a block's iterations, `unroll` at a time."""
        return Level.TILE.axis(self.axis.name, self.depth // self.unroll)

    @property
    def unrolled(self) -> Axis:
        """The loop over the iterations that are unrolled."""
        return Level.REGISTER.axis(self.axis.name, self.unroll)

    @property
    def base(self) -> Scalar:
        """The first iteration of the current block."""
        return times(Var(self.outer.name), self.depth)

    @property
    def within(self) -> Scalar:
        """The iteration within the current block."""
        step = times(Var(self.inner.name), self.unroll)
        return add(step, Var(self.unrolled.name)) if self.unroll > 1 else step

    @property
    def index(self) -> Scalar:
        return add(self.base, self.within)

    @property
    def predicate(self) -> Scalar | None:
        """Whether the iteration is one of the axis; None where all are."""
        if self.axis.extent % self.depth == 0:
            return None
        return Binary("lt", self.index, Const(self.axis.extent, "int64"))
