"""Scalar expressions as TVM expressions.

Transcendental functions become libm calls or polynomials that vectorise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import tvm
from tvm import tirx

from tuner.lowering import byte_floats, float_arithmetic, math_functions
from tuner.lowering.indices import mistakable, without_cancelled
from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.program import Block, MathFunctions
from tuner.spaces.rewrite.access import in_bounds_condition
from tuner.workload.dtypes import UNSIGNED
from tuner.workload.expression import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Unary,
    Var,
    reads,
    walk,
)
from tuner.workload.intervals import INTERVALS
from tuner.workload.scalar_operators import BINARY_OPERATORS

BITS = "uint16"  # dtype of a bfloat16 buffer that is kept as bits
# How TVM writes each binary operator; functions are in `math_functions`.
BINARY_BUILDERS: Mapping[BinaryOp, Callable[..., tvm.ir.PrimExpr]] = {
    "add": tirx.Add, "sub": tirx.Sub, "mul": tirx.Mul, "div": tirx.Div, "floordiv": tirx.FloorDiv,
    "floormod": float_arithmetic.remainder, "max": tirx.Max, "min": tirx.Min, "pow": tirx.pow,
    "lt": tirx.LT, "le": tirx.LE, "gt": tirx.GT, "ge": tirx.GE, "eq": tirx.EQ, "ne": tirx.NE,
    "and": tirx.And, "or": tirx.Or, "xor": tirx.bitwise_xor,
    "bitand": tirx.bitwise_and, "bitor": tirx.bitwise_or, "shl": tirx.shift_left,
    "shr": tirx.shift_right,
}  # fmt: skip

# Of truth values, for which TVM makes no arithmetic of LLVM's.
_TRUTH_BUILDERS: Mapping[BinaryOp, Callable[..., tvm.ir.PrimExpr]] = {
    "add": tirx.Or, "max": tirx.Or, "mul": tirx.And, "min": tirx.And,
}  # fmt: skip


@dataclass(frozen=True)
class Scope:
    """What an expression may use: buffers, iterators, and the dtype of indices."""

    buffers: Mapping[str, tirx.Buffer]
    iterators: Mapping[str, tirx.Var]
    index_dtype: str
    given: frozenset[str] = frozenset()  # buffers that are parameters, whose dtype TVM keeps
    bits: frozenset[str] = frozenset()  # buffers of bfloat16 that are kept as bits
    vectors: frozenset[LoopId] = frozenset()  # loops whose iterations are vector lanes
    extents: Mapping[str, int] = field(default_factory=dict)  # of the iterators
    lanes: frozenset[str] = frozenset()  # iterators that become vector lanes

    def bind(self, block: Block, iterators: Mapping[str, tirx.Var]) -> Scope:
        """The scope of a block's body."""
        extents = block.extents
        lanes = frozenset(name for name in extents if LoopId(block.name, name) in self.vectors)
        return replace(self, iterators=iterators, extents=extents, lanes=lanes)

    @property
    def naming(self) -> math_functions.Naming:
        """How a value that a math function uses more than once is written."""
        narrow = any(str(buffer.dtype) == "bfloat16" for buffer in self.buffers.values())
        return math_functions.written_out if narrow else math_functions.named

    def index(self, node: Scalar) -> tvm.ir.PrimExpr:
        """One index, in the dtype of indices."""
        return lower(without_cancelled(node), self, "libm").astype(self.index_dtype)

    def place(self, nodes: Sequence[Scalar]) -> list[tvm.ir.PrimExpr]:
        """The indices of one access, each hidden from TVM's analysis where that would be wrong.

        They are masked with the greatest integer. No index inside a tensor has the bit
        that the mask clears, and unlike a comparison the mask is dropped by no pass.
        """
        indices = [self.index(node) for node in nodes]
        if not mistakable(nodes):
            return indices
        greatest = tirx.const(np.iinfo(self.index_dtype).max, self.index_dtype)
        return [tirx.bitwise_and(index, greatest) for index in indices]


def identity(reducer: str, dtype: str) -> tvm.ir.PrimExpr:
    """The value a reduction starts from.

    That of max and min are the infinities, so that they are exact for every input.
    """
    if reducer in {"sum", "prod"}:
        return tirx.const(0 if reducer == "sum" else 1, dtype)
    sign = -1 if reducer == "max" else 1
    if dtype.startswith(("float", "bfloat")):
        return tirx.const(sign * float("inf"), dtype)
    info = np.iinfo(dtype)
    return tirx.const(info.min if reducer == "max" else info.max, dtype)


