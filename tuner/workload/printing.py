"""Expressions as texts of the notation, which `notation.parse` reads back to the same tree.

Ranges are stated where the reader would not infer them. Names that the notation does not
have, such as those of split iterators, are replaced.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from tuner.errors import WorkloadError
from tuner.workload.bounds import infer_extents
from tuner.workload.dtypes import (
    BYTE_FLOAT_NAMES,
    COMPUTED_IN,
    DTYPE_NAMES,
    FLOATS,
    INTEGERS,
    ByteFloat,
    DType,
)
from tuner.workload.expression import (
    Axis,
    Binary,
    Bitcast,
    Cast,
    Const,
    Expression,
    Fact,
    Read,
    Scalar,
    Select,
    Splits,
    Stage,
    Tensor,
    Unary,
    UnaryOp,
    Var,
    Within,
    reads,
    walk,
)
from tuner.workload.right_hand_sides import BIT_FUNCTIONS, FUNCTIONS
from tuner.workload.scalar_operators import BINARY_OPERATORS, REDUCTIONS, UNARY_OPERATORS

# Short names of dtypes, and functions of bits by their operators.
SHORT: Mapping[str, str] = {
    **{
        dtype: name
        for name, dtype in DTYPE_NAMES.items()
        if len(name) < len(dtype) or dtype == "bool"
    },
    **{dtype: name for name, dtype in BYTE_FLOAT_NAMES.items()},
}
_CALLS: Mapping[str, str] = {
    **{op: name for name, op in BIT_FUNCTIONS.items()},
    **{op: op for op in ("max", "min", "pow")},
}
# How tightly each kind of node holds together; a looser one within a tighter is put in brackets.
_CHOICE, _OR, _AND, _NOT, _COMPARISON, _SUM, _PRODUCT, _SIGN, _ATOM = range(9)
_LEVELS: Mapping[str, int] = {
    "or": _OR, "and": _AND, "add": _SUM, "sub": _SUM,
    "mul": _PRODUCT, "div": _PRODUCT, "floordiv": _PRODUCT, "floormod": _PRODUCT,
}  # fmt: skip
_WIDTH = 90  # of a line with inputs and outputs
_WHOLE = 1e15  # greatest number that is written without a fraction
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")


def notation_text(expression: Expression) -> str:
    """The text of an expression, without shape symbols.

    Parsed, it gives the expression again, for all that the notation can say: intermediates
    have the dtype of their right-hand side, iterators of sums come in the order in which
    they are read, and operations on constants are done. A sum over an iterator that nothing
    depends on gets a condition with it, which always holds. Raises `WorkloadError` for an
    operator without a notation.
    """
    tensors = expression.tensors
    names = dict(zip(tensors, _plain(tensors), strict=True))
    declared = {
        name: f"{names[name]}: {SHORT[tensor.dtype]}[{', '.join(map(str, tensor.shape))}]"
        f"{_fact(tensor.fact)}"
        for name, tensor in tensors.items()
    }
    inputs = ", ".join(declared[tensor.name] for tensor in expression.inputs)
    outputs = ", ".join(declared[name] for name in expression.outputs)
    lines = [
        "  " + _StagePrinter(stage, tensors, names, stage.name in expression.outputs).text()
        for stage in expression.stages
    ]
    (name,) = _plain([expression.name])
    head = f"kernel {name}({inputs})"
    arrow = " -> " if len(head) + len(outputs) < _WIDTH else "\n    -> "
    return "\n".join([f"{head}{arrow}({outputs}) {{", *lines, "}"]) + "\n"


def _plain(names: Mapping[str, object] | list[str]) -> list[str]:
    """The names as the notation has them, each different from the others."""
    made: list[str] = []
    for name in names:
        plain = name
        if not _NAME.fullmatch(name) or name in FUNCTIONS:
            plain = "_" + re.sub(r"\W", "_", name, flags=re.ASCII)[:50]
        base, number = plain, 1
        while plain in made or (plain != name and plain in names):
            number += 1
            plain = f"{base}_{number}"
        made.append(plain)
    return made


def _fact(fact: Fact | None) -> str:
    match fact:
        case Within(start=start, stop=stop, spread=spread):
            return f" in {start}:{stop} {spread}"
        case Splits(stop=stop, lengths=lengths):
            return f" splits {stop} {lengths}"
    return ""


class _StagePrinter:
    """Writes one stage."""

    def __init__(
        self,
        stage: Stage,
        tensors: Mapping[str, Tensor],
        names: Mapping[str, str],
        is_output: bool,
    ) -> None:
        self.stage, self.tensors, self.names, self.is_output = stage, tensors, names, is_output
        plain = _plain([axis.name for axis in (*stage.axes, *stage.reduce_axes)])
        self.iterators = {
            axis.name: name if name not in names.values() else f"{name}_"
            for axis, name in zip((*stage.axes, *stage.reduce_axes), plain, strict=True)
        }

        self.body = self._with_idle_iterators(stage.body)

    def _with_idle_iterators(self, body: Scalar) -> Scalar:
        """The right-hand side with every iterator of the reduction in it."""
        used = {node.name for node in walk(body) if isinstance(node, Var)}
        for axis in self.stage.reduce_axes:
            if axis.name not in used:
                always = Binary("ge", Var(axis.name), Const(0, "int64"))
                body = Select(always, body, Const(0, self._computed(body)))
        return body

    def text(self) -> str:
        stage = self.stage
        written = ", ".join(self.iterators[axis.name] for axis in stage.axes)
        assign = "=" if stage.reducer is None else REDUCTIONS[stage.reducer].symbol
        body = self._root()
        return f"{self.names[stage.name]}[{written}] {assign} {body}{self._ranges()}"

    def _root(self) -> str:
        """The right-hand side. A constant alone takes the declared type, or a literal's."""
        body = self.body
        if isinstance(body, Const):
            natural = ("float32", "int32")
            if self.is_output or body.dtype in natural:
                return _number(body, as_real=not self.is_output and body.dtype == "float32")
            return f"{SHORT[body.dtype]}({_number(body)})"
        return self._written(body, _CHOICE)

    def _ranges(self) -> str:
        """The ranges that are not inferred."""
        axes = (*self.stage.axes, *self.stage.reduce_axes)
        everything = list(reads(self.stage.body))
        fixed = {axis.name: axis.extent for axis in self.stage.axes if self.is_output}
        inferred, clash = infer_extents(
            [axis.name for axis in axes], fixed, everything, self.tensors
        )
        stated = [
            f"{self.iterators[axis.name]} in 0:{axis.extent}"
            for axis in axes
            if clash is not None
            or inferred.get(axis.name) != axis.extent
            or self._reads_a_part(axis, everything)
        ]
        return " for " + ", ".join(stated) if stated else ""

    def _reads_a_part(self, axis: Axis, everything: list[Read]) -> bool:
        """Whether the axis runs over less or more than a dimension that it indexes alone."""
        return any(
            index == Var(axis.name) and extent != axis.extent
            for read in everything
            for index, extent in zip(read.indices, self.tensors[read.tensor].shape, strict=True)
        )

    def _written(self, node: Scalar, level: int) -> str:
        """A node, in brackets where it holds together less tightly than `level`."""
        text, own = self._node(node)
        return f"({text})" if own < level else text

    def _node(self, node: Scalar) -> tuple[str, int]:
        match node:
            case Var(name=name):
                return self.iterators[name], _ATOM
            case Const():
                return self._typed(node)
            case Read():
                return self._read(node)
            case Unary(op=op, arg=arg):
                return self._unary(op, arg)
            case Binary():
                return self._binary(node)
            case Select(cond=cond, then=then, other=other):
                parts = [self._written(cond, _CHOICE), *self._branches(then, other)]
                return f"where({', '.join(parts)})", _ATOM
            case Cast(dtype=dtype, arg=arg):
                if isinstance(arg, Read) and COMPUTED_IN.get(self._dtype(arg)) == dtype:
                    return self._node(arg)
                return f"{SHORT[dtype]}({self._bare(arg)})", _ATOM
            case Bitcast(dtype=dtype, source=source, arg=arg):
                inner = self._bare(arg)
                if self._dtype(arg) != source:
                    inner = f"{SHORT[source]}({inner})"
                return f"bitcast({SHORT[dtype]}, {inner})", _ATOM

    def _bare(self, node: Scalar) -> str:
        """The operand of a conversion; constants are literals there."""
        return _number(node) if isinstance(node, Const) else self._written(node, _CHOICE)

    def _typed(self, node: Const) -> tuple[str, int]:
        """A constant that takes its type from nothing beside it."""
        if node.dtype == "bool":
            return _number(node), _ATOM
        return f"{SHORT[node.dtype]}({_number(node)})", _ATOM

    def _read(self, node: Read) -> tuple[str, int]:
        indices = ", ".join(self._index(index) for index in node.indices)
        text = f"{self.names[node.tensor]}[{indices}]"
        if node.pad is None:
            return text, _ATOM
        return f"{text} else {_number(node.pad)}", _CHOICE

    def _index(self, index: Scalar) -> str:
        match index:
            case Const():
                return _number(index)
            case Cast(dtype="int64", arg=arg) if not isinstance(arg, Const) and (
                self._computed(arg) in INTEGERS
            ):
                return self._written(arg, _CHOICE)
            case _:
                return self._written(index, _CHOICE)

    def _unary(self, op: UnaryOp, arg: Scalar) -> tuple[str, int]:
        if op == "neg":
            return f"-{self._written(arg, _SIGN)}", _SIGN
        if op == "not":
            return f"not {self._written(arg, _NOT)}", _NOT
        if op not in ("abs", "isnan") and not UNARY_OPERATORS[op].is_function:
            raise WorkloadError(
                f"stage {self.stage.name} rounds an intermediate to {op}, for which the "
                f"notation has nothing"
            )
        return f"{op}({self._written(arg, _CHOICE)})", _ATOM

    def _binary(self, node: Binary) -> tuple[str, int]:
        op = node.op
        if op in _CALLS:
            return f"{_CALLS[op]}({', '.join(self._operands(node, _CHOICE, _CHOICE))})", _ATOM
        level = _LEVELS.get(op, _COMPARISON)
        first = level if op in _LEVELS else level + 1
        lhs, rhs = self._operands(node, first, level + 1)
        return f"{lhs} {BINARY_OPERATORS[op].symbol or op} {rhs}", level

    def _operands(self, node: Binary, left: int, right: int) -> tuple[str, str]:
        """Both operands; a constant takes the type of the other operand."""
        lhs, rhs = node.lhs, node.rhs
        if isinstance(lhs, Const) and isinstance(rhs, Const):
            return self._written(lhs, left), self._written(rhs, right)
        return self._operand(lhs, left), self._operand(rhs, right)

    def _operand(self, node: Scalar, level: int) -> str:
        if isinstance(node, Const):
            text = _number(node)
            return f"({text})" if text.startswith("-") and level > _SIGN else text
        return self._written(node, level)

    def _branches(self, then: Scalar, other: Scalar) -> tuple[str, str]:
        if isinstance(then, Const) and isinstance(other, Const):
            if then.dtype in ("float32", "int32"):  # of literals alone
                real = then.dtype == "float32"
                return _number(then, as_real=real), _number(other, as_real=real)
            return self._typed(then)[0], self._typed(other)[0]
        return self._operand(then, _CHOICE), self._operand(other, _CHOICE)

    def _computed(self, node: Scalar) -> DType:
        """The dtype in which the notation computes a node."""
        dtype = self._dtype(node)
        if dtype == "float8_e4m3fn" or dtype == "float8_e5m2":
            return "float32"
        return COMPUTED_IN.get(dtype, dtype)

    def _dtype(self, node: Scalar) -> DType | ByteFloat:
        """The dtype of a node by itself."""
        match node:
            case Var():
                return "int64"
            case Const(dtype=dtype) | Cast(dtype=dtype) | Bitcast(dtype=dtype):
                return dtype
            case Read(tensor=tensor):
                return self.tensors[tensor].dtype
            case Unary(op=op, arg=arg):
                return "bool" if op in ("not", "isnan") else self._computed(arg)
            case Binary(op=op, lhs=lhs, rhs=rhs):
                if BINARY_OPERATORS[op].is_comparison or op in ("and", "or"):
                    return "bool"
                return self._computed(rhs if isinstance(lhs, Const) else lhs)
            case Select(then=then, other=other):
                return self._computed(other if isinstance(then, Const) else then)


def _number(node: Const, as_real: bool = False) -> str:
    """A constant as a literal; `as_real` gives whole numbers a fraction, too."""
    value = node.value
    if node.dtype == "bool":
        return "true" if value else "false"
    if node.dtype in FLOATS:
        value = float(value)
        if math.isinf(value):
            return "inf" if value > 0 else "-inf"
        if value == math.trunc(value) and abs(value) < _WHOLE and not as_real:
            if value == 0 and math.copysign(1, value) < 0:
                return "-0.0"
            return str(int(value))
    return repr(value)
