"""A naive interpreter of programs: every block, point by point, steps ignored. It
shares no code with the lowering."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.spaces.program.loop_tree import Loop, LoopTree, Statement, Store, When
from tuner.spaces.program.program import Block, Program
from tuner.workload.expression import Binary, Cast, Const, Read, Scalar, Select, Unary, Var

Arrays = dict[str, NDArray[Any]]

_BINARY: Mapping[str, Callable[[Any, Any], Any]] = {
    "add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "floordiv": lambda a, b: a // b, "floormod": lambda a, b: a % b, "max": max, "min": min,
    "pow": lambda a, b: a**b,
    "lt": lambda a, b: a < b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b, "ge": lambda a,
    b: a >= b,
    "eq": lambda a, b: a == b, "ne": lambda a, b: a != b, "and": lambda a, b: a and b,
    "or": lambda a, b: a or b,
    "xor": lambda a, b: a ^ b,
}  # fmt: skip
_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "neg": lambda a: -a, "exp": math.exp, "log": math.log, "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "tanh": math.tanh, "erf": math.erf, "abs": abs, "not": lambda a: not a,
    "bfloat16": lambda a: math.ldexp(round(math.ldexp(math.frexp(a)[0], 8)), math.frexp(a)[1] - 8),
}  # fmt: skip
_START = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_REDUCE: Mapping[str, str] = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def value(node: Scalar, where: Mapping[str, int], arrays: Arrays) -> Any:
    match node:
        case Var(name=name):
            return where[name]
        case Const(value=number):
            return number
        case Read(tensor=tensor, indices=indices):
            place = tuple(value(index, where, arrays) for index in indices)
            assert all(
                0 <= index < extent
                for index, extent in zip(place, arrays[tensor].shape, strict=True)
            ), f"{node} at {place}"
            return arrays[tensor][place]
        case Cast(arg=arg):
            return value(arg, where, arrays)
        case Unary(op=op, arg=arg):
            return _UNARY[op](value(arg, where, arrays))
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return _BINARY[op](value(lhs, where, arrays), value(rhs, where, arrays))
        case Select(cond=cond, then=then, other=other):
            return value(then if value(cond, where, arrays) else other, where, arrays)


def run(program: Program, inputs: Arrays) -> list[NDArray[Any]]:
    """The outputs in order, in float64; an element nobody wrote is NaN."""
    arrays = {
        tensor.name: array.astype(np.float64).reshape(program.addressed(tensor))
        for tensor, array in zip(program.inputs, inputs.values(), strict=True)
    }
    shapes = {held.name: held.shape for held in program.buffers}
    shapes |= {tensor.name: program.addressed(tensor) for tensor in program.outputs}
    for name, shape in shapes.items():
        arrays[name] = np.full(shape, np.nan)
    for part in program.parts:
        if isinstance(part, LoopTree):
            _walk(part.body, {}, arrays)
        else:
            _execute(part, arrays)
    return [arrays[tensor.name].reshape(tensor.shape) for tensor in program.outputs]


def _walk(body: tuple[Statement, ...], where: Mapping[str, int], arrays: Arrays) -> None:
    """Runs the statements of a tree of loops in order, marks ignored."""
    for statement in body:
        match statement:
            case Store(buffer=buffer, indices=indices, value=stored):
                place = tuple(value(index, where, arrays) for index in indices)
                assert all(
                    0 <= index < extent
                    for index, extent in zip(place, arrays[buffer].shape, strict=True)
                ), f"{buffer} is written at {place}"
                arrays[buffer][place] = value(stored, where, arrays)
            case When(condition=condition, body=inner):
                if value(condition, where, arrays):
                    _walk(inner, where, arrays)
            case Loop(iterator=name, extent=extent, body=inner):
                first = 0 if statement.first is None else value(statement.first, where, arrays)
                end = extent if statement.end is None else value(statement.end, where, arrays)
                assert first >= 0 and end <= extent, f"{name} goes from {first} to {end}"
                for step in range(first, end):
                    _walk(inner, {**where, name: step}, arrays)


def _execute(block: Block, arrays: Arrays) -> None:
    target = arrays[block.buffer]
    names = [axis.name for axis in block.axes]
    reduced = [axis.name for axis in block.reduce_axes]
    for point in product(*(range(axis.extent) for axis in block.axes)):
        where = dict(zip(names, point, strict=True))
        computed = block.reducer is not None or all(
            value(condition, where, arrays) for condition in block.when
        )
        body = block.body if computed else block.otherwise
        if body is None:
            continue
        place = tuple(value(index, where, arrays) for index in block.indices)
        assert all(
            0 <= index < extent for index, extent in zip(place, target.shape, strict=True)
        ), f"{block.name} writes {place}"
        if block.reducer is None:
            target[place] = value(body, where, arrays)
            continue
        total = _START[block.reducer]
        for step in product(*(range(axis.extent) for axis in block.reduce_axes)):
            here = where | dict(zip(reduced, step, strict=True))
            if not all(value(condition, here, arrays) for condition in block.when):
                continue
            term = value(block.body, here, arrays)
            total = _BINARY[_REDUCE[block.reducer]](total, term)
        target[place] = total
