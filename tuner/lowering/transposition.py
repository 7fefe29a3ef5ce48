"""Squares transposed in registers: rows loaded as vectors, a network of shuffles, columns stored as vectors.

A schedule annotates the outer of two innermost loops of a copy; this pass, run on every scheduled module before it is compiled,
replaces the two loops. The network is Eklundh's (1972): in log2(n) rounds, each pair of rows 2^k apart swaps the off-diagonal
blocks of side 2^k, two shuffles a pair; n log2(n) shuffles for an n x n square instead of n^2 scalar moves.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlockRealize
from tvm_ffi import structural_map

TRANSPOSE, TRANSPOSE_WORDS = "tuner_transpose", "tuner_transpose_words"  # the annotations
WORD = "int32"  # of several narrower numbers


def transpose_squares(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with every annotated pair of loops, or three of them, replaced by loads, shuffles and stores."""
    functions = {name: structural_map(function, (tirx.For, _replaced)) for name, function in mod.functions.items()}
    return tvm.IRModule(functions, attrs=mod.attrs)


def _replaced(loop: tirx.For) -> tirx.Stmt:
    if TRANSPOSE in loop.annotations:
        return _transposed(loop, loop.body, None)
    if TRANSPOSE_WORDS in loop.annotations:
        return _transposed(loop, loop.body, loop.body.body)
    return loop


def _transposed(loop: tirx.For, inner: tirx.For, within: tirx.For | None) -> tirx.Stmt:
    """What is read lies side by side along `loop`, what is written along `inner`; words are of the numbers along `within`."""
    realize = (within or inner).body
    assert isinstance(realize, SBlockRealize)
    values = {iterator.var: value for iterator, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    store = _substituted(realize.block.body, values)
    size, numbers = int(loop.extent), 1 if within is None else int(within.extent)
    load = store.value if isinstance(store.value, tvm.ir.TensorLoad) else store.value.args[0]
    if not isinstance(load, tvm.ir.TensorLoad):
        return loop  # not a copy alone: what is read is rounded first
    source, target = load.source, store.buffer

    def vector(indices: list[tvm.ir.PrimExpr], fixed: tirx.Var, number: int, moving: tirx.Var) -> list[tvm.ir.PrimExpr]:
        at = {fixed: number, moving: 0} | ({} if within is None else {within.loop_var: 0})
        placed = [_substituted(index, {var: tirx.const(value, str(var.ty)) for var, value in at.items()}) for index in indices]
        return [*placed[:-1], tirx.Ramp(placed[-1], tirx.const(1, str(fixed.ty)), size * numbers)]

    def as_words(row: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        return row if within is None else tirx.reinterpret(f"{WORD}x{size}", row)

    def as_numbers(column: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
        return column if within is None else tirx.reinterpret(f"{target.dtype}x{size * numbers}", column)

    network = _Network(str(source.dtype) if within is None else WORD, size)
    across, along = inner.loop_var, loop.loop_var
    rows = [network.bind(as_words(tirx.BufferLoad(source, vector(load.indices, across, row, along)))) for row in range(size)]
    columns = network.transpose(rows)
    stores = [
        tirx.BufferStore(target, as_numbers(value), vector(store.indices, along, column, across))
        for column, value in enumerate(columns)
    ]
    return tirx.SeqStmt([*network.bindings, *stores])


def _substituted(node: tvm.ir.Node, values: dict[tirx.Var, tvm.ir.PrimExpr]) -> Any:
    return structural_map(node, (tirx.Var, lambda name: values.get(name, name)))


class _Network:
    def __init__(self, dtype: str, size: int) -> None:
        self.bindings: list[tirx.Stmt] = []
        self._dtype, self._size = f"{dtype}x{size}", size

    def bind(self, value: tvm.ir.PrimExpr) -> tirx.Var:
        name = tirx.Var(f"t{len(self.bindings)}", self._dtype)
        self.bindings.append(tirx.Bind(name, value))
        return name

    def transpose(self, rows: list[tirx.Var]) -> list[tirx.Var]:
        size, step = self._size, self._size // 2
        while step:
            swapped = list(rows)
            for row in range(size):
                if row & step:
                    continue
                pair = [rows[row], rows[row + step]]
                low = [lane if not lane & step else size + lane - step for lane in range(size)]
                high = [lane + step if not lane & step else size + lane for lane in range(size)]
                swapped[row] = self.bind(_shuffle(pair, low))
                swapped[row + step] = self.bind(_shuffle(pair, high))
            rows = swapped
            step //= 2
        return rows


def _shuffle(pair: list[tirx.Var], lanes: list[int]) -> tvm.ir.PrimExpr:
    return tirx.Shuffle(pair, [tirx.const(lane, "int32") for lane in lanes])
