"""Maps of padded tensors, taken out of the reductions that they were inlined into.

Inlined, what is read with padding becomes a selection of a map's value or the padding, in
every term. Where a tensor is computed tile by tile, the map is better done when the tensor
is, and read with padding again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tuner.spaces.rewrite.access import in_bounds_condition
from tuner.spaces.rewrite.stages import fresh_name, tensor_names
from tuner.workload.expression import (
    Axis,
    Const,
    Expression,
    Read,
    Scalar,
    Select,
    Stage,
    Var,
    reads,
    rewrite,
    walk,
)


def with_padded_maps(expression: Expression) -> Expression:
    """The expression with such maps of stages as stages of their own."""
    for stage in expression.stages:
        if stage.reducer is None:
            continue
        for node in dict.fromkeys(walk(stage.body)):
            outlined = _outlined(node, stage, expression) if isinstance(node, Select) else None
            if outlined is not None:
                padded, outer = outlined
                changed = replace(stage, body=rewrite(stage.body, _replacing(node, outer)))
                place = expression.stages.index(stage)
                stages = list(expression.stages)
                stages[place : place + 1] = [padded, changed]
                return with_padded_maps(replace(expression, stages=tuple(stages)))
    return expression


def _outlined(node: Select, stage: Stage, expression: Expression) -> tuple[Stage, Read] | None:
    """The map of one tensor, as a stage, and a padded read of it in the selection's place.

    None where the condition is another one than that of the read's bounds, or the value
    depends on more than an element's place in the tensor.
    """
    if not isinstance(node.other, Const):
        return None
    for read in dict.fromkeys(reads(node.then)):
        source = next((each for each in expression.stages if each.name == read.tensor), None)
        if source is None or read.pad is not None:
            continue
        if in_bounds_condition(read.indices, source.tensor.shape, stage.extents) != node.cond:
            continue
        axes = {
            index.name: Var(axis.name)
            for index, axis in zip(read.indices, source.axes, strict=True)
            if isinstance(index, Var)
        }
        own = Read(source.name, tuple(Var(axis.name) for axis in source.axes))

        def change(
            part: Scalar, read: Read = read, own: Read = own, axes: dict[str, Var] = axes
        ) -> Scalar | None:
            if part == read:
                return own
            return axes.get(part.name) if isinstance(part, Var) else None

        body = rewrite(node.then, change)
        if body == own or not _variables(body) <= {axis.name for axis in source.axes}:
            continue
        moved = {name for name in _variables(node.then) if name not in axes}
        rest = rewrite(node.then, _replacing(read, Const(0, source.dtype)))
        if moved & _variables(rest):
            continue
        name = fresh_name(f"{source.name}map", tensor_names(expression))
        dtype = node.other.dtype
        padded = Stage(
            name=name,
            axes=tuple(Axis(name=axis.name, extent=axis.extent) for axis in source.axes),
            body=body,
            dtype=dtype,
        )
        return padded, Read(name, read.indices, node.other)
    return None


def _replacing(old: Scalar, new: Scalar) -> Callable[[Scalar], Scalar | None]:
    return lambda part: new if part == old else None


def _variables(node: Scalar) -> set[str]:
    return {part.name for part in walk(node) if isinstance(part, Var)}
