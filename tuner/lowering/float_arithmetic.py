"""Arithmetic of floats that TVM's simplifier would change, written so that it does not.

For numbers without rounding, infinities and NaN it is right that x - x and 0 * x are 0,
that (x + y) - x is y, that x equals itself, and that what is not less is greater or equal.
TVM takes floats for such numbers, and divides by a constant by multiplying with its
reciprocal. An operand that goes through its own bits and back hides what it is from TVM.
That costs nothing, since LLVM and nvcc drop it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import tvm
from tvm import tirx

from tuner.workload.expression import Binary, BinaryOp, Scalar, Select
from tuner.workload.scalar_operators import BINARY_OPERATORS

# Between these the reciprocal of a constant is a normal number.
_LEAST_DIVISOR, _GREATEST_DIVISOR = 2.0**-126, 2.0**126


def is_float(value: tvm.ir.PrimExpr) -> bool:
    return str(value.ty).startswith("float")


def hidden(value: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """The same float32 or float64, of which TVM knows nothing."""
    dtype = str(value.ty)
    return tirx.reinterpret(dtype, tirx.reinterpret(f"int{dtype.removeprefix('float')}", value))


def shown(call: tvm.ir.Call) -> tvm.ir.PrimExpr:
    """A constant that is hidden, as it is; any other call unchanged.

    C++ has no address of a constant, by which TVM writes its bits.
    """
    if not _takes_bits(call) or not _takes_bits(call.args[0]):
        return call
    value = call.args[0].args[0]
    return value if isinstance(value, tirx.FloatImm) else call


def _takes_bits(node: tvm.ir.PrimExpr) -> bool:
    return isinstance(node, tvm.ir.Call) and node.op.name.endswith("reinterpret")


def operands(
    node: Binary, a: tvm.ir.PrimExpr, b: tvm.ir.PrimExpr
) -> tuple[tvm.ir.PrimExpr, tvm.ir.PrimExpr]:
    """The operands of a node, lowered, with what TVM must not know hidden."""
    if str(a.ty) not in ("float32", "float64"):
        return a, b
    if node.op in ("mul", "div") and _is_zero(a):
        a = hidden(a)
    if node.op in ("add", "sub", "mul") and _is_zero(b):
        b = hidden(b)
    if node.op == "add" and _is_zero(a):
        a = hidden(a)
    if node.op == "div" and isinstance(b, tirx.FloatImm):
        ordinary = _LEAST_DIVISOR <= abs(b.value) <= _GREATEST_DIVISOR
        b = b if ordinary else hidden(b)
    if _cancels(node.op, node.lhs, node.rhs):
        a = hidden(a)
    return a, b


def is_negative_zero(value: float) -> bool:
    return value == 0 and math.copysign(1, value) < 0


def _is_zero(value: tvm.ir.PrimExpr) -> bool:
    return isinstance(value, tirx.FloatImm) and value.value == 0


def _cancels(op: BinaryOp, lhs: Scalar, rhs: Scalar) -> bool:
    if BINARY_OPERATORS[op].is_comparison:
        return lhs == rhs
    return op == "sub" and (lhs in (rhs, *_terms(rhs)) or rhs in _terms(lhs))


def _terms(node: Scalar) -> Iterator[Scalar]:
    """The operands of a sum, or the sides of a selection."""
    if isinstance(node, Binary) and node.op == "add":
        yield from (node.lhs, node.rhs)
    if isinstance(node, Select):
        yield from (node.then, node.other)


def truth(comparison: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """Whether a comparison holds, of which TVM knows no opposite: with NaN both fail."""
    return tirx.NE(comparison.astype("int8"), tirx.const(0, "int8"))


def remainder(a: tvm.ir.PrimExpr, b: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """Of a division rounded down, with the sign of the divisor."""
    if not is_float(a):
        return tirx.FloorMod(a, b)
    name = "fmodf" if str(a.ty) == "float32" else "fmod"
    rest = tirx.call_pure_extern(str(a.ty), name, a, b)
    zero = tirx.const(0, str(a.ty))
    opposite = tirx.Or(tirx.And(rest < zero, b > zero), tirx.And(rest > zero, b < zero))
    return tirx.Select(opposite, rest + b, rest)
