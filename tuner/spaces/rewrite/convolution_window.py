"""Convolutions of stride 1 among the stages of an expression, recognised by their indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from tuner.spaces.program.tiles import constant
from tuner.spaces.rewrite.winograd_tile import LEAST_EXTENT, WinogradTile
from tuner.workload.affine import linear
from tuner.workload.expression import (
    Axis,
    Binary,
    Read,
    Scalar,
    Stage,
    Var,
    reads,
    rewrite,
    substitute,
    walk,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One direction of the window: the output axis along which it moves."""

    axis: Axis  # of the output
    step: Axis  # the reduction axis within the window
    dimension: int  # of the input
    weight: int  # dimension of the weights
    offset: int  # of the window's first input: minus the padding


@dataclass(frozen=True, kw_only=True)
class ConvolutionWindow:
    """A convolution of stride 1 whose window has one length in all its directions."""

    original: Stage
    stage: Stage  # without directions in which the window has one element
    data: Read
    weights: Read
    sides: tuple[Side, ...]

    @cached_property
    def extents(self) -> tuple[int, ...]:
        """Of the outputs, in each direction."""
        return tuple(side.axis.extent for side in self.sides)

    def tiles(self, offered: Sequence[WinogradTile]) -> tuple[WinogradTile, ...]:
        """Those of its shape, each with fewer multiplications than the ones before."""
        (length,) = {side.step.extent for side in self.sides}
        least = prod(self.extents) * length ** len(self.sides)
        kept = []
        for tile in offered:
            if (tile.window, tile.directions) != (length, len(self.sides)):
                continue
            count = tile.multiplications(self.extents)
            if count < least and min(self.extents) >= max(tile.outputs, LEAST_EXTENT):
                kept.append(tile)
                least = count
        return tuple(kept)


def convolution_window(original: Stage) -> ConvolutionWindow | None:
    """The stage as a float32 convolution of stride 1; None where it is none."""
    if (
        original.reducer != "sum"
        or original.dtype != "float32"
        or original.accumulator != "float32"
    ):
        return None
    stage = _without_single_steps(original)
    match stage.body:
        case Binary(op="mul", lhs=Read() as left, rhs=Read() as right):
            pairs = ((left, right), (right, left))
        case _:
            return None
    for data, weights in pairs:
        sides = _sides(stage, data, weights)
        if sides is not None and weights.pad is None and (data.pad is None or data.pad.value == 0):
            return ConvolutionWindow(
                original=original, stage=stage, data=data, weights=weights, sides=sides
            )
    return None


def _without_single_steps(stage: Stage) -> Stage:
    """The stage without directions of the window that have one element."""
    moved = {
        part.name
        for read in reads(stage.body)
        for index in read.indices
        for part in (() if isinstance(index, Var) else walk(index))
        if isinstance(part, Var)
    }
    single = [axis for axis in stage.reduce_axes if axis.extent == 1 and axis.name in moved]
    if not single:
        return stage
    dropped = substitute(stage.body, {axis.name: constant(0) for axis in single})

    def plain(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read):
            return None
        forms = [linear(index) for index in node.indices]
        indices = tuple(
            index if form is None else form.index
            for form, index in zip(forms, node.indices, strict=True)
        )
        return replace(node, indices=indices)

    return replace(
        stage,
        reduce_axes=tuple(axis for axis in stage.reduce_axes if axis not in single),
        body=rewrite(dropped, plain),
    )


def _sides(stage: Stage, data: Read, weights: Read) -> tuple[Side, ...] | None:
    """The dimensions of the input along which the window moves.

    None unless everything else is indexed by plain axes, and something is summed beside
    the window.
    """
    plain = [index.name if isinstance(index, Var) else None for index in weights.indices]
    spatial, reduced = (
        {axis.name: axis for axis in axes} for axes in (stage.axes, stage.reduce_axes)
    )
    sides: list[Side] = []
    for dimension, index in enumerate(data.indices):
        if isinstance(index, Var):
            continue
        form = linear(index)
        if form is None or len(form.coefficients) != 2 or set(form.coefficients.values()) != {1}:
            return None
        axis = next((spatial[name] for name in form.coefficients if name in spatial), None)
        step = next((reduced[name] for name in form.coefficients if name in reduced), None)
        if axis is None or step is None or step.name not in plain or axis.name in plain:
            return None
        sides.append(
            Side(
                axis=axis,
                step=step,
                dimension=dimension,
                weight=plain.index(step.name),
                offset=form.constant,
            )
        )
    others = [index.name for index in data.indices if isinstance(index, Var)]
    windowed = {name for side in sides for name in (side.step.name, side.axis.name)}
    single = [index for index in weights.indices if not isinstance(index, Var)]
    if (
        len(sides) not in (1, 2)
        or len({side.step.extent for side in sides}) != 1
        or len(windowed) != 2 * len(sides)
        or any(index != constant(0) for index in single)
        or windowed & set(others)
        or len(reduced) == len(sides)
    ):
        return None
    named = [name for name in plain if name is not None]
    if len(set(named)) != len(named) or len(set(others)) != len(others):
        return None
    return tuple(sides)
