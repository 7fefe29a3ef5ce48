"""Products of small matrices: Arm's smmla, ummla, usmmla and bfmmla.

A schedule annotates the outermost of three innermost loops: rows of the sums, their
columns, and what one instruction takes of the reduction. A vector holds the sums row by
row, and of each factor two rows: so lie those of sums and packed factors, once buffers
have one dimension.
"""

from __future__ import annotations

from typing import Any

import tvm
from tvm import tirx
from tvm_ffi import structural_walk

from tuner.lowering.llvm_functions import MATRICES_BFLOAT16_ARM
from tuner.lowering.passes.dot_products import Factor, factor_of, moves_with, vector_at
from tuner.lowering.passes.flattening import flattened
from tuner.lowering.passes.substitution import substituted, with_replaced
from tuner.lowering.scalars import BITS
from tuner.target.isa import DotProduct, IsaDescription

MULTIPLY = "tuner_multiply_matrices"  # the annotation, as stored schedules have it
OF_INTEGERS = {
    name: f"llvm.aarch64.neon.{name}.v4i32.v16i8" for name in ("smmla", "ummla", "usmmla")
}


def use_matrix_products(mod: tvm.IRModule, isa: IsaDescription) -> tvm.IRModule:
    """The module with every annotated nest of three loops replaced.

    A sum stays as loops where `isa` lacks its instruction: schedules are compiled for
    poorer CPUs too.
    """
    if not any(_annotated(function) for function in mod.functions.values()):
        return mod
    flat = flattened(mod)

    def replaced(loop: tirx.For) -> tirx.Stmt:
        if MULTIPLY not in loop.annotations:
            return loop
        loops: list[tirx.For] = []
        innermost: Any = loop
        while isinstance(innermost, tirx.For):
            loops.append(innermost)
            innermost = innermost.body
        if len(loops) == 2:  # TVM gives the annotation to the initialisation too
            return _initialised(innermost, loops)
        dot = _instruction(innermost, loops, isa)
        if dot is not None:
            return _multiplied(innermost, loops, dot)
        return tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, loop.body)

    return with_replaced(flat, tirx.For, replaced)


def _annotated(function: tirx.PrimFunc) -> bool:
    annotated: list[tirx.For] = []

    def note(loop: tirx.For) -> None:
        if MULTIPLY in loop.annotations:
            annotated.append(loop)

    structural_walk(function.body, (tirx.For, note))
    return bool(annotated)


def _initialised(store: tirx.BufferStore, loops: list[tirx.For]) -> tirx.Stmt:
    """All sums of a vector set to one number."""
    lanes = int(loops[0].extent) * int(loops[1].extent)
    place = vector_at(store.indices, _start(loops), lanes)
    return tirx.BufferStore(store.buffer, tirx.Broadcast(store.value, lanes), place)


def _instruction(
    store: tirx.BufferStore, loops: list[tirx.For], isa: IsaDescription
) -> DotProduct | None:
    """The instruction for an annotated sum, by dtypes, signs and the loops' extents."""
    rows, columns, numbers = (int(loop.extent) for loop in loops)
    first, second = _factors(store, loops)
    apart = second.is_signed and not first.is_signed
    signs = {"any": True, "same": first.is_signed == second.is_signed, "mixed": apart}
    for dot in isa.dot_products:
        shape = (dot.accumulator, dot.rows, dot.lanes, dot.group)
        if (
            shape == (str(store.buffer.dtype), rows, rows * columns, numbers)
            and {first.dtype, second.dtype} <= dot.factors
            and signs[dot.signs]
        ):
            return dot
    return None


def _multiplied(store: tirx.BufferStore, loops: list[tirx.For], dot: DotProduct) -> tirx.Stmt:
    """The sums of one vector after the instruction."""
    place = vector_at(store.indices, _start(loops), dot.lanes)
    sums = tirx.BufferLoad(store.buffer, place)
    first, second = _factors(store, loops)
    factors = [_matrix(first, loops, loops[0], dot), _matrix(second, loops, loops[1], dot)]
    dtype = f"{dot.accumulator}x{dot.lanes}"
    if dot.name in OF_INTEGERS:
        value = tirx.call_llvm_pure_intrin(dtype, OF_INTEGERS[dot.name], sums, *factors)
    else:
        value = tirx.call_pure_extern(dtype, MATRICES_BFLOAT16_ARM.name, sums, *factors)
    return tirx.BufferStore(store.buffer, value, place)


def _factors(store: tirx.BufferStore, loops: list[tirx.For]) -> tuple[Factor, Factor]:
    """That whose rows are those of the sums, and that whose rows are their columns."""
    first, second = (factor_of(operand) for operand in (store.value.b.a, store.value.b.b))
    assert first.load is not None and second.load is not None
    return (second, first) if moves_with(first.load, loops[1].loop_var) else (first, second)


def _matrix(
    factor: Factor, loops: list[tirx.For], row: tirx.For, dot: DotProduct
) -> tvm.ir.PrimExpr:
    """Both rows of a factor as one vector: side by side in memory where it was packed."""
    load = factor.load
    assert load is not None
    bits = BITS if factor.dtype == "bfloat16" else "int8"

    def loaded(index: tvm.ir.PrimExpr, numbers: int) -> tvm.ir.PrimExpr:
        value = tirx.BufferLoad(load.source, vector_at([index], _start(loops), numbers))
        return value if str(load.ty) == bits else tirx.reinterpret(f"{bits}x{numbers}", value)

    (index,) = load.indices
    next_row = substituted(index, {row.loop_var: row.loop_var + 1})
    apart = tvm.sym.Analyzer().simplify(next_row - index)
    if isinstance(apart, tirx.IntImm) and int(apart) == dot.group:
        return loaded(index, dot.rows * dot.group)
    order = [tirx.const(place, "int32") for place in range(dot.rows * dot.group)]
    return tirx.Shuffle([loaded(index, dot.group), loaded(next_row, dot.group)], order)


def _start(loops: list[tirx.For]) -> dict[tirx.Var, int]:
    return {loop.loop_var: 0 for loop in loops}
