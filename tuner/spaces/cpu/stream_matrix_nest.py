"""Rows that stream by, with both products in matrix registers.

As `StreamNest`, of operands of bfloat16. Vectors still go along rows: the instructions add
products of a register whose rows are points, or columns, with one whose lanes are rows of
the result. Elements of the streamed operand are read where they lie, of the other one
those of two neighbouring terms make a word. So do those of the last sum's factor, which
are laid out once for all tasks, each column's side by side.

Exponentials are float32, of which three numbers of bfloat16 are all 24 bits: each has the
upper half of what the ones before it leave. Their products with the factor are exact, so
that the sum is one of float32. What is left of an exponential may be zero, whose product
with an infinity would be no number. So those two parts are multiplied with the factor's
finite elements alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tuner.spaces.cpu.running_peak import greater, subtrahend
from tuner.spaces.cpu.stream_nest import (
    COLUMN,
    IN_BLOCK,
    LANE,
    POINT,
    TILE,
    VECTOR,
    StreamNest,
)
from tuner.spaces.cpu.stream_plan import StreamPlan
from tuner.spaces.program.loop_tree import Loop, LoopKind, Statement, Store, unrolled_in_part
from tuner.spaces.program.tiles import add, at_most, constant, times
from tuner.spaces.rewrite.access import with_explicit_padding
from tuner.spaces.rewrite.stream_products import StreamProducts
from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Unary,
    Var,
    rewrite,
    substitute,
)

STEP, WORD, NUMBER, PART = "_step", "_word", "_number", "_part"
PARTS = 3  # of bfloat16 that make a float32
NUMBERS, WORDS = 2, 16  # of a word of 32 bits, and of a register's row
TERMS = NUMBERS * WORDS  # that one instruction adds
UPPER = 0xFFFF0000  # bits that a bfloat16 has of a float32


class MatrixStreamNest(StreamNest):
    """The tree of loops of one plan, whose tiles and blocks are whole registers."""

    def __init__(
        self,
        plan: StreamPlan,
        operands: StreamProducts,
        shapes: Mapping[str, tuple[int, ...]],
        dtypes: Mapping[str, DType],
    ) -> None:
        super().__init__(plan, shapes, dtypes)
        self.operands = operands
        self.counted: Scalar | None = None  # the first point of a block that counts
        depth = operands.depth.extent
        self.resident = self._buffer("q", depth // NUMBERS, plan.rows)
        self.split = self._buffer("p", PARTS, plan.block // NUMBERS, plan.rows)
        pairs, columns = self.group.stream.extent // NUMBERS, self.tiled.extent
        outer = [axis.extent for axis in operands.factor_rows]
        self.paired = self._buffer("v", 2, pairs, columns)
        self.factor = self._buffer("u", *outer, 2, columns, pairs)

    # --- before all tasks

    def _before(self) -> Iterable[Statement]:
        """The factor of the last sum with pairs of points as words, column by column."""
        pairs, columns = self.group.stream.extent // NUMBERS, self.tiled.extent
        point, column = times(Var(POINT), NUMBERS), Var(self.tiled.name)
        words = [
            self._word(
                *(self._factor_bits(add(point, constant(n)), finite=finite) for n in range(NUMBERS))
            )
            for finite in (False, True)
        ]
        stores = tuple(
            Store(buffer=self.paired, indices=(constant(n), Var(POINT), column), value=word)
            for n, word in enumerate(words)
        )
        body: tuple[Statement, ...] = (
            Loop(
                iterator=POINT,
                extent=pairs,
                body=tuple(self._in_vectors(store, self.tiled.name, columns) for store in stores),
            ),
            Loop(iterator=PART, extent=2, body=tuple(self._turned_words(pairs, columns))),
        )
        kind = LoopKind.PARALLEL if self.plan.threads > 1 else LoopKind.SERIAL
        for axis in reversed(self.operands.factor_rows):
            body = (Loop(iterator=axis.name, extent=axis.extent, body=body, kind=kind),)
            kind = LoopKind.SERIAL
        yield from body

    def _in_vectors(self, store: Store, iterator: str, extent: int) -> Statement:
        """A store for all values of an iterator, lane by lane."""
        lanes = self.plan.lanes
        moved = Store(
            buffer=store.buffer,
            indices=tuple(
                substitute(index, {iterator: add(times(Var(TILE), lanes), Var(LANE))})
                for index in store.indices
            ),
            value=substitute(store.value, {iterator: add(times(Var(TILE), lanes), Var(LANE))}),
        )
        inner = Loop(iterator=LANE, extent=lanes, kind=LoopKind.VECTOR, body=(moved,))
        return Loop(iterator=TILE, extent=extent // lanes, body=(inner,))

    def _turned_words(self, pairs: int, columns: int) -> Iterable[Statement]:
        """The copy of a matrix of words with its dimensions exchanged."""
        lanes, column = self.plan.lanes, Var(COLUMN)
        outer = [Var(axis.name) for axis in self.operands.factor_rows]
        whole, left = divmod(pairs, lanes)
        for count, width in ((whole, lanes), (1, left)):
            if not count or not width:
                continue
            first = times(Var(TILE), lanes) if width == lanes else constant(whole * lanes)
            pair = add(first, Var(LANE))
            store = Store(
                buffer=self.factor,
                indices=(*outer, Var(PART), column, pair),
                value=Read(self.paired, (Var(PART), pair, column)),
            )
            body = Loop(
                iterator=COLUMN,
                extent=columns,
                body=(Loop(iterator=LANE, extent=width, body=(store,)),),
                transposed=lanes if width == lanes else 0,
            )
            yield Loop(iterator=TILE, extent=count, body=(body,))

    def _factor_bits(self, point: Scalar, *, finite: bool) -> Scalar:
        """Bits of an element of the factor; with `finite` zero for what is not."""
        read = substitute(self.operands.factor, {self.group.stream.name: point})
        number: Scalar = Cast("float32", read)
        if finite:
            infinite = Const(float("inf"), "float32")
            number = Select(
                Binary("lt", Unary("abs", number), infinite), number, Const(0.0, "float32")
            )
        return Bitcast("uint32", "float32", number)

    def _pack(self) -> Iterable[Statement]:
        """The product's operand that differs between rows, rows of words side by side."""
        depth = self.operands.depth
        bits = (
            Bitcast(
                "uint32",
                "float32",
                Cast(
                    "float32",
                    self._at(
                        self.operands.resident,
                        **{depth.name: add(times(Var(WORD), NUMBERS), constant(number))},
                    ),
                ),
            )
            for number in range(NUMBERS)
        )
        store = self._set(self._row(self.resident, Var(WORD)), self._word(*bits))
        yield Loop(iterator=WORD, extent=depth.extent // NUMBERS, body=(self._each_row(store),))

    # --- block by block

    def _block(self, first: Scalar, points: int) -> Iterable[Statement]:
        """As the stream nest has it; a last one that is no multiple of what an instruction
        adds begins earlier, at points that do not count again."""
        missing = -points % TERMS
        self.counted = first if missing else None
        start = add(first, constant(-missing)) if missing else first
        yield from super()._block(start, points + missing)

    def _values(self, first: Scalar, points: int) -> Iterable[Statement]:
        tile = min(self.plan.points, points)
        start = times(Var(TILE), tile)
        if points % tile:
            start = at_most(start, points - tile)
        place = add(start, Var(POINT))
        point = add(first, place)
        weight, highest = self._row(self.weights, place), self._row(self.highest)
        product = self.group.product
        assert product is not None
        value = with_explicit_padding(self.group.value, self.shapes, self._extents())
        given = {each.read: self._row(each.turned, place) for each in self.turned}
        value = rewrite(
            value,
            lambda node: (
                (weight if node.tensor == product.name else given.get(node))
                if isinstance(node, Read)
                else None
            ),
        )
        placed = self._at(value, point)
        if self.counted is not None:
            again = Binary("lt", point, self.counted)
            placed = Select(again, self._number(float("-inf")), placed)
        depth = self.operands.depth
        term = add(times(Var(STEP), TERMS), add(times(Var(WORD), NUMBERS), Var(NUMBER)))
        streamed = self._at(self.operands.streamed, point, **{depth.name: term})
        resident = self._row(self.resident, add(times(Var(STEP), WORDS), Var(WORD)))
        zeroed = self._of_registers(self._set(weight, self._number(0.0)), POINT, tile)
        added = self._added(
            weight, POINT, tile, (streamed, self._half(resident)), [(STEP, depth.extent // TERMS)]
        )
        finished = unrolled_in_part(
            POINT,
            tile,
            self.plan.unroll,
            self._each_row(self._set(weight, placed), self._set(highest, greater(weight, highest))),
        )
        yield Loop(iterator=TILE, extent=-(-points // tile), body=(zeroed, added, finished))

    def _exponentials(self, first: Scalar, points: int) -> Iterable[Statement]:
        """The weights of the block's points, their sum, and the parts that they are split into."""
        (running,) = self.group.sums[:-1]
        pair = Var(IN_BLOCK)
        partial, total = self._row(self.partial), self._row(self.totals[running.name])
        peak = subtrahend(self._row(self.peak), self.group.dtype)
        weights = [
            self._row(self.weights, add(times(pair, NUMBERS), constant(number)))
            for number in range(NUMBERS)
        ]
        body: list[Statement] = []
        for weight in weights:
            body.append(self._set(weight, Unary("exp", Binary("sub", weight, peak))))
            body.append(self._set(partial, Binary("add", partial, weight)))
        left: list[Scalar] = [*weights]
        for part in range(PARTS):
            word = self._word(*(Bitcast("uint32", "float32", number) for number in left))
            body.append(self._set(self._row(self.split, constant(part), pair), word))
            left = [Binary("sub", number, _upper(number)) for number in left]
        scaled = Binary("mul", total, self._row(self.scale))
        yield self._each_row(self._set(partial, scaled))
        yield unrolled_in_part(
            pair.name, points // NUMBERS, self.plan.unroll, self._each_row(*body)
        )
        yield self._each_row(self._set(total, partial))

    def _sum_tile(
        self, first: Scalar, points: int, start: Scalar, tile: int
    ) -> Iterable[Statement]:
        column = add(start, Var(COLUMN))
        total = self._row(self.totals[self.group.sums[-1].name], column)
        scaled = self._set(total, Binary("mul", total, self._row(self.scale)))
        yield Loop(iterator=COLUMN, extent=tile, body=(self._each_row(scaled),))
        word = add(times(Var(STEP), WORDS), Var(WORD))
        before = Binary("floordiv", first, constant(NUMBERS))
        outer = (self._at(Var(axis.name)) for axis in self.operands.factor_rows)
        factor = Read(self.factor, (*outer, at_most(Var(PART), 1), column, add(before, word)))
        weight = self._row(self.split, Var(PART), word)
        yield self._added(
            total,
            COLUMN,
            tile,
            (self._half(factor), self._half(weight)),
            [(PART, PARTS), (STEP, points // TERMS)],
        )

    # --- matrix registers

    def _added(
        self,
        sums: Read,
        rows: str,
        extent: int,
        factors: tuple[Scalar, Scalar],
        steps: list[tuple[str, int]],
    ) -> Statement:
        """Products of two factors added to sums, whose rows an iterator goes along."""
        product = Binary("mul", *(Cast("float32", factor) for factor in factors))
        body: Statement = self._set(sums, Binary("add", sums, product))
        for iterator, count in ((NUMBER, NUMBERS), (WORD, WORDS)):
            body = Loop(iterator=iterator, extent=count, body=(body,), in_matrices=True)
        body = self._of_registers(body, rows, extent)
        for place, (iterator, count) in reversed(list(enumerate(steps))):
            body = Loop(iterator=iterator, extent=count, body=(body,), in_matrices=place == 0)
        return body

    def _of_registers(self, body: Statement, rows: str, extent: int) -> Statement:
        """A statement for all elements of some registers of sums."""
        for iterator, count in (
            (LANE, self.plan.lanes),
            (VECTOR, self.plan.vectors),
            (rows, extent),
        ):
            body = Loop(iterator=iterator, extent=count, body=(body,), in_matrices=True)
        return body

    def _half(self, word: Read) -> Scalar:
        """The number of a word that an iterator counts."""
        bits = Binary(
            "shr",
            Bitcast("uint32", "float32", word),
            Cast("uint32", times(Var(NUMBER), 16)),
        )
        return Bitcast("bfloat16", "uint16", Cast("uint16", bits))

    def _word(self, first: Scalar, second: Scalar) -> Scalar:
        """A word of the upper halves of two numbers' bits, as one that is stored."""
        lower = Binary("shr", first, Const(16, "uint32"))
        upper = Binary("bitand", second, Const(UPPER, "uint32"))
        return Bitcast("float32", "uint32", Binary("bitor", lower, upper))


def _upper(number: Scalar) -> Scalar:
    """The number with the bits alone that a bfloat16 has."""
    bits = Bitcast("uint32", "float32", number)
    return Bitcast("float32", "uint32", Binary("bitand", bits, Const(UPPER, "uint32")))
