"""Dot products of dp2 and dp4 groups: interleaved when packed, summed by one instruction.

A schedule annotates the outer of two innermost loops. This pass runs on every scheduled
module before it is compiled, and replaces the two. Pairs of integers become `acc +
pmaddwd(a, b)` on vector lanes of 16 bits, which LLVM folds into vpdpwssd where the
target has VNNI. Groups of four become vpdpbusd or Arm's sdot, udot and usdot, pairs of
bfloat16 vdpbf16ps or bfdot.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import tvm
from tvm import tirx
from tvm.s_tir import SBlockRealize

from tuner.lowering.llvm_functions import DOT_BFLOAT16, DOT_BFLOAT16_ARM, SCALABLE_DOTS
from tuner.lowering.passes.substitution import (
    bound_body,
    bound_prefetches,
    substituted,
    with_replaced,
)
from tuner.lowering.scalars import BITS
from tuner.spaces.cpu.dots import FOUR
from tuner.target.isa import DotProduct, IsaDescription

# The annotations, as stored schedules have them.
INTERLEAVE, DOT = "tuner_interleave", "tuner_sum_pairs"
BYTE_BITS = 8
SIGNS = -0x7F7F7F80  # the highest bit of each byte of a word, as a number of 32 bits
# Functions that sum pairs of bfloat16, and LLVM's names of the instructions that sum groups
# of four, by the names of the instructions. Arm's are NEON's, of four lanes: those of longer
# vectors are functions too.
OF_BFLOAT16 = {"vdpbf16ps": DOT_BFLOAT16.name, "bfdot": DOT_BFLOAT16_ARM.name}
OF_FOURS = {
    "sdot": "llvm.aarch64.neon.sdot.v4i32.v16i8",
    "udot": "llvm.aarch64.neon.udot.v4i32.v16i8",
    "usdot": "llvm.aarch64.neon.usdot.v4i32.v16i8",
}
# By vector lanes of the accumulators.
MULTIPLY_ADD = {16: "llvm.x86.avx512.pmaddw.d.512", 8: "llvm.x86.avx2.pmadd.wd"}


def use_dot_products(mod: tvm.IRModule, isa: IsaDescription) -> tvm.IRModule:
    """The module with every annotated pair of loops replaced.

    A sum stays as loops where `isa` lacks its instruction: schedules are compiled for
    poorer CPUs too.
    """

    def replaced(loop: tirx.For) -> tirx.Stmt:
        if INTERLEAVE in loop.annotations:
            return _interleaved(loop)
        if DOT not in loop.annotations:
            return loop
        dot = _instruction(loop, isa) if isinstance(loop.body, tirx.For) else None
        if dot is not None:
            prefetches = bound_prefetches(loop.body.body)
            summed = _summed(loop, dot)
            return tirx.SeqStmt([*prefetches, summed]) if prefetches else summed
        # TVM copies the annotation to the loop that initialises the sums.
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, loop.body)

    return with_replaced(mod, tirx.For, replaced)


def _instruction(loop: tirx.For, isa: IsaDescription) -> DotProduct | None:
    """The instruction for an annotated sum; None where there is none.

    It has the accumulator's dtype, the products added to each accumulator, the
    accumulators, and the factors' dtypes and signs.
    """
    store, _, _ = _innermost(loop)
    shape = (str(store.buffer.dtype), int(loop.body.extent), int(loop.extent))
    pair = [factor_of(operand) for operand in (store.value.b.a, store.value.b.b)]
    signs = {factor.is_signed for factor in pair}
    narrow = {factor.dtype for factor in pair if factor.load is not None}
    for dot in isa.dot_products:
        takes_signs = dot.signs == "any" or (dot.signs == "mixed") == (len(signs) == 2)
        fits = (dot.accumulator, dot.group, dot.lanes, dot.rows) == (*shape, 1)
        if fits and takes_signs and narrow <= dot.factors:
            return dot
    return None


def _innermost(loop: tirx.For) -> tuple[tirx.BufferStore, tirx.Var, tirx.Var]:
    """The store in terms of the two loops' variables, then these variables.

    The outer variable goes over vector lanes, the inner one over the elements of a
    group.
    """
    inner = loop.body
    assert isinstance(inner, tirx.For) and isinstance(inner.body, SBlockRealize)
    return bound_body(inner.body), loop.loop_var, inner.loop_var


def _interleaved(loop: tirx.For) -> tirx.Stmt:
    """A copy of two, four or eight rows, stored with their elements alternating.

    Each row is loaded as a vector of as many elements as the loop has iterations. A row
    may be zero beyond the end of its tensor.
    """
    store, lane, part = _innermost(loop)
    lanes, parts = int(loop.extent), int(loop.body.extent)
    target, value_read, condition = store.buffer, store.value, None
    if isinstance(value_read, tvm.ir.Call) and value_read.op.name == "prim.if_then_else":
        condition, value_read, _ = value_read.args
    load = value_read if isinstance(value_read, tvm.ir.TensorLoad) else value_read.args[0]
    if not isinstance(load, tvm.ir.TensorLoad):
        return loop  # not only a copy: what is read is rounded first
    # TVM has no shuffles of bfloat16.
    dtype = BITS if str(load.ty) == "bfloat16" else str(load.ty)
    bindings: list[tirx.Stmt] = []

    def bound(value: tvm.ir.PrimExpr) -> tirx.Var:
        name = tirx.Var(f"row{len(bindings)}", str(value.ty))
        bindings.append(tirx.Bind(name, value))
        return name

    def row(number: int) -> tirx.Var:
        point = {part: number, lane: 0}
        value = tirx.BufferLoad(load.source, vector_at(load.indices, point, lanes))
        value = value if dtype == str(load.ty) else tirx.reinterpret(f"{dtype}x{lanes}", value)
        if condition is not None:
            inside = substituted(
                condition, {name: tirx.const(place, str(name.ty)) for name, place in point.items()}
            )
            value = tirx.if_then_else(inside, value, tirx.Broadcast(tirx.const(0, dtype), lanes))
        return bound(value)

    def merged(first: tvm.ir.PrimExpr, second: tvm.ir.PrimExpr, width: int) -> tvm.ir.PrimExpr:
        """One vector of two, with groups of `width` elements alternating."""
        size = lanes * width
        order = [
            which * size + group * width + offset
            for group in range(lanes)
            for which in range(2)
            for offset in range(width)
        ]
        return tirx.Shuffle([first, second], [tirx.const(place, "int32") for place in order])

    def together(rows: Sequence[tirx.Var]) -> tvm.ir.PrimExpr:
        if len(rows) == 1:
            return rows[0]
        half = len(rows) // 2
        first, second = together(rows[:half]), together(rows[half:])
        return merged(first, second, 1) if half == 1 else merged(bound(first), bound(second), half)

    value = together([row(number) for number in range(parts)])
    if dtype != target.dtype:
        value = tirx.reinterpret(f"{target.dtype}x{parts * lanes}", value)
    stored = tirx.BufferStore(
        target, value, vector_at(store.indices, {part: 0, lane: 0}, parts * lanes)
    )
    return tirx.SeqStmt([*bindings, stored])


def _summed(loop: tirx.For, dot: DotProduct) -> tirx.Stmt:
    """The sum as one instruction for all vector lanes."""
    store, lane, number = _innermost(loop)
    lanes, numbers = int(loop.extent), int(loop.body.extent)
    start = {number: 0, lane: 0}
    place = vector_at(store.indices, start, lanes)
    sums = tirx.BufferLoad(store.buffer, place)
    factors = [factor_of(operand) for operand in (store.value.b.a, store.value.b.b)]
    moving = [factor.load is not None and moves_with(factor.load, lane) for factor in factors]
    apart = all(moving)
    first_is_wide = moving[0]
    if apart:  # the packed factor has the numbers of a lane side by side
        first_is_wide = _step(factors[0], lane, number) == numbers
    wide, narrow = factors if first_is_wide else factors[::-1]
    assert wide.load is not None
    own = tirx.BufferLoad(wide.load.source, vector_at(wide.load.indices, start, numbers * lanes))
    if numbers == FOUR:
        shared = (
            _put_together(narrow, lane, number, lanes)
            if apart
            else _shared(narrow, start, "int32", lanes)
        )
        total = four_products(sums, shared, own, dot, first_is_signed=narrow.is_signed)
        return tirx.BufferStore(store.buffer, total, place)
    if narrow.dtype == "bfloat16":
        bits = f"{BITS}x{numbers * lanes}"
        shared = tirx.reinterpret(bits, _shared(narrow, start, "int32", lanes))
        own = own if str(wide.load.ty) == BITS else tirx.reinterpret(bits, own)
        return tirx.BufferStore(
            store.buffer,
            tirx.call_pure_extern(f"float32x{lanes}", _of_pairs(dot), sums, own, shared),
            place,
        )
    shared = tirx.reinterpret(
        f"{narrow.dtype}x{numbers * lanes}", _shared(narrow, start, "int16", lanes)
    )
    pair = [operand.astype(f"int16x{numbers * lanes}") for operand in (own, shared)]
    added = tirx.call_llvm_pure_intrin(f"int32x{lanes}", MULTIPLY_ADD[lanes], *pair)
    return tirx.BufferStore(store.buffer, sums + added, place)


def four_products(
    sums: tvm.ir.PrimExpr,
    first: tvm.ir.PrimExpr,
    second: tvm.ir.PrimExpr,
    dot: DotProduct,
    *,
    first_is_signed: bool,
) -> tvm.ir.PrimExpr:
    """The sum of dp4 groups: of mixed signs the instruction takes unsigned bytes first."""
    factors = (second, first) if first_is_signed else (first, second)
    operands = [tirx.reinterpret(f"int8x{FOUR * dot.lanes}", factor) for factor in factors]
    dtype = f"int32x{dot.lanes}"
    scalable = SCALABLE_DOTS.get((dot.name, dot.lanes))
    if scalable is not None:
        return tirx.call_pure_extern(dtype, scalable.name, sums, *operands)
    name = OF_FOURS.get(dot.name, f"llvm.x86.avx512.vpdpbusd.{32 * dot.lanes}")
    return tirx.call_llvm_pure_intrin(dtype, name, sums, *operands)


def _of_pairs(dot: DotProduct) -> str:
    """The function that sums pairs of bfloat16."""
    scalable = SCALABLE_DOTS.get((dot.name, dot.lanes))
    return OF_BFLOAT16[dot.name] if scalable is None else scalable.name


@dataclass(frozen=True)
class Factor:
    """A factor of a product: its load (None for a constant) and what is added to it."""

    load: tvm.ir.TensorLoad | None
    dtype: str
    offset: int = 0
    condition: tvm.ir.PrimExpr | None = None  # under which it is read, and zero elsewhere

    @property
    def is_signed(self) -> bool:
        """Whether the instruction gets it with a sign: an offset moves it to the other."""
        if self.offset:
            return self.offset < 0
        return self.dtype != "uint8"


def factor_of(value: tvm.ir.PrimExpr) -> Factor:
    """The factor of a product: a constant, or an element that is perhaps moved or padded."""
    if isinstance(value, tirx.IntImm):
        return Factor(None, str(value.ty), int(value))
    if isinstance(value, tirx.Add):
        return replace(factor_of(value.a), offset=int(value.b))
    narrow, condition = value.value, None
    if isinstance(narrow, tvm.ir.Call) and narrow.op.name == "prim.if_then_else":
        condition, narrow, _ = narrow.args
    return replace(Factor(*element(narrow)), condition=condition)


def _put_together(factor: Factor, lane: tirx.Var, number: tirx.Var, lanes: int) -> tvm.ir.PrimExpr:
    """The four numbers of each lane beside each other, of a factor that has them apart: each
    is a vector of bytes, which are moved to their place in words of 32 bits."""
    assert factor.load is not None
    whole: tvm.ir.PrimExpr = tirx.Broadcast(tirx.const(0, "uint32"), lanes)
    for place in range(FOUR):
        point = {lane: 0, number: place}
        inside = _condition(factor, point)
        if isinstance(inside, tirx.IntImm) and not int(inside):
            continue
        row: tvm.ir.PrimExpr = tirx.BufferLoad(
            factor.load.source, vector_at(factor.load.indices, point, lanes)
        )
        if factor.dtype == "int8":
            row = tirx.reinterpret(f"uint8x{lanes}", row)
        word = row.astype(f"uint32x{lanes}")
        if not isinstance(inside, tirx.IntImm):
            word = tirx.if_then_else(inside, word, tirx.Broadcast(tirx.const(0, "uint32"), lanes))
        if place:
            bits = tirx.Broadcast(tirx.const(place * BYTE_BITS, "uint32"), lanes)
            word = tirx.bitwise_or(whole, tirx.shift_left(word, bits))
        whole = word
    if factor.offset:
        signs = tirx.Broadcast(tirx.const(0x80808080, "uint32"), lanes)
        whole = tirx.bitwise_xor(whole, signs)
    return whole


def _condition(factor: Factor, point: dict[tirx.Var, int]) -> tvm.ir.PrimExpr:
    """Under which a factor is read at a point; a constant where that is sure."""
    if factor.condition is None:
        return tirx.const(True, "bool")
    values = {name: tirx.const(place, str(name.ty)) for name, place in point.items()}
    return tvm.sym.Analyzer().simplify(substituted(factor.condition, values))


def _step(factor: Factor, lane: tirx.Var, number: tirx.Var) -> int | None:
    """Elements between two lanes of a factor along the last dimension; None where that is not
    constant."""
    assert factor.load is not None
    last = [
        substituted(
            factor.load.indices[-1],
            {lane: tirx.const(place, str(lane.ty)), number: tirx.const(0, str(number.ty))},
        )
        for place in (0, 1)
    ]
    step = tvm.sym.Analyzer().simplify(last[1] - last[0])
    return int(step) if isinstance(step, tirx.IntImm) else None


def _shared(narrow: Factor, start: dict[tirx.Var, int], word: str, lanes: int) -> tvm.ir.PrimExpr:
    """The factor that all vector lanes share, broadcast to each as a word."""
    if narrow.load is None:
        return tirx.Broadcast(tirx.const(SIGNS, word), lanes)
    numbers = tvm.DataType(word).bits // tvm.DataType(narrow.dtype).bits
    read = tirx.reinterpret(
        word, tirx.BufferLoad(narrow.load.source, vector_at(narrow.load.indices, start, numbers))
    )
    # Adding half the range of a byte flips its highest bit. It is done before the
    # broadcast: on all lanes, LLVM 22 combines nodes without end.
    return tirx.Broadcast(
        tirx.bitwise_xor(read, tirx.const(SIGNS, word)) if narrow.offset else read, lanes
    )


def element(value: tvm.ir.PrimExpr) -> tuple[tvm.ir.TensorLoad, str]:
    """A factor's load and its dtype. A load of bfloat16 may be one of its bits."""
    return (value if isinstance(value, tvm.ir.TensorLoad) else value.args[0]), str(value.ty)


def moves_with(load: tirx.BufferLoad, name: tirx.Var) -> bool:
    """Whether the load's place depends on the variable."""
    zero = {name: tirx.const(0, str(name.ty))}
    return any(not substituted(index, zero).same_as(index) for index in load.indices)


def vector_at(
    indices: list[tvm.ir.PrimExpr], values: dict[tirx.Var, int], lanes: int
) -> list[tvm.ir.PrimExpr]:
    """The indices with the given values, as a vector along the last dimension.

    The vector has `lanes` adjacent elements.
    """
    fixed = {name: tirx.const(value, str(name.ty)) for name, value in values.items()}
    placed = [substituted(index, fixed) for index in indices]
    return [*placed[:-1], tirx.Ramp(placed[-1], tirx.const(1, "int32"), lanes)]
