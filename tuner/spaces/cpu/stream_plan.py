"""A config of the stream sketch, decoded: its tiles, and where a task stands."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tuner.spaces.program.program import MathFunctions
from tuner.spaces.program.tiles import add, at_most, constant, times
from tuner.spaces.rewrite.stream_group import StreamGroup
from tuner.workload.expression import Axis, Binary, Scalar, Var

TASK = "_task"  # the iterator of the loop over tasks, a name that no axis has


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan:
    """Tiles of the rows' vectorised axis, of the streamed axis and of the columns."""

    group: StreamGroup
    vector: Axis  # of the rows, the one that vectors go along
    lanes: int
    vectors: int  # of rows in a tile
    points: int  # of the streamed axis that a register tile of the product has
    columns: int  # of the last column axis that a register tile of the sums has
    block: int  # points of the streamed axis that are computed before they are summed
    unroll: int  # iterations of the innermost loops of both products
    math_functions: MathFunctions
    threads: int

    @property
    def rows(self) -> int:
        """Rows of a tile; no more than there are."""
        return self.vectors * self.lanes

    @property
    def tiles(self) -> int:
        """Tiles along the vectorised axis; the last one is moved back to end with it."""
        return -(-self.vector.extent // self.rows)

    @property
    def others(self) -> tuple[Axis, ...]:
        """The axes of the rows of which a task has one index."""
        return tuple(axis for axis in self.group.rows if axis != self.vector)

    @property
    def tasks(self) -> int:
        return self.tiles * prod(axis.extent for axis in self.others)

    @property
    def first_row(self) -> Scalar:
        """The first row of a task's tile, along the vectorised axis."""
        tile = _part(Var(TASK), self.tiles, outer=self.tasks > self.tiles)
        first = times(tile, self.rows)
        last = self.vector.extent - self.rows
        return at_most(first, last) if self.vector.extent % self.rows else first

    def row(self, offset: Scalar) -> dict[str, Scalar]:
        """The value of each axis of the rows, `offset` rows into a task's tile."""
        place: dict[str, Scalar] = {self.vector.name: add(self.first_row, offset)}
        left: Scalar = Var(TASK)
        inner, remaining = self.tiles, self.tasks
        for axis in reversed(self.others):
            left = left if inner == 1 else Binary("floordiv", left, constant(inner))
            remaining //= inner
            place[axis.name] = _part(left, axis.extent, outer=remaining > axis.extent)
            inner = axis.extent
        return place


def _part(number: Scalar, extent: int, *, outer: bool) -> Scalar:
    """The innermost of the numbers that one number is made of."""
    if extent == 1:
        return constant(0)
    return Binary("floormod", number, constant(extent)) if outer else number
