"""A config of the split sketch, decoded: where a task stands, and what it computes at a time."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tuner.spaces.program.program import MathFunctions
from tuner.spaces.program.tiles import constant, times
from tuner.spaces.rewrite.stream_group import StreamGroup
from tuner.workload.expression import Axis, Binary, Scalar, Var

TASK, ROW = "_task", "_row"  # iterators over tasks, and over rows; no axis has the names


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitPlan:
    """A task is a part of a row. Parts are whole blocks of the streamed axis."""

    group: StreamGroup
    lanes: int  # along the streamed axis
    sum_lanes: int  # along the product's last sum; 0 where its vectors go along the streamed axis
    column_lanes: int
    points: int  # of the streamed axis whose products are in registers at a time
    vectors: int  # of the last column axis in registers
    block: int  # points of the streamed axis that are computed before they are summed
    parts: int
    unroll: int  # iterations of the innermost loops
    math_functions: MathFunctions
    threads: int

    # Rows are computed one at a time: what a tile of them is to bounds of the streamed axis.
    rows: int = 1

    @property
    def vector(self) -> Axis:
        return self.group.rows[0]

    @property
    def count(self) -> int:
        """All rows."""
        return prod(axis.extent for axis in self.group.rows)

    @property
    def tasks(self) -> int:
        return self.count * self.parts

    @property
    def part(self) -> Scalar:
        """The part of a task; those of all rows come one after the other."""
        if self.parts == 1:
            return constant(0)
        return Binary("floordiv", Var(TASK), constant(self.count))

    @property
    def number(self) -> Scalar:
        """The row of a task."""
        if self.parts == 1:
            return Var(TASK)
        return Binary("floormod", Var(TASK), constant(self.count))

    def row(self, offset: Scalar) -> dict[str, Scalar]:
        """The value of each axis of a task's row; of `offset` there is only 0."""
        return self.place(self.number)

    def place(self, number: Scalar) -> dict[str, Scalar]:
        """The value of each axis of a row by its number."""
        place: dict[str, Scalar] = {}
        left, remaining = number, self.count
        for axis in reversed(self.group.rows):
            remaining //= axis.extent
            if axis.extent == 1:
                place[axis.name] = constant(0)
            elif remaining == 1:
                place[axis.name] = left
            else:
                place[axis.name] = Binary("floormod", left, constant(axis.extent))
                left = Binary("floordiv", left, constant(axis.extent))
        return place

    def blocks(self, whole: int) -> tuple[Scalar, Scalar]:
        """The first and the end of a task's blocks, of so many."""
        if self.parts == 1:
            return constant(0), constant(whole)
        ends = (times(self.part, whole), times(_next(self.part), whole))
        first, end = (Binary("floordiv", each, constant(self.parts)) for each in ends)
        return first, end


def _next(number: Scalar) -> Scalar:
    return Binary("add", number, constant(1))
