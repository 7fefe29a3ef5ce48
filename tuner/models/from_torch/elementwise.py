"""Operators of ATen that compute each element from those at its place."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Literal

from tuner.models.from_torch.call import Call, Convert, Results
from tuner.models.operators import elementwise as maps
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.scalars import Elem, bitwise, maximum, minimum, unary, where
from tuner.models.operators.values import Value
from tuner.workload.dtypes import DTYPE_BYTES, FLOATS, DType
from tuner.workload.expression import Binary, BinaryOp, UnaryOp


def each(function: Callable[[Elem], Elem]) -> Convert:
    return lambda call: elementwise(call.op, function, call.value("self", call.dtype))


def named(op: UnaryOp) -> Convert:
    return each(partial(unary, op))


def pair(function: Callable[[Elem, Elem], Elem]) -> Convert:
    """Of `self` and `other` in the result's dtype, `other` times `alpha`."""

    def convert(call: Call) -> Value:
        alpha = call.get("alpha", 1)

        def body(a: Elem, b: Elem) -> Elem:
            return function(a, b if alpha == 1 else b * alpha)

        left, right = call.value("self", call.dtype), call.value("other", call.dtype)
        return elementwise(call.op, body, left, right)

    return convert


def compared(function: Callable[[Elem, Elem], Elem]) -> Convert:
    def convert(call: Call) -> Value:
        left, right = _common(call, "self", "other")
        return elementwise(call.op, function, left, right, dtype="bool")

    return convert


def _common(call: Call, *names: str) -> list[Value]:
    """Tensors as values of one dtype: that of the widest tensor, or float for a number that
    is one."""
    tensors = [call[name] for name in names if isinstance(call[name], Value)]
    numbers = [call[name] for name in names if not isinstance(call[name], Value)]
    dtype: DType = max((value.dtype for value in tensors), key=_width)
    if dtype not in FLOATS and any(isinstance(number, float) for number in numbers):
        dtype = "float32"
    return [call.value(name, dtype) for name in names]


_WIDTHS: Sequence[DType] = (
    "bool", "uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "bfloat16",
    "float16", "float32", "float64",
)  # fmt: skip


def _width(dtype: DType) -> int:
    return _WIDTHS.index(dtype)


def truth(function: Callable[..., Elem]) -> Convert:
    """Of arguments that count as true where they are not 0."""

    def convert(call: Call) -> Value:
        values = [call.value(name, "bool") for name in ("self", "other") if name in call.arguments]
        return elementwise(call.op, function, *values, dtype="bool")

    return convert


def bits(op: BinaryOp) -> Convert:
    """Of integers; of bools as they count."""

    def convert(call: Call) -> Value:
        left, right = call.value("self", call.dtype), call.value("other", call.dtype)
        if call.dtype == "bool":
            return elementwise(call.op, _BOOLEAN[op], left, right, dtype="bool")
        return elementwise(
            call.op, lambda a, b: Elem(Binary(op, a.node, b.node), a.dtype), left, right
        )

    return convert


_BOOLEAN: Mapping[BinaryOp, Callable[[Elem, Elem], Elem]] = {
    "bitand": lambda a, b: a & b,
    "bitor": lambda a, b: a | b,
    "xor": lambda a, b: a.differs(b),
}


def shifted(op: Literal["shl", "shr"]) -> Convert:
    """By a negative number, or all bits and more, nothing is left but the sign of what moves
    to the right."""

    def convert(call: Call) -> Value:
        width = 8 * DTYPE_BYTES[call.dtype]
        is_signed = call.dtype.startswith("int")

        def body(a: Elem, b: Elem) -> Elem:
            is_inside = (b >= 0) & (b < width)
            if op == "shr" and is_signed:
                return bitwise(op, a, where(is_inside, b, width - 1))
            return where(is_inside, bitwise(op, a, where(is_inside, b, 0)), 0)

        left, right = call.value("self", call.dtype), call.value("other", call.dtype)
        return elementwise(call.op, body, left, right, dtype=call.dtype)

    return convert