def lower(node: Scalar, scope: Scope, how: MathFunctions) -> tvm.ir.PrimExpr:
    """The expression in TVM's form. `how` chooses between libm and polynomials."""
    match node:
        case Var(name=name):
            return scope.iterators[name]
        case Const(value=value, dtype=dtype):
            # Small integers may be part of an index; where they meet values of int64
            # they are widened.
            narrow = dtype == "int64" and -(2**31) <= value < 2**31
            number = tirx.const(value, scope.index_dtype if narrow else dtype)
            # TVM takes 0 and -0 for the same.
            is_hidden = dtype in ("float32", "float64") and float_arithmetic.is_negative_zero(value)
            return float_arithmetic.hidden(number) if is_hidden else number
        case Read():
            load = _load(node, scope)
            return tirx.reinterpret("bfloat16", load) if node.tensor in scope.bits else load
        case Cast(dtype="float32", arg=Cast(dtype="bfloat16", arg=arg)):
            # TVM computes with bfloat16 in float32, and rounds what memory holds alone.
            nearest = _nearest(lower(arg, scope, how).astype("float32"))
            return tirx.reinterpret("float32", nearest)
        case Cast(dtype=dtype, arg=arg):
            return _converted(lower(arg, scope, how), dtype)
        case Bitcast(dtype=dtype, source="bfloat16", arg=arg):
            return tirx.reinterpret(dtype, lower_bits(arg, scope))
        case Bitcast(dtype="float8_e4m3fn", arg=arg):
            return byte_floats.e4m3(lower(arg, scope, how).astype("uint8"))
        case Bitcast(dtype="float8_e5m2", arg=arg):
            return byte_floats.e5m2(lower(arg, scope, how).astype("uint8"))
        case Bitcast(dtype=dtype, source=source, arg=arg):
            return tirx.reinterpret(dtype, lower(arg, scope, how).astype(source))
        case Unary(op="bfloat16", arg=arg):
            return tirx.reinterpret("float32", _nearest(lower(arg, scope, how)))
        case Unary(op="float16" | "float32" as narrow, arg=arg):
            value = lower(arg, scope, how)
            return value.astype(narrow).astype(str(value.ty))
        case Unary(op=op, arg=arg):
            return math_functions.unary(op, lower(arg, scope, how), how, scope.naming)
        case Select(cond=cond, then=then, other=other):
            select = tirx.Select if _blended(node, scope) else tirx.if_then_else
            return select(
                lower(cond, scope, how),
                *_same_dtype(lower(then, scope, how), lower(other, scope, how)),
            )
        case Binary(op=op, lhs=lhs, rhs=rhs):
            a, b = _same_dtype(lower(lhs, scope, how), lower(rhs, scope, how))
            if op in ("eq", "ne") and str(a.ty) == "bool":  # LLVM has TVM compare them as floats
                a, b = a.astype("int8"), b.astype("int8")
            if op in _TRUTH_BUILDERS and str(a.ty) == "bool":
                return _TRUTH_BUILDERS[op](a, b)
            value = BINARY_BUILDERS[op](*float_arithmetic.operands(node, a, b))
            if BINARY_OPERATORS[op].is_comparison and float_arithmetic.is_float(a):
                return float_arithmetic.truth(value)
            # TVM takes a difference of unsigned integers for negative where it wraps around, and
            # what is shifted for as large as it would be without an end.
            is_hidden = op == "shl" or (op == "sub" and str(a.ty) in UNSIGNED)
            return _hidden(value) if is_hidden else value


def _converted(value: tvm.ir.PrimExpr, dtype: str) -> tvm.ir.PrimExpr:
    """The value in another dtype, integers of another width wrapped."""
    source = str(value.ty)
    if "int" not in dtype:
        return value.astype(dtype)
    if source == "bool" or ("int" in source and INTERVALS[source].is_within(INTERVALS[dtype])):
        return value.astype(dtype)
    if "float" not in source:  # TVM takes what wraps around for a number that fits
        return tirx.reinterpret(dtype, value.astype(_twin(dtype)))
    # LLVM leaves a float undefined that does not fit into the integer.
    if dtype in ("int8", "uint8", "int16", "uint16"):
        return value.astype("int32").astype(dtype)
    if dtype not in UNSIGNED:
        return value.astype(dtype)
    signed = value.astype("int64").astype(dtype)
    if dtype == "uint32":
        return signed
    large = value >= tirx.const(2.0**63, str(value.ty))
    return tirx.Select(large, value.astype(dtype), signed)


