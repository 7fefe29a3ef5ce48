"""Products of float16 that are added to float32 by one instruction: Arm's fmlal.

It widens both factors without rounding, so that a sum is what widening, multiplying and
adding give, in one instruction instead of three. LLVM does not find it by itself.
"""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm.s_tir import SBlockRealize

from tuner.lowering.llvm_functions import MULTIPLY_FLOAT16_ARM
from tuner.lowering.passes.dot_products import moves_with, vector_at
from tuner.lowering.passes.substitution import bound_body, substituted, with_replaced
from tuner.target.isa import DotProduct, IsaDescription


def use_widening_products(mod: tvm.IRModule, isa: IsaDescription) -> tvm.IRModule:
    """The module with every vectorised loop that is such a sum made one instruction.

    It stays as it is where `isa` has none.
    """
    widening = next((dot for dot in isa.dot_products if dot.group == 1), None)
    if widening is None:
        return mod

    def replaced(loop: tirx.For) -> tirx.Stmt:
        vectorised = loop.kind == tirx.ForKind.VECTORIZED
        if not vectorised or not isinstance(loop.body, SBlockRealize):
            return loop
        return _multiplied(bound_body(loop.body), loop, widening) or loop

    return with_replaced(mod, tirx.For, replaced)


def _multiplied(store: tvm.ir.Node, loop: tirx.For, dot: DotProduct) -> tirx.Stmt | None:
    """The sum by one instruction; None for anything else than one of its dtypes and lanes."""
    if (
        not isinstance(store, tirx.BufferStore)
        or not isinstance(store.value, tirx.Add)
        or not isinstance(store.value.b, tirx.Mul)
        or (str(store.buffer.dtype), int(loop.extent)) != (dot.accumulator, dot.lanes)
    ):
        return None
    factors = [_factor(side, loop, dot) for side in (store.value.b.a, store.value.b.b)]
    sums = _vector(store.value.a, loop)
    if sums is None or None in factors:
        return None
    value = tirx.call_pure_extern(str(sums.ty), MULTIPLY_FLOAT16_ARM.name, sums, *factors)
    return tirx.BufferStore(store.buffer, value, vector_at(store.indices, *_whole(loop)))


def _factor(value: tvm.ir.PrimExpr, loop: tirx.For, dot: DotProduct) -> tvm.ir.PrimExpr | None:
    """What is widened, as a vector; None where that is none of the instruction's factors."""
    widened = isinstance(value, tirx.Cast) and str(value.value.ty) in dot.factors
    return _vector(value.value, loop) if widened else None


def _vector(load: tvm.ir.PrimExpr, loop: tirx.For) -> tvm.ir.PrimExpr | None:
    """A load in all lanes: of neighbours, or of one element. None of others."""
    if not isinstance(load, tvm.ir.TensorLoad):
        return None
    if not moves_with(load, loop.loop_var):
        return tirx.Broadcast(load, int(loop.extent))
    following = {loop.loop_var: loop.loop_var + 1}
    *outer, innermost = (
        tvm.sym.Analyzer().simplify(substituted(index, following) - index) for index in load.indices
    )
    if any(not _is(apart, 0) for apart in outer) or not _is(innermost, 1):
        return None
    return tirx.BufferLoad(load.source, vector_at(load.indices, *_whole(loop)))


def _is(value: tvm.ir.PrimExpr, number: int) -> bool:
    return isinstance(value, tirx.IntImm) and int(value) == number


def _whole(loop: tirx.For) -> tuple[dict[tirx.Var, int], int]:
    return {loop.loop_var: 0}, int(loop.extent)
