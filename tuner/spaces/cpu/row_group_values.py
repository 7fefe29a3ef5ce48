"""What a group of a row's terms shares, such as its scale, computed before the terms.

A sum over groups of a row and the elements of each group has factors that move with the
groups alone. Converted one by one, as scales of float16 are, they take as long as the
elements of a small group. So those of as many groups as vectors have lanes are computed
in vectors, and the terms read them from a buffer that stays in the first cache.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from tuner.spaces.cpu.row_blocks import RowBlocks
from tuner.spaces.cpu.row_plan import RowLoops
from tuner.spaces.program.loops import Level, LoopId
from tuner.spaces.program.tiles import add, times
from tuner.spaces.rewrite.groups import COLUMN
from tuner.workload.expression import (
    Axis,
    Binary,
    Read,
    Scalar,
    Select,
    Unary,
    Var,
    children,
    reads,
    rewrite,
    substitute,
    walk,
)


def _shared(body: Scalar, groups: str, column: Collection[str]) -> Iterator[Scalar]:
    """The largest parts of a value of float32 that are read, move with the groups and not
    with the column."""
    moving = {node.name for node in walk(body) if isinstance(node, Var)}
    if groups in moving and moving.isdisjoint(column) and any(reads(body)):
        yield body
        return
    match body:
        case Binary() | Unary():
            parts = children(body)
        case Select(then=then, other=other):
            parts = (then, other)
        case _:
            parts = ()
    for part in parts:
        yield from _shared(part, groups, column)


class RowGroupValues:
    """Adds the blocks that compute such values to a nest."""

    def __init__(self, loops: RowLoops, blocks: RowBlocks) -> None:
        self._loops, self._blocks = loops, blocks
        self.loops: dict[str, LoopId] = {}  # by block: the loop in which it is computed
        self.lanes: set[str] = set()  # the names of their vector loops

    def read_by(
        self, block: str, body: Scalar, groups: Sequence[Axis]
    ) -> tuple[Scalar, list[Axis]]:
        """The body of a block with such values read from buffers, and its loops over groups.

        As they are where there are no such values.
        """
        loops = self._loops
        column = {f"{COLUMN}_s", loops.vectors.name, loops.lanes.name}
        values = () if not groups else dict.fromkeys(_shared(body, groups[-1].name, column))
        if not values:
            return body, list(groups)
        *others, last = groups
        count = loops.lanes.extent
        while last.extent % count:
            count //= 2
        outer = Level.BLOCK.axis(last.name, last.extent // count)
        inner, lanes = (level.axis(last.name, count) for level in (Level.TILE, Level.VECTOR_LANE))
        first = times(Var(outer.name), count)
        around = (*loops.row, *(Var(axis.name) for axis in (*others, outer)))
        kept: dict[Scalar, Read] = {}
        for number, value in enumerate(values):
            name = f"{block}_g{number}"
            kept[value] = Read(name, (*around, Var(inner.name)))
            each = substitute(value, {last.name: add(first, Var(lanes.name))})
            along = [*others, outer, lanes]
            self._blocks.allocate(name, along, "float32", scope="global")
            self._blocks.compute(name, along, each)
            self.loops[name] = LoopId.of(block, outer)
        self.lanes.add(lanes.name)
        body = rewrite(body, kept.get)
        place = add(first, Var(inner.name))
        return substitute(body, {last.name: place}), [*others, outer, inner]
