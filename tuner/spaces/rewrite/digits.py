"""Reduction axes cut into the digits that divisions by constants name.

Of k // 32, k % 32 // 16 and k % 16 the first is a block, the second a half of it, the third
a place there: three axes g, h and j, with 32 g + 16 h + j in the place of k.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.stages import fresh_name
from tuner.workload.expression import Axis, Binary, Const, Scalar, Stage, Var, rewrite, walk


def with_digits(stage: Stage) -> Stage:
    """The stage with each reduction axis cut whose divisors divide each other and its extent."""
    for axis in stage.reduce_axes:
        ranges = (_range(node, axis) for node in walk(stage.body))
        ends = {end for digits in ranges if digits is not None for end in digits}
        steps = sorted({1, *(end for end in ends if end < axis.extent), axis.extent})
        if len(steps) > 2 and not any(larger % smaller for smaller, larger in pairwise(steps)):
            stage = _cut(stage, axis, steps)
    return stage


def _range(node: Scalar, axis: Axis) -> tuple[int, int] | None:
    """By how much elements of the lowest digit of a value lie apart, and those of the next
    above its highest. None where the value is not made of digits of the axis."""
    match node:
        case Binary(op="floormod", lhs=rest, rhs=Const(value=size)):
            outer = _range(rest, axis)
            return None if outer is None else (outer[0], min(outer[0] * int(size), outer[1]))
        case Binary(op="floordiv", lhs=rest, rhs=Const(value=by)):
            outer = _range(rest, axis)
            return None if outer is None else (outer[0] * int(by), outer[1])
        case Var(name=axis.name):
            return 1, axis.extent
    return None


def _cut(stage: Stage, axis: Axis, steps: list[int]) -> Stage:
    """`steps` has by how much elements of each digit lie apart, the lowest first, then the
    extent."""
    reserved = {other.name for other in (*stage.axes, *stage.reduce_axes)}
    digits: list[tuple[int, Axis]] = []
    for step, whole in pairwise(steps):
        name = fresh_name(f"{axis.name}d", reserved)
        reserved.add(name)
        digits.insert(0, (step, Axis(name=name, extent=whole // step)))

    def cut(node: Scalar) -> Scalar | None:
        range_of = _range(node, axis)
        if range_of is None:
            return None
        first, end = range_of
        total: Scalar = constant(0)
        for step, digit in digits:
            if first <= step < end:
                total = add(total, times(Var(digit.name), step // first))
        return total

    place = stage.reduce_axes.index(axis)
    before, after = stage.reduce_axes[:place], stage.reduce_axes[place + 1 :]
    axes = (*before, *(digit for _, digit in digits), *after)
    return replace(stage, reduce_axes=axes, body=rewrite(stage.body, cut))
