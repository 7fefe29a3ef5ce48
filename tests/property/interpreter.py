"""A slow and obvious interpreter of expressions, point by point in Python numbers: the
fast reference is compared with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.workload.expression import (
    Binary,
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

Number = Any  # int, float or bool


class OutOfBounds(Exception):
    pass


def interpret(
    expression: Expression, inputs: Mapping[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    tensors = {name: array.astype(object) for name, array in inputs.items()}
    for tensor in expression.inputs:
        convert = float if "float" in tensor.dtype else int
        tensors[tensor.name] = np.vectorize(convert, otypes=[object])(tensors[tensor.name])
    for stage in expression.stages:
        tensors[stage.name] = _stage(stage, tensors)
    return {name: tensors[name] for name in expression.outputs}


def _stage(stage: Stage, tensors: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    out = np.empty([axis.extent for axis in stage.axes], object)
    names = [axis.name for axis in stage.axes]
    for point in np.ndindex(*out.shape):
        environment = dict(zip(names, point, strict=True))
        values = []
        for inner in product(*(range(axis.extent) for axis in stage.reduce_axes)):
            here = environment | dict(
                zip((axis.name for axis in stage.reduce_axes), inner, strict=True)
            )
            values.append(value_of(stage.body, here, tensors))
        combiners: dict[str | None, Callable[[list[Number]], Number]] = {
            "sum": math.fsum,
            "prod": math.prod,
            "max": max,
            "min": min,
            None: lambda values: values[0],
        }
        combine = combiners[stage.reducer]
        if stage.reducer == "sum" and all(isinstance(value, int) for value in values):
            combine = sum
        out[point] = combine(values)
    return out


def value_of(
    node: Scalar, environment: Mapping[str, int], tensors: Mapping[str, NDArray[Any]]
) -> Number:
    match node:
        case Var(name=name):
            return environment[name]
        case Const(value=value):
            return value
        case Read(tensor=tensor, indices=indices, pad=pad):
            point = tuple(int(value_of(index, environment, tensors)) for index in indices)
            inside = all(
                0 <= i < extent for i, extent in zip(point, tensors[tensor].shape, strict=True)
            )
            if not inside and pad is None:
                raise OutOfBounds(f"{tensor}{list(point)}")
            return tensors[tensor][point] if inside or pad is None else pad.value
        case Cast(dtype=dtype, arg=arg):
            inner = value_of(arg, environment, tensors)
            return float(inner) if "float" in dtype else int(inner)
        case Select(cond=cond, then=then, other=other):
            return value_of(
                then if value_of(cond, environment, tensors) else other, environment, tensors
            )
        case Unary(op=op, arg=arg):
            return _unary(op, value_of(arg, environment, tensors))
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return _binary(
                op, value_of(lhs, environment, tensors), value_of(rhs, environment, tensors)
            )


def _unary(op: str, x: Number) -> Number:
    match op:
        case "neg":
            return -x
        case "not":
            return not x
        case "rsqrt":
            return 1 / math.sqrt(x)
        case "abs":
            return abs(x)
        case _:
            return getattr(math, op)(x)


def _binary(op: str, a: Number, b: Number) -> Number:
    match op:
        case "add":
            return a + b
        case "sub":
            return a - b
        case "mul":
            return a * b
        case "div":
            return a / b
        case "floordiv":
            return a // b
        case "floormod":
            return a % b
        case "max" | "min":
            return (max if op == "max" else min)(a, b)
        case "pow":
            return a**b
        case "and" | "or":
            return (a and b) if op == "and" else (a or b)
        case _:
            return {
                "lt": a < b,
                "le": a <= b,
                "gt": a > b,
                "ge": a >= b,
                "eq": a == b,
                "ne": a != b,
            }[op]
