"""TVM's scalar expressions as the tree's: dtypes as the notation has them, index
arithmetic in 64 bits, calls by their meaning.

float16 and bfloat16 are computed in float32, int8 and uint8 in int32 with each result
wrapped, as TVM's own arithmetic wraps it.
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
from tuner.workload.expression import (
    DTYPE_BYTES,
    Binary,
    BinaryOp,
    Cast,
    Const,
    DType,
    Read,
    Scalar,
    Select,
    Tensor,
    Unary,
    UnaryOp,
    reads,
    walk,
)
from tuner.workload.terms import COMPUTED_IN, FLOATS, INTEGERS

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
    "fabs": "abs",
    "tanhf": "tanh", "erff": "erf", "expf": "exp", "logf": "log", "sqrtf": "sqrt",
}  # fmt: skip


class LiftError(UsageError):
    """A function that has no expression; the text names the block and what in it stands
    in the way."""


@dataclass(frozen=True, slots=True)
class Typed:
    """A scalar with the dtype the tree computes it in. Integers over iterators alone
    are int64, whatever TVM gave them."""

    node: Scalar
    dtype: DType


@dataclass(frozen=True, kw_only=True)
class ScalarLifter:
    """Reads the scalars of one block."""

    block: str
    tensors: Mapping[tvm.ir.Var, Tensor]  # buffers that hold values by now
    iterators: Mapping[tvm.ir.Var, Typed]
    extents: Mapping[str, int]  # of the stage's axes
    analyzer: Analyzer  # knows the iterators' ranges

    def refuse(self, why: str) -> LiftError:
        return LiftError(f"block {self.block!r}: {why}")

    def scalar(self, found: tvm.ir.Expr) -> Typed:
        kind = type(found).__name__
        if kind in _BINARY or kind in _COMPARE:
            return self._binary(kind, found)
        if kind in _LOGIC:
            return Typed(
                Binary(_LOGIC[kind], self.condition(found.a), self.condition(found.b)), "bool"
            )
        match kind:
            case "Var" if found in self.iterators:
                return self.iterators[found]
            case "IntImm" | "FloatImm":
                return self._constant(found)
            case "TensorLoad":
                return self._read(found)
            case "Cast":
                return self._cast(found)
            case "Not":
                return Typed(Unary("not", self.condition(found.a)), "bool")
            case "Select":
                return self._select(found.condition, found.true_value, found.false_value)
            case "Div" | "Mod":
                return self._division(kind, found)
            case "Call":
                return self._call(found)
        raise self.refuse(f"{kind} {str(found)[:80]!r} has no counterpart in an expression")

    def condition(self, found: tvm.ir.Expr) -> Scalar:
        typed = self.scalar(found)
        if typed.dtype != "bool":
            raise self.refuse(f"{str(found)[:80]!r} is used as a condition and is {typed.dtype}")
        return typed.node

    def dtype(self, name: str) -> DType:
        if name not in DTYPE_BYTES:
            raise self.refuse(f"dtype {name} is none of {', '.join(DTYPE_BYTES)}")
        return cast(DType, name)

    def _constant(self, found: tvm.ir.Expr) -> Typed:
        narrow = self.dtype(str(found.ty))
        dtype = COMPUTED_IN.get(narrow, narrow)
        if dtype == "bool":
            return Typed(Const(bool(found.value), "bool"), "bool")
        if math.isnan(found.value):
            raise self.refuse("a constant is not a number")
        return Typed(
            Const(float(found.value) if dtype in FLOATS else int(found.value), dtype), dtype
        )

    def _read(self, found: tvm.ir.Expr) -> Typed:
        if found.source not in self.tensors:
            raise self.refuse(
                f"reads {found.source.name!r}, which no earlier block has written and is no input"
            )
        tensor = self.tensors[found.source]
        read = Read(tensor.name, tuple(self.index(index) for index in found.indices))
        dtype = COMPUTED_IN.get(tensor.dtype, tensor.dtype)
        return Typed(read if dtype == tensor.dtype else Cast(dtype, read), dtype)

    def index(self, found: tvm.ir.Expr) -> Scalar:
        if type(found).__name__ == "BitwiseAnd" and _is_greatest(found.b):
            found = found.a  # nothing inside a tensor has the bit that is taken away
        typed = self.scalar(found)
        steps = any(
            isinstance(node, Binary) and node.op in ("floordiv", "floormod", "min", "max")
            for node in walk(typed.node)
        )
        if steps and not any(reads(typed.node)):
            with suppress(
                LiftError
            ):  # simplified, it may be a remainder by a negative number, which the notation has not
                typed = self.scalar(self.analyzer.simplify(found))
        if typed.dtype not in INTEGERS:
            raise self.refuse(f"the index {str(found)[:80]!r} is {typed.dtype}, not an integer")
        return _as_dtype(typed, "int64").node

    def _cast(self, found: tvm.ir.Expr) -> Typed:
        there = found.value
        if type(there).__name__ == "Cast" and (
            str(found.ty),
            str(there.ty),
            str(there.value.ty),
        ) == ("int32", "int64", "int32"):
            return self.scalar(there.value)  # widened and narrowed again
        source, narrow = self.scalar(found.value), self.dtype(str(found.ty))
        dtype = COMPUTED_IN.get(narrow, narrow)
        if narrow == str(found.value.ty):
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

    def _unified(self, one: Typed, other: Typed) -> tuple[Typed, Typed]:
        if one.dtype == other.dtype:
            return one, other
        if one.dtype not in INTEGERS or other.dtype not in INTEGERS:
            raise self.refuse(f"{one.dtype} meets {other.dtype} without a conversion")
        if isinstance(one.node, Const):
            return _as_dtype(one, other.dtype), other
        if isinstance(other.node, Const):
            return one, _as_dtype(other, one.dtype)
        return _as_dtype(one, "int64"), _as_dtype(other, "int64")

    def _binary(self, kind: str, found: tvm.ir.Expr) -> Typed:
        one, other = self._unified(self.scalar(found.a), self.scalar(found.b))
        if one.dtype == "bool":
            raise self.refuse(f"arithmetic on conditions, {str(found)[:80]!r}")
        if kind in _COMPARE:
            return Typed(Binary(_COMPARE[kind], one.node, other.node), "bool")
        op = _BINARY[kind]
        if op in ("floordiv", "floormod") and not _positive(other.node):
            raise self.refuse(
                f"{op} by something other than a positive constant, {str(found)[:80]!r}"
            )
        if op == "mul" and isinstance(other.node, Const) and other.node.value == -1:
            return self._wrapped(Unary("neg", one.node), one.dtype, found)
        return self._wrapped(Binary(op, one.node, other.node), one.dtype, found)

    def _wrapped(self, node: Scalar, dtype: DType, found: tvm.ir.Expr) -> Typed:
        """Arithmetic in 8 bits, computed in 32 and brought back into 8 where it may
        have left them."""
        narrow = self.dtype(str(found.ty))
        leaves = isinstance(node, Unary) or (
            isinstance(node, Binary) and node.op in ("add", "sub", "mul")
        )
        if narrow in ("int8", "uint8") and leaves:
            node = Cast(dtype, Cast(narrow, node))
        return Typed(node, dtype)

    def _division(self, kind: str, found: tvm.ir.Expr) -> Typed:
        one, other = self._unified(self.scalar(found.a), self.scalar(found.b))
        if one.dtype in FLOATS and kind == "Div":
            if (
                isinstance(one.node, Const)
                and one.node.value == 1
                and isinstance(other.node, Unary)
                and other.node.op == "sqrt"
            ):
                return Typed(Unary("rsqrt", other.node.arg), one.dtype)
            return Typed(Binary("div", one.node, other.node), one.dtype)
        # Truncating division is floor division where nothing is negative.
        dtypes = {tensor.name: tensor.dtype for tensor in self.tensors.values()}
        if (
            one.dtype in INTEGERS
            and _positive(other.node)
            and value_range(one.node, self.extents, dtypes).low >= 0
        ):
            return Typed(
                Binary("floordiv" if kind == "Div" else "floormod", one.node, other.node), one.dtype
            )
        raise self.refuse(
            f"division towards zero of what may be negative, {str(found)[:80]!r}; use "
            f"floor division"
        )

    def _select(self, cond: tvm.ir.Expr, then: tvm.ir.Expr, other: tvm.ir.Expr) -> Typed:
        first, second = self.scalar(then), self.scalar(other)
        magnitude = _absolute(self.condition(cond), first.node, second.node)
        if magnitude is not None:
            return Typed(magnitude, first.dtype)
        first, second = self._unified(first, second)
        return Typed(Select(self.condition(cond), first.node, second.node), first.dtype)

    def _call(self, found: tvm.ir.Expr) -> Typed:
        name = str(found.op.name).rpartition(".")[2]
        arguments = list(found.args)
        if name == "if_then_else":
            return self._select(*arguments)
        if name == "likely":
            return self.scalar(arguments[0])
        if name == "call_pure_extern":
            name, *arguments = (str(arguments[0].value), *arguments[1:])
        values = [self.scalar(argument) for argument in arguments]
        if not values or any(value.dtype not in FLOATS for value in values):
            raise self.refuse(f"the call {str(found)[:80]!r} has no counterpart in an expression")
        (node, dtype), one = (values[0].node, values[0].dtype), Const(1.0, values[0].dtype)
        if name in _CALLS and len(values) == 1:
            return Typed(Unary(_CALLS[name], node), dtype)
        if name == "sigmoid":
            return Typed(
                Binary("div", one, Binary("add", one, Unary("exp", Unary("neg", node)))), dtype
            )
        if name in ("pow", "power", "powf") and len(values) == 2:
            node, power = values[0].node, values[1].node
            return Typed(Binary("pow", node, power), dtype)
        raise self.refuse(
            f"the function {name!r} is none of {', '.join(sorted({*_CALLS, 'sigmoid', 'pow'}))}"
        )


def _is_greatest(found: tvm.ir.Expr) -> bool:
    """Whether it is the greatest number of its dtype."""
    return type(found).__name__ == "IntImm" and found.value == np.iinfo(str(found.ty)).max


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
