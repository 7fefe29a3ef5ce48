"""The nest of rows that stream by: online softmax, for a tile of rows at a time.

Vectors go along rows, so that maxima and sums of rows are vectors too and nothing is
reduced across lanes. A task has a tile of rows. It goes over the streamed axis block by
block:

1. the product of the block, in register tiles, and what the exponential is of;
2. the maximum so far, and the factor by which that has changed the sums;
3. the exponentials;
4. the sums, in register tiles of columns, rescaled as they are loaded.

Then the result is computed from the sums and written. Dao et al., "FlashAttention" (2022),
have the same order on GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property

from tuner.spaces.cpu.running_peak import greater, subtrahend
from tuner.spaces.cpu.stream_bounds import live_range
from tuner.spaces.cpu.stream_masks import turned, turned_reads
from tuner.spaces.cpu.stream_plan import TASK, StreamPlan
from tuner.spaces.program.loop_tree import (
    Loop,
    LoopKind,
    LoopTree,
    Statement,
    Store,
    When,
    nested,
    unrolled_in_part,
)
from tuner.spaces.program.nest import Nest
from tuner.spaces.program.program import Buffer
from tuner.spaces.program.tiles import add, at_most, constant, divided, times
from tuner.spaces.rewrite.access import access, with_explicit_padding
from tuner.spaces.rewrite.groups import replace_reads
from tuner.spaces.rewrite.stream_group import RunningSum
from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Unary,
    Var,
    reads,
    rewrite,
    substitute,
)

# Names that no axis has.
VECTOR, LANE = "_vector", "_lane"  # iterators over the rows of a tile
TILE, BLOCK, IN_BLOCK = "_tile", "_block", "_in_block"
POINT, COLUMN = "_point", "_column"  # points and columns of a register tile


class StreamNest:
    """The tree of loops of one plan."""

    def __init__(
        self,
        plan: StreamPlan,
        shapes: Mapping[str, tuple[int, ...]],
        dtypes: Mapping[str, DType],
    ) -> None:
        self.plan, self.group = plan, plan.group
        self.shapes, self.dtypes = shapes, dtypes
        self.buffers: list[Buffer] = []
        self.columns = self.group.columns
        self.tiled = self.columns[-1]
        self.weights = self._buffer("w", plan.block, plan.rows)
        self.peak = self._buffer("m", plan.rows)  # maximum so far; then what is subtracted
        self.highest = self._buffer("h", plan.rows)  # maximum with the block
        self.scale = self._buffer("f", plan.rows)  # of the sums so far
        self.partial = self._buffer("z", plan.rows, stack=True)
        self.totals = {
            running.name: self._buffer(
                f"t{number}", *(axis.extent for axis in running.columns), plan.rows
            )
            for number, running in enumerate(self.group.sums)
        }
        self.packed: dict[Read, Read] = {}
        self.turned = turned_reads(
            plan, shapes, dtypes, lambda name, shape, dtype: self._buffer(name, *shape, dtype=dtype)
        )

    @cached_property
    def products(self) -> str:
        """The product of a register tile's points."""
        return self._buffer("x", self.plan.points, self.plan.rows, stack=True)

    @cached_property
    def registers(self) -> str:
        """The sums of a register tile's columns."""
        return self._buffer("y", self.plan.columns, self.plan.rows, stack=True)

    def build(self) -> Nest:
        """The nest: one tree, and its buffers."""
        plan = self.plan
        before, packing = tuple(self._before()), self._pack()
        body = (*packing, *self._start(), *self._stream(), *self._finish(), *self._write())
        kind = LoopKind.PARALLEL if plan.threads > 1 and plan.tasks > 1 else LoopKind.SERIAL
        tree = LoopTree(
            name=f"{self.group.name}_stream",
            buffer=self.group.name,
            body=(*before, Loop(iterator=TASK, extent=plan.tasks, kind=kind, body=body)),
            polynomials=plan.math_functions == "polynomial",
        )
        return Nest((), tuple(self.buffers), (), tree)

    # --- rows

    @property
    def _offset(self) -> Scalar:
        """The row of a lane in the tile."""
        return add(times(Var(VECTOR), self.plan.lanes), Var(LANE))

    def _each_row(self, *body: Statement) -> Loop:
        """Statements for all rows of the tile, vector by vector."""
        inner = Loop(iterator=LANE, extent=self.plan.lanes, kind=LoopKind.VECTOR, body=body)
        return Loop(
            iterator=VECTOR, extent=self.plan.vectors, kind=LoopKind.UNROLLED, body=(inner,)
        )

    def _at(self, node: Scalar, point: Scalar | None = None, **places: Scalar) -> Scalar:
        """A scalar of the group at a row of the tile and a point of the streamed axis."""
        values = self.plan.row(self._offset) | places
        if point is not None:
            values[self.group.stream.name] = point
        return substitute(node, values)

    def _buffer(
        self, name: str, *shape: int, stack: bool = False, dtype: DType | None = None
    ) -> str:
        buffer = Buffer(
            name=f"{self.group.name}_{name}",
            shape=shape,
            dtype=dtype or self.group.dtype,
            scope="stack" if stack else "global",
        )
        self.buffers.append(buffer)
        return buffer.name

    def _row(self, buffer: str, *indices: Scalar) -> Read:
        """What a buffer holds for a row of the tile."""
        return Read(buffer, (*indices, self._offset))

    def _set(self, to: Read, value: Scalar) -> Store:
        return Store(buffer=to.tensor, indices=to.indices, value=value)

    def _number(self, value: float) -> Const:
        return Const(value, self.group.dtype)

    # --- before the first block

    def _before(self) -> Iterable[Statement]:
        """What stands before all tasks."""
        return ()

    def _pack(self) -> Iterable[Statement]:
        """Copies of the product's operands that differ between rows, rows side by side."""
        product = self.group.product
        if product is None:
            return
        for read in dict.fromkeys(reads(product.body)):
            moved = access(read, self.shapes[read.tensor], product.extents)
            along = [axis for axis in product.reduce_axes if axis.name in moved.axes]
            if (
                self.plan.vector.name not in moved.axes
                or self.group.stream.name in moved.axes
                or moved.padded
                or moved.gathered
                or moved.stride(self.plan.vector.name) == 1
            ):
                continue
            name = self._buffer(f"q{len(self.packed)}", *(a.extent for a in along), self.plan.rows)
            place = tuple(Var(axis.name) for axis in along)
            self.packed[read] = self._row(name, *place)
            yield self._copied(read, name, along, moved.stride(along[-1].name) if along else None)

    def _copied(self, read: Read, name: str, along: list[Axis], stride: int | None) -> Statement:
        """A copy with rows side by side, transposed in registers where rows are contiguous."""
        plan = self.plan
        place = tuple(Var(axis.name) for axis in along)
        if self.dtypes[read.tensor] != self.group.dtype or stride != 1 or not self._turns(along):
            value = self._at(read)
            return nested(along, self._each_row(self._set(self._row(name, *place), value)))
        row = add(times(Var(VECTOR), plan.lanes), Var(LANE))
        store = Store(
            buffer=name, indices=(*place, row), value=substitute(read, self.plan.row(row))
        )
        lanes = Loop(iterator=LANE, extent=plan.lanes, body=(store,))
        turned = Loop(
            iterator=along[-1].name,
            extent=along[-1].extent,
            body=(lanes,),
            transposed=plan.lanes,
        )
        vectors = Loop(iterator=VECTOR, extent=plan.vectors, body=(turned,))
        return nested(along[:-1], vectors)

    def _turns(self, along: list[Axis]) -> bool:
        """Whether squares of vectors fit into what lies along the axes."""
        return bool(along) and along[-1].extent >= self.plan.lanes >= 4

    def _start(self) -> Iterable[Statement]:
        """The maximum and the sums of no points."""
        least = self._number(float("-inf"))
        yield self._each_row(self._set(self._row(self.peak), least))
        for running in self.group.sums:
            place = tuple(Var(axis.name) for axis in running.columns)
            total = self._row(self.totals[running.name], *place)
            yield nested(running.columns, self._each_row(self._set(total, self._number(0.0))))

    # --- block by block

    def _stream(self) -> Iterable[Statement]:
        """All blocks in which terms count, the last of them with what is left."""
        block, extent = self.plan.block, self.group.stream.extent
        whole, left = divmod(extent, block)
        first, end = live_range(self.plan)
        number = Var(BLOCK)
        if whole:
            blocks = constant(whole)
            yield Loop(
                iterator=number.name,
                extent=whole,
                first=None if first is None else divided(first, block),
                end=None
                if end is None
                else Binary("min", divided(add(end, constant(block - 1)), block), blocks),
                body=tuple(self._block(times(number, block), block)),
            )
        if left:
            rest = tuple(self._block(constant(whole * block), left))
            begun = constant(whole * block)
            yield from (
                rest if end is None else (When(condition=Binary("gt", end, begun), body=rest),)
            )

    def _block(self, first: Scalar, points: int) -> Iterable[Statement]:
        """The points of a block from `first` on."""
        yield self._each_row(self._set(self._row(self.highest), self._row(self.peak)))
        for each in self.turned:
            yield from turned(each, self.plan, first, points)
        yield from self._values(first, points)
        yield self._rescaling()
        yield from self._exponentials(first, points)
        yield from self._sums(first, points)

    def _values(self, first: Scalar, points: int) -> Iterable[Statement]:
        """What the exponential is of, and its maximum; the last tiles may overlap."""
        tile = min(self.plan.points, points)
        count = -(-points // tile)
        start = times(Var(TILE), tile)
        if points % tile:
            start = at_most(start, points - tile)
        place = add(start, Var(POINT))
        point = add(first, place)
        body: list[Statement] = []
        value = with_explicit_padding(self.group.value, self.shapes, self._extents())
        if (product := self.group.product) is not None:
            made = self._row(self.products, Var(POINT))
            term = Cast(self.group.dtype, self._term(product.body, point))
            grown = self._set(made, Binary("add", made, term))
            each = self._each_point(tile, self._each_row(grown))
            body.append(self._each_point(tile, self._each_row(self._set(made, self._number(0.0)))))
            body.append(self._summed(product.reduce_axes, each))
            value = replace_reads(value, {product.name: made})
        in_block = {each.read: self._row(each.turned, place) for each in self.turned}
        value = rewrite(value, lambda node: in_block.get(node) if isinstance(node, Read) else None)
        weight, highest = self._row(self.weights, place), self._row(self.highest)
        body.append(
            self._each_point(
                tile,
                self._each_row(
                    self._set(weight, self._at(value, point)),
                    self._set(highest, greater(weight, highest)),
                ),
            )
        )
        yield Loop(iterator=TILE, extent=count, body=tuple(body))

    def _term(self, body: Scalar, point: Scalar) -> Scalar:
        """A term of the product, operands that lie packed read there."""
        assert self.group.product is not None
        inside = with_explicit_padding(body, self.shapes, self.group.product.extents)
        packed = rewrite(
            inside, lambda node: self.packed.get(node) if isinstance(node, Read) else None
        )
        return self._at(packed, point)

    def _each_point(self, tile: int, *body: Statement) -> Loop:
        return Loop(iterator=POINT, extent=tile, kind=LoopKind.UNROLLED, body=body)

    def _summed(self, axes: tuple[Axis, ...], body: Statement) -> Statement:
        """Loops of a sum, the innermost one unrolled as far as the plan says."""
        *outer, last = axes
        return nested(outer, unrolled_in_part(last.name, last.extent, self.plan.unroll, body))

    def _rescaling(self) -> Statement:
        """The factor of the sums so far, and the new maximum in the old one's place.

        What is subtracted is 0 where all points so far are minus infinity, so that their
        exponentials are zero and not NaN.
        """
        old, new = self._row(self.peak), self._row(self.highest)
        risen = Unary("exp", Binary("sub", old, subtrahend(new, self.group.dtype)))
        factor = Select(Binary("eq", old, new), self._number(1.0), risen)
        return self._each_row(self._set(self._row(self.scale), factor), self._set(old, new))

    def _exponentials(self, first: Scalar, points: int) -> Iterable[Statement]:
        """The weights of the block's points, and the sums that have no columns."""
        point = Var(IN_BLOCK)
        weight = self._row(self.weights, point)
        raised = Unary(
            "exp", Binary("sub", weight, subtrahend(self._row(self.peak), self.group.dtype))
        )
        totals = self.group.sums[:-1]
        partial = self._row(self.partial)
        body: list[Statement] = [self._set(weight, raised)]
        if len(totals) == 1:
            (running,) = totals
            body.append(self._set(partial, self._grown(partial, running, weight, first, point)))
            total = self._row(self.totals[running.name])
            scaled = Binary("mul", total, self._row(self.scale))
            yield self._each_row(self._set(partial, scaled))
            yield unrolled_in_part(point.name, points, self.plan.unroll, self._each_row(*body))
            yield self._each_row(self._set(total, partial))
            return
        yield unrolled_in_part(point.name, points, self.plan.unroll, self._each_row(*body))
        for running in totals:
            total = self._row(self.totals[running.name])
            scaled = Binary("mul", total, self._row(self.scale))
            yield self._each_row(self._set(total, scaled))
            grown = self._set(total, self._grown(total, running, weight, first, point))
            yield Loop(iterator=point.name, extent=points, body=(self._each_row(grown),))

    def _grown(
        self, total: Scalar, running: RunningSum, weight: Scalar, first: Scalar, point: Scalar
    ) -> Scalar:
        """A sum with the term of one more point."""
        if running.factor is None:
            return Binary("add", total, weight)
        factor = with_explicit_padding(running.factor, self.shapes, self._extents())
        term = Cast(self.group.dtype, self._at(factor, add(first, point)))
        return Binary("add", total, Binary("mul", term, weight))

    def _sums(self, first: Scalar, points: int) -> Iterable[Statement]:
        """The sums with columns, tile by tile; what a tile does not divide is one of its own."""
        tile, extent = self.plan.columns, self.tiled.extent
        whole, left = divmod(extent, tile)
        outer = self.columns[:-1]
        if whole:
            start = times(Var(TILE), tile)
            body = tuple(self._sum_tile(first, points, start, tile))
            yield nested(outer, Loop(iterator=TILE, extent=whole, body=body))
        if left:
            rest = tuple(self._sum_tile(first, points, constant(whole * tile), left))
            yield from rest if not outer else (nested(outer, *rest),)

    def _sum_tile(
        self, first: Scalar, points: int, start: Scalar, tile: int
    ) -> Iterable[Statement]:
        running, point = self.group.sums[-1], Var(IN_BLOCK)
        column = add(start, Var(COLUMN))
        place = (*(Var(axis.name) for axis in self.columns[:-1]), column)
        held, total = (
            self._row(self.registers, Var(COLUMN)),
            self._row(self.totals[running.name], *place),
        )
        weight = self._row(self.weights, point)
        loaded = self._set(held, Binary("mul", total, self._row(self.scale)))
        grown = self._grown(held, running, weight, first, point)
        summed = self._set(held, substitute(grown, {self.tiled.name: column}))

        def each(statement: Statement) -> Loop:
            return Loop(
                iterator=COLUMN,
                extent=tile,
                kind=LoopKind.UNROLLED,
                body=(self._each_row(statement),),
            )

        yield each(loaded)
        yield unrolled_in_part(point.name, points, self.plan.unroll, each(summed))
        yield each(self._set(total, held))

    # --- after the last block

    def _finish(self) -> Iterable[Statement]:
        """The result in the place of the last sums.

        Where all points of a row are minus infinity, the exponentials are of a difference
        of infinities, and all sums of them NaN.
        """
        running = self.group.sums[-1]
        place = tuple(Var(axis.name) for axis in self.columns)
        peak = self._row(self.peak)
        none = Binary("eq", peak, self._number(float("-inf")))
        values: dict[str, Scalar] = {self.group.peak: peak}
        for each in self.group.sums:
            total = self._row(self.totals[each.name], *(Var(axis.name) for axis in each.columns))
            values[each.name] = Select(none, self._number(float("nan")), total)
        body = with_explicit_padding(self.group.output.body, self.shapes, self._extents())
        result = self._at(replace_reads(body, values))
        total = self._row(self.totals[running.name], *place)
        yield nested(self.columns, self._each_row(self._set(total, result)))

    def _write(self) -> Iterable[Statement]:
        """The copy of the result to where callers want it."""
        plan, output = self.plan, self.group.output
        place = tuple(Var(axis.name) for axis in self.columns)
        buffer = self.totals[self.group.sums[-1].name]
        indices = tuple(Var(axis.name) for axis in output.axes)
        plain = output.dtype == self.group.dtype and output.axes[-1] == self.tiled
        if not plain or not self._turns([self.tiled]):
            to = tuple(self._at(index) for index in indices)
            value = self._row(buffer, *place)
            store = Store(buffer=output.name, indices=to, value=Cast(output.dtype, value))
            yield nested(self.columns, self._each_row(store))
            return
        lanes = plan.lanes
        for first, count in ((0, self.tiled.extent // lanes), (1, self.tiled.extent % lanes)):
            if not count:
                continue
            width = lanes if first == 0 else count
            start = times(Var(TILE), lanes) if first == 0 else constant(self.tiled.extent - count)
            column, row = add(start, Var(COLUMN)), Var(LANE)
            to = tuple(
                substitute(index, plan.row(row) | {self.tiled.name: column}) for index in indices
            )
            value = Read(buffer, (*place[:-1], column, row))
            store = Store(buffer=output.name, indices=to, value=value)
            turned = Loop(
                iterator=LANE,
                extent=plan.rows,
                body=(Loop(iterator=COLUMN, extent=width, body=(store,)),),
                transposed=lanes,
            )
            tiles = turned if first else Loop(iterator=TILE, extent=count, body=(turned,))
            yield nested(self.columns[:-1], tiles)

    def _extents(self) -> dict[str, int]:
        axes = (*self.group.rows, self.group.stream, *self.columns)
        return {axis.name: axis.extent for axis in axes}
