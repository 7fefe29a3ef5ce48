"""Operands of the exponential that lie along the streamed axis, turned block by block.

Vectors go along rows, but a mask lies row by row along the streamed axis, so that a vector
of it would be gathered element by element. Each block of such a tensor is loaded in vectors
as it lies, widened where its elements are narrow, and transposed in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tuner.spaces.cpu.stream_plan import StreamPlan
from tuner.spaces.program.loop_tree import Loop, LoopKind, Statement, Store
from tuner.spaces.program.tiles import add, at_most, times
from tuner.spaces.rewrite.access import access
from tuner.workload.dtypes import DType
from tuner.workload.expression import Cast, Read, Scalar, Var, reads, substitute

# What elements are widened to, so that whole vectors of them are transposed.
WIDE: Mapping[str, DType] = {
    "float32": "float32",
    "bfloat16": "float32",
    "float16": "float32",
    "int32": "int32",
    "int8": "int32",
    "uint8": "int32",
}
ROW, LANE, TILE, POINT = "_row", "_lane", "_tile", "_in_block"  # iterators; no axis has them


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnedRead:
    """One such read, and its block with rows side by side."""

    read: Read
    dtype: DType  # of the tensor
    turned: str  # (points of a block, rows of a tile)
    widened: str | None  # (rows of a tile, points of a block); None where it is wide enough


def turned_reads(
    plan: StreamPlan,
    shapes: Mapping[str, tuple[int, ...]],
    dtypes: Mapping[str, DType],
    buffer: Callable[[str, tuple[int, ...], DType], str],
) -> tuple[TurnedRead, ...]:
    """The reads of f that are contiguous along the streamed axis and not along vectors.

    `buffer` makes one of a name, a shape and a dtype.
    """
    group = plan.group
    axes = (*group.rows, group.stream)
    extents = {axis.name: axis.extent for axis in axes}
    inside = None if group.product is None else group.product.name
    made: list[TurnedRead] = []
    for read in dict.fromkeys(reads(group.value)):
        if read.tensor == inside or dtypes[read.tensor] not in WIDE or plan.block < plan.lanes:
            continue
        moved = access(read, shapes[read.tensor], extents)
        if (
            moved.padded
            or moved.gathered
            or moved.stride(group.stream.name) != 1
            or moved.stride(plan.vector.name) in (0, 1, None)
            or plan.lanes < 4
            or 0 < group.stream.extent % plan.block < plan.lanes
            or group.dtype != "float32"
        ):
            continue
        number, wide = len(made), WIDE[dtypes[read.tensor]]
        narrow = wide != dtypes[read.tensor]
        made.append(
            TurnedRead(
                read=read,
                dtype=dtypes[read.tensor],
                turned=buffer(f"k{number}", (plan.block, plan.rows), wide),
                widened=buffer(f"n{number}", (plan.rows, plan.block), wide) if narrow else None,
            )
        )
    return tuple(made)


def turned(each: TurnedRead, plan: StreamPlan, first: Scalar, points: int) -> Iterable[Statement]:
    """The statements that fill the block of a read with points from `first` on."""

    def source(row: Scalar, point: Scalar) -> Scalar:
        values = plan.row(row) | {plan.group.stream.name: add(first, point)}
        return substitute(each.read, values)

    if each.widened is not None:
        start = times(Var(TILE), plan.lanes)
        if points % plan.lanes:
            start = at_most(start, points - plan.lanes)
        point = add(start, Var(LANE))
        widened = Cast(WIDE[each.dtype], source(Var(ROW), point))
        store = Store(buffer=each.widened, indices=(Var(ROW), point), value=widened)
        lanes = Loop(iterator=LANE, extent=plan.lanes, kind=LoopKind.VECTOR, body=(store,))
        tiles = Loop(iterator=TILE, extent=-(-points // plan.lanes), body=(lanes,))
        yield Loop(iterator=ROW, extent=plan.rows, body=(tiles,))
    row, point = add(times(Var(TILE), plan.lanes), Var(LANE)), Var(POINT)
    value = source(row, point) if each.widened is None else Read(each.widened, (row, point))
    copy = Store(buffer=each.turned, indices=(point, row), value=value)
    inner = Loop(iterator=LANE, extent=plan.lanes, body=(copy,))
    rectangle = Loop(iterator=POINT, extent=points, body=(inner,), transposed=plan.lanes)
    yield Loop(iterator=TILE, extent=plan.vectors, body=(rectangle,))
