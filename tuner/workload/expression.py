"""The expression tree: stages of indexed assignments and reductions over tensors.

Pure Python, immutable, hashable. Everything else (notation, catalogue, reference,
spaces, lowering) reads this one tree. Scalar arithmetic is done in the dtype of the
operands; float16 and bfloat16 reads are cast to float32 by whoever builds the tree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import copysign, inf, prod
from typing import Literal

from tuner.workload.dtypes import DTYPE_BYTES, INTEGER_RANGES, ByteFloat, DType

Reducer = Literal["sum", "prod", "max", "min"]
UnaryOp = Literal[
    "neg", "abs", "not", "isnan", "floor", "ceil", "trunc", "round", "exp", "log", "sqrt",
    "rsqrt", "erf", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh",
    "asinh", "acosh", "atanh",
    # the nearest number that a dtype holds; made by rewritings and where a standard says in
    # which dtype it computes, since conversions of intermediates round nothing
    "bfloat16", "float16", "float32",
]  # fmt: skip
BinaryOp = Literal[
    "add", "sub", "mul", "div", "floordiv", "floormod", "max", "min", "pow", "lt", "le", "gt",
    "ge", "eq", "ne", "and", "or",
    # of the bits of integers; shifts by less than their number, to the right with the sign
    "bitand", "bitor", "xor", "shl", "shr",
]  # fmt: skip
# How trials draw the elements of a tensor of indices: anywhere, near the diagonal, a few
# values often, in runs of neighbours, anywhere but in order.
Spread = Literal["uniform", "banded", "power_law", "runs", "sorted"]
# How trials draw the lengths of rows: each place in any row, all alike, a few long rows.
Lengths = Literal["uniform", "equal", "power_law"]


@dataclass(frozen=True, slots=True)
class Var:
    """An iterator of the stage it stands in (int64)."""

    name: str


@dataclass(frozen=True, slots=True)
class Const:
    """A literal. 0 and -0 are two."""

    value: int | float | bool
    dtype: DType

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Const):
            return NotImplemented
        same = (self.value, self.dtype) == (other.value, other.dtype)
        return same and copysign(1, self.value) == copysign(1, other.value)

    def __hash__(self) -> int:
        return hash((self.value, self.dtype))


@dataclass(frozen=True, slots=True)
class Read:
    """One element of a tensor.

    `pad` is the value of a read outside the tensor. None means that the read never
    leaves it.
    """

    tensor: str
    indices: tuple[Scalar, ...]
    pad: Const | None = None


@dataclass(frozen=True, slots=True)
class Unary:
    """An operator applied to one operand."""

    op: UnaryOp
    arg: Scalar


@dataclass(frozen=True, slots=True)
class Binary:
    """An operator applied to two operands of the same dtype."""

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
    """A conversion to another dtype; floats are truncated towards zero to integers."""

    dtype: DType
    arg: Scalar


@dataclass(frozen=True, slots=True)
class Bitcast:
    """The number of one dtype that has the bits of a number of another, equally wide one.

    That of a float of 8 bits is a float32.
    """

    dtype: DType | ByteFloat
    source: DType  # to which the operand is converted first, if it is of another dtype
    arg: Scalar


Scalar = Var | Const | Read | Unary | Binary | Select | Cast | Bitcast


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An iterator and its extent."""

    name: str  # unique within its stage
    extent: int  # iterates 0 <= name < extent


@dataclass(frozen=True, slots=True, kw_only=True)
class Within:
    """A fact about an integer tensor: each element is in `start <= x < stop`."""

    start: int
    stop: int
    spread: Spread = "uniform"  # of elements in trials


@dataclass(frozen=True, slots=True, kw_only=True)
class Splits:
    """A fact about an integer tensor of one dimension, the pointers of compressed rows.

    Its first element is 0, none is less than the one before, the last is at most `stop`.
    Row i has the places from element i to element i + 1.
    """

    stop: int
    lengths: Lengths = "uniform"  # of rows in trials


Fact = Within | Splits