def _hidden(value: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """The same integer, of which TVM knows nothing."""
    dtype = str(value.ty)
    return tirx.reinterpret(dtype, tirx.reinterpret(_twin(dtype), value))


def _twin(dtype: str) -> str:
    """The integers as wide with a sign of those without one, and the other way round."""
    return dtype.removeprefix("u") if dtype.startswith("u") else f"u{dtype}"


def _load(read: Read, scope: Scope) -> tirx.BufferLoad:
    return tirx.BufferLoad(scope.buffers[read.tensor], scope.place(read.indices))


def _blended(node: Select, scope: Scope) -> bool:
    """Whether both sides of a selection are computed and then blended.

    They always are without reads. With reads they are where the condition differs
    between vector lanes, since a branch for each lane would take the vector apart, and
    where no read leaves its tensor. What may leave its tensor must not be read where
    the condition fails.
    """
    sources = tuple(reads(node))
    if not sources:
        return True
    differs = any(isinstance(part, Var) and part.name in scope.lanes for part in walk(node.cond))
    return differs and all(_stays_inside(read, scope) for read in sources)


def _stays_inside(read: Read, scope: Scope) -> bool:
    shape = tuple(int(extent) for extent in scope.buffers[read.tensor].shape)
    return in_bounds_condition(read.indices, shape, scope.extents) is None


def lower_bits(node: Scalar, scope: Scope) -> tvm.ir.PrimExpr:
    """A value as the bits of bfloat16.

    Where memory holds them they are read as they are. Anything else is rounded to
    nearest, ties to even. TVM holds all but inputs in float32.
    """
    match node:
        case Select(cond=cond, then=then, other=other):
            return tirx.if_then_else(
                lower(cond, scope, "libm"), lower_bits(then, scope), lower_bits(other, scope)
            )
        case Const(value=value):
            return tirx.const(int(np.float32(value).view(np.uint32) >> 16), BITS)
        case Unary(op="bfloat16", arg=arg):
            return lower_bits(arg, scope)
        case Read(tensor=tensor) if tensor in scope.bits:
            return _load(node, scope)
        case Read(tensor=tensor) if (
            tensor in scope.given and str(scope.buffers[tensor].dtype) == "bfloat16"
        ):
            return tirx.reinterpret(BITS, _load(node, scope))
        case _:
            nearest = _nearest(lower(node, scope, "libm").astype("float32"))
            return tirx.shift_right(nearest, tirx.const(16, "uint32")).astype(BITS)


def unrounded(node: Scalar, dtype: str) -> Scalar:
    """The scalar without a conversion to the bfloat16 that it is stored as."""
    match node:
        case Cast(arg=Cast(dtype="bfloat16", arg=arg)) if dtype == "bfloat16":
            return arg
        case _:
            return node


def _nearest(value: tvm.ir.PrimExpr) -> tvm.ir.PrimExpr:
    """The bits of the nearest float32 whose lower half is zero, ties to even."""
    word = tirx.reinterpret("uint32", value)
    odd = tirx.bitwise_and(
        tirx.shift_right(word, tirx.const(16, "uint32")), tirx.const(1, "uint32")
    )
    return tirx.bitwise_and(
        word + tirx.const(0x7FFF, "uint32") + odd, tirx.const(0xFFFF0000, "uint32")
    )


def _same_dtype(a: tvm.ir.PrimExpr, b: tvm.ir.PrimExpr) -> tuple[tvm.ir.PrimExpr, tvm.ir.PrimExpr]:
    """Both operands in the wider of their dtypes.

    Indices are int32 here and int64 in the tree; they meet other dtypes only through a
    cast.
    """
    if str(a.ty) == str(b.ty):
        return a, b
    wider = np.promote_types(str(a.ty), str(b.ty)).name
    return a.astype(wider), b.astype(wider)
