"""TVM's scalar expressions as those of the tree.

Dtypes are those of the notation, index arithmetic is in 64 bits, and calls are read by
their meaning. float16 and bfloat16 are computed in float32; integers of 8 and 16 bits in
int32 with each result wrapped, as TVM's own arithmetic wraps it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

import numpy as np
import tvm
from tvm.sym import Analyzer

from tuner.errors import UsageError
from tuner.workload.affine import value_range
from tuner.workload.dtypes import COMPUTED_IN, DTYPE_BYTES, FLOATS, INTEGERS, DType
from tuner.workload.expression import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Tensor,
    Unary,
    UnaryOp,
    reads,
    walk,
)

_BINARY: Mapping[str, BinaryOp] = {
    "Add": "add", "Sub": "sub", "Mul": "mul", "Max": "max", "Min": "min", "FloorDiv": "floordiv",
    "FloorMod": "floormod",
}  # fmt: skip
_COMPARE: Mapping[str, BinaryOp] = {
    "LT": "lt",
    "LE": "le",
    "GT": "gt",
    "GE": "ge",
    "EQ": "eq",
    "NE": "ne",
}
_LOGIC: Mapping[str, BinaryOp] = {"And": "and", "Or": "or"}
_CALLS: Mapping[str, UnaryOp] = {
    "exp": "exp", "log": "log", "sqrt": "sqrt", "rsqrt": "rsqrt", "tanh": "tanh", "erf": "erf",
    "fabs": "abs", "tanhf": "tanh", "erff": "erf", "expf": "exp", "logf": "log", "sqrtf": "sqrt",
}  # fmt: skip


class LiftError(UsageError):
    """A function that has no expression. The text names the block and the reason."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A scalar with the dtype that the tree computes it in.

    Integers over iterators alone are int64, whatever TVM gave them.
    """

    node: Scalar
    dtype: DType


@dataclass(frozen=True, kw_only=True)
class ScalarLifter:
    """Lifts the scalars of one block."""

    block: str
    tensors: Mapping[tvm.ir.Var, Tensor]  # buffers that hold values by now
    iterators: Mapping[tvm.ir.Var, Typed]
    extents: Mapping[str, int]  # of the stage's axes
    analyzer: Analyzer  # knows the iterators' ranges

    def refuse(self, why: str) -> LiftError:
        return LiftError(f"block {self.block!r}: {why}")

    def scalar(self, expr: tvm.ir.Expr) -> Typed:
        """The scalar of an expression of TVM's. Raises LiftError."""
        kind = type(expr).__name__
        if kind in _BINARY or kind in _COMPARE:
            return self._binary(kind, expr)
        if kind in _LOGIC:
            return Typed(
                Binary(_LOGIC[kind], self.condition(expr.a), self.condition(expr.b)), "bool"
            )
        match kind:
            case "Var" if expr in self.iterators:
                return self.iterators[expr]
            case "IntImm" | "FloatImm":
                return self._constant(expr)
            case "TensorLoad":
                return self._read(expr)
            case "Cast":
                return self._cast(expr)
            case "Not":
                return Typed(Unary("not", self.condition(expr.a)), "bool")
            case "Select":
                return self._select(expr.condition, expr.true_value, expr.false_value)
            case "Div" | "Mod":
                return self._division(kind, expr)
            case "Call":
                return self._call(expr)
        raise self.refuse(f"{kind} {str(expr)[:80]!r} has no counterpart in an expression")

    def condition(self, expr: tvm.ir.Expr) -> Scalar:
        typed = self.scalar(expr)
        if typed.dtype != "bool":
            raise self.refuse(f"{str(expr)[:80]!r} is used as a condition and is {typed.dtype}")
        return typed.node

    def dtype(self, name: str) -> DType:
        if name not in DTYPE_BYTES:
            raise self.refuse(f"dtype {name} is none of {', '.join(DTYPE_BYTES)}")
        return cast(DType, name)

    def _constant(self, expr: tvm.ir.Expr) -> Typed:
        narrow = self.dtype(str(expr.ty))
        dtype = COMPUTED_IN.get(narrow, narrow)
        if dtype == "bool":
            return Typed(Const(bool(expr.value), "bool"), "bool")
        if math.isnan(expr.value):
            raise self.refuse("a constant is not a number")
        return Typed(Const(float(expr.value) if dtype in FLOATS else int(expr.value), dtype), dtype)

    def _read(self, expr: tvm.ir.Expr) -> Typed:
        if expr.source not in self.tensors:
            raise self.refuse(
                f"reads {expr.source.name!r}, which no earlier block has written and is no input"
            )
        tensor = self.tensors[expr.source]
        read = Read(tensor.name, tuple(self.index(index) for index in expr.indices))
        dtype = COMPUTED_IN.get(tensor.dtype, tensor.dtype)
        return Typed(read if dtype == tensor.dtype else Cast(dtype, read), dtype)

    def index(self, expr: tvm.ir.Expr) -> Scalar:
        """An index as int64. Raises LiftError."""
        if type(expr).__name__ == "BitwiseAnd" and _is_greatest(expr.b):
            expr = expr.a  # no index inside a tensor has the bit that the mask clears
        typed = self.scalar(expr)
        steps = any(
            isinstance(node, Binary) and node.op in ("floordiv", "floormod", "min", "max")
            for node in walk(typed.node)
        )
        if steps and not any(reads(typed.node)):
            # Simplified, it may be a remainder by a negative number, which the notation has not.
            with suppress(LiftError):
                typed = self.scalar(self.analyzer.simplify(expr))
        if typed.dtype not in INTEGERS:
            raise self.refuse(f"the index {str(expr)[:80]!r} is {typed.dtype}, not an integer")
        return _as_dtype(typed, "int64").node

    def _cast(self, expr: tvm.ir.Expr) -> Typed:
        operand = expr.value
        if type(operand).__name__ == "Cast" and (
            str(expr.ty),
            str(operand.ty),
            str(operand.value.ty),
        ) == ("int32", "int64", "int32"):
            return self.scalar(operand.value)  # widened and narrowed again
        source, narrow = self.scalar(expr.value), self.dtype(str(expr.ty))
        dtype = COMPUTED_IN.get(narrow, narrow)
        if narrow == str(expr.value.ty):
            return source
        if source.dtype == "bool":
            whole = dtype in INTEGERS
            return Typed(
                Select(
                    source.node,
                    Const(1 if whole else 1.0, dtype),
                    Const(0 if whole else 0.0, dtype),
                ),
                dtype,
            )
        if narrow == "bool":
            return Typed(Binary("ne", source.node, Const(0, source.dtype)), "bool")
        if (
            isinstance(source.node, Const)
            and (dtype in FLOATS or source.dtype in INTEGERS)
            and narrow == dtype
        ):
            return _as_dtype(source, dtype)
        if narrow in ("int32", "int64") and source.dtype == "int64" and not any(reads(source.node)):
            return source  # arithmetic on iterators
        node = source.node
        if narrow != dtype:
            return Typed(Cast(dtype, Cast(narrow, node)), dtype)
        return source if dtype == source.dtype else Typed(Cast(dtype, node), dtype)

    def _unified(self, lhs: Typed, rhs: Typed) -> tuple[Typed, Typed]:
        """Both operands in one dtype. Integers are widened; other pairs are refused."""
        if lhs.dtype == rhs.dtype:
            return lhs, rhs
        if lhs.dtype not in INTEGERS or rhs.dtype not in INTEGERS:
            raise self.refuse(f"{lhs.dtype} meets {rhs.dtype} without a conversion")
        if isinstance(lhs.node, Const):
            return _as_dtype(lhs, rhs.dtype), rhs
        if isinstance(rhs.node, Const):
            return lhs, _as_dtype(rhs, lhs.dtype)
        if "uint64" in (lhs.dtype, rhs.dtype):
            raise self.refuse(f"{lhs.dtype} meets {rhs.dtype} without a conversion")
        return _as_dtype(lhs, "int64"), _as_dtype(rhs, "int64")

    def _binary(self, kind: str, expr: tvm.ir.Expr) -> Typed:
        if kind == "NE" and _is_truth(expr):
            return self.scalar(expr.a.value)
        lhs, rhs = self._unified(self.scalar(expr.a), self.scalar(expr.b))
        if lhs.dtype == "bool":
            raise self.refuse(f"arithmetic on conditions, {str(expr)[:80]!r}")
        if kind in _COMPARE:
            return Typed(Binary(_COMPARE[kind], lhs.node, rhs.node), "bool")
        op = _BINARY[kind]
        if op in ("floordiv", "floormod") and not _positive(rhs.node):
            raise self.refuse(
                f"{op} by something other than a positive constant, {str(expr)[:80]!r}"
            )
        if op == "mul" and isinstance(rhs.node, Const) and rhs.node.value == -1:
            return self._wrapped(Unary("neg", lhs.node), lhs.dtype, expr)
        return self._wrapped(Binary(op, lhs.node, rhs.node), lhs.dtype, expr)

    def _wrapped(self, node: Scalar, dtype: DType, expr: tvm.ir.Expr) -> Typed:
        """Arithmetic in 8 or 16 bits: computed in 32, wrapped where it may leave them."""
        narrow = self.dtype(str(expr.ty))
        leaves = isinstance(node, Unary) or (
            isinstance(node, Binary) and node.op in ("add", "sub", "mul")
        )
        if narrow in INTEGERS and COMPUTED_IN.get(narrow, narrow) != narrow and leaves:
            node = Cast(dtype, Cast(narrow, node))
        return Typed(node, dtype)

    def _division(self, kind: str, expr: tvm.ir.Expr) -> Typed:
        """Division of floats, or of integers that are not negative."""
        lhs, rhs = self._unified(self.scalar(expr.a), self.scalar(expr.b))
        if lhs.dtype in FLOATS and kind == "Div":
            if (
                isinstance(lhs.node, Const)
                and lhs.node.value == 1
                and isinstance(rhs.node, Unary)
                and rhs.node.op == "sqrt"
            ):
                return Typed(Unary("rsqrt", rhs.node.arg), lhs.dtype)
            return Typed(Binary("div", lhs.node, rhs.node), lhs.dtype)
        # Truncating division is floor division where nothing is negative.
        dtypes = {tensor.name: tensor.dtype for tensor in self.tensors.values()}
        if (
            lhs.dtype in INTEGERS
            and _positive(rhs.node)
            and value_range(lhs.node, self.extents, dtypes).low >= 0
        ):
            return Typed(
                Binary("floordiv" if kind == "Div" else "floormod", lhs.node, rhs.node), lhs.dtype
            )
        raise self.refuse(
            f"division towards zero of what may be negative, {str(expr)[:80]!r}; use floor division"
        )

    def _select(self, cond: tvm.ir.Expr, then: tvm.ir.Expr, other: tvm.ir.Expr) -> Typed:
        first, second = self.scalar(then), self.scalar(other)
        magnitude = _absolute(self.condition(cond), first.node, second.node)
        if magnitude is not None:
            return Typed(magnitude, first.dtype)
        first, second = self._unified(first, second)
        return Typed(Select(self.condition(cond), first.node, second.node), first.dtype)

    def _call(self, expr: tvm.ir.Expr) -> Typed:
        name = str(expr.op.name).rpartition(".")[2]
        arguments = list(expr.args)
        if name == "if_then_else":
            return self._select(*arguments)
        if name == "likely":
            return self.scalar(arguments[0])
        if name == "call_pure_extern":
            name, *arguments = (str(arguments[0].value), *arguments[1:])
        values = [self.scalar(argument) for argument in arguments]
        if name == "reinterpret" and len(values) == 1:
            return self._bitcast(str(arguments[0].ty), str(expr.ty), values[0])
        if not values or any(value.dtype not in FLOATS for value in values):
            raise self.refuse(f"the call {str(expr)[:80]!r} has no counterpart in an expression")
        (node, dtype), unit = (values[0].node, values[0].dtype), Const(1.0, values[0].dtype)
        if name in _CALLS and len(values) == 1:
            return Typed(Unary(_CALLS[name], node), dtype)
        if name == "sigmoid":
            return Typed(
                Binary("div", unit, Binary("add", unit, Unary("exp", Unary("neg", node)))), dtype
            )
        if name in ("pow", "power", "powf") and len(values) == 2:
            node, power = values[0].node, values[1].node
            return Typed(Binary("pow", node, power), dtype)
        raise self.refuse(
            f"the function {name!r} is none of {', '.join(sorted({*_CALLS, 'sigmoid', 'pow'}))}"
        )

    def _bitcast(self, source: str, target: str, value: Typed) -> Typed:
        source, narrow = self.dtype(source), self.dtype(target)
        dtype = COMPUTED_IN.get(narrow, narrow)
        node = Bitcast(narrow, source, value.node)
        return Typed(node if dtype == narrow else Cast(dtype, node), dtype)