@dataclass(frozen=True, slots=True, kw_only=True)
class Tensor:
    """A dense row-major array.

    A call is refused whose input contradicts its fact. Reads do not rely on it: indices
    are clamped, and ragged ranges cut to their axis.
    """

    name: str
    shape: tuple[int, ...]
    dtype: DType
    fact: Fact | None = None  # of an input of int32 or int64

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * DTYPE_BYTES[self.dtype]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """Definition of one tensor: `name[axes] reducer= body`, reduced over `reduce_axes`.

    Without reduction axes it is a plain assignment.
    """

    name: str  # the tensor it defines
    axes: tuple[Axis, ...]  # in the order of the tensor's dimensions; extents are its shape
    body: Scalar
    dtype: DType  # of the stored tensor; the body is cast to it once, after the reduction
    reduce_axes: tuple[Axis, ...] = ()
    reducer: Reducer | None = None
    # dtype in which the reduction is carried; ignored without a reducer
    accumulator: DType = "float32"

    @property
    def tensor(self) -> Tensor:
        return Tensor(
            name=self.name, shape=tuple(axis.extent for axis in self.axes), dtype=self.dtype
        )

    @property
    def extents(self) -> dict[str, int]:
        """Extent of each axis by name, reduction axes last."""
        return {axis.name: axis.extent for axis in (*self.axes, *self.reduce_axes)}

    @property
    def points(self) -> int:
        """Number of points of the iteration space, reduction axes included.

        The rows of a ragged range have together as many as its axis, at most, and a term
        that names its row goes to no other.
        """
        rows = rows_from_data(self)
        left_out = set() if rows is None else {rows.row}
        return prod(extent for name, extent in self.extents.items() if name not in left_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class RaggedRange:
    """A reduction over the places of a compressed row: `for axis in splits[row]:splits[row + 1]`.

    In the tree it is a condition around the terms, which is the identity of the
    reduction where the condition fails.
    """

    axis: str  # of the reduction, over the places of all rows
    row: str  # the axis of the stage that counts rows
    splits: str  # the tensor of pointers
    conditions: tuple[Scalar, Scalar]  # `splits[row] <= axis` and `axis < splits[row + 1]`
    body: Scalar  # the terms


def _changes_nothing(term: Const, stage: Stage) -> bool:
    """Whether the stage reduces, and a term of this value is as good as none."""
    least, greatest = INTEGER_RANGES.get(term.dtype, (-inf, inf))
    neutral = {"sum": 0, "prod": 1, "max": least, "min": greatest}
    return stage.reducer is not None and term.value == neutral[stage.reducer]


def ragged_range(stage: Stage) -> RaggedRange | None:
    """The ragged range that a stage reduces over, if it does."""
    match stage.body:
        case Select(
            cond=Binary(
                op="and",
                lhs=Binary(op="le", lhs=low, rhs=Var(name=axis)) as above,
                rhs=Binary(op="lt", lhs=Var(name=bounded), rhs=high) as below,
            ),
            then=body,
            other=Const() as rest,
        ) if axis == bounded and _changes_nothing(rest, stage):
            first, last = (part.arg if isinstance(part, Cast) else part for part in (low, high))
        case _:
            return None
    match first, last:
        case (
            Read(tensor=splits, indices=(Var(name=row),), pad=None),
            Read(tensor=same, indices=(Binary(op="add", lhs=Var(name=other), rhs=Const(value=1)),)),
        ) if splits == same and row == other and any(row == own.name for own in stage.axes):
            if not any(axis == reduced.name for reduced in stage.reduce_axes):
                return None
            return RaggedRange(
                axis=axis, row=row, splits=splits, conditions=(above, below), body=body
            )
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scattering:
    """A reduction whose terms name the row that they belong to: `name[index] += term`.

    In the tree it is a condition around the terms. Those of one row are reduced in order.
    """

    row: str  # the axis of the stage that the index names
    index: Read  # an element of an integer tensor, at none of whose indices `row` stands
    condition: Scalar  # `index == row`
    body: Scalar  # the terms

    @property
    def along(self) -> frozenset[str]:
        """The axes that the index depends on."""
        return frozenset(node.name for node in walk(self.index) if isinstance(node, Var))


def scattering(stage: Stage) -> Scattering | None:
    """How the terms of a stage name their rows, if they do."""
    match stage.body:
        case Select(
            cond=Binary(op="eq", lhs=place, rhs=Var(name=row)) as condition,
            then=body,
            other=Const() as rest,
        ) if any(row == axis.name for axis in stage.axes) and _changes_nothing(rest, stage):
            index = place.arg if isinstance(place, Cast) else place
        case _:
            return None
    if not isinstance(index, Read) or index.pad is not None:
        return None
    scattered = Scattering(row=row, index=index, condition=condition, body=body)
    moves = any(axis.name in scattered.along for axis in stage.reduce_axes)
    return scattered if moves and row not in scattered.along else None


def rows_from_data(stage: Stage) -> RaggedRange | Scattering | None:
    """How data say which terms a row of a stage reduces; None where its axes say it."""
    return ragged_range(stage) or scattering(stage)


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression:
    """A tensor program: inputs, stages, and the names of the outputs.

    Each stage reads only inputs and earlier stages.
    """

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
        """Inputs and results of stages by name, in order of definition."""
        stages = (stage.tensor for stage in self.stages)
        return {tensor.name: tensor for tensor in (*self.inputs, *stages)}

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of inputs and results of stages by name, in order of definition."""
        return {name: tensor.shape for name, tensor in self.tensors.items()}

    def consumers(self, name: str) -> tuple[Stage, ...]:
        """The stages that read a tensor."""
        return tuple(
            stage for stage in self.stages if any(read.tensor == name for read in reads(stage.body))
        )

    @property
    def flops(self) -> int:
        """Arithmetic operations: a multiply-add counts as 2, a function as 1."""
        total = 0
        for stage in self.stages:
            rows = rows_from_data(stage)
            term = stage.body if rows is None else rows.body
            total += stage.points * (arithmetic(term) + (1 if stage.reducer else 0))
        return total

    @property
    def nbytes(self) -> int:
        """Bytes of all inputs and outputs, each counted once."""
        return sum(tensor.nbytes for tensor in self.inputs) + sum(
            self.tensor(name).nbytes for name in self.outputs
        )


def children(node: Scalar) -> tuple[Scalar, ...]:
    """The operands of a node, or the indices of a read."""
    match node:
        case Read(indices=indices):
            return indices
        case Unary(arg=arg) | Cast(arg=arg) | Bitcast(arg=arg):
            return (arg,)
        case Binary(lhs=lhs, rhs=rhs):
            return (lhs, rhs)
        case Select(cond=cond, then=then, other=other):
            return (cond, then, other)
        case _:
            return ()


def walk(node: Scalar) -> Iterator[Scalar]:
    """The node and all its descendants, parents first."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting += reversed(children(node))


def reads(node: Scalar) -> Iterator[Read]:
    """The reads in a tree, those in indices of reads included."""
    return (part for part in walk(node) if isinstance(part, Read))


def arithmetic(node: Scalar) -> int:
    """Number of operations of one evaluation of the node; index arithmetic is free."""
    match node:
        case Read():
            return 0
        case Binary() | Unary():
            return 1 + sum(arithmetic(child) for child in children(node))
        case _:
            return sum(arithmetic(child) for child in children(node))


def rewrite(node: Scalar, change: Callable[[Scalar], Scalar | None]) -> Scalar:
    """The tree with each node replaced for which `change` gives a replacement.

    Replacements are not visited again.
    """
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
        case Bitcast(dtype=dtype, source=source, arg=arg):
            return Bitcast(dtype, source, rewrite(arg, change))
        case Binary(op=op, lhs=lhs, rhs=rhs):
            return Binary(op, rewrite(lhs, change), rewrite(rhs, change))
        case Select(cond=cond, then=then, other=other):
            return Select(rewrite(cond, change), rewrite(then, change), rewrite(other, change))
        case _:
            return node


def substitute(node: Scalar, values: Mapping[str, Scalar]) -> Scalar:
    """The tree with iterators replaced by expressions of other iterators."""
    return rewrite(node, lambda part: values.get(part.name) if isinstance(part, Var) else None)
