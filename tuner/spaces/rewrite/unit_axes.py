"""Axes of one point are left out, with the dimensions that they walk.

A batch of one image, or of one sequence, leaves such axes in most stages of a model, and
readers that name their point as the number 0 instead of by an axis. Without them stages
that share rows are seen to share them. No data moves.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tuner.workload.affine import linear
from tuner.workload.expression import (
    Axis,
    Const,
    Expression,
    Read,
    Scalar,
    Stage,
    Tensor,
    reads,
    rewrite,
    substitute,
)

Dimension = tuple[str, int]  # a tensor, and the number of its dimension


def without_unit_axes(expression: Expression) -> Expression:
    """The expression without axes of extent 1 and the dimensions that only these walk.

    Tensors keep their names, the order of their elements, and one dimension at least.
    """
    shapes = expression.shapes
    units = {
        (name, number)
        for name, shape in shapes.items()
        for number, extent in enumerate(shape)
        if extent == 1
    }
    pinned = [_pinned(stage) for stage in expression.stages]
    units -= {
        (read.tensor, number)
        for stage in pinned
        for read in reads(stage.body)
        for number, index in enumerate(read.indices)
        if not _is_zero(index)
    }
    units -= {(name, len(shape) - 1) for name, shape in shapes.items() if set(shape) <= {1}}
    return replace(
        expression,
        inputs=tuple(_tensor(tensor, units) for tensor in expression.inputs),
        stages=tuple(_stage(stage, units) for stage in pinned),
    )


def _pinned(stage: Stage) -> Stage:
    """The stage whose body names the only point of an axis of extent 1 by its number."""
    zero: Scalar = Const(0, "int64")
    points = {axis.name: zero for axis in stage.axes if axis.extent == 1}
    return replace(stage, body=substitute(stage.body, points)) if points else stage


def _is_zero(index: Scalar) -> bool:
    form = linear(index)
    return form is not None and form.constant == 0 and not any(form.coefficients.values())


def _kept(name: str, count: int, units: set[Dimension]) -> Iterator[int]:
    """The dimensions that a tensor keeps."""
    return (number for number in range(count) if (name, number) not in units)


def _tensor(tensor: Tensor, units: set[Dimension]) -> Tensor:
    kept = _kept(tensor.name, len(tensor.shape), units)
    return replace(tensor, shape=tuple(tensor.shape[number] for number in kept))


def _stage(stage: Stage, units: set[Dimension]) -> Stage:
    def change(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read):
            return None
        kept = _kept(node.tensor, len(node.indices), units)
        return replace(node, indices=tuple(rewrite(node.indices[n], change) for n in kept))

    axes: tuple[Axis, ...] = tuple(
        stage.axes[number] for number in _kept(stage.name, len(stage.axes), units)
    )
    return replace(stage, axes=axes, body=rewrite(stage.body, change))