def inverted(call: Call) -> Value:
    x = call.value("self")
    if x.dtype == "bool":
        return elementwise(call.op, lambda a: ~a, x, dtype="bool")
    return elementwise(call.op, lambda a: -a - 1, x)


def tested(function: Callable[[Elem], Elem]) -> Convert:
    return lambda call: elementwise(call.op, function, call.value("self"), dtype="bool")


def divide(call: Call) -> Value:
    mode = call.get("rounding_mode")
    left, right = call.value("self", call.dtype), call.value("other", call.dtype)
    if mode is None:
        return elementwise("div", lambda a, b: a / b, left, right)
    if mode == "trunc":
        return elementwise("div", _truncated, left, right)
    return elementwise("div", _floored, left, right)


def _truncated(a: Elem, b: Elem) -> Elem:
    return unary("trunc", a / b) if a.dtype in FLOATS else maps.divide(a, b)


def _floored(a: Elem, b: Elem) -> Elem:
    """Floats as Python divides them: the multiple of b below a, over b."""
    if a.dtype in FLOATS:
        rest = maps.truncated_remainder(a, b)
        whole = unary("round", (a - rest) / b)
        opposite = rest.differs(0) & (rest < 0).differs(b < 0)
        return where(b.equals(0), a / b, where(opposite, whole - 1, whole))
    return a // where(b.equals(0), 1, b)


def power(call: Call) -> Value:
    return elementwise(
        "pow", maps.power, call.value("self", call.dtype), call.value("exponent", call.dtype)
    )


def clamped(call: Call) -> Value:
    low, high = call.get("min", call.get("min_val")), call.get("max", call.get("max_val"))
    names = [name for name in ("min", "max") if isinstance(call.get(name), Value)]

    def body(e: Elem, *limits: Elem) -> Elem:
        bounds = dict(zip(names, limits, strict=True))
        if low is not None:
            e = maximum(e, bounds.get("min", low))
        if high is not None:
            e = minimum(e, bounds.get("max", high))
        return e

    values = [call.value(name, call.dtype) for name in names]
    return elementwise(call.op, body, call.value("self", call.dtype), *values)


def rounded(call: Call) -> Value:
    """To so many decimals; to tens and hundreds where they are negative."""
    decimals: int = call["decimals"]
    factor: float = 10.0 ** abs(decimals)

    def body(e: Elem) -> Elem:
        if decimals < 0:
            return unary("round", e / factor) * factor
        return unary("round", e * factor) / factor

    return elementwise(call.op, body, call.value("self", call.dtype))


def bits_of(call: Call) -> Value:
    """The numbers of a dtype as wide with the same bits."""
    return maps.bitcast(call.value("self"), call.dtype)


def cast(call: Call) -> Value:
    return maps.cast(call.value("self"), call.dtype)


def same(call: Call) -> Value:
    return call.value("self")


def select_where(call: Call) -> Value:
    condition = call.value("condition", "bool")
    then, other = call.value("self", call.dtype), call.value("other", call.dtype)
    return elementwise("where", where, condition, then, other, dtype=call.dtype)


def gelu(call: Call) -> Value:
    tanh = call.get("approximate", "none") == "tanh"
    return elementwise("gelu", maps.gelu_tanh if tanh else maps.gelu, call.value("self"))


def elu(call: Call) -> Value:
    alpha, scale = call.get("alpha", 1.0), call.get("scale", 1.0)
    return elementwise("elu", lambda e: maps.elu(e, alpha, scale), call.value("self"))


def leaky_relu(call: Call) -> Value:
    slope = call.get("negative_slope", 0.01)
    return elementwise("leaky_relu", lambda e: maps.leaky_relu(e, slope), call.value("self"))


def rrelu(call: Call) -> Results:
    if call["training"]:
        raise call.refusal("is random in training; export the model in inference (model.eval())")
    slope = (call["lower"] + call["upper"]) / 2
    return (elementwise("rrelu", lambda e: maps.leaky_relu(e, slope), call.value("self")), None)


def hard(function: Callable[[Elem], Elem]) -> Convert:
    return lambda call: elementwise(call.op, function, call.value("self"))
