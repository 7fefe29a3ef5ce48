"""A naive interpreter of programs: every block, point by point, steps ignored. It
shares no code with the lowering.

Expressions and statements become functions before the first point: to tell nodes apart at
each of them takes most of the time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.spaces.program.loop_tree import Loop, LoopTree, Statement, Store, When
from tuner.spaces.program.program import Block, Program
from tuner.workload.expression import Binary, Cast, Const, Read, Scalar, Select, Unary, Var

Arrays = dict[str, NDArray[Any]]
Where = dict[str, int]  # the iterators' values
Evaluator = Callable[[Where], Any]

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


def evaluator(node: Scalar, arrays: Arrays) -> Evaluator:
    """What computes the node at a point."""
    match node:
        case Var(name=name):
            return itemgetter(name)
        case Const(value=number):
            return lambda where: number
        case Read(tensor=tensor, indices=indices):
            array = arrays[tensor]
            place = _place(indices, array, f"{node}", arrays)
            return lambda where: array.item(place(where))
        case Cast(arg=arg):
            return evaluator(arg, arrays)
        case Unary(op=op, arg=arg):
            function, inner = _UNARY[op], evaluator(arg, arrays)
            return lambda where: function(inner(where))
        case Binary(op=op, lhs=lhs, rhs=rhs):
            combine, left, right = _BINARY[op], evaluator(lhs, arrays), evaluator(rhs, arrays)
            return lambda where: combine(left(where), right(where))
        case Select(cond=cond, then=then, other=other):
            holds = evaluator(cond, arrays)
            chosen, otherwise = evaluator(then, arrays), evaluator(other, arrays)
            return lambda where: chosen(where) if holds(where) else otherwise(where)
    raise TypeError(f"{node} has no value")


def _place(
    indices: Sequence[Scalar], array: NDArray[Any], what: str, arrays: Arrays
) -> Callable[[Where], tuple[int, ...]]:
    """What computes a place in an array, and asserts that it lies inside."""
    numbers, shape = [evaluator(index, arrays) for index in indices], array.shape
    assert len(numbers) == len(shape), what

    def at_point(where: Where) -> tuple[int, ...]:
        place = [number(where) for number in numbers]
        for index, extent in zip(place, shape, strict=True):
            assert 0 <= index < extent, f"{what} at {place}"
        return tuple(place)

    return at_point


def value(node: Scalar, where: Where, arrays: Arrays) -> Any:
    return evaluator(node, arrays)(where)


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
            _sequence(part.body, arrays)({})
        else:
            _execute(part, arrays)
    return [arrays[tensor.name].reshape(tensor.shape) for tensor in program.outputs]


def _sequence(body: tuple[Statement, ...], arrays: Arrays) -> Callable[[Where], None]:
    """What runs the statements of a tree of loops in order, marks ignored."""
    steps = [_step(statement, arrays) for statement in body]

    def run_all(where: Where) -> None:
        for step in steps:
            step(where)

    return run_all


def _step(statement: Statement, arrays: Arrays) -> Callable[[Where], None]:
    match statement:
        case Store(buffer=buffer, indices=indices, value=node):
            target, stored = arrays[buffer], evaluator(node, arrays)
            place = _place(indices, target, f"{buffer} is written", arrays)

            def store(where: Where) -> None:
                target[place(where)] = stored(where)

            return store
        case When(condition=condition, body=body):
            holds, inner = evaluator(condition, arrays), _sequence(body, arrays)

            def choose(where: Where) -> None:
                if holds(where):
                    inner(where)

            return choose
        case Loop(iterator=name, extent=extent, body=body):
            lowest, highest = Const(0, "int64"), Const(extent, "int64")
            first = evaluator(lowest if statement.first is None else statement.first, arrays)
            end = evaluator(highest if statement.end is None else statement.end, arrays)
            inner = _sequence(body, arrays)

            def repeat(where: Where) -> None:
                start, stop = first(where), end(where)
                assert start >= 0 and stop <= extent, f"{name} goes from {start} to {stop}"
                for step in range(start, stop):
                    inner({**where, name: step})

            return repeat


def _execute(block: Block, arrays: Arrays) -> None:
    target = arrays[block.buffer]
    names = [axis.name for axis in block.axes]
    reduced = [axis.name for axis in block.reduce_axes]
    conditions = [evaluator(condition, arrays) for condition in block.when]
    body = evaluator(block.body, arrays)
    otherwise = None if block.otherwise is None else evaluator(block.otherwise, arrays)
    place_of = _place(block.indices, target, f"{block.name} writes", arrays)
    for point in product(*(range(axis.extent) for axis in block.axes)):
        where = dict(zip(names, point, strict=True))
        if block.reducer is None:
            computed = body if all(holds(where) for holds in conditions) else otherwise
            if computed is not None:
                target[place_of(where)] = computed(where)
            continue
        place = place_of(where)
        combine, total = _BINARY[_REDUCE[block.reducer]], _START[block.reducer]
        for step in product(*(range(axis.extent) for axis in block.reduce_axes)):
            where.update(zip(reduced, step, strict=True))
            if all(holds(where) for holds in conditions):
                total = combine(total, body(where))
        target[place] = total
