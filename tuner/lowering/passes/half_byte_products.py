"""Sums of products of 8-bit integers with four bits of bytes, in the loops that a schedule
marks.

A schedule annotates the outermost of three loops: vector lanes, halves of a byte, bytes of
a word. The pass loads a vector of words once, and masks the low and the high halves of
their bytes, each of which one instruction multiplies with the four integers that all lanes
share. Four bits are below 16, so they are bytes with a sign and without one.
"""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.s_tir import SBlockRealize

from tuner.lowering.passes.dot_products import four_products
from tuner.lowering.passes.substitution import (
    bound_body,
    bound_prefetches,
    loads_of,
    substituted,
    with_replaced,
)
from tuner.target.isa import DotProduct, IsaDescription

DOT_HALVES = "tuner_sum_halves"  # the annotation, as stored schedules have it
WORD_BYTES, HALF_BITS = 4, 4
LOW_HALVES = 0x0F0F0F0F


def use_half_byte_products(mod: tvm.IRModule, isa: IsaDescription) -> tvm.IRModule:
    """The module with every annotated nest of loops replaced.

    A sum stays as loops where `isa` lacks its instruction: schedules are compiled for
    poorer CPUs too.
    """

    def replaced(loop: tirx.For) -> tirx.Stmt:
        if DOT_HALVES not in loop.annotations:
            return loop
        if isinstance(loop.body, tirx.For) and isinstance(loop.body.body, tirx.For):
            dot = _instruction(loop, isa)
            if dot is not None:
                return _summed(loop, dot)
        # TVM copies the annotation to the loop that initialises the sums.
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, loop.body)

    return with_replaced(mod, tirx.For, replaced)


def _store(loop: tirx.For) -> tirx.BufferStore:
    realized = loop.body.body.body
    assert isinstance(realized, SBlockRealize)
    return bound_body(realized)


def _instruction(loop: tirx.For, isa: IsaDescription) -> DotProduct | None:
    """That takes fours of the shared integers, for as many lanes."""
    (shared,) = loads_of(_store(loop).value.b.a)
    return next(
        (
            dot
            for dot in isa.dot_products
            if (dot.group, dot.lanes) == (WORD_BYTES, int(loop.extent))
            and dot.accumulator == "int32"
            and str(shared.ty) in dot.factors
        ),
        None,
    )


def _summed(loop: tirx.For, dot: DotProduct) -> tirx.Stmt:
    store, lanes = _store(loop), int(loop.extent)
    lane, half, byte = loop.loop_var, loop.body.loop_var, loop.body.body.loop_var
    (shared,), (packed,) = loads_of(store.value.b.a), loads_of(store.value.b.b)

    def vector(
        load: tvm.ir.TensorLoad | tirx.BufferStore, width: int, number: int = 0
    ) -> list[tvm.ir.PrimExpr]:
        places = {lane: 0, half: number, byte: 0}
        start = {name: tirx.const(place, str(name.ty)) for name, place in places.items()}
        *outer, last = [substituted(index, start) for index in load.indices]
        return [*outer, tirx.Ramp(last, tirx.const(1, "int32"), width)]

    words = tirx.Var("words", f"int32x{lanes}")
    loaded = tirx.BufferLoad(packed.source, vector(packed, WORD_BYTES * lanes))
    place = vector(store, lanes)
    total: tvm.ir.PrimExpr = tirx.BufferLoad(store.buffer, place)
    mask = tirx.Broadcast(tirx.const(LOW_HALVES, "int32"), lanes)
    for number in range(int(loop.body.extent)):
        bits = tirx.Broadcast(tirx.const(number * HALF_BITS, "int32"), lanes)
        shifted = tirx.shift_right(words, bits) if number else words
        four = tirx.BufferLoad(shared.source, vector(shared, WORD_BYTES, number))
        integers = tirx.Broadcast(tirx.reinterpret("int32", four), lanes)
        total = four_products(
            total,
            integers,
            tirx.bitwise_and(shifted, mask),
            dot,
            first_is_signed=str(shared.ty) == "int8",
        )
    return tirx.SeqStmt(
        [
            *bound_prefetches(loop.body.body.body),
            tirx.Bind(words, tirx.reinterpret(f"int32x{lanes}", loaded)),
            tirx.BufferStore(store.buffer, total, place),
        ]
    )