def _is_truth(expr: tvm.ir.Expr) -> bool:
    """Whether a condition is compared with false, as `float_arithmetic.truth` writes it."""
    return (
        type(expr.a).__name__ == "Cast"
        and str(expr.a.value.ty) == "bool"
        and type(expr.b).__name__ == "IntImm"
        and expr.b.value == 0
    )


def _is_greatest(expr: tvm.ir.Expr) -> bool:
    """Whether it is the greatest number of its dtype."""
    return type(expr).__name__ == "IntImm" and expr.value == np.iinfo(str(expr.ty)).max


def _positive(node: Scalar) -> bool:
    return isinstance(node, Const) and node.dtype in INTEGERS and node.value > 0


def _as_dtype(typed: Typed, dtype: DType) -> Typed:
    if typed.dtype == dtype:
        return typed
    if isinstance(typed.node, Const):
        return Typed(
            Const(float(typed.node.value) if dtype in FLOATS else int(typed.node.value), dtype),
            dtype,
        )
    return Typed(Cast(dtype, typed.node), dtype)


def _absolute(cond: Scalar, then: Scalar, other: Scalar) -> Scalar | None:
    """|x| as TVM writes it for integers: x where 0 <= x, else 0 - x."""
    match cond, other:
        case (Binary(op="le", lhs=Const(value=0), rhs=x) | Binary(op="ge", lhs=x,
        rhs=Const(value=0)),
              Binary(op="sub", lhs=Const(value=0), rhs=y) | Unary(op="neg",
              arg=y)) if x == y == then:  # fmt: skip
            return Unary("abs", then)
        case _:
            return None
