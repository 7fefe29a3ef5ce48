"""Branches: two bodies, of which a condition of the model chooses one at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.models.nodes import Branch, Side
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.extents import count_of, counted, whole
from tuner.models.operators.movement import pad, reshape
from tuner.models.operators.scalars import where
from tuner.models.operators.values import Value
from tuner.models.passes.fusion import fuse

Results = Callable[[], Sequence[Value]]


class SidesDiffer(ValueError):
    """No tensors stand for the results of both sides."""


def branch(
    builder: GraphBuilder, name: str, condition: Value, then: Results, other: Results
) -> list[Value]:
    """The results of the side that a bool of one element chooses. Only this side is
    computed; where neither computes anything, elements are selected.

    A result whose extents differ, or are known at run time only, has the greatest ones and
    counts. A side that raises ModelRefused is left out, and calls that choose it fail. The sides
    may be called twice. Raises ModelRefused if both do, SidesDiffer where their results differ
    in dtype or number of dimensions.
    """
    if condition.dtype != "bool" or condition.elements != 1:
        raise ValueError(f"a condition of {condition.dtype}{list(condition.shape)}")
    try:
        return _branch(builder, name, condition, (then, other), None)
    except _LateExtents as error:
        joint = error.results
    results = _branch(builder, name, condition, (then, other), joint)
    extents = iter(results[len(joint) :])
    return [
        counted(value, {axis: next(extents) for axis in each.late})
        for value, each in zip(results, joint, strict=False)
    ]


@dataclass(frozen=True, kw_only=True)
class _Joint:
    """What a result is on both sides."""

    shape: tuple[int, ...]  # the greatest extents
    late: tuple[int, ...]  # dimensions whose extents are known at run time only


class _LateExtents(Exception):
    """Results have extents that are known at run time only."""

    def __init__(self, results: Sequence[_Joint]) -> None:
        super().__init__()
        self.results = results


def _branch(
    builder: GraphBuilder,
    name: str,
    condition: Value,
    sides: Sequence[Results],
    joint: Sequence[_Joint] | None,
) -> list[Value]:
    """The results up to the extents of `joint`, behind them extents of run time.

    Raises _LateExtents without it where there are such extents.
    """
    given: list[Sequence[Value]] = []  # of the sides that could be read

    def fitted(number: int) -> Sequence[Value]:
        refusal = None
        try:
            given.append(sides[number]())
        except ModelRefused as error:
            refusal = error
        if joint is None and number == 1 and (late := _late(given)):
            raise _LateExtents(late)
        if refusal is not None:
            raise refusal
        return given[-1] if joint is None else _fitted(given[-1], joint)

    flag = builder.plain(condition)
    read = [_side(builder, partial(fitted, number)) for number in (0, 1)]
    values = [values for values, _, _ in read if values is not None]
    if not values:
        raise ModelRefused(read[0][1].refusal)
    if len(values) == 2:  # a number, and one in a vector of one
        values[1] = [
            reshape(second, first.shape) if {first.shape, second.shape} == {(), (1,)} else second
            for first, second in zip(*values, strict=False)
        ] + values[1][len(values[0]) :]
    formats = [[value.format for value in each] for each in values]
    shapes = [[(value.shape, value.dtype) for value in each] for each in values]
    if shapes[0] != shapes[-1] or formats[0] != formats[-1]:
        spelt = [", ".join(f"{dtype}{list(shape)}" for shape, dtype in each) for each in shapes]
        raise SidesDiffer(
            f"results are {spelt[0]} on one side and {spelt[1]} on the other; both sides must "
            f"give the same dtypes and numbers of dimensions"
        )
    if all(values is not None and not computes for values, _, computes in read):
        return [_selected(builder, condition, *pair) for pair in zip(*values, strict=True)]
    results = [
        replace(builder.named("b", value.shape, value.dtype), format=value.format)
        for value in values[0]
    ]
    for number, result in enumerate(results):
        ends = [side.results[number] for _, side, _ in read if not side.refusal]
        builder.note_sources(result.tensor, flag.tensor, *ends)
    node = Branch(
        name=name,
        condition=flag.tensor,
        then=read[0][1],
        other=read[1][1],
        results=tuple(builder.tensor(result.tensor) for result in results),
    )
    builder.append(node)
    return results


def _late(sides: Sequence[Sequence[Value]]) -> list[_Joint]:
    """What the results of these sides are together; nothing where all extents are known, or
    sides have results of several kinds."""
    if len({len(side) for side in sides}) != 1:
        return []
    results = [_joint(values) for values in zip(*sides, strict=True)]
    joint = [each for each in results if each is not None]
    return joint if len(joint) == len(results) and any(each.late for each in joint) else []


def _joint(values: Sequence[Value]) -> _Joint | None:
    """What a result is of which there is one a side; None of several kinds."""
    if {value.shape for value in values} == {(), (1,)}:  # a number, and one in a vector of one
        values = [reshape(value, ()) for value in values]
    if len({(value.rank, value.dtype, value.format) for value in values}) > 1:
        return None
    extents = [*zip(*(value.shape for value in values), strict=True)]
    late = [
        axis
        for axis, each in enumerate(extents)
        if len({*each}) > 1 or any(axis in value.counts for value in values)
    ]
    return _Joint(shape=tuple(max(each) for each in extents), late=tuple(late))


def _fitted(values: Sequence[Value], joint: Sequence[_Joint]) -> list[Value]:
    """The results of one side with the greatest extents, and then those that they have."""
    pairs = [*zip(values, joint, strict=True)]
    return [
        *(_filled(whole(value), each.shape) for value, each in pairs),
        *(count_of(value, axis) for value, each in pairs for axis in each.late),
    ]


def _filled(value: Value, shape: tuple[int, ...]) -> Value:
    """A value with something of no meaning behind it."""
    if value.rank != len(shape):
        return reshape(value, shape)
    if not value.elements:
        nothing = value.builder.constant(np.broadcast_to(0, shape), value.dtype)
        return replace(nothing, format=value.format)
    missing = [most - extent for most, extent in zip(shape, value.shape, strict=True)]
    return replace(pad(value, [0] * value.rank, missing, "edge"), format=value.format)


def _side(builder: GraphBuilder, side: Results) -> tuple[list[Value] | None, Side, bool]:
    """The values of one side of a branch, its body, and whether they are more than views."""
    with builder.body() as body:
        try:
            values = list(side())
        except ModelRefused as error:
            return None, Side(nodes=(), results=(), refusal=str(error)), False
        computes = bool(body.nodes)
        results = [builder.root(builder.plain(value).tensor) for value in values]
        nodes = fuse(builder.part(body.nodes, results)).nodes  # views are copied
        return values, Side(nodes=nodes, results=tuple(results)), computes


def _selected(builder: GraphBuilder, condition: Value, first: Value, second: Value) -> Value:
    chosen = condition[(0,) * condition.rank]
    selected = builder.compute(
        "if", first.shape, lambda *i: where(chosen, first[i], second[i]), dtype=first.dtype
    )
    return replace(selected, format=first.format)
