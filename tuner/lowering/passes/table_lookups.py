"""Weights of four bits looked up in a register, in the sums of products that a schedule
marks.

A schedule annotates the outermost of three loops: vector lanes, bytes of a word, halves
of a byte. The pass loads a vector of words and shifts it for each of the eight steps.
`vpermps` takes the lowest four bits of each lane; of vectors of eight lanes it takes three
of them, in two registers, between whose numbers the fourth bit chooses.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import SBlockRealize

from tuner.lowering.passes.substitution import (
    bound_body,
    bound_prefetches,
    loads_of,
    substituted,
    with_replaced,
)
from tuner.target.isa import IsaDescription

LOOK_UP = "tuner_look_up"  # the annotation, as stored schedules have it
# By vector lanes, which are also the numbers of a register.
PERMUTE = {16: "llvm.x86.avx512.permvar.sf.512", 8: "llvm.x86.avx2.permps"}
HALF_BITS, BYTE_BITS, WORD_BITS = 4, 8, 32


def use_table_lookups(mod: tvm.IRModule, isa: IsaDescription) -> tvm.IRModule:
    """The module with every annotated nest of loops replaced.

    A sum stays as loops where `isa` has no such table: schedules are compiled for
    poorer CPUs too.
    """

    def replaced(loop: tirx.For) -> tirx.Stmt:
        if LOOK_UP not in loop.annotations:
            return loop
        innermost = isinstance(loop.body, tirx.For) and isinstance(loop.body.body, tirx.For)
        if innermost and int(loop.extent) == isa.table_numbers:
            return _summed(loop)
        # TVM copies the annotation to the loop that initialises the sums.
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, loop.body)

    return with_replaced(mod, tirx.For, replaced)


def _summed(loop: tirx.For) -> tirx.Stmt:
    lanes, bytes_of, halves = int(loop.extent), loop.body, loop.body.body
    assert isinstance(halves.body, SBlockRealize)
    store = bound_body(halves.body)
    lane, byte, half = loop.loop_var, bytes_of.loop_var, halves.loop_var
    shared, weight = store.value.b.a, store.value.b.b
    packed = loads_of(weight)[0]

    def vector(load: tvm.ir.TensorLoad | tirx.BufferStore, width: int) -> list[tvm.ir.PrimExpr]:
        start = {name: tirx.const(0, str(name.ty)) for name in (lane, byte, half)}
        *outer, last = [substituted(index, start) for index in load.indices]
        return [*outer, tirx.Ramp(last, tirx.const(1, "int32"), width)]

    numbers = [tirx.const(float(value), "float32") for value in loop.annotations[LOOK_UP]]
    tables = [
        tirx.Shuffle(numbers, [tirx.const(first + place, "int32") for place in range(lanes)])
        for first in range(0, len(numbers), lanes)
    ]
    width = int(bytes_of.extent) * lanes
    bytes_loaded = tirx.BufferLoad(packed.source, vector(packed, width))
    words = tirx.Var("words", f"uint32x{lanes}")
    place = vector(store, lanes)
    total: tvm.ir.PrimExpr = tirx.BufferLoad(store.buffer, place)
    for number in range(int(bytes_of.extent)):
        for part in range(int(halves.extent)):
            picked = _picked(tables, words, number * BYTE_BITS + part * HALF_BITS)
            step = {
                lane: tirx.const(0, str(lane.ty)),
                byte: tirx.const(number, str(byte.ty)),
                half: tirx.const(part, str(half.ty)),
            }
            factor = tirx.Broadcast(substituted(shared, step), lanes)
            total = total + factor * picked
    return tirx.SeqStmt(
        [
            *bound_prefetches(halves.body),
            tirx.Bind(words, tirx.reinterpret(f"uint32x{lanes}", bytes_loaded)),
            tirx.BufferStore(store.buffer, total, place),
        ]
    )


def _picked(tables: list[tirx.Shuffle], words: tirx.Var, first: int) -> tvm.ir.PrimExpr:
    """The numbers of a table, in one or two registers, that four bits of each word choose;
    the lowest of them is bit `first`."""
    lanes = 16 // len(tables)

    def shifted(by: int, shift: Any) -> tvm.ir.PrimExpr:
        moved = shift(words, tirx.Broadcast(tirx.const(by, "uint32"), lanes))
        return tirx.reinterpret(f"int32x{lanes}", moved)

    places = shifted(first, tirx.shift_right)
    picked = [
        tirx.call_llvm_pure_intrin(f"float32x{lanes}", PERMUTE[lanes], table, places)
        for table in tables
    ]
    if len(picked) == 1:
        return picked[0]
    # The highest of the four bits becomes the sign, by which an instruction blends.
    sign = shifted(WORD_BITS - HALF_BITS - first, tirx.shift_left)
    low, high = picked
    return tirx.Select(sign < tirx.Broadcast(tirx.const(0, "int32"), lanes), high, low)
