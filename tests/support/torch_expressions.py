"""Expressions computed by PyTorch in float64, so that its autograd differentiates them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, assert_never

import torch

from tuner.workload.expression import (
    Binary,
    Bitcast,
    Cast,
    Const,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Unary,
    Var,
)

Tensors = Mapping[str, torch.Tensor]
_UNARY: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "not": torch.logical_not,
    **{
        name: getattr(torch, name)
        for name in ("neg", "abs", "exp", "log", "sqrt", "rsqrt", "erf", "tanh", "round")
    },
}
_BINARY: Mapping[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "max": torch.maximum,
    "min": torch.minimum,
    "floordiv": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "floormod": torch.remainder,
    "and": torch.logical_and,
    "or": torch.logical_or,
    "bitand": torch.bitwise_and,
    "shr": torch.bitwise_right_shift,
    **{
        name: getattr(torch, name)
        for name in ("add", "sub", "mul", "div", "pow", "lt", "le", "gt", "ge", "eq", "ne")
    },
}


def computed(expression: Expression, inputs: Tensors) -> dict[str, torch.Tensor]:
    """The outputs by name."""
    tensors = dict(inputs)
    for stage in expression.stages:
        tensors[stage.name] = _stage(stage, tensors)
    return {name: tensors[name] for name in expression.outputs}


def _stage(stage: Stage, tensors: Tensors) -> torch.Tensor:
    extents = list(stage.extents.items())
    iterators = {
        name: torch.arange(extent).reshape([-1 if n == number else 1 for n in range(len(extents))])
        for number, (name, extent) in enumerate(extents)
    }
    value = _scalar(stage.body, iterators, tensors).expand([extent for _, extent in extents])
    along = tuple(range(len(stage.axes), len(extents)))
    match stage.reducer:
        case "sum":
            return value.sum(along)
        case "max":
            return value.amax(along)
        case "min":
            return value.amin(along)
        case "prod":
            for axis in reversed(along):
                value = value.prod(axis)
            return value
        case None:
            return value
        case never:
            assert_never(never)


def _scalar(node: Scalar, iterators: Mapping[str, torch.Tensor], tensors: Tensors) -> torch.Tensor:
    def inner(part: Scalar) -> torch.Tensor:
        return _scalar(part, iterators, tensors)

    match node:
        case Var(name=name):
            return iterators[name]
        case Const(value=value, dtype=dtype):
            return torch.tensor(value, dtype=torch.float64 if "float" in dtype else None)
        case Read(tensor=tensor, indices=indices, pad=pad):
            return _element(tensors[tensor], [inner(index) for index in indices], pad)
        case Cast(dtype=dtype, arg=arg):
            return inner(arg).to(torch.float64 if "float" in dtype else torch.int64)
        case Select(cond=cond, then=then, other=other):
            return torch.where(inner(cond), inner(then), inner(other))
        case Unary(op=op, arg=arg):
            return _UNARY[op](inner(arg))
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return _BINARY[op](inner(lhs), inner(rhs))
        case Bitcast():
            raise TypeError("the bits of a number have no derivative")
        case never:
            assert_never(never)


def _element(array: torch.Tensor, indices: list[Any], pad: Const | None) -> torch.Tensor:
    inside = torch.tensor(True)
    clamped = []
    for index, extent in zip(indices, array.shape, strict=True):
        inside = inside & (index >= 0) & (index < extent)
        clamped.append(index.clamp(0, extent - 1).to(torch.int64))
    read = array[tuple(clamped)]
    return read if pad is None else torch.where(inside, read, torch.tensor(float(pad.value)))
