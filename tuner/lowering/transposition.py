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

TRANSPOSE = "tuner_transpose"  # the annotation


def transpose_squares(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with every annotated pair of loops replaced by loads, shuffles and stores."""
    functions = {name: structural_map(function, (tirx.For, _replaced)) for name, function in mod.functions.items()}
    return tvm.IRModule(functions, attrs=mod.attrs)


def _replaced(loop: tirx.For) -> tirx.Stmt:
    if TRANSPOSE not in loop.annotations:
        return loop
    inner = loop.body
    realize = inner.body
    assert isinstance(inner, tirx.For) and isinstance(realize, SBlockRealize)
    values = {iterator.var: value for iterator, value in zip(realize.block.iter_vars, realize.iter_values, strict=True)}
    store = _substituted(realize.block.body, values)
    size = int(loop.extent)
    source, target = store.value.source, store.buffer

    def vector(indices: list[tvm.ir.PrimExpr], fixed: tirx.Var, number: int, moving: tirx.Var) -> list[tvm.ir.PrimExpr]:
        dtype = str(fixed.ty)
        placed = [_substituted(index, {fixed: tirx.const(number, dtype), moving: tirx.const(0, dtype)}) for index in indices]
        return [*placed[:-1], tirx.Ramp(placed[-1], tirx.const(1, dtype), size)]

    network = _Network(str(source.dtype), size)
    across, along = inner.loop_var, loop.loop_var
    rows = [network.bind(tirx.BufferLoad(source, vector(store.value.indices, across, row, along))) for row in range(size)]
    columns = network.transpose(rows)
    stores = [
        tirx.BufferStore(target, value, vector(store.indices, along, column, across)) for column, value in enumerate(columns)
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
