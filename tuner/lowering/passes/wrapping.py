"""Arithmetic of uint32 and uint64 that wraps around.

TVM's code generator tells LLVM that sums, differences and products of these dtypes stay
inside them, and LLVM relies on it. In integers of twice the width they do. LLVM narrows
that arithmetic again, so it costs nothing.
"""

from __future__ import annotations

import tvm
from tvm import tirx

from tuner.lowering.passes.substitution import with_replaced


def wrap_unsigned(mod: tvm.IRModule) -> tvm.IRModule:
    """The module with sums, differences and products of uint32 and uint64 that wrap around."""
    operators = (tirx.Add, tirx.Sub, tirx.Mul)
    return with_replaced(mod, operators, _wrapping)


def _wrapping(node: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    narrow = tvm.DataType(str(node.ty))
    if not str(narrow).startswith("uint") or narrow.bits < 32:
        return node
    wide = str(narrow).replace(str(narrow.bits), str(2 * narrow.bits), 1)
    a, b = node.a.astype(wide), node.b.astype(wide)
    if isinstance(node, tirx.Sub):
        # One more than the dtype's greatest number keeps the difference above zero.
        a = a + tirx.shift_left(_spread(1, wide), _spread(narrow.bits, wide))
    return type(node)(a, b).astype(str(narrow))


def _spread(value: int, dtype: str) -> tvm.ir.PrimExpr:
    """A number in a dtype, in each of its vector lanes."""
    kind = tvm.DataType(dtype)
    scalar = tirx.const(value, f"uint{kind.bits}")
    return scalar if kind.lanes == 1 else tirx.Broadcast(scalar, kind.lanes)
