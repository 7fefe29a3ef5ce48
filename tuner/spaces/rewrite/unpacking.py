"""Sums of products with fields of bytes, such as weights of four bits, along rows of bytes.

A byte holds several numbers, and an axis of the sum says which: of h in
`where(h == 0, w[j] % 16, w[j] // 16)` no byte depends. So each number of a byte becomes a
term of its own, with constants in the place of the axis, and bytes are loaded once.

What does not move along the bytes is taken out of the sum of the terms, as a group's scale
s and zero point z:

    x0 * s * (w0 - z) + x1 * s * (w1 - z)  =  s * (x0 * w0 + x1 * w1)  -  s * z * (x0 + x1)

A constant zero point stays within the scale, beside what rows share: -z * (x0 + x1) is the
same for all of them. Only sums of bytes are taken apart so. They are small integers, of
which float32 holds the products with a scale as well as the sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from itertools import product
from math import prod

import numpy as np

from tuner.spaces.program.program import LARGEST_SHUFFLED_STRIDE
from tuner.spaces.program.tiles import constant
from tuner.spaces.rewrite.access import accesses
from tuner.spaces.rewrite.digits import with_digits
from tuner.spaces.rewrite.stages import balanced_tree
from tuner.workload.affine import value_range
from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Axis,
    Binary,
    BinaryOp,
    Cast,
    Const,
    Read,
    Scalar,
    Select,
    Stage,
    Var,
    children,
    reads,
    rewrite,
    substitute,
    walk,
)
from tuner.workload.scalar_operators import BINARY_OPERATORS

MOST_FIELDS = 8  # of a byte
MOST_TERMS = 32  # of an unrolled body
SHORTEST = 8  # bytes of a row that fill vectors
BYTES: frozenset[DType] = frozenset({"int8", "uint8"})
EXACT = 2**24  # up to which float32 holds all integers


def unpacked(stage: Stage, column: str, dtypes: Mapping[str, DType]) -> Stage | None:
    """The stage with fields of bytes as terms, and what does not move along the column
    outside of their sum.

    None where it is no sum in float32 of bytes along the column, or where neither fields nor
    groups are there.
    """
    if stage.reducer != "sum" or stage.accumulator != "float32":
        return None
    fields = [
        axis
        for axis in stage.reduce_axes
        if axis.name != column and _counts_fields(axis, stage, dtypes)
    ]
    if prod(axis.extent for axis in fields) > MOST_FIELDS:
        return None
    places = product(*(range(axis.extent) for axis in fields))
    bodies = [
        _at(stage.body, {axis.name: place for axis, place in zip(fields, chosen, strict=True)})
        for chosen in places
    ]
    split = _Split(column, stage.extents, dtypes)
    terms = [term for body in bodies for term in split.terms(body)]
    groups = {axis.name for axis in stage.reduce_axes if axis.name != column}
    scaled = any(_moves(factor, groups) for term in terms for factor in term.fixed)
    of_bytes = any(split.is_of_bytes(factor) for term in terms for factor in term.moving)
    if not of_bytes or not (fields or scaled) or len(terms) > MOST_TERMS:
        return None
    if not all(term.moving for term in terms):
        return None
    axes = tuple(axis for axis in stage.reduce_axes if axis not in fields)
    return replace(stage, reduce_axes=axes, body=_summed(terms))


@dataclass(frozen=True, kw_only=True)
class UnpackedSum:
    """A stage as `unpacked` makes it, and the axis along which its bytes lie."""

    stage: Stage
    column: Axis


def unpacked_sum(
    stage: Stage, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, DType]
) -> UnpackedSum | None:
    """The stage taken apart along the axis along which its bytes lie.

    Fields and groups have axes of their own, or divisions of an axis name them. The latter
    only where each byte is met once: packed copies of it (`quantized_products`) serve many
    rows better.
    """
    wide = {axis.name for axis in stage.axes if axis.extent > 1}
    bytes_read = [read for read in reads(stage.body) if dtypes[read.tensor] in BYTES]
    once = all(_moves(read, {name}) for read in bytes_read for name in wide)
    for stated in (stage, with_digits(stage)) if once else (stage,):
        column = _byte_column(stated, shapes, dtypes)
        apart = None if column is None else unpacked(stated, column.name, dtypes)
        if column is not None and apart is not None:
            return UnpackedSum(stage=apart, column=column)
    return None


def _byte_column(
    stage: Stage, shapes: Mapping[str, tuple[int, ...]], dtypes: Mapping[str, DType]
) -> Axis | None:
    """The reduction axis along which bytes lie side by side, and other operands at most so far
    apart that shuffles pick them. None where there is none."""
    every = accesses(stage, shapes)
    for axis in reversed(stage.reduce_axes):
        moving = [access for access in every if axis.name in access.axes]
        steps = {
            (access.read.tensor, access.stride_within(axis.name, shapes[access.read.tensor]))
            for access in moving
        }
        of_bytes = {step for tensor, step in steps if dtypes[tensor] in BYTES}
        near = all(step in range(1, LARGEST_SHUFFLED_STRIDE + 1) for _, step in steps)
        whole = not any(access.padded for access in moving)
        if axis.extent >= SHORTEST and near and whole and of_bytes == {1}:
            return axis
    return None


def _counts_fields(axis: Axis, stage: Stage, dtypes: Mapping[str, DType]) -> bool:
    """Whether an axis says which number of a byte is meant: arithmetic has it, and not the
    place of the byte."""
    return (
        1 < axis.extent <= MOST_FIELDS
        and any(node == Var(axis.name) for node in _outside_of_indices(stage.body))
        and any(
            dtypes[read.tensor] in BYTES and not _moves(read, {axis.name})
            for read in reads(stage.body)
        )
    )


def _outside_of_indices(node: Scalar) -> list[Scalar]:
    if isinstance(node, Read):
        return [node]
    return [node, *(part for child in children(node) for part in _outside_of_indices(child))]


def _moves(node: Scalar, axes: set[str]) -> bool:
    return any(isinstance(part, Var) and part.name in axes for part in walk(node))


def _at(body: Scalar, places: Mapping[str, int]) -> Scalar:
    """The body at a place of some axes, without selections that this decides."""

    def decided(node: Scalar) -> Scalar | None:
        match node:
            case Select(cond=cond, then=then, other=other):
                holds = _value(cond)
                if holds is not None:
                    return rewrite(then if holds else other, decided)
        return None

    whole = substitute(body, {name: constant(place) for name, place in places.items()})
    return rewrite(whole, decided)


def _value(node: Scalar) -> int | None:
    """What an integer or a comparison of constants is; None of anything else."""
    match node:
        case Const(value=int(value)):
            return int(value)
        case Cast(dtype="int32" | "int64", arg=arg):
            return _value(arg)
        case Binary(op=op, lhs=lhs, rhs=rhs) if BINARY_OPERATORS[op].is_integral:
            a, b = _value(lhs), _value(rhs)
            if a is not None and b is not None:
                return int(BINARY_OPERATORS[op].evaluate(np.asarray(a), np.asarray(b)))
    return None


@dataclass(frozen=True, kw_only=True)
class _Term:
    """A product of a number, of what does not move along the column, and of what does."""

    number: float = 1.0
    fixed: tuple[Scalar, ...] = ()
    moving: tuple[Scalar, ...] = ()

    def times(self, other: _Term) -> _Term:
        return _Term(
            number=self.number * other.number,
            fixed=self.fixed + other.fixed,
            moving=self.moving + other.moving,
        )


@dataclass(frozen=True)
class _Split:
    """Takes values of float32 apart into terms."""

    column: str
    extents: Mapping[str, int]
    dtypes: Mapping[str, DType]

    def terms(self, node: Scalar) -> list[_Term]:
        match node:
            case Const(value=value):
                return [_Term(number=float(value))]
            case _ if not _moves(node, {self.column}):
                return [_Term(fixed=(node,))]
            case Binary(op="mul", lhs=lhs, rhs=rhs):
                left, right = self.terms(lhs), self.terms(rhs)
                if len(left) * len(right) > MOST_TERMS:
                    return [_Term(moving=(node,))]
                return [a.times(b) for a in left for b in right]
            case Binary(op="add" | "sub" as op, lhs=lhs, rhs=rhs) if self.is_of_bytes(node):
                sign = _Term(number=1.0 if op == "add" else -1.0)
                return [*self.terms(lhs), *(sign.times(term) for term in self.terms(rhs))]
            case Cast(dtype="float32", arg=Binary(op="add" | "sub" as op, lhs=lhs, rhs=rhs)) if (
                self.is_of_bytes(node) and self._is_exact(lhs, rhs)
            ):
                return self.terms(Binary(op, _as_float(lhs), _as_float(rhs)))
            case _:
                return [_Term(moving=(node,))]

    def is_of_bytes(self, node: Scalar) -> bool:
        """Whether all that is read of a value along the column is bytes."""
        moving = [read for read in reads(node) if _moves(read, {self.column})]
        return bool(moving) and all(self.dtypes[read.tensor] in BYTES for read in moving)

    def _is_exact(self, *nodes: Scalar) -> bool:
        """Whether float32 holds these integers and their sum."""
        ranges = (value_range(node, self.extents, self.dtypes) for node in nodes)
        return sum(values.magnitude for values in ranges) <= EXACT


def _as_float(node: Scalar) -> Scalar:
    value = _value(node)
    return Cast("float32", node) if value is None else Const(float(value), "float32")


def _summed(terms: list[_Term]) -> Scalar:
    """The terms with common factors that are fixed outside of their sums. A sum begins with
    what has a number, which rows share where it is the zero point's."""
    by_scale: dict[tuple[Scalar, ...], dict[float, list[Scalar]]] = {}
    for term in terms:
        by_number = by_scale.setdefault(term.fixed, {})
        by_number.setdefault(term.number, []).append(_joined("mul", term.moving))
    sums = []
    for fixed, by_number in by_scale.items():
        numbered = [
            Binary("mul", balanced_tree("add", products), Const(number, "float32"))
            for number, products in by_number.items()
            if number != 1.0
        ]
        total = _joined("add", [*numbered, *by_number.get(1.0, [])])
        sums.append(_joined("mul", [*fixed, total]) if fixed else total)
    return _joined("add", sums)


def _joined(op: BinaryOp, nodes: Sequence[Scalar]) -> Scalar:
    return reduce(lambda a, b: Binary(op, a, b), nodes)
