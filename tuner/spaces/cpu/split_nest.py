"""The nest of single rows that stream by: online softmax, a part of a row at a time.

Where no rows share their columns, as one query before a cache of keys, vectors go along the
streamed axis and along the columns. A task has a part of one row, so that few rows are enough
for all threads. It goes over its blocks:

1. the products, with vectors along what they sum, folded in squares; what the exponential
   is of, and its maximum;
2. the exponentials, and sums without columns, lane by lane;
3. the sums with columns, rescaled as they are loaded.

Then the parts of each row are combined as blocks are: sums times the exponential of what
their maximum lacks. Dao et al., "Flash-Decoding for long-context inference" (2023), split
rows so on GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tuner.spaces.cpu.running_peak import greater, subtrahend
from tuner.spaces.cpu.split_plan import ROW, TASK, SplitPlan
from tuner.spaces.cpu.stream_bounds import live_range
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
from tuner.spaces.program.tiles import add, constant, divided, times
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.groups import replace_reads
from tuner.spaces.rewrite.stream_group import RunningSum
from tuner.workload.expression import (
    Binary,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Unary,
    Var,
    substitute,
)

# Iterators; no axis has their names.
LANE, TILE, BLOCK, POINT = "_lane", "_tile", "_block", "_point"
IN_BLOCK, COLUMN, VECTOR, PART = "_in_block", "_column", "_vector", "_part"


class SplitNest:
    """The tree of loops of one plan."""

    def __init__(self, plan: SplitPlan, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.plan, self.group, self.shapes = plan, plan.group, shapes
        self.buffers: list[Buffer] = []
        lanes, parts, rows = plan.lanes, plan.parts, plan.count
        self.columns = self.group.columns
        self.tiled = self.columns[-1]
        columns = tuple(axis.extent for axis in self.columns)
        self.weights = self._buffer("w", plan.block)
        self.peak = self._buffer("m", 1)  # maximum so far
        self.highest = self._buffer("h", lanes)  # of the block, by lane
        self.scale = self._buffer("f", 1)  # of the sums so far
        self.top = self._buffer("n", 1)  # maximum with the block, or of all parts
        self.scores = self._buffer("s", lanes)
        self.registers = self._buffer("y", plan.vectors, plan.column_lanes, stack=True)
        self.result = self._buffer("r", plan.column_lanes, stack=True)
        if plan.sum_lanes:
            self.products = self._buffer("x", plan.points, plan.sum_lanes, stack=True)
            self.square = self._buffer("p", lanes, plan.sum_lanes)
            self.turned = self._buffer("q", plan.sum_lanes, lanes)
        self.partial = {
            running.name: self._buffer(f"z{number}", lanes)
            for number, running in enumerate(self.group.sums[:-1])
        }
        # What parts leave to be combined.
        self.peaks = self._buffer("mp", parts, rows)
        self.factors = self._buffer("c", parts)
        self.totals = {
            running.name: self._buffer(f"tp{number}", parts, rows)
            for number, running in enumerate(self.group.sums[:-1])
        }
        self.whole = {
            running.name: self._buffer(f"g{number}", 1)
            for number, running in enumerate(self.group.sums[:-1])
        }
        self.sums = self._buffer("a", parts, rows, *columns)

    def build(self) -> Nest:
        """The nest: one tree, and its buffers."""
        plan = self.plan
        body = (*self._start(), *self._stream(), *self._leave())
        kind = LoopKind.PARALLEL if plan.threads > 1 and plan.tasks > 1 else LoopKind.SERIAL
        loops: tuple[Statement, ...]
        if plan.parts == 1:
            whole = (*body, *self._combined(plan.number))
            loops = (Loop(iterator=TASK, extent=plan.tasks, kind=kind, body=whole),)
        else:
            combined = tuple(self._combined(Var(ROW)))
            loops = (
                Loop(iterator=TASK, extent=plan.tasks, kind=kind, body=body),
                Loop(iterator=ROW, extent=plan.count, body=combined),
            )
        tree = LoopTree(
            name=f"{self.group.name}_split",
            buffer=self.group.name,
            body=loops,
            polynomials=plan.math_functions == "polynomial",
        )
        return Nest((), tuple(self.buffers), (), tree)

    # --- places

    def _buffer(self, name: str, *shape: int, stack: bool = False) -> str:
        buffer = Buffer(
            name=f"{self.group.name}_{name}",
            shape=shape,
            dtype=self.group.dtype,
            scope="stack" if stack else "global",
        )
        self.buffers.append(buffer)
        return buffer.name

    def _at(self, node: Scalar, point: Scalar, **places: Scalar) -> Scalar:
        """A scalar of the group at a task's row and a point of the streamed axis."""
        values = self.plan.place(self.plan.number) | places
        return substitute(node, values | {self.group.stream.name: point})

    def _padded(self, node: Scalar) -> Scalar:
        axes = (*self.group.rows, self.group.stream, *self.columns)
        return with_explicit_padding(node, self.shapes, {a.name: a.extent for a in axes})

    def _number(self, value: float) -> Const:
        return Const(value, self.group.dtype)

    def _only(self, buffer: str) -> Read:
        """The element of a buffer that has one."""
        return Read(buffer, (constant(0),))

    def _lane(self, buffer: str, *indices: Scalar) -> Read:
        return Read(buffer, (*indices, Var(LANE)))

    def _each_lane(self, count: int, *body: Statement) -> Statement:
        kind = LoopKind.VECTOR if count > 1 else LoopKind.SERIAL
        return Loop(iterator=LANE, extent=count, kind=kind, body=body)

    def _here(self, buffer: str, *columns: Scalar) -> Read:
        """What a task leaves in a buffer that has the parts and rows."""
        return Read(buffer, (self.plan.part, self.plan.number, *columns))

    # --- before the first block

    def _start(self) -> Iterable[Statement]:
        """The maximum and the sums of no points."""
        yield _set(self._only(self.peak), self._number(float("-inf")))
        lanes = self.plan.lanes
        for buffer in self.partial.values():
            yield self._each_lane(lanes, _set(self._lane(buffer), self._number(0.0)))
        total = self._here(self.sums, *self._column(Var(VECTOR)))
        yield self._each_vector(
            self._each_lane(self.plan.column_lanes, _set(total, self._number(0.0)))
        )

    def _column(self, vector: Scalar) -> tuple[Scalar, ...]:
        """The place of a lane of a vector of columns."""
        column = add(times(vector, self.plan.column_lanes), Var(LANE))
        return (*(Var(axis.name) for axis in self.columns[:-1]), column)

    def _each_vector(self, *body: Statement) -> Statement:
        """Statements at all columns, vector by vector."""
        vectors = self.tiled.extent // self.plan.column_lanes
        return nested(self.columns[:-1], Loop(iterator=VECTOR, extent=vectors, body=body))

    # --- block by block

    def _stream(self) -> Iterable[Statement]:
        """The blocks of a task in which terms count; the last part has what is left, too."""
        plan, extent = self.plan, self.group.stream.extent
        whole, left = divmod(extent, plan.block)
        first, end = plan.blocks(whole)
        live_first, live_end = live_range(plan)
        if live_first is not None:
            first = Binary("max", first, divided(live_first, plan.block))
        if live_end is not None:
            last = divided(add(live_end, constant(plan.block - 1)), plan.block)
            end = Binary("min", end, last)
        start = times(Var(BLOCK), plan.block)
        body = tuple(self._block(start, plan.block))
        yield Loop(iterator=BLOCK, extent=whole, first=first, end=end, body=body)
        if left:
            begun = constant(whole * plan.block)
            conditions: list[Scalar] = []
            if plan.parts > 1:
                conditions.append(Binary("eq", plan.part, constant(plan.parts - 1)))
            if live_end is not None:
                conditions.append(Binary("gt", live_end, begun))
            rest = tuple(self._block(begun, left))
            for condition in conditions:
                rest = (When(condition=condition, body=rest),)
            yield from rest

    def _block(self, first: Scalar, points: int) -> Iterable[Statement]:
        """The points of a block from `first` on."""
        lanes = self.plan.lanes
        whole, left = divmod(points, lanes)
        top, peak, scale = self._only(self.top), self._only(self.peak), self._only(self.scale)
        yield _set(top, peak)
        if whole:
            least = _set(self._lane(self.highest), self._number(float("-inf")))
            yield self._each_lane(lanes, least)
            start = times(Var(TILE), lanes)
            yield Loop(iterator=TILE, extent=whole, body=tuple(self._values(first, start, lanes)))
            greatest = greater(self._lane(self.highest), top)
            yield Loop(iterator=LANE, extent=lanes, body=(_set(top, greatest),))
        for place in range(points - left, points):
            yield from self._values(first, constant(place), 1)
        risen = Unary("exp", Binary("sub", peak, subtrahend(top, self.group.dtype)))
        yield _set(scale, Select(Binary("eq", peak, top), self._number(1.0), risen))
        yield _set(peak, top)
        yield from self._exponentials(first, points)
        yield from self._sums(first, points)

    def _values(self, first: Scalar, start: Scalar, width: int) -> Iterable[Statement]:
        """What the exponential is of at `width` points, a vector or one, and its maximum."""
        place = add(start, Var(LANE))
        value = self._padded(self.group.value)
        if self.group.product is not None:
            yield from self._products(add(first, start), width)
            value = replace_reads(value, {self.group.product.name: self._lane(self.scores)})
        weight = Read(self.weights, (place,))
        highest = self._lane(self.highest) if width > 1 else self._only(self.top)
        yield self._each_lane(
            width,
            _set(weight, self._at(value, add(first, place))),
            _set(highest, greater(weight, highest)),
        )

    # --- the product

    def _products(self, first: Scalar, width: int) -> Iterable[Statement]:
        """The scores of `width` points from `first` on."""
        product = self.group.product
        assert product is not None
        if self.plan.sum_lanes:
            yield from self._folded(first, width)
            return
        score = self._lane(self.scores)
        term = Cast(self.group.dtype, self._term(add(first, Var(LANE))))
        yield self._each_lane(width, _set(score, self._number(0.0)))
        yield nested(
            product.reduce_axes, self._each_lane(width, _set(score, Binary("add", score, term)))
        )

    def _folded(self, first: Scalar, width: int) -> Iterable[Statement]:
        """Sums along lanes, which squares of vectors turn so that lanes are points."""
        plan, product = self.plan, self.group.product
        assert product is not None
        lanes, points = plan.sum_lanes, min(plan.points, width)
        *outer, last = product.reduce_axes
        held = self._lane(self.products, Var(POINT))
        point = add(times(Var(VECTOR), points), Var(POINT))
        index = add(times(Var(COLUMN), lanes), Var(LANE))
        term = Cast(self.group.dtype, self._term(add(first, point), **{last.name: index}))
        grown = self._each_point(points, _set(held, Binary("add", held, term)))
        summed = unrolled_in_part(COLUMN, last.extent // lanes, plan.unroll, grown)
        square = self._lane(self.square, point)
        body = (
            self._each_point(points, _set(held, self._number(0.0))),
            nested(outer, summed),
            self._each_point(points, _set(square, held)),
        )
        yield Loop(iterator=VECTOR, extent=width // points, body=body)
        score = self._lane(self.scores)
        if width == 1:
            yield _set(self._only(self.scores), self._number(0.0))
            only = self._only(self.scores)
            part = Read(self.square, (constant(0), Var(LANE)))
            grown_score = _set(only, Binary("add", only, part))
            yield Loop(iterator=LANE, extent=lanes, body=(grown_score,))
            return
        copy = Store(
            buffer=self.turned,
            indices=(Var(COLUMN), Var(LANE)),
            value=Read(self.square, (Var(LANE), Var(COLUMN))),
        )
        inner = Loop(iterator=LANE, extent=width, body=(copy,))
        yield Loop(iterator=COLUMN, extent=lanes, body=(inner,), transposed=width)
        yield self._each_lane(width, _set(score, self._lane(self.turned, constant(0))))
        folded = Binary("add", score, self._lane(self.turned, add(Var(COLUMN), constant(1))))
        yield Loop(
            iterator=COLUMN,
            extent=lanes - 1,
            kind=LoopKind.UNROLLED,
            body=(self._each_lane(width, _set(score, folded)),),
        )

    def _each_point(self, points: int, *body: Statement) -> Statement:
        inner = self._each_lane(self.plan.sum_lanes, *body)
        return Loop(iterator=POINT, extent=points, kind=LoopKind.UNROLLED, body=(inner,))

    def _term(self, point: Scalar, **places: Scalar) -> Scalar:
        product = self.group.product
        assert product is not None
        body = with_explicit_padding(product.body, self.shapes, product.extents)
        return self._at(body, point, **places)

    # --- exponentials and sums

    def _exponentials(self, first: Scalar, points: int) -> Iterable[Statement]:
        """The weights of the block's points, and the sums that have no columns."""
        lanes, scale = self.plan.lanes, self._only(self.scale)
        whole, left = divmod(points, lanes)
        for buffer in self.partial.values():
            total = self._lane(buffer)
            yield self._each_lane(lanes, _set(total, Binary("mul", total, scale)))
        if whole:
            place = add(times(Var(TILE), lanes), Var(LANE))
            body = self._each_lane(lanes, *self._raised(first, place, Var(LANE)))
            yield unrolled_in_part(TILE, whole, self.plan.unroll, body)
        if left:
            place = add(constant(whole * lanes), Var(TILE))
            rest = tuple(self._raised(first, place, constant(0)))
            yield Loop(iterator=TILE, extent=left, body=rest)

    def _raised(self, first: Scalar, place: Scalar, lane: Scalar) -> Iterable[Statement]:
        """The weight of a point, added to the sums in a lane."""
        weight = Read(self.weights, (place,))
        lowered = Binary("sub", weight, subtrahend(self._only(self.peak), self.group.dtype))
        yield _set(weight, Unary("exp", lowered))
        for running in self.group.sums[:-1]:
            total = Read(self.partial[running.name], (lane,))
            yield _set(total, self._grown(total, running, weight, add(first, place)))

    def _grown(self, total: Scalar, running: RunningSum, weight: Scalar, point: Scalar) -> Scalar:
        """A sum with the term of one more point."""
        if running.factor is None:
            return Binary("add", total, weight)
        term = Cast(self.group.dtype, self._at(self._padded(running.factor), point))
        return Binary("add", total, Binary("mul", term, weight))

    def _sums(self, first: Scalar, points: int) -> Iterable[Statement]:
        """The sums with columns, some vectors at a time."""
        plan = self.plan
        vectors = self.tiled.extent // plan.column_lanes
        whole, left = divmod(vectors, plan.vectors)
        outer = self.columns[:-1]
        if whole:
            start = times(Var(TILE), plan.vectors)
            body = tuple(self._sum_tile(first, points, start, plan.vectors))
            yield nested(outer, Loop(iterator=TILE, extent=whole, body=body))
        if left:
            rest = tuple(self._sum_tile(first, points, constant(whole * plan.vectors), left))
            yield from rest if not outer else (nested(outer, *rest),)

    def _sum_tile(
        self, first: Scalar, points: int, start: Scalar, vectors: int
    ) -> Iterable[Statement]:
        lanes, running, point = self.plan.column_lanes, self.group.sums[-1], Var(IN_BLOCK)
        place = self._column(add(start, Var(VECTOR)))
        held, total = self._lane(self.registers, Var(VECTOR)), self._here(self.sums, *place)
        weight = Read(self.weights, (point,))
        grown = self._grown(held, running, weight, add(first, point))

        def each(statement: Statement) -> Statement:
            inner = self._each_lane(lanes, statement)
            return Loop(iterator=VECTOR, extent=vectors, kind=LoopKind.UNROLLED, body=(inner,))

        yield each(_set(held, Binary("mul", total, self._only(self.scale))))
        summed = each(_set(held, substitute(grown, {self.tiled.name: place[-1]})))
        yield unrolled_in_part(point.name, points, self.plan.unroll, summed)
        yield each(_set(total, held))

    # --- after the last block

    def _leave(self) -> Iterable[Statement]:
        """A part's maximum and its sums, lanes added up."""
        yield _set(self._here(self.peaks), self._only(self.peak))
        for name, buffer in self.partial.items():
            total = self._here(self.totals[name])
            yield _set(total, self._number(0.0))
            added = Binary("add", total, self._lane(buffer))
            yield Loop(iterator=LANE, extent=self.plan.lanes, body=(_set(total, added),))

    def _combined(self, number: Scalar) -> Iterable[Statement]:
        """The result of a row from its parts.

        Where all points of a row are minus infinity, the exponentials are of a difference
        of infinities, and all sums of them NaN.
        """
        parts, top = self.plan.parts, self._only(self.top)
        peak = Read(self.peaks, (Var(PART), number))
        factor = Read(self.factors, (Var(PART),))
        yield _set(top, self._number(float("-inf")))
        yield Loop(iterator=PART, extent=parts, body=(_set(top, greater(peak, top)),))
        raised = Unary("exp", Binary("sub", peak, subtrahend(top, self.group.dtype)))
        yield Loop(iterator=PART, extent=parts, body=(_set(factor, raised),))
        for name, buffer in self.totals.items():
            whole = self._only(self.whole[name])
            term = Binary("mul", factor, Read(buffer, (Var(PART), number)))
            yield _set(whole, self._number(0.0))
            added = _set(whole, Binary("add", whole, term))
            yield Loop(iterator=PART, extent=parts, body=(added,))
        yield self._results(number)

    def _results(self, number: Scalar) -> Statement:
        """The output's columns of a row."""
        lanes, top, output = self.plan.column_lanes, self._only(self.top), self.group.output
        place, held = self._column(Var(VECTOR)), self._lane(self.result)
        factor = Read(self.factors, (Var(PART),))
        term = Binary("mul", factor, Read(self.sums, (Var(PART), number, *place)))
        none = Binary("eq", top, self._number(float("-inf")))
        totals = {name: self._only(buffer) for name, buffer in self.whole.items()}
        totals[self.group.sums[-1].name] = held
        nan = self._number(float("nan"))
        values: dict[str, Scalar] = {
            name: Select(none, nan, total) for name, total in totals.items()
        }
        values[self.group.peak] = top
        places = self.plan.place(number) | {self.tiled.name: place[-1]}
        body = substitute(replace_reads(self._padded(output.body), values), places)
        indices = tuple(substitute(Var(axis.name), places) for axis in output.axes)
        store = Store(buffer=output.name, indices=indices, value=Cast(output.dtype, body))
        added = self._each_lane(lanes, _set(held, Binary("add", held, term)))
        return self._each_vector(
            self._each_lane(lanes, _set(held, self._number(0.0))),
            Loop(iterator=PART, extent=self.plan.parts, body=(added,)),
            self._each_lane(lanes, store),
        )


def _set(to: Read, value: Scalar) -> Store:
    return Store(buffer=to.tensor, indices=to.indices, value=value)
