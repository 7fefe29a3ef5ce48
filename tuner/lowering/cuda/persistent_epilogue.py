"""Epilogues of persistent products as CUDA C++: one value from a sum and other tensors.

Floats are computed in float32, integers in int32. Which trees there are:
`tuner.spaces.program.epilogues`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tuner.lowering.passes.extremes import MAXIMUM, MINIMUM
from tuner.spaces.program.epilogues import ValueKind, value_kind
from tuner.workload.affine import linear
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Tensor,
    Unary,
)

# The tables have every operator of `tuner.spaces.program.epilogues`.
INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=",
    "eq": "==", "ne": "!=", "and": "&&", "or": "||",
}  # fmt: skip
FUNCTIONS = {"max": MAXIMUM, "min": MINIMUM}
WHOLE_FUNCTIONS = {"max": "max", "min": "min", "abs": "abs"}
# Types in C.
C_NAMES = {
    "float16": "half", "bfloat16": "nv_bfloat16", "float32": "float", "int8": "signed char",
    "uint8": "unsigned char", "int32": "int",
}  # fmt: skip
# Conversions to a dtype, of a value of another kind. Narrow integers wrap.
CONVERSIONS = {
    "float32": "(float)", "int32": "(int)", "int8": "(int)(signed char)(int)",
    "uint8": "(int)(unsigned char)(int)",
}  # fmt: skip
UNARY = {
    "neg": "-", "not": "!", "abs": "fabsf", "floor": "floorf", "ceil": "ceilf", "trunc": "truncf",
    "round": "nearbyintf", "exp": "expf", "log": "logf", "sqrt": "sqrtf", "erf": "erff",
    "rsqrt": "1.0f / sqrtf", "sin": "sinf", "cos": "cosf", "tanh": "tanhf",
}  # fmt: skip


def axis_values(axes: Sequence[Axis], number: str) -> dict[str, str]:
    """The value of each axis in C, from the number of a point of all of them."""
    values = {}
    for place, axis in enumerate(axes):
        inner = prod(other.extent for other in axes[place + 1 :])
        value = number if inner == 1 else f"({number} / {inner})"
        values[axis.name] = value if place == 0 else f"({value} % {axis.extent})"
    return values


def c_expression(
    node: Scalar, sums: str, values: Mapping[str, str], tensors: Mapping[str, Tensor]
) -> str:
    """The node in C. `values`: of the axes; `sum` is the name of the sum, whose dtype
    `tensors` has."""
    dtypes = {name: tensor.dtype for name, tensor in tensors.items()}

    def written(part: Scalar) -> str:
        return c_expression(part, sums, values, tensors)

    kind = value_kind(node, sums, dtypes)
    assert kind is not None, f"{node} is not expressible"
    match node:
        case Const(value=value):
            return str(int(value)) if kind is ValueKind.WHOLE else _number(float(value))
        case Read(tensor=tensor) if tensor == sums:
            return "sum"
        case Read():
            return f"({kind.value}){node.tensor}[{_place(node, values, tensors[node.tensor])}]"
        case Cast(arg=arg, dtype=dtype):
            same = value_kind(arg, sums, dtypes) is kind and dtype in ("float32", "int32")
            return written(arg) if same else f"({CONVERSIONS[dtype]}({written(arg)}))"
        case Unary(op="abs", arg=arg) if kind is ValueKind.WHOLE:
            return f"{WHOLE_FUNCTIONS['abs']}({written(arg)})"
        case Unary(op=op, arg=arg):
            return f"({UNARY[op]}({written(arg)}))"
        case Binary(op=op, lhs=lhs, rhs=rhs) if op in FUNCTIONS and kind is ValueKind.WHOLE:
            return f"{WHOLE_FUNCTIONS[op]}({written(lhs)}, {written(rhs)})"
        case Binary(op=op, lhs=lhs, rhs=rhs) if op in FUNCTIONS:
            return f"{FUNCTIONS[op]}({written(lhs)}, {written(rhs)})"
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return f"({written(lhs)} {INFIX[op]} {written(rhs)})"
        case Select(cond=cond, then=then, other=other):
            return f"({written(cond)} ? {written(then)} : {written(other)})"
        case _:
            raise AssertionError(f"{node} is not expressible")


def _number(value: float) -> str:
    if value != value:
        return "__int_as_float(0x7fc00000)"
    if value in (float("inf"), -float("inf")):
        return f"__int_as_float(0x{'7f' if value > 0 else 'ff'}800000)"
    return f"{value!r}f"


def _place(read: Read, values: Mapping[str, str], tensor: Tensor) -> str:
    """The element's place in a row-major tensor."""
    wide = "(long long)" if prod(tensor.shape) >= 2**31 else ""
    terms, step = [], 1
    for index, extent in reversed(list(zip(read.indices, tensor.shape, strict=True))):
        form = linear(index)
        assert form is not None
        terms += [
            f"{wide}{values[name]} * {factor * step}"
            for name, factor in form.coefficients.items()
            if factor
        ]
        if form.constant:
            terms.append(str(form.constant * step))
        step *= extent
    return " + ".join(terms) or "0"
