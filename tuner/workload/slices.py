"""Slices of an expression: parts of its outputs along an axis, computed one after another.

Where every stage that reads a tensor passes one of its axes on, such as the rows of
attention, the stages need only be in memory for some of the rows at a time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from tuner.workload.expression import (
    Axis,
    Binary,
    Const,
    Expression,
    Read,
    Scalar,
    Stage,
    Var,
    reads,
    rewrite,
    walk,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sliced:
    """The axis of each stage that has the slices."""

    expression: Expression
    axes: Mapping[str, str]  # by stage; stages that are left out are the same in each slice
    extent: int

    @property
    def whole_elements(self) -> int:
        """Elements of the intermediates that each slice has whole."""
        return sum(prod(stage.tensor.shape) for stage in self._between if not self._moves(stage))

    @property
    def repeated(self) -> bool:
        """Whether any stage is the same in each slice, and so computed again for each."""
        return any(not self._moves(stage) for stage in self.expression.stages)

    @property
    def row_elements(self) -> int:
        """Elements of the other intermediates in a slice of one row."""
        elements = sum(prod(stage.tensor.shape) for stage in self._between if self._moves(stage))
        return elements // self.extent

    @property
    def _between(self) -> list[Stage]:
        return [s for s in self.expression.stages if s.name not in self.expression.outputs]

    def _moves(self, stage: Stage) -> bool:
        return stage.name in self.axes

    def dimension(self, output: str) -> int | None:
        """The dimension of an output that has the slices; None of one that is the same in each."""
        if output not in self.axes:
            return None
        names = [axis.name for axis in self.expression.stage(output).axes]
        return names.index(self.axes[output])

    def part(self, first: int, count: int) -> Expression:
        """The expression of `count` rows from `first` on, with the same inputs."""
        stages = tuple(
            self._part_of(stage, first, count) if self._moves(stage) else stage
            for stage in self.expression.stages
        )
        return replace(self.expression, stages=stages)

    def _part_of(self, stage: Stage, first: int, count: int) -> Stage:
        own = self.axes[stage.name]
        moved = Binary("add", Var(own), Const(first, "int64"))

        def change(node: Scalar) -> Scalar | None:
            match node:
                case Var(name=name) if name == own:
                    return moved
                case Read(tensor=tensor, indices=indices, pad=pad) if tensor in self.axes:
                    kept = self.dimension(tensor)
                    placed = (
                        index if place == kept else rewrite(index, change)
                        for place, index in enumerate(indices)
                    )
                    return Read(tensor, tuple(placed), pad)
            return None

        axes = tuple(
            Axis(name=axis.name, extent=count) if axis.name == own else axis for axis in stage.axes
        )
        return replace(stage, axes=axes, body=rewrite(stage.body, change))


def sliced(expression: Expression) -> Sliced | None:
    """The slices that need least memory for one row; None where there are none."""
    between = [stage for stage in expression.stages if stage.name not in expression.outputs]
    if not between:
        return None
    largest = max(between, key=lambda stage: prod(stage.tensor.shape))
    possible = [
        Sliced(expression=expression, axes=axes, extent=axis.extent)
        for axis in largest.axes
        if axis.extent > 1 and (axes := _carried(expression, largest.name, axis.name)) is not None
    ]
    return min(possible, key=lambda each: each.whole_elements + each.row_elements, default=None)


def _carried(expression: Expression, stage: str, axis: str) -> dict[str, str] | None:
    """The axis of each stage that is sliced with one of a stage; None where a stage that
    reads a slice needs all of them."""
    stages = {each.name: each for each in expression.stages}
    axes = {stage: axis}
    waiting = [stage]
    while waiting:
        name = waiting.pop()
        place = [each.name for each in stages[name].axes].index(axes[name])
        following: dict[str, str] = {}
        for reader in expression.consumers(name):
            for read in reads(reader.body):
                if read.tensor != name:
                    continue
                index = read.indices[place]
                own = {each.name for each in reader.axes}
                if not (isinstance(index, Var) and index.name in own) or read.pad is not None:
                    return None
                if following.setdefault(reader.name, index.name) != index.name:
                    return None
        for read in reads(stages[name].body):
            if read.tensor in stages and (own_axis := _passed(read, axes[name], stages)):
                following.setdefault(read.tensor, own_axis)
        for other, its in following.items():
            if other not in axes:
                axes[other] = its
                waiting.append(other)
            elif axes[other] != its:
                return None
    return axes


def _passed(read: Read, axis: str, stages: Mapping[str, Stage]) -> str | None:
    """The axis of the stage that is read which the reader's axis walks, and nothing else."""
    places = [
        place
        for place, index in enumerate(read.indices)
        if any(node == Var(axis) for node in walk(index))
    ]
    if len(places) != 1 or read.indices[places[0]] != Var(axis) or read.pad is not None:
        return None
    return stages[read.tensor].axes[places[0]].name
