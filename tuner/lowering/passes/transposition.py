"""Transposition of rectangles in registers: rows loaded, shuffled, columns stored.

A schedule annotates the outer of two innermost loops of a copy. This pass runs on every
scheduled module before it is compiled, and replaces the two loops.

The network of shuffles is Eklundh's (1972). In log2(n) rounds, each pair of rows 2^k
apart swaps its off-diagonal blocks of side 2^k by two shuffles. That is n log2(n)
shuffles for a square of n rows instead of n^2 scalar moves. Its last rounds, within 128
bits, interleave rows instead, which is one instruction everywhere. Rows that are no
power of two are done in parts that are, the largest first. Of m rows of n lanes, the
squares of m by m are done side by side at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.s_tir import SBlockRealize

from tuner.lowering.passes.substitution import bound_body, substituted, with_replaced

TRANSPOSE, TRANSPOSE_WORDS = "tuner_transpose", "tuner_transpose_words"  # the annotations
# Within so many bits x86's unpack and Arm's zip instructions interleave two vectors.
NEAR_BITS = 128


def transpose_in_registers(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with annotated pairs of loops, or three loops, transposed in registers."""
    return with_replaced(mod, tirx.For, _replaced)


def _replaced(loop: tirx.For) -> tirx.Stmt:
    """The transposition of annotated loops; any other loop as it is."""
    for annotation, of_words in ((TRANSPOSE, False), (TRANSPOSE_WORDS, True)):
        if annotation in loop.annotations:
            copy = _copy_of(loop, int(loop.annotations[annotation]), of_words=of_words)
            return loop if copy is None else copy.statement()
    return loop


def _copy_of(loop: tirx.For, lanes: int, *, of_words: bool) -> _TransposingCopy | None:
    """The copy of annotated loops; None where what is read is rounded first.

    `lanes`: those of a vector; 1 in schedules from before rectangles, which means all.
    """
    rows = loop.body
    elements = rows.body if of_words else None
    realize = (elements or rows).body
    assert isinstance(realize, SBlockRealize)
    store = bound_body(realize)
    load = store.value if isinstance(store.value, tvm.ir.TensorLoad) else store.value.args[0]
    if not isinstance(load, tvm.ir.TensorLoad):
        return None
    return _TransposingCopy(
        columns=loop,
        rows=rows,
        elements=elements,
        load=load,
        store=store,
        width=lanes if lanes > 1 else int(loop.extent),
    )


