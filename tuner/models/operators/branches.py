"""Branches: two bodies, of which a condition of the model chooses one at run time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from tuner.models.errors import ModelRefused
from tuner.models.nodes import Branch, Side
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.movement import reshape
from tuner.models.operators.scalars import where
from tuner.models.operators.values import Value
from tuner.models.passes.fusion import fuse


def branch(
    builder: GraphBuilder,
    name: str,
    condition: Value,
    then: Callable[[], Sequence[Value]],
    other: Callable[[], Sequence[Value]],
) -> list[Value]:
    """The results of the side that a bool of one element chooses. Only this side is
    computed; where neither computes anything, elements are selected.

    A side that raises ModelRefused is left out, and calls that choose it fail. Raises
    ModelRefused if both do, ValueError where their results differ in shape or dtype.
    """
    if condition.dtype != "bool" or condition.elements != 1:
        raise ValueError(f"a condition of {condition.dtype}{list(condition.shape)}")
    flag = builder.plain(condition)
    sides = [_side(builder, side) for side in (then, other)]
    values = [values for values, _ in sides if values is not None]
    if not values:
        raise ModelRefused(sides[0][1].refusal)
    if len(values) == 2:  # a number, and one in a vector of one
        values[1] = [
            reshape(second, first.shape) if {first.shape, second.shape} == {(), (1,)} else second
            for first, second in zip(*values, strict=False)
        ] + values[1][len(values[0]) :]
    formats = [[value.format for value in given] for given in values]
    shapes = [[(value.shape, value.dtype) for value in given] for given in values]
    if shapes[0] != shapes[-1] or formats[0] != formats[-1]:
        spelt = [", ".join(f"{dtype}{list(shape)}" for shape, dtype in each) for each in shapes]
        raise ValueError(
            f"results are {spelt[0]} on one side and {spelt[1]} on the other; shapes must not "
            f"depend on values"
        )
    if all(values is not None and not body.nodes for values, body in sides):
        return [_selected(builder, condition, *pair) for pair in zip(*values, strict=True)]
    results = [
        replace(builder.named("b", value.shape, value.dtype), format=value.format)
        for value in values[0]
    ]
    for number, result in enumerate(results):
        ends = [side.results[number] for _, side in sides if not side.refusal]
        builder.note_sources(result.tensor, flag.tensor, *ends)
    node = Branch(
        name=name,
        condition=flag.tensor,
        then=sides[0][1],
        other=sides[1][1],
        results=tuple(builder.tensor(result.tensor) for result in results),
    )
    builder.append(node)
    return results


def _side(
    builder: GraphBuilder, side: Callable[[], Sequence[Value]]
) -> tuple[list[Value] | None, Side]:
    """The values of one side of a branch, and its body."""
    with builder.body() as body:
        try:
            values = list(side())
        except ModelRefused as error:
            return None, Side(nodes=(), results=(), refusal=str(error))
        computes = bool(body.nodes)
        results = [builder.root(builder.plain(value).tensor) for value in values]
        nodes = fuse(builder.part(body.nodes, results)).nodes
        return values, Side(nodes=nodes if computes else (), results=tuple(results))


def _selected(builder: GraphBuilder, condition: Value, first: Value, second: Value) -> Value:
    chosen = condition[(0,) * condition.rank]
    selected = builder.compute(
        "if", first.shape, lambda *i: where(chosen, first[i], second[i]), dtype=first.dtype
    )
    return replace(selected, format=first.format)
