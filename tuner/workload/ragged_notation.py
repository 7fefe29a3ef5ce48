"""Declared facts about integer inputs, and ragged ranges, as the notation writes them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast, get_args

from lark import Token, Tree

from tuner.workload.dtypes import DType
from tuner.workload.expression import (
    Binary,
    Cast,
    Const,
    Fact,
    Lengths,
    Read,
    Scalar,
    Splits,
    Spread,
    Tensor,
    Var,
    Within,
)
from tuner.workload.facts import fact_error
from tuner.workload.grammar import Node, fail, suggestion
from tuner.workload.right_hand_sides import TermBuilder


@dataclass(frozen=True, slots=True)
class StatedRows:
    """What a ragged range or a written index says: the condition that it puts on the terms,
    and extents that follow from it."""

    condition: Scalar
    extents: Mapping[str, int]  # of the iterator over rows, and of one over places


def is_fact(node: Node) -> bool:
    """Whether a part of a declaration states a fact, not an extent."""
    return isinstance(node, Tree) and node.data in ("within", "splits")


def is_ragged(node: Tree[Token]) -> bool:
    """Whether an end of a stated range reads a tensor."""
    return any(True for _ in node.find_data("read"))


def declared_fact(tensor: Tensor, node: Node, builder: TermBuilder) -> Fact:
    """The fact that a declaration states of a tensor.

    Raises `WorkloadError` for one that its dtype or shape cannot have.
    """
    assert isinstance(node, Tree)
    bounds = list(node.children)
    last = bounds[-1]
    name = str(bounds.pop()) if isinstance(last, Token) and last.type == "NAME" else "uniform"
    numbers = [builder.constant(bound) for bound in bounds]
    if node.data == "within":
        fact: Fact = Within(start=numbers[0], stop=numbers[1], spread=cast("Spread", name))
        names = get_args(Spread)
    else:
        fact = Splits(stop=numbers[0], lengths=cast("Lengths", name))
        names = get_args(Lengths)
    if name not in names:
        raise fail(
            f"unknown distribution {name!r}{suggestion(name, list(names))}; known are "
            f"{', '.join(names)}",
            last,
        )
    if error := fact_error(replace(tensor, fact=fact)):
        raise fail(error, node)
    return fact


def stated_rows(node: Tree[Token], written: Sequence[str], builder: TermBuilder) -> StatedRows:
    """The ragged range `e in P[i]:P[i + 1]` of a stage with the iterators `written`.

    Raises `WorkloadError` for ends of any other form.
    """
    name, *ends = node.children
    before = len(builder.reads)
    values = [builder.build(end).node for end in ends]
    del builder.reads[before:]  # their bounds follow from the form
    first, last = (value.arg if isinstance(value, Cast) else value for value in values)
    match first, last:
        case Read(tensor=splits, indices=(Var(name=row),)), Read() if row in written:
            tensor = builder.tensors[splits]
            expected = Read(splits, (Binary("add", Var(row), Const(1, "int64")),))
            if last == expected and isinstance(tensor.fact, Splits):
                return StatedRows(
                    condition=_within_row(str(name), first, expected, tensor.dtype),
                    extents={str(name): tensor.fact.stop, row: tensor.shape[0] - 1},
                )
    raise fail(
        f"a ragged range is {name} in P[i]:P[i + 1], where i stands on the left and P is an "
        f"input declared to split places, P: i32[rows + 1] splits places",
        node,
    )


def written_iterator(place: Node, stage: Tree[Token], symbols: Collection[str]) -> Token:
    """The iterator of a written dimension; where an index stands, one that the stage has not."""
    if isinstance(place, Token):
        return place
    index = cast("Token", place.children[0])
    used = {*map(str, stage.scan_values(lambda token: isinstance(token, Token))), *symbols}
    name = f"{index}_row"
    while name in used:
        name += "_"
    return Token.new_borrow_pos("NAME", name, index)


def scattered_rows(
    node: Tree[Token], row: str, extent: int | None, builder: TermBuilder
) -> StatedRows:
    """The rows that terms name, of which the index stands on the left: `Y[J[e]] += …`.

    `extent` is that of the written dimension, None where the index says it. Raises
    `WorkloadError` for an index that is not declared to lie in the dimension.
    """
    value = builder.build(node).node
    index = value.arg if isinstance(value, Cast) else value
    fact = builder.tensors[index.tensor].fact if isinstance(index, Read) else None
    if not isinstance(index, Read) or index.pad is not None or not isinstance(fact, Within):
        raise fail(
            "an index on the left is an iterator, or an element of an input declared to lie in "
            "the dimension, J: i32[places] in 0:rows",
            node,
        )
    limit = fact.stop if extent is None else extent
    if fact.start < 0 or fact.stop > limit:
        raise fail(
            f"the index on the left runs from {fact.start} to {fact.stop - 1}, the extent of its "
            f"dimension is {limit}",
            node,
        )
    condition = _in_row(index, row, builder.tensors[index.tensor].dtype)
    return StatedRows(condition=condition, extents={row: limit})


def _within_row(axis: str, first: Read, last: Read, dtype: DType) -> Scalar:
    """The condition `first <= axis < last` of a ragged range; the reads are of `dtype`."""
    low, high = (read if dtype == "int64" else Cast("int64", read) for read in (first, last))
    return Binary("and", Binary("le", low, Var(axis)), Binary("lt", Var(axis), high))


def _in_row(index: Read, row: str, dtype: DType) -> Scalar:
    """The condition that an element of `dtype` names the row."""
    return Binary("eq", index if dtype == "int64" else Cast("int64", index), Var(row))
