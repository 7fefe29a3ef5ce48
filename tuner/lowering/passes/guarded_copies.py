"""Asynchronous copies to shared memory of 16 bytes, or of zeros in their place.

TVM makes asynchronous copies of plain copies only. A schedule annotates the loop over
the elements of a piece, whose body is `to[..., e] = inside ? from[..., e] : 0` with a
condition that does not depend on e. This pass runs on every scheduled GPU module and
replaces the loop by one copy. Nothing outside is read: the instruction reads 0 bytes of
16 and fills the rest with zeros (PTX ISA, "cp.async", src-size).
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm.s_tir import MatchBufferRegion, SBlock, SBlockRealize

from tuner.lowering.passes.substitution import substituted, with_replaced

GUARDED = "tuner_guarded_copy"  # the annotation
SYMBOL = "tuner_copy_or_zero"
# A backslash at the end of a line is no part of the text.
SOURCE = """
static __device__ __forceinline__ void tuner_copy_or_zero(\
void *to, const void *from, bool inside) {
  unsigned place = (unsigned)__cvta_generic_to_shared(to);
  int bytes = inside ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" \
:: "r"(place), "l"(from), "r"(bytes));
}
"""


def use_guarded_copies(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with every annotated loop replaced by one guarded copy."""
    return with_replaced(mod, tirx.For, _replaced)


def _replaced(loop: tirx.For) -> tirx.Stmt:
    """The guarded copy of an annotated loop; any other loop as it is."""
    if GUARDED not in loop.annotations:
        return loop
    realize, size = loop.body, int(loop.extent)
    assert isinstance(realize, SBlockRealize)
    block, store, inside = realize.block, realize.block.body, []
    value = store.value
    while isinstance(value, tvm.ir.Call) and value.op.name == "prim.if_then_else":
        assert value.args[2].value == 0, "what lies outside is copied as zeros"
        inside.append(value.args[0])
        value = value.args[1]
    condition = inside[0]
    for other in inside[1:]:
        condition = tirx.And(condition, other)
    to, from_ = _piece(store.buffer, store.indices, size), _piece(value.source, value.indices, size)
    call = tirx.call_extern(
        "void", SYMBOL, to.buffer.access_ptr("w"), from_.buffer.access_ptr("r"), condition
    )
    copy_block = SBlock(
        block.iter_vars,
        [from_.source],
        [to.source],
        block.name_hint,
        tirx.Evaluate(call),
        match_buffers=[to, from_],
    )
    start = {loop.loop_var: tirx.const(0, str(loop.loop_var.ty))}
    values = [substituted(value, start) for value in realize.iter_values]
    return SBlockRealize(values, realize.predicate, copy_block)


def _piece(buffer: tirx.Buffer, indices: Any, size: int) -> MatchBufferRegion:
    """The elements that one copy moves, as a one-dimensional buffer for its address."""
    *others, last = indices
    region = [tvm.ir.Range.from_min_extent(index, 1) for index in others] + [
        tvm.ir.Range.from_min_extent(last, size)
    ]
    piece = tirx.decl_buffer(
        (size,),
        buffer.dtype,
        f"{buffer.name}_piece",
        scope=buffer.scope(),
        data_alignment=16,
        offset_factor=1,
    )
    return MatchBufferRegion(piece, tirx.BufferRegion(buffer, region))
