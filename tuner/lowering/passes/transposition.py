"""Squares and rectangles transposed in registers: rows loaded as vectors, a network of
shuffles, columns stored as vectors.

A schedule annotates the outer of two innermost loops of a copy; this pass, run on every
scheduled module before it is compiled, replaces the two loops. The network is Eklundh's
(1972): in log2(n) rounds, each pair of rows 2^k apart swaps the off-diagonal blocks of
side 2^k, two shuffles a pair; n log2(n) shuffles for an n x n square instead of n^2
scalar moves. Its last rounds, within 128 bits, interleave rows instead, as one
instruction does everywhere. Rows that are no power of two are taken in parts that are,
the largest first, and of m rows of n lanes the m x m squares side by side in one go.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_map

TRANSPOSE, TRANSPOSE_WORDS = "tuner_transpose", "tuner_transpose_words"  # the annotations
NEAR_BITS = (
    128  # within which x86's unpacking and ARM's zipping instructions interleave two vectors
)


def transpose_in_registers(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with every annotated pair of loops, or three of them, replaced by
    loads, shuffles and stores."""
    functions = {
        name: structural_map(function, (tirx.For, _replaced))
        for name, function in mod.functions.items()
    }
    return tvm.IRModule(functions, attrs=mod.attrs)


def _replaced(loop: tirx.For) -> tirx.Stmt:
    for annotation, within in ((TRANSPOSE, False), (TRANSPOSE_WORDS, True)):
        if annotation in loop.annotations:
            lanes = int(
                loop.annotations[annotation]
            )  # 1 in schedules stored before there were rectangles
            numbers = loop.body.body if within else None
            return _transposed(
                loop, loop.body, numbers, size=lanes if lanes > 1 else int(loop.extent)
            )
    return loop


def _transposed(
    loop: tirx.For, inner: tirx.For, within: tirx.For | None, *, size: int
) -> tirx.Stmt:
    """What is read lies side by side along `loop`, `size` of which a vector takes, what
    is written along `inner`; words are of the numbers along `within`. Where `size` does
    not divide the loop the last rectangle is moved back: it writes some again."""
    realize = (within or inner).body
    assert isinstance(realize, SBlockRealize)
    values = {
        iterator.var: value
        for iterator, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)
    }
    store = _substituted(realize.block.body, values)
    whole, rows, numbers = (
        int(loop.extent),
        int(inner.extent),
        1 if within is None else int(within.extent),
    )
    load = store.value if isinstance(store.value, tvm.ir.TensorLoad) else store.value.args[0]
    if not isinstance(load, tvm.ir.TensorLoad):
        return loop  # not a copy alone: what is read is rounded first
    source, target, kind = load.source, store.buffer, str(loop.loop_var.ty)
    turns = -(-whole // size)
    turn = tirx.Var("turn", kind) if turns > 1 else tirx.const(0, kind)
    begin = (
        turn * size if whole % size == 0 else tirx.min(turn * size, tirx.const(whole - size, kind))
    )
    numbered = {} if within is None else {within.loop_var: tirx.const(0, kind)}

    def vector(
        indices: list[tvm.ir.PrimExpr], row: int, column: int, count: int
    ) -> list[tvm.ir.PrimExpr]:
        at = {
            inner.loop_var: tirx.const(row, kind),
            loop.loop_var: begin + tirx.const(column, kind),
        } | numbered
        placed = [_substituted(index, at) for index in indices]
        if count * numbers == 1:
            return placed
        return [*placed[:-1], tirx.Ramp(placed[-1], tirx.const(1, kind), count * numbers)]

    word = f"int{numbers * tvm.DataType(str(target.dtype)).bits}"  # of several narrower numbers

    def as_words(row: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        return row if within is None else tirx.reinterpret(f"{word}x{size}", row)

    def as_numbers(column: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        return (
            column
            if within is None
            else tirx.reinterpret(f"{target.dtype}x{size * numbers}", column)
        )

    network = _Network(str(source.dtype) if within is None else word, size)
    loaded = [
        network.bind(as_words(tirx.BufferLoad(source, vector(load.indices, row, 0, size))))
        for row in range(rows)
    ]
    stores = []
    for first, count in _powers(rows, size):
        for column, (found, lane) in enumerate(network.columns(loaded[first : first + count])):
            value = as_numbers(
                found if count == size else _shuffle([found], list(range(lane, lane + count)))
            )
            stores.append(
                tirx.BufferStore(target, value, vector(store.indices, first, column, count))
            )
    body = tirx.SeqStmt([*network.bindings, *stores])
    return (
        body
        if turns == 1
        else tirx.For(turn, tirx.const(0, kind), tirx.const(turns, kind), tirx.ForKind.SERIAL, body)
    )


def _powers(rows: int, most: int) -> list[tuple[int, int]]:
    """The rows in parts (first, how many) of a power of two each, at most as many."""
    parts, first = [], 0
    while first < rows:
        count = min(most, 1 << ((rows - first).bit_length() - 1))
        parts.append((first, count))
        first += count
    return parts


def _substituted(node: tvm.ir.Node, values: dict[tirx.Var, tvm.ir.PrimExpr]) -> Any:
    return structural_map(node, (tirx.Var, lambda name: values.get(name, name)))


class _Network:
    def __init__(self, dtype: str, size: int) -> None:
        self.bindings: list[tirx.Stmt] = []
        self._dtype, self._size = f"{dtype}x{size}", size
        self._near = min(size, NEAR_BITS // tvm.runtime.DataType(dtype).bits)

    def bind(self, value: tvm.ir.PrimExpr) -> tirx.Var:
        name = tirx.Var(f"t{len(self.bindings)}", self._dtype)
        self.bindings.append(tirx.Bind(name, value))
        return name

    def columns(self, rows: list[tirx.Var]) -> list[tuple[tirx.Var, int]]:
        """Where each column of the rows, a power of two of them, is after the network:
        a vector, and the first of its lanes."""
        count, near = len(rows), self._near
        step = count // 2
        while step >= near:
            rows = self._swapped(rows, step)
            step //= 2
        block = min(count, near)
        blocks = [
            self._interleaved(rows[first : first + block]) for first in range(0, count, block)
        ]
        found = [vector for vectors in blocks for vector in vectors]
        if count >= near:
            return [
                (found[column % count], column // count * count) for column in range(self._size)
            ]
        places = [divmod(column % near * count, near) for column in range(self._size)]
        return [
            (found[number], column // near * near + lane)
            for column, (number, lane) in enumerate(places)
        ]

    def _swapped(self, rows: list[tirx.Var], step: int) -> list[tirx.Var]:
        """Rows `step` apart swap their off-diagonal squares of that side."""
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
        """Within each 128 bits, the rows' elements by turns: of as many rows as those
        have elements, their columns."""
        half = len(rows) // 2
        for _ in range(half.bit_length()):
            rows = [
                self.bind(_shuffle([rows[row], rows[row + half]], self._by_turns(part)))
                for row in range(half)
                for part in (0, self._near // 2)
            ]
        return rows

    def _by_turns(self, first: int) -> list[int]:
        """The lanes of two vectors that one unpacking instruction takes, of each 128
        bits half, from `first` on."""
        return [
            near + first + lane // 2 + (self._size if lane % 2 else 0)
            for near in range(0, self._size, self._near)
            for lane in range(self._near)
        ]


def _shuffle(pair: list[tirx.Var], lanes: list[int]) -> tvm.ir.PrimExpr:
    return tirx.Shuffle(pair, [tirx.const(lane, "int32") for lane in lanes])
