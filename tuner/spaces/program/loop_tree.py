"""Loops written out with their marks, around statements in order.

A block is one statement, which primitives nest and place. They cannot place a value that
is carried from one iteration to the next and changed in between, such as the running
maximum of a row. Nests with such values are trees of loops from the start.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, auto

from tuner.spaces.program.tiles import add, times
from tuner.workload.expression import Axis, Read, Scalar, Var, reads, substitute


class LoopKind(Enum):
    """How the code generator treats a loop."""

    SERIAL = auto()
    PARALLEL = auto()  # iterations run on the threads of the pool
    VECTOR = auto()  # iterations become the lanes of a vector
    UNROLLED = auto()  # iterations are written out one after another


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop over the integers from `first`, or 0, to below `end`, or the extent."""

    iterator: str
    extent: int  # that no value reaches
    body: tuple[Statement, ...]
    kind: LoopKind = LoopKind.SERIAL
    first: Scalar | None = None
    end: Scalar | None = None  # no iteration where it is not above the first
    # Lanes of the vectors in which a plain copy is transposed in registers, as the mark
    # `TransposeInRegisters` says of its outer loop; 0 elsewhere.
    transposed: int = 0
    # One of the loops around a store that adds products in matrix registers, or sets these
    # sums to zero just before: the outermost over the terms, and the innermost five, which
    # the mark `AmxTile` names.
    in_matrices: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """`buffer[indices] = value`."""

    buffer: str
    indices: tuple[Scalar, ...]
    value: Scalar


@dataclass(frozen=True, slots=True, kw_only=True)
class When:
    """Statements that run where a condition holds."""

    condition: Scalar
    body: tuple[Statement, ...]


Statement = Loop | Store | When


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopTree:
    """A section of a program as one tree of loops.

    Buffers that it alone touches live as long as an iteration of the innermost loop
    around all their uses.
    """

    name: str
    buffer: str  # what it computes
    body: tuple[Statement, ...]
    section: str = ""
    polynomials: bool = True  # for transcendental functions; else calls of libm

    @property
    def sources(self) -> tuple[Read, ...]:
        """All reads, those of its own buffers included."""
        return tuple(read for statement in self.body for read in _reads(statement))

    @property
    def written(self) -> frozenset[str]:
        """Names of the buffers that it writes."""
        return frozenset(_written(self.body))


def _reads(statement: Statement) -> Iterator[Read]:
    match statement:
        case Store(indices=indices, value=value):
            for part in (value, *indices):
                yield from reads(part)
        case When(condition=condition, body=body):
            yield from reads(condition)
            for inner in body:
                yield from _reads(inner)
        case Loop(body=body):  # whose bounds depend on iterators alone
            for inner in body:
                yield from _reads(inner)


def _written(body: tuple[Statement, ...]) -> Iterator[str]:
    for statement in body:
        if isinstance(statement, Store):
            yield statement.buffer
        else:
            yield from _written(statement.body)


def nested(axes: Iterable[Axis], *body: Statement) -> Statement:
    """Loops over the axes, the first outermost, around statements. Of no axes: the only one."""
    for axis in reversed(list(axes)):
        body = (Loop(iterator=axis.name, extent=axis.extent, body=body),)
    (statement,) = body
    return statement


def unrolled_in_part(name: str, extent: int, factor: int, body: Statement) -> Statement:
    """A loop around a statement, at most so many iterations of which are written out.

    As many as divide the extent.
    """
    step = next(step for step in range(factor, 0, -1) if extent % step == 0)
    if step == 1:
        return Loop(iterator=name, extent=extent, body=(body,))
    index = add(times(Var(f"{name}_o"), step), Var(f"{name}_i"))
    moved = _substituted(body, {name: index})
    inner = Loop(iterator=f"{name}_i", extent=step, kind=LoopKind.UNROLLED, body=(moved,))
    return Loop(iterator=f"{name}_o", extent=extent // step, body=(inner,))


def _substituted(statement: Statement, values: Mapping[str, Scalar]) -> Statement:
    """The statement with iterators replaced."""
    match statement:
        case Store(buffer=buffer, indices=indices, value=value):
            return Store(
                buffer=buffer,
                indices=tuple(substitute(index, values) for index in indices),
                value=substitute(value, values),
            )
        case When(condition=condition, body=body):
            return When(
                condition=substitute(condition, values),
                body=tuple(_substituted(inner, values) for inner in body),
            )
        case Loop():
            return replace(
                statement, body=tuple(_substituted(inner, values) for inner in statement.body)
            )
