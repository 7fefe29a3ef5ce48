"""How often ONNX's `Loop` runs at most, where it is not known how often."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.models.from_onnx.lookahead import (
    Run,
    alike,
    followed_in,
    inputs_of,
    makers_of,
    part_of,
)
from tuner.models.from_onnx.node import Node
from tuner.models.nodes import NO_LIMIT
from tuner.models.operators.foreseen import rows_of
from tuner.models.operators.values import PerIteration, Value

_WALKED = 1 << 14  # iterations that conditions are computed for, those of a loop around together
_COPIES = ("Cast", "CastLike", "Identity", "Reshape", "Squeeze", "Unsqueeze")  # of an integer


def most_iterations(node: Node, run: Run, carried: Sequence[Value], *, by_body: bool) -> int:
    """A bound by the number of trips, and `by_body` by what the body reads and computes."""
    trips = node.optional(0)
    most = NO_LIMIT if trips is None else max(_ends(trips)[1], 0)
    if by_body:
        most = min([most, _by_condition(node, run, carried), *_by_reads(node, run, carried)])
    return most


def _ends(value: Value) -> tuple[int, int]:
    """The least and the greatest number that an integer may be."""
    if value.array is not None:
        low = high = value.array
    elif isinstance(value.made, PerIteration):
        low = high = value.made.rows
    elif value.limits is not None:
        low, high = value.limits.low, value.limits.high
    else:
        return -NO_LIMIT, NO_LIMIT
    return int(low.min()), int(high.max())


@dataclass(frozen=True, kw_only=True)
class _Counter:
    """A number that grows, or falls, by as much in each iteration."""

    least: int  # what it may be in the first one
    greatest: int
    step: int

    def iterations_inside(self, extent: int) -> int:
        """How often it is an index of so many elements at most, negative ones from their end."""
        if self.step > 0:
            far = extent - 1 - max(self.least, -extent)
        else:
            far = min(self.greatest, extent - 1) + extent
        return max(far // abs(self.step) + 1, 0)


def _by_reads(node: Node, run: Run, carried: Sequence[Value]) -> Iterator[int]:
    """Each iteration that reads a tensor where a counter is must find it inside."""
    body = node.attribute("body", None)
    makers, inputs = makers_of(body), inputs_of(body)
    counters = _counters(node, run, carried)
    for op in body.node:
        if op.op_type != "Gather" or op.input[0] in makers or op.input[0] in inputs:
            continue
        index = _origin(op.input[1], makers)
        x = _outside(body, run, op.input[0]) if index in counters else None
        if x is not None and x.rank:
            axis = next((a.i for a in op.attribute if a.name == "axis"), 0)
            yield counters[index].iterations_inside(x.shape[axis])


def _counters(node: Node, run: Run, carried: Sequence[Value]) -> Mapping[str, _Counter]:
    """By the names of the body's inputs, the number of the iteration among them."""
    body = node.attribute("body", None)
    makers, (number, _, *states) = makers_of(body), inputs_of(body)
    counters = {number: _Counter(least=0, greatest=0, step=1)}
    for state, value, result in zip(states, carried, body.output[1:], strict=False):
        op = makers.get(_origin(result.name, makers))
        if op is None or op.op_type not in ("Add", "Sub"):
            continue
        first, second = (_origin(name, makers) for name in op.input)
        if state != first and (state != second or op.op_type == "Sub"):
            continue
        step = _outside(body, run, second if first == state else first)
        if step is None or step.array is None or step.elements != 1 or value.elements != 1:
            continue
        size = int(step.array.reshape(-1)[0]) * (1 if op.op_type == "Add" else -1)
        if size and "int" in value.dtype and "int" in step.dtype:
            least, greatest = _ends(value)
            counters[state] = _Counter(least=least, greatest=greatest, step=size)
    return counters


def _origin(name: str, makers: Mapping[str, Any]) -> str:
    """The value that an integer is a copy of."""
    while name in makers and makers[name].op_type in _COPIES:
        name = makers[name].input[0]
    return name


def _outside(body: Any, run: Run, name: str) -> Value | None:
    """A value that a body reads, if it is computed from none of the body's inputs."""
    try:
        return run(part_of(body, [name], []), [])[0]
    except (ModelRefused, KeyError):
        return None


def _by_condition(node: Node, run: Run, carried: Sequence[Value]) -> int:
    """By a condition that is known in each iteration of a loop around."""
    body, builder = node.attribute("body", None), node.builder
    states = {
        (1 + place, body.output[1 + place].name)
        for place, value in enumerate(carried)
        if _is_known(value)
    }
    followed = sorted(followed_in(body, {(0, body.output[0].name), *states}))
    if not any(place == 0 for place, _ in followed):
        return NO_LIMIT
    part = part_of(body, [name for _, name in followed], body.input)
    values, going = list(carried), builder.constant(np.array(True))
    goes_on, walked, number = np.array([True]), 0, 0
    with builder.body():  # for the numbers alone
        while walked <= _WALKED:
            try:
                results = run(part, [builder.constant(np.array(number)), going, *values])
            except ModelRefused:
                return NO_LIMIT
            for (place, _), value in zip(followed, results, strict=True):
                if not _is_known(value) or (place and not alike(value, carried[place - 1])):
                    return NO_LIMIT
                if place:
                    values[place - 1] = value
                else:
                    goes_on = goes_on & rows_of(value, 1).reshape(-1)
            number, walked = number + 1, walked + goes_on.size
            if not goes_on.any():
                return number
    return NO_LIMIT


def _is_known(value: Value) -> bool:
    return value.array is not None or isinstance(value.made, PerIteration)
