"""Scalars of a program under construction: Python's operators build the expression tree.

An `Elem` knows the dtype it is computed in, so that operands meet in one dtype and plain
numbers take that of what they meet. Index arithmetic (int64) drops neutral operands as it
is written, because sketches recognise an access by its form.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Union, cast

from tuner.workload.dtypes import COMPUTED_IN, FLOATS, INTEGER_RANGES, DType
from tuner.workload.expression import (
    Binary,
    BinaryOp,
    Bitcast,
    Cast,
    Const,
    Scalar,
    Select,
    Unary,
    UnaryOp,
    Var,
)

Number = int | float | bool
Operand = Union["Elem", Number]


@dataclass(frozen=True, slots=True)
class Elem:
    """A scalar node and the dtype it is computed in. Narrow values are widened when they are
    read (`COMPUTED_IN`), so dtype is never float16, bfloat16 or an integer below 32 bits."""

    node: Scalar
    dtype: DType

    @property
    def constant(self) -> Number | None:
        return self.node.value if isinstance(self.node, Const) else None

    def __add__(self, other: Operand) -> Elem:
        return _arithmetic("add", self, other)

    def __radd__(self, other: Operand) -> Elem:
        return _arithmetic("add", other, self)

    def __sub__(self, other: Operand) -> Elem:
        return _arithmetic("sub", self, other)

    def __rsub__(self, other: Operand) -> Elem:
        return _arithmetic("sub", other, self)

    def __mul__(self, other: Operand) -> Elem:
        return _arithmetic("mul", self, other)

    def __rmul__(self, other: Operand) -> Elem:
        return _arithmetic("mul", other, self)

    def __truediv__(self, other: Operand) -> Elem:
        return _binary("div", self, other)

    def __rtruediv__(self, other: Operand) -> Elem:
        return _binary("div", other, self)

    def __floordiv__(self, other: Operand) -> Elem:
        return _arithmetic("floordiv", self, other)

    def __mod__(self, other: Operand) -> Elem:
        return _arithmetic("floormod", self, other)

    def __neg__(self) -> Elem:
        if self.constant is not None:
            return constant(-self.constant, self.dtype)
        return Elem(Unary("neg", self.node), self.dtype)

    def __pow__(self, other: Operand) -> Elem:
        return _binary("pow", self, other)

    def __lt__(self, other: Operand) -> Elem:
        return _compare("lt", self, other)

    def __le__(self, other: Operand) -> Elem:
        return _compare("le", self, other)

    def __gt__(self, other: Operand) -> Elem:
        return _compare("gt", self, other)

    def __ge__(self, other: Operand) -> Elem:
        return _compare("ge", self, other)

    def equals(self, other: Operand) -> Elem:
        """Not `==`, which compares the trees."""
        return _compare("eq", self, other)

    def differs(self, other: Operand) -> Elem:
        return _compare("ne", self, other)

    def __and__(self, other: Operand) -> Elem:
        return _compare("and", self, other)

    def __or__(self, other: Operand) -> Elem:
        return _compare("or", self, other)

    def __invert__(self) -> Elem:
        return Elem(Unary("not", self.node), "bool")


def literal(value: Number, dtype: DType) -> Const:
    """A number as `dtype` holds it; integers are clamped to its range."""
    if dtype == "bool":
        return Const(bool(value), dtype)
    if dtype in FLOATS:
        return Const(float(value), dtype)
    low, high = INTEGER_RANGES[dtype]
    return Const(min(max(int(value), low), high), dtype)


def constant(value: Number, dtype: DType) -> Elem:
    """A number in `dtype`, or in the dtype that `dtype` is computed in."""
    dtype = COMPUTED_IN.get(dtype, dtype)
    return Elem(literal(value, dtype), dtype)


def iterator(name: str) -> Elem:
    return Elem(Var(name), "int64")


def index(value: Operand) -> Elem:
    return value if isinstance(value, Elem) else constant(value, "int64")


def unary(op: UnaryOp, value: Elem) -> Elem:
    return Elem(Unary(op, value.node), value.dtype)


def cast_to(dtype: DType, value: Elem) -> Elem:
    """The value in the dtype that `dtype` is computed in; rounding to a narrow float
    happens where it is stored."""
    wide = COMPUTED_IN.get(dtype, dtype)
    if value.dtype == dtype:
        return value
    if value.constant is not None and _holds(dtype, value):
        return constant(value.constant, dtype)
    if dtype == "bool":
        return value.differs(0)
    if dtype == wide:
        return Elem(Cast(dtype, value.node), dtype)
    return Elem(Cast(wide, Cast(dtype, value.node)), wide)


def _holds(dtype: DType, value: Elem) -> bool:
    """Whether a constant is converted to a dtype by taking its number."""
    number = value.constant
    if dtype in FLOATS or dtype == "bool":
        return value.dtype not in FLOATS or dtype in FLOATS
    low, high = INTEGER_RANGES[dtype]
    return value.dtype not in FLOATS and number is not None and low <= number <= high


def bitcast(dtype: DType, value: Elem, source: DType | None = None) -> Elem:
    """The number of a dtype with the bits of the value, in the dtype it is computed in.

    `source` is the dtype of the bits, where the value was widened from it.
    """
    source, bits = source or value.dtype, value.node
    if source != value.dtype and isinstance(bits, Cast):
        bits = bits.arg
    wide = COMPUTED_IN.get(dtype, dtype)
    node = Bitcast(dtype, source, bits)
    return Elem(node if wide == dtype else Cast(wide, node), wide)


def bitwise(op: BinaryOp, left: Operand, right: Operand) -> Elem:
    """An operator of the bits of two integers."""
    return _binary(op, left, right)


def where(condition: Elem, then: Operand, other: Operand) -> Elem:
    """Only the chosen side is evaluated."""
    if condition.constant is not None:
        chosen, rest = (then, other) if condition.constant else (other, then)
        return _pair(chosen, rest)[0]
    first, second = _pair(then, other)
    return Elem(Select(condition.node, first.node, second.node), first.dtype)


def maximum(left: Operand, right: Operand) -> Elem:
    return _binary("max", left, right)


def minimum(left: Operand, right: Operand) -> Elem:
    return _binary("min", left, right)


def clamp(value: Elem, low: Operand, high: Operand) -> Elem:
    return maximum(minimum(value, high), low)


def _pair(left: Operand, right: Operand) -> tuple[Elem, Elem]:
    """Both as scalars of one dtype."""
    if isinstance(left, Elem) and isinstance(right, Elem):
        if left.dtype != right.dtype:
            raise TypeError(f"{left.dtype} meets {right.dtype}; convert one of them")
        return left, right
    if isinstance(left, Elem):
        return left, constant(cast(Number, right), left.dtype)
    if isinstance(right, Elem):
        return constant(left, right.dtype), right
    raise TypeError(f"neither {left!r} nor {right!r} is a scalar of the program")


def _binary(op: BinaryOp, left: Operand, right: Operand) -> Elem:
    first, second = _pair(left, right)
    return Elem(Binary(op, first.node, second.node), first.dtype)


def _compare(op: BinaryOp, left: Operand, right: Operand) -> Elem:
    first, second = _pair(left, right)
    if first.dtype == "int64" and first.constant is not None and second.constant is not None:
        a, b = first.constant, second.constant
        results = {"lt": a < b, "le": a <= b, "gt": a > b, "ge": a >= b, "eq": a == b, "ne": a != b}
        if op in results:
            return constant(results[op], "bool")
    if op in ("and", "or"):
        for one_side, rest in ((first, second), (second, first)):
            if one_side.constant is not None:
                return rest if one_side.constant == (op == "and") else one_side
    return Elem(Binary(op, first.node, second.node), "bool")


def _arithmetic(op: BinaryOp, left: Operand, right: Operand) -> Elem:
    first, second = _pair(left, right)
    if first.dtype in FLOATS:
        return Elem(Binary(op, first.node, second.node), first.dtype)
    a, b = first.constant, second.constant
    if a is not None and b is not None and not (op in ("floordiv", "floormod") and b == 0):
        value = {
            "add": lambda: a + b,
            "sub": lambda: a - b,
            "mul": lambda: a * b,
            "floordiv": lambda: a // b,
            "floormod": lambda: a % b,
        }[op]()
        return constant(value, first.dtype)
    if (op, b) in (("add", 0), ("sub", 0), ("mul", 1), ("floordiv", 1)):
        return first
    if (op, a) in (("add", 0), ("mul", 1)):
        return second
    if (op, b) in (("mul", 0), ("floormod", 1)) or (op, a) == ("mul", 0):
        return constant(0, first.dtype)
    return Elem(Binary(op, first.node, second.node), first.dtype)
