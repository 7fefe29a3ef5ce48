"""Collapsing of axes: those that every access walks contiguously become one.

7 by 7 points become 49 in a row, which vectors divide better. The dimensions that they
walk are joined too, as MLIR's linalg collapses dimensions; both axes may also walk a dimension
that is one already, as of a product with a row for each of 7 by 7 points. No data moves: a
program states the shapes in which its blocks address inputs and outputs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import prod

from tuner.workload.affine import linear
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
    # for each dimension the axis that walks it from end to end and nothing else; else None
    axes: tuple[str | None, ...]
    joined: frozenset[tuple[str, str]]  # axes that walk a dimension from end to end together

    def pair(self, dimension: int) -> Pair | None:
        first, second = self.axes[dimension : dimension + 2]
        return None if first is None or second is None else (self.stage, first, second)

    def allows(self, pair: Pair, dimensions: set[Dimension]) -> bool:
        """Whether the pair walks joinable dimensions of this tensor, or one together, or none of
        them."""
        if any({*pair[1:]} & {*both} and pair[1:] != both for both in self.joined):
            return False
        first = {dimension for dimension, axis in enumerate(self.axes) if axis == pair[1]}
        second = {dimension - 1 for dimension, axis in enumerate(self.axes) if axis == pair[2]}
        return first == second and all(
            (self.tensor, dimension) in dimensions for dimension in first
        )


def collapsed(expression: Expression) -> Expression:
    """The expression with axes and dimensions joined wherever possible.

    Tensors keep their names and the order of their elements.
    """
    shapes = {name: tensor.shape for name, tensor in expression.tensors.items()}
    pairs, dimensions = _joined(expression, shapes)
    if not pairs:
        return expression
    joined = replace(
        expression,
        inputs=tuple(_tensor(tensor, dimensions) for tensor in expression.inputs),
        stages=tuple(_stage(stage, pairs, dimensions, shapes) for stage in expression.stages),
    )
    return collapsed(joined)  # what walked one dimension together may go on into the next now


def _joined(
    expression: Expression, shapes: Mapping[str, tuple[int, ...]]
) -> tuple[set[Pair], set[Dimension]]:
    """The largest consistent sets of axis pairs and of dimensions to join.

    Every access to such a dimension is by a pair, and every pair walks only such
    dimensions.
    """
    all_accesses = [access for stage in expression.stages for access in _accesses(stage, shapes)]
    places = [
        (access, dimension) for access in all_accesses for dimension in range(len(access.axes) - 1)
    ]
    pairs = {pair for access, dimension in places if (pair := access.pair(dimension)) is not None}
    dimensions = {(access.tensor, dimension) for access, dimension in places}
    while True:  # ends, because every iteration removes some
        left = {
            pair
            for pair in pairs
            if all(
                access.allows(pair, dimensions)
                for access in all_accesses
                if access.stage == pair[0]
            )
        }
        apart = {
            (access.tensor, dimension)
            for access, dimension in places
            if access.pair(dimension) not in left
        }
        if left == pairs and not apart & dimensions:
            return pairs, dimensions
        pairs, dimensions = left, dimensions - apart


def _accesses(stage: Stage, shapes: Mapping[str, tuple[int, ...]]) -> list[_Access]:
    """The accesses of a stage: what it writes and what it reads."""
    extents = stage.extents

    def loose(node: Scalar) -> Iterator[str]:
        """Axes that are used otherwise than to walk a dimension."""
        if isinstance(node, Read):
            for index, extent in zip(node.indices, shapes[node.tensor], strict=True):
                if _walked_axis(index, extent, extents) is None and not _walked_by_both(
                    index, extent, extents
                ):
                    yield from (part.name for part in walk(index) if isinstance(part, Var))
        elif isinstance(node, Var):
            yield node.name
        else:
            for child in children(node):
                yield from loose(child)

    barred = set(loose(stage.body))
    written = Read(stage.name, tuple(Var(axis.name) for axis in stage.axes))
    made = []
    for read in dict.fromkeys((written, *reads(stage.body))):
        walked = [*zip(read.indices, shapes[read.tensor], strict=True)]
        axes = [_walked_axis(index, extent, extents) for index, extent in walked]
        both = (_walked_by_both(index, extent, extents) for index, extent in walked)
        made.append(
            _Access(
                stage.name,
                read.tensor,
                tuple(None if axis in barred else axis for axis in axes),
                frozenset(pair for pair in both if pair is not None),
            )
        )
    return made


def _walked_by_both(
    index: Scalar, extent: int, extents: Mapping[str, int]
) -> tuple[str, str] | None:
    """The axes, the slower one first, that walk a dimension from end to end together."""
    form = linear(index)
    if form is None or form.constant:
        return None
    moving = [(name, step) for name, step in form.coefficients.items() if extents[name] > 1]
    if len(moving) != 2:
        return None
    (first, step), (second, last) = sorted(moving, key=lambda each: -each[1])
    fills = last == 1 and step == extents[second] and step * extents[first] == extent
    return (first, second) if fills else None


def _walked_axis(index: Scalar, extent: int, extents: Mapping[str, int]) -> str | None:
    """The axis that an index equals, if it has the extent of the dimension."""
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
    return replace(
        tensor, shape=tuple(prod(tensor.shape[dimension] for dimension in run) for run in runs)
    )


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
            name in extents or any(name == axis.name for axis in made.values())
        ):
            name += "x"
        made[head] = Axis(name=name, extent=prod(extents[member] for member in members))

    def change(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read):
            return None
        indices = []
        for first, *others in _runs(node.tensor, len(node.indices), dimensions):
            index, extent = node.indices[first], shapes[node.tensor][first]
            walking = _walked_axis(index, extent, extents) if others else None
            both = None if others else _walked_by_both(index, extent, extents)
            if both is not None and (stage.name, *both) in pairs:
                walking = both[0]
            indices.append(rewrite(index, change) if walking is None else Var(made[walking].name))
        return replace(node, indices=tuple(indices))

    return replace(
        stage,
        axes=tuple(made[axis.name] for axis in stage.axes if axis.name in made),
        reduce_axes=tuple(made[axis.name] for axis in stage.reduce_axes if axis.name in made),
        body=rewrite(stage.body, change),
    )


def _runs(tensor: str, count: int, dimensions: set[Dimension]) -> list[list[int]]:
    """A tensor's dimensions in runs; those of a run are joined."""
    runs: list[list[int]] = []
    for dimension in range(count):
        if (tensor, dimension - 1) in dimensions:
            runs[-1].append(dimension)
        else:
            runs.append([dimension])
    return runs
