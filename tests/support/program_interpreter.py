"""A naive interpreter of programs: every block, point by point, steps ignored. It
shares no code with the lowering.

A block, or a tree of loops, becomes the text of a Python function: to tell nodes apart at each
point takes most of the time. Tensors are flat lists meanwhile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.spaces.program.loop_tree import Loop, LoopTree, Statement, Store, When
from tuner.spaces.program.program import Block, Program
from tuner.workload.expression import (
    Axis,
    Binary,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Unary,
    Var,
)

Arrays = dict[str, NDArray[Any]]
Lists = dict[str, list[float]]
Shapes = Mapping[str, Sequence[int]]

_BINARY: Mapping[str, str] = {
    "add": "{} + {}", "sub": "{} - {}", "mul": "{} * {}", "div": "{} / {}", "pow": "{} ** {}",
    "floordiv": "{} // {}", "floormod": "{} % {}", "max": "max({}, {})", "min": "min({}, {})",
    "lt": "{} < {}", "le": "{} <= {}", "gt": "{} > {}", "ge": "{} >= {}", "eq": "{} == {}",
    "ne": "{} != {}", "and": "{} and {}", "or": "{} or {}", "xor": "{} ^ {}",
}  # fmt: skip
_CHAINS = ({"add", "sub"}, {"mul", "div"})  # of which Python takes the first two first
_UNARY: Mapping[str, Callable[[Any], Any]] = {
    "neg": lambda a: -a, "exp": math.exp, "log": math.log, "sqrt": math.sqrt,
    "rsqrt": lambda a: 1 / math.sqrt(a),
    "tanh": math.tanh, "erf": math.erf, "abs": abs, "not": lambda a: not a,
    "bfloat16": lambda a: math.ldexp(round(math.ldexp(math.frexp(a)[0], 8)), math.frexp(a)[1] - 8),
}  # fmt: skip
_START = {"sum": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}
_REDUCE: Mapping[str, str] = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}


def run(program: Program, inputs: Arrays) -> list[NDArray[Any]]:
    """The outputs in order, in float64; an element nobody wrote is NaN."""
    shapes = {tensor.name: program.addressed(tensor) for tensor in program.inputs}
    lists = {
        name: array.astype(np.float64).reshape(shape).ravel().tolist()
        for (name, shape), array in zip(shapes.items(), inputs.values(), strict=True)
    }
    made = {buffer.name: buffer.shape for buffer in program.buffers}
    made |= {tensor.name: program.addressed(tensor) for tensor in program.outputs}
    lists |= {name: [math.nan] * math.prod(shape) for name, shape in made.items()}
    for part in program.parts:
        writer = _Writer(shapes=shapes | made, lists=lists)
        if isinstance(part, LoopTree):
            writer.statements(part.body, 1)
        else:
            writer.block(part)
        writer.function(())()
    return [
        np.array(lists[tensor.name], np.float64).reshape(tensor.shape) for tensor in program.outputs
    ]


def function_of(node: Scalar, iterators: Sequence[str]) -> Callable[..., Any]:
    """What computes a scalar that reads no tensor, of its iterators in this order."""
    writer = _Writer(shapes={}, lists={})
    arguments = [writer.enter(name, math.inf) for name in iterators]
    writer.line(1, f"return {writer.expression(node)}")
    return writer.function(arguments)


def _outside(what: str, index: int, extent: int) -> int:
    raise AssertionError(f"{what} at {index}, which is not below {extent} or below 0")


def _beyond(name: str, first: int, end: int) -> None:
    raise AssertionError(f"{name} goes from {first} to {end}")


@dataclass(kw_only=True)
class _Writer:
    """The lines of a function, and the values that they name."""

    shapes: Shapes
    lists: Lists
    lines: list[str] = field(default_factory=list)
    # Names of iterators in the function, and what they stay below.
    iterators: dict[str, tuple[str, float]] = field(default_factory=dict)
    values: dict[str, Any] = field(
        default_factory=lambda: {
            "outside": _outside,
            "beyond": _beyond,
            "product": product,
            **_named(_UNARY),
        }
    )
    held: dict[str, str] = field(default_factory=dict)  # names of lists, by tensor
    names: int = 0

    def function(self, arguments: Sequence[str]) -> Callable[..., Any]:
        """The function of the lines; values are its defaults, which it finds fastest."""
        defaults = [f"{name}={name}" for name in self.values]
        head = f"def function({', '.join([*arguments, *defaults])}):"
        made = dict(self.values)
        exec("\n".join([head, *self.lines]), made)
        function: Callable[..., Any] = made["function"]
        return function

    def line(self, depth: int, text: str) -> None:
        self.lines.append(" " * depth + text)

    def new(self, letter: str) -> str:
        self.names += 1
        return f"{letter}{self.names}"

    def bound(self, letter: str, value: object) -> str:
        name = self.new(letter)
        self.values[name] = value
        return name

    def enter(self, iterator: str, extent: float) -> str:
        """The name of an iterator that stays from 0 to below the extent."""
        name = self.new("i")
        self.iterators[iterator] = name, extent
        return name

    # --- statements

    def block(self, block: Block) -> None:
        depth = self._nested(block.axes, 1)
        place = self._place(block.buffer, block.indices, f"{block.name} writes")
        if block.reducer is None:
            stored = f"{place} = float({self.expression(block.body)})"
            if self._where(block, depth, stored) and block.otherwise is not None:
                self.line(depth, "else:")
                self.line(depth + 1, f"{place} = float({self.expression(block.otherwise)})")
            return
        self.line(depth, f"total = {self.bound('c', _START[block.reducer])}")
        inner = self._nested(block.reduce_axes, depth)
        combined = _BINARY[_REDUCE[block.reducer]].format("total", self.expression(block.body))
        self._where(block, inner, f"total = {combined}")
        self.line(depth, f"{place} = float(total)")

    def _where(self, block: Block, depth: int, done: str) -> bool:
        """Writes what is done where the block's conditions hold; whether it has some."""
        if block.when:
            self.line(depth, f"if {' and '.join(map(self.expression, block.when))}:")
        self.line(depth + bool(block.when), done)
        return bool(block.when)

    def _nested(self, axes: Sequence[Axis], depth: int) -> int:
        """A loop over all points of the axes; the depth of what stands in it."""
        names = [self.enter(axis.name, axis.extent) for axis in axes]
        if axes:
            ranges = ", ".join(f"range({axis.extent})" for axis in axes)
            self.line(depth, f"for {', '.join(names)}, in product({ranges}):")
        return depth + bool(axes)

    def statements(self, body: Sequence[Statement], depth: int) -> None:
        for statement in body:
            match statement:
                case Store(buffer=buffer, indices=indices, value=node):
                    place = self._place(buffer, indices, f"{buffer} is written")
                    self.line(depth, f"{place} = float({self.expression(node)})")
                case When(condition=condition, body=inner):
                    self.line(depth, f"if {self.expression(condition)}:")
                    self.statements(inner, depth + 1)
                case Loop():
                    self._loop(statement, depth)

    def _loop(self, loop: Loop, depth: int) -> None:
        """Marks are ignored. An iterator hides another of its name."""
        first, end, outer = "0", str(loop.extent), dict(self.iterators)
        if loop.first is not None:
            first = self.new("b")
            self.line(depth, f"{first} = {self.expression(loop.first)}")
        if loop.end is not None:
            end = self.new("b")
            self.line(depth, f"{end} = {self.expression(loop.end)}")
        self.line(depth, f"if {first} < 0 or {end} > {loop.extent}:")
        self.line(depth + 1, f"beyond({loop.iterator!r}, {first}, {end})")
        name = self.enter(loop.iterator, loop.extent)
        self.line(depth, f"for {name} in range({first}, {end}):")
        self.statements(loop.body, depth + 1)
        self.iterators = outer

    # --- scalars

    def expression(self, node: Scalar) -> str:
        match node:
            case Var(name=name):
                return self.iterators[name][0]
            case Const(value=number):
                plain = type(number) in (int, float, bool) and math.isfinite(number)
                return f"({number!r})" if plain else self.bound("c", number)
            case Read(tensor=tensor, indices=indices):
                return self._place(tensor, indices, f"{tensor} is read")
            case Cast(arg=arg):
                return self.expression(arg)
            case Unary(op=op, arg=arg):
                return f"{op}_({self.expression(arg)})"
            case Binary():
                return f"({self._binary(node)})"
            case Select(cond=cond, then=then, other=other):
                chosen, otherwise = self.expression(then), self.expression(other)
                return f"({chosen} if {self.expression(cond)} else {otherwise})"
        raise TypeError(f"{node} has no value")

    def _binary(self, node: Binary) -> str:
        """Without brackets around the beginning of a chain: Python takes 200 in one another."""
        left = node.lhs
        if isinstance(left, Binary) and any({node.op, left.op} <= alike for alike in _CHAINS):
            text = self._binary(left)
        else:
            text = self.expression(left)
        return _BINARY[node.op].format(text, self.expression(node.rhs))

    def _place(self, tensor: str, indices: Sequence[Scalar], what: str) -> str:
        """An element of a list, at a place that is asserted to lie inside."""
        shape = self.shapes[tensor]
        assert len(indices) == len(shape), what
        if tensor not in self.held:
            self.held[tensor] = self.bound("l", self.lists[tensor])
        terms = [
            f"{self._inside(index, extent, what)} * {math.prod(shape[number + 1 :])}"
            for number, (index, extent) in enumerate(zip(indices, shape, strict=True))
        ]
        return f"{self.held[tensor]}[{' + '.join(terms) or '0'}]"

    def _inside(self, index: Scalar, extent: int, what: str) -> str:
        text = self.expression(index)
        if isinstance(index, Var) and self.iterators[index.name][1] <= extent:
            return text
        name = self.new("t")
        lies = f"0 <= ({name} := {text}) < {extent}"
        return f"({name} if {lies} else outside({what!r}, {name}, {extent}))"


def _named(functions: Mapping[str, Callable[[Any], Any]]) -> dict[str, Callable[[Any], Any]]:
    """By names that are no words of Python."""
    return {f"{op}_": function for op, function in functions.items()}
