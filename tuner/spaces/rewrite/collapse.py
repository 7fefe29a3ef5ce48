"""Axes that every access walks one right after the other become one: 7 by 7 points are
49 in a row, which vectors divide better.

The dimensions that they walk are joined too, as MLIR's linalg collapses dimensions.
Data stay where they are: of its inputs and outputs a program says in which shapes its
blocks address them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from tuner.spaces.rewrite.access import linear
from tuner.workload.expression import (
    Axis,
    Expression,
    Read,
    Scalar,
    Stage,
    Tensor,
    Var,
    children,
    reads,
    rewrite,
    walk,
)

Pair = tuple[str, str, str]  # a stage, one of its axes, and the one that it is joined with
Dimension = tuple[str, int]  # a tensor, and the first of two of its dimensions


@dataclass(frozen=True)
class _Access:
    stage: str
    tensor: str
    axes: tuple[
        str | None, ...
        # of each dimension the axis that walks it from end to end and meets nothing else,
        # if one does
    ]

    def pair(self, at: int) -> Pair | None:
        first, second = self.axes[at : at + 2]
        return None if first is None or second is None else (self.stage, first, second)

    def allows(self, pair: Pair, dimensions: set[Dimension]) -> bool:
        """Whether the pair walks dimensions that can be joined here, or none."""
        first = {at for at, axis in enumerate(self.axes) if axis == pair[1]}
        second = {at - 1 for at, axis in enumerate(self.axes) if axis == pair[2]}
        return first == second and all((self.tensor, at) in dimensions for at in first)


def collapsed(expression: Expression) -> Expression:
    """The expression with all axes and dimensions joined that can be; its tensors keep
    their names and their elements' order."""
    shapes = {name: tensor.shape for name, tensor in expression.tensors.items()}
    pairs, dimensions = _joined(expression, shapes)
    if not pairs:
        return expression
    return replace(
        expression,
        inputs=tuple(_tensor(tensor, dimensions) for tensor in expression.inputs),
        stages=tuple(_stage(stage, pairs, dimensions, shapes) for stage in expression.stages),
    )


def _joined(
    expression: Expression, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[set[Pair], set[Dimension]]:
    """The most pairs and dimensions that agree: every access to a dimension is by a
    pair, every pair walks dimensions alone."""
    found = [access for stage in expression.stages for access in _accesses(stage, shapes)]
    places = [(access, at) for access in found for at in range(len(access.axes) - 1)]
    pairs = {pair for access, at in places if (pair := access.pair(at)) is not None}
    dimensions = {(access.tensor, at) for access, at in places}
    while True:  # ends: every turn leaves fewer
        left = {
            pair
            for pair in pairs
            if all(one.allows(pair, dimensions) for one in found if one.stage == pair[0])
        }
        apart = {(access.tensor, at) for access, at in places if access.pair(at) not in left}
        if left == pairs and not apart & dimensions:
            return pairs, dimensions
        pairs, dimensions = left, dimensions - apart


def _accesses(stage: Stage, shapes: Mapping[str, tuple[int, ...]]) -> list[_Access]:
    """What the stage reads, and what it writes."""
    extents = stage.extents

    def loose(node: Scalar) -> Iterator[str]:
        """Axes that do more than walk a dimension."""
        if isinstance(node, Read):
            for index, extent in zip(node.indices, shapes[node.tensor], strict=True):
                if _walking(index, extent, extents) is None:
                    yield from (found.name for found in walk(index) if isinstance(found, Var))
        elif isinstance(node, Var):
            yield node.name
        else:
            for child in children(node):
                yield from loose(child)

    barred = set(loose(stage.body))
    written = Read(stage.name, tuple(Var(axis.name) for axis in stage.axes))
    made = []
    for read in dict.fromkeys((written, *reads(stage.body))):
        axes = [
            _walking(*one, extents) for one in zip(read.indices, shapes[read.tensor], strict=True)
        ]
        made.append(
            _Access(
                stage.name, read.tensor, tuple(None if axis in barred else axis for axis in axes)
            )
        )
    return made


def _walking(index: Scalar, extent: int, extents: Mapping[str, int]) -> str | None:
    """The axis that an index of a dimension of this extent equals, with the same extent."""
    form = linear(index)
    if form is None or form.constant:
        return None
    moving = [
        (name, step) for name, step in form.coefficients.items() if extents[name] > 1
    ]  # one point moves nothing
    return (
        moving[0][0]
        if len(moving) == 1 and moving[0][1] == 1 and extents[moving[0][0]] == extent
        else None
    )


def _tensor(tensor: Tensor, dimensions: set[Dimension]) -> Tensor:
    runs = _runs(tensor.name, len(tensor.shape), dimensions)
    return replace(tensor, shape=tuple(prod(tensor.shape[at] for at in run) for run in runs))


def _stage(
    stage: Stage,
    pairs: set[Pair],
    dimensions: set[Dimension],
    shapes: Mapping[str, tuple[int, ...]],
) -> Stage:
    following = {first: second for name, first, second in pairs if name == stage.name}
    extents = stage.extents
    made: dict[str, Axis] = {}  # by the first of those that are joined
    for head in [name for name in extents if name not in following.values()]:
        members = [head]
        while members[-1] in following:
            members.append(following[members[-1]])
        name = "".join(members)
        while len(members) > 1 and (
            name in extents or any(name == one.name for one in made.values())
        ):
            name += "x"
        made[head] = Axis(name=name, extent=prod(extents[member] for member in members))

    def change(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read):
            return None
        indices = []
        for first, *others in _runs(node.tensor, len(node.indices), dimensions):
            walking = (
                _walking(node.indices[first], shapes[node.tensor][first], extents)
                if others
                else None
            )
            indices.append(
                rewrite(node.indices[first], change) if walking is None else Var(made[walking].name)
            )
        return replace(node, indices=tuple(indices))

    return replace(
        stage,
        axes=tuple(made[axis.name] for axis in stage.axes if axis.name in made),
        reduce_axes=tuple(made[axis.name] for axis in stage.reduce_axes if axis.name in made),
        body=rewrite(stage.body, change),
    )


def _runs(tensor: str, count: int, dimensions: set[Dimension]) -> list[list[int]]:
    """A tensor's dimensions, those that are joined in one run."""
    runs: list[list[int]] = []
    for at in range(count):
        if (tensor, at - 1) in dimensions:
            runs[-1].append(at)
        else:
            runs.append([at])
    return runs
