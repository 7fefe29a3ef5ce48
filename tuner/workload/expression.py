"""The expression tree: stages of indexed assignments and reductions over tensors.

Pure Python, immutable, hashable. Everything else (notation, catalogue, reference,
spaces, lowering) reads this one tree. Scalar arithmetic is done in the dtype of the
operands; float16 and bfloat16 reads are cast to float32 by whoever builds the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Literal

DType = Literal[
    "float64", "float32", "float16", "bfloat16", "int32", "int64", "int8", "uint8", "bool"
]
Reducer = Literal["sum", "prod", "max", "min"]
UnaryOp = Literal[
    "neg", "exp", "log", "sqrt", "rsqrt", "tanh", "erf", "abs", "not",
    # the nearest number that bfloat16 holds; made by rewritings, since conversions of
    # intermediates round nothing
    "bfloat16",
]  # fmt: skip
BinaryOp = Literal[
    "add", "sub", "mul", "div", "floordiv", "floormod", "max", "min", "pow", "lt", "le", "gt",
    "ge", "eq", "ne", "and", "or",
    "xor",  # of indices, which sketches permute
]  # fmt: skip

COMBINE: Mapping[Reducer, BinaryOp] = {"sum": "add", "prod": "mul", "max": "max", "min": "min"}
# Least and greatest value of each integer dtype.
INTEGER_RANGES: Mapping[str, tuple[int, int]] = {
    "int8": (-(2**7), 2**7 - 1),
    "uint8": (0, 2**8 - 1),
    "int32": (-(2**31), 2**31 - 1),
    "int64": (-(2**63), 2**63 - 1),
}
DTYPE_BYTES: Mapping[str, int] = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "int64": 8,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}


@dataclass(frozen=True, slots=True)
class Var:
    """An iterator of the stage it stands in (int64)."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    value: int | float | bool
    dtype: DType


@dataclass(frozen=True, slots=True)
class Read:
    """One element of a tensor. `pad` is the value read outside the tensor's bounds;
    None means the read never leaves them."""

    tensor: str
    indices: tuple[Scalar, ...]
    pad: Const | None = None


@dataclass(frozen=True, slots=True)
class Unary:
    op: UnaryOp
    arg: Scalar


@dataclass(frozen=True, slots=True)
class Binary:
    op: BinaryOp
    lhs: Scalar
    rhs: Scalar


@dataclass(frozen=True, slots=True)
class Select:
    """`then` where `cond` holds, else `other`; only the chosen side is evaluated."""

    cond: Scalar
    then: Scalar
    other: Scalar


@dataclass(frozen=True, slots=True)
class Cast:
    dtype: DType
    arg: Scalar


Scalar = Var | Const | Read | Unary | Binary | Select | Cast


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    name: str  # unique within its stage
    extent: int  # iterates 0 <= name < extent


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: DType

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Defines one tensor: `name[axes] reducer= body`, reduced over `reduce_axes` (plain
    assignment when there are none)."""

    name: str  # the tensor it defines
    axes: tuple[Axis, ...]  # in the order of the tensor's dimensions; extents are its shape
    body: Scalar
    dtype: DType  # of the stored tensor; the body is cast to it once, after the reduction
    reduce_axes: tuple[Axis, ...] = ()
    reducer: Reducer | None = None
    accumulator: DType = (
        "float32"  # dtype in which the reduction is carried; ignored without a reducer
    )

    @property
    def tensor(self) -> Tensor:
        return Tensor(
            name=self.name, shape=tuple(axis.extent for axis in self.axes), dtype=self.dtype
        )

    @property
    def extents(self) -> dict[str, int]:
        """Of all axes by name, those of the reduction last."""
        return {axis.name: axis.extent for axis in (*self.axes, *self.reduce_axes)}

    @property
    def points(self) -> int:
        """At which the body has a value, those of the reduction included."""
        return prod(self.extents.values())


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A tensor program: inputs, stages in an order in which each reads only inputs and
    earlier stages, and the outputs' names."""

    name: str
    inputs: tuple[Tensor, ...]
    stages: tuple[Stage, ...]
    outputs: tuple[str, ...]

    def stage(self, name: str) -> Stage:
        return next(stage for stage in self.stages if stage.name == name)

    def tensor(self, name: str) -> Tensor:
        for tensor in self.inputs:
            if tensor.name == name:
                return tensor
        return self.stage(name).tensor

    @property
    def tensors(self) -> dict[str, Tensor]:
        """Inputs and stages' results by name, in the order in which they come to be."""
        stages = (stage.tensor for stage in self.stages)
        return {tensor.name: tensor for tensor in (*self.inputs, *stages)}

    def consumers(self, name: str) -> tuple[Stage, ...]:
        return tuple(
            stage for stage in self.stages if any(read.tensor == name for read in reads(stage.body))
        )

    @property
    def flops(self) -> int:
        """Arithmetic operations on floating or accumulated values, a multiply-add as 2,
        transcendental functions as 1."""
        total = 0
        for stage in self.stages:
            total += stage.points * (arithmetic(stage.body) + (1 if stage.reducer else 0))
        return total

    @property
    def nbytes(self) -> int:
        """Bytes of all inputs and outputs, each counted once: the least that has to move."""
        return sum(tensor.nbytes for tensor in self.inputs) + sum(
            self.tensor(name).nbytes for name in self.outputs
        )


def children(node: Scalar) -> tuple[Scalar, ...]:
    match node:
        case Read(indices=indices):
            return indices
        case Unary(arg=arg) | Cast(arg=arg):
            return (arg,)
        case Binary(lhs=lhs, rhs=rhs):
            return (lhs, rhs)
        case Select(cond=cond, then=then, other=other):
            return (cond, then, other)
        case _:
            return ()


def walk(node: Scalar) -> Iterator[Scalar]:
    """The node and all below it, parents first."""
    yield node
    for child in children(node):
        yield from walk(child)


def reads(node: Scalar) -> Iterator[Read]:
    return (found for found in walk(node) if isinstance(found, Read))


def arithmetic(node: Scalar) -> int:
    """Operations one evaluation of the node costs; index arithmetic is free."""
    match node:
        case Read():
            return 0
        case Binary() | Unary():
            return 1 + sum(arithmetic(child) for child in children(node))
        case _:
            return sum(arithmetic(child) for child in children(node))


def rewrite(node: Scalar, change: Callable[[Scalar], Scalar | None]) -> Scalar:
    """The tree with each node for which `change` gives a replacement replaced;
    replacements are not visited again."""
    changed = change(node)
    if changed is not None:
        return changed
    match node:
        case Read(tensor=tensor, indices=indices, pad=pad):
            return Read(tensor, tuple(rewrite(index, change) for index in indices), pad)
        case Unary(op=op, arg=arg):
            return Unary(op, rewrite(arg, change))
        case Cast(dtype=dtype, arg=arg):
            return Cast(dtype, rewrite(arg, change))
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return Binary(op, rewrite(lhs, change), rewrite(rhs, change))
        case Select(cond=cond, then=then, other=other):
            return Select(rewrite(cond, change), rewrite(then, change), rewrite(other, change))
        case _:
            return node


def substitute(node: Scalar, values: Mapping[str, Scalar]) -> Scalar:
    """The tree with iterators replaced by expressions of other iterators."""
    return rewrite(node, lambda found: values.get(found.name) if isinstance(found, Var) else None)