@dataclass(frozen=True, kw_only=True)
class _TransposingCopy:
    """Loops of a copy that reads along one of them and writes along the other.

    It goes rectangle by rectangle along `columns`. Where `width` does not divide these the
    last rectangle is moved back, and writes some elements again.
    """

    columns: tirx.For  # along which reads are contiguous
    rows: tirx.For  # along which writes are contiguous
    elements: tirx.For | None  # of a word; None where words are elements
    load: tvm.ir.TensorLoad
    store: tirx.BufferStore
    width: int  # columns of a rectangle, the lanes of its vectors

    @property
    def index_dtype(self) -> str:
        return str(self.columns.loop_var.ty)

    @property
    def word_elements(self) -> int:
        return 1 if self.elements is None else int(self.elements.extent)

    @property
    def word_dtype(self) -> str:
        """The dtype in which words are shuffled."""
        if self.elements is None:
            return str(self.load.source.dtype)
        return f"int{self.word_elements * tvm.DataType(str(self.store.buffer.dtype)).bits}"

    def statement(self) -> tirx.Stmt:
        """The loads, shuffles and stores, in a loop where there are several rectangles."""
        kind, extent = self.index_dtype, int(self.columns.extent)
        count = -(-extent // self.width)
        if count == 1:
            return self._rectangle(tirx.const(0, kind))
        number = tirx.Var("turn", kind)
        first = number * self.width
        if extent % self.width != 0:
            first = tirx.min(first, tirx.const(extent - self.width, kind))
        zero, rectangles = tirx.const(0, kind), tirx.const(count, kind)
        return tirx.For(number, zero, rectangles, tirx.ForKind.SERIAL, self._rectangle(first))

    def _rectangle(self, first_column: tvm.ir.PrimExpr) -> tirx.Stmt:
        """The transposition of the columns from `first_column` on."""
        width = self.width
        network = _Network(self.word_dtype, width)
        loaded = [
            network.bind(self._load_row(first_column, row)) for row in range(int(self.rows.extent))
        ]
        stores = []
        for first, count in _powers(len(loaded), width):
            for column, (vector, lane) in enumerate(network.columns(loaded[first : first + count])):
                lanes = list(range(lane, lane + count))
                value = vector if count == width else _shuffle([vector], lanes)
                place = self._place(
                    self.store.indices,
                    first,
                    first_column + tirx.const(column, self.index_dtype),
                    count,
                )
                stores.append(tirx.BufferStore(self.store.buffer, self._as_elements(value), place))
        return tirx.SeqStmt([*network.bindings, *stores])

    def _load_row(self, first_column: tvm.ir.PrimExpr, row: int) -> tvm.ir.PrimExpr:
        """A row of a rectangle, as a vector of words."""
        first = first_column + tirx.const(0, self.index_dtype)
        place = self._place(self.load.indices, row, first, self.width)
        vector = tirx.BufferLoad(self.load.source, place)
        if self.elements is None:
            return vector
        return tirx.reinterpret(f"{self.word_dtype}x{self.width}", vector)

    def _as_elements(self, vector: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        """A vector of words as one of elements."""
        if self.elements is None:
            return vector
        dtype = self.store.buffer.dtype
        return tirx.reinterpret(f"{dtype}x{self.width * self.word_elements}", vector)

    def _place(
        self, indices: Sequence[tvm.ir.PrimExpr], row: int, column: tvm.ir.PrimExpr, count: int
    ) -> list[tvm.ir.PrimExpr]:
        """The indices at a point, as a vector of `count` words along the last dimension."""
        kind, lanes = self.index_dtype, count * self.word_elements
        point = {self.rows.loop_var: tirx.const(row, kind), self.columns.loop_var: column}
        if self.elements is not None:
            point[self.elements.loop_var] = tirx.const(0, kind)
        placed = [substituted(index, point) for index in indices]
        if lanes == 1:
            return placed
        return [*placed[:-1], tirx.Ramp(placed[-1], tirx.const(1, kind), lanes)]


def _powers(rows: int, most: int) -> list[tuple[int, int]]:
    """The rows in parts (first, count). Each count is a power of two, at most `most`."""
    parts, first = [], 0
    while first < rows:
        count = min(most, 1 << ((rows - first).bit_length() - 1))
        parts.append((first, count))
        first += count
    return parts


class _Network:
    """The shuffles of one rectangle. `bindings` are its intermediate vectors, in order."""

    def __init__(self, dtype: str, size: int) -> None:
        self.bindings: list[tirx.Stmt] = []
        self._dtype, self._size = f"{dtype}x{size}", size
        self._near = min(size, NEAR_BITS // tvm.runtime.DataType(dtype).bits)

    def bind(self, value: tvm.ir.PrimExpr) -> tirx.Var:
        name = tirx.Var(f"t{len(self.bindings)}", self._dtype)
        self.bindings.append(tirx.Bind(name, value))
        return name

    def columns(self, rows: list[tirx.Var]) -> list[tuple[tirx.Var, int]]:
        """Where each column of the rows is after the network: a vector and its first lane.

        The number of rows must be a power of two.
        """
        count, near = len(rows), self._near
        step = count // 2
        while step >= near:
            rows = self._swapped(rows, step)
            step //= 2
        block = min(count, near)
        blocks = [
            self._interleaved(rows[first : first + block]) for first in range(0, count, block)
        ]
        shuffled = [vector for vectors in blocks for vector in vectors]
        if count >= near:
            return [
                (shuffled[column % count], column // count * count) for column in range(self._size)
            ]
        places = [divmod(column % near * count, near) for column in range(self._size)]
        return [
            (shuffled[number], column // near * near + lane)
            for column, (number, lane) in enumerate(places)
        ]

    def _swapped(self, rows: list[tirx.Var], step: int) -> list[tirx.Var]:
        """The rows with off-diagonal squares of side `step` swapped."""
        swapped = list(rows)
        for row in range(len(rows)):
            if row & step:
                continue
            pair = [rows[row], rows[row + step]]
            low = [
                lane if not lane & step else self._size + lane - step for lane in range(self._size)
            ]
            high = [
                lane + step if not lane & step else self._size + lane for lane in range(self._size)
            ]
            swapped[row] = self.bind(_shuffle(pair, low))
            swapped[row + step] = self.bind(_shuffle(pair, high))
        return swapped

    def _interleaved(self, rows: list[tirx.Var]) -> list[tirx.Var]:
        """The rows with their elements interleaved within each 128 bits.

        As many rows as 128 bits have elements become their columns.
        """
        half = len(rows) // 2
        for _ in range(half.bit_length()):
            rows = [
                self.bind(_shuffle([rows[row], rows[row + half]], self._unpacked(part)))
                for row in range(half)
                for part in (0, self._near // 2)
            ]
        return rows

    def _unpacked(self, first: int) -> list[int]:
        """The lanes of two vectors that one unpack instruction takes.

        Half of each 128 bits, from lane `first` on.
        """
        return [
            near + first + lane // 2 + (self._size if lane % 2 else 0)
            for near in range(0, self._size, self._near)
            for lane in range(self._near)
        ]


def _shuffle(pair: list[tirx.Var], lanes: list[int]) -> tvm.ir.PrimExpr:
    return tirx.Shuffle(pair, [tirx.const(lane, "int32") for lane in lanes])
