"""Control flow of ONNX: `If`, `Loop` and `Scan`, whose bodies are graphs of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.models.from_onnx.node import ComputedAtRunTime, Node, Results
from tuner.models.nodes import NO_LIMIT
from tuner.models.operators import branches, scans
from tuner.models.operators.elementwise import compare, elementwise
from tuner.models.operators.movement import concatenate, reshape, transpose, unsqueeze
from tuner.models.operators.values import Value

UNROLLED = 64  # iterations of a loop that are made nodes of their own, at most
_COUNTED = 1 << 16  # iterations whose numbers are a constant, at most
_TRIED = 1 << 12  # iterations whose condition is computed at import, at most

Run = Callable[[Any, Sequence[Value]], list[Value]]  # results of a graph for given inputs


class _Conditional(Exception):
    """Whether a loop goes on is only known at run time."""


class _NotConstant(Exception):
    """What an iteration gives is only known at run time."""


def branch(node: Node, run: Run) -> Results:
    """The branch that a known condition chooses; else both, of which one is computed."""
    then, other = node.attribute("then_branch", None), node.attribute("else_branch", None)
    condition = node[0]
    if condition.array is not None:
        return run(then if condition.array.reshape(-1)[0] else other, [])
    late: list[ComputedAtRunTime] = []

    def side(graph: Any) -> list[Value]:
        try:
            return run(graph, [])
        except ComputedAtRunTime as error:
            late.append(error)
            raise

    try:
        results = branches.branch(
            node.builder, "if", condition, lambda: side(then), lambda: side(other)
        )
    except ValueError as error:
        raise node.computed_at_run_time(condition, f"has no expression: {error}") from error
    if late:  # known once inputs are fixed
        raise late[0]
    return results


def loop(node: Node, run: Run) -> Results:
    """As many iterations as are known at import: a scan, or nodes of their own where shapes
    change. Else a scan that a condition ends."""
    carried = [node[place] for place in range(2, len(node.inputs))]
    trips, going = node.optional(0), node.optional(1)
    count = NO_LIMIT if trips is None else _number(trips)
    starts = True if going is None else _number(going)
    if count is None or starts is None:
        return _conditional(node, run, carried)
    count = count if starts else 0
    last = _last_trip(node, run, count, carried)
    count = count if last is None else last
    try:
        if count <= UNROLLED and all(value.array is not None for value in carried):
            with suppress(_NotConstant):
                return _unrolled(node, run, count, carried, are_constant=True)
        return _counted(node, run, count, carried, is_exact=last is not None)
    except _Conditional:
        return _conditional(node, run, carried)
    except (ModelRefused, ValueError):
        if count > UNROLLED:
            raise
    try:
        return _unrolled(node, run, count, carried)
    except _Conditional:
        return _conditional(node, run, carried)


def _number(value: Value | None) -> int | None:
    return None if value is None or value.array is None else int(value.array.reshape(-1)[0])


def _scalar(node: Node, number: int, dtype: str = "int64") -> Value:
    return node.builder.constant(np.array(number, dtype))


def _goes_on(value: Value) -> bool:
    number = _number(value)
    if number is None:
        raise _Conditional
    return bool(number)


def _last_trip(node: Node, run: Run, most: int, carried: Sequence[Value]) -> int | None:
    """The number of iterations, at most `most`, where the body's condition follows from the
    number of the iteration and from states that are known at import, as in a loop that
    counts. None of other loops."""
    condition, states = _condition_of(node.attribute("body", None))
    if condition is None or any(carried[place].array is None for place in states):
        return None
    values, going = list(carried), _scalar(node, 1, "bool")
    for number in range(min(most, _TRIED)):
        goes_on, *results = run(condition, [_scalar(node, number), going, *values])
        for place, value in zip(states, results, strict=True):
            values[place] = value
        arrays = [goes_on.array, *(value.array for value in results)]
        if any(array is None for array in arrays):
            return None
        if not _number(goes_on):
            return number + 1
    return most if most <= _TRIED else None


def _condition_of(body: Any) -> tuple[Any | None, list[int]]:
    """The part of a loop's body that computes its condition, and the states that this reads,
    whose next values are its further outputs. None where the condition depends on nothing
    that changes, or on control flow."""
    makers = {name: op for op in body.node for name in op.output}
    initial = {tensor.name for tensor in body.initializer}
    changing = [value.name for value in body.input if value.name not in initial]
    pending, kept, states = [body.output[0].name], set(), set()
    while pending:
        name = pending.pop()
        if name in makers and name not in kept:
            kept |= {*makers[name].output}
            pending += makers[name].input
        elif name in changing and name not in kept:
            kept.add(name)
            place = changing.index(name) - 2
            if place >= 0:
                states.add(place)
                pending.append(body.output[1 + place].name)
    operators = [op for op in body.node if kept & {*op.output}]
    has_graphs = any(attribute.HasField("g") for op in operators for attribute in op.attribute)
    if has_graphs or not (states or changing[0] in kept):
        return None, []
    order = sorted(states)
    outputs = [body.output[0], *(body.output[1 + place] for place in order)]
    part = type(body)(
        name=body.name,
        node=operators,
        initializer=body.initializer,
        input=body.input,
        output=outputs,
    )
    return part, order


def _unrolled(
    node: Node, run: Run, count: int, carried: Sequence[Value], *, are_constant: bool = False
) -> list[Value]:
    """The body once for each iteration; its number is known. Raises _NotConstant for results
    that are not constants, where they should be."""
    body, states = node.attribute("body", None), list(carried)
    parts: list[list[Value]] = []
    going = _scalar(node, 1, "bool")
    for number in range(count):
        condition, *results = run(body, [_scalar(node, number), going, *states])
        if are_constant and any(value.array is None for value in results):
            raise _NotConstant
        states, parts = results[: len(states)], [*parts, results[len(states) :]]
        if not _goes_on(condition):
            break
    if not parts and len(node.outputs) > len(states):
        raise node.refusal("is done zero times, and stacks the results of each time")
    return [*states, *(_stacked(values) for values in zip(*parts, strict=True))]


def _stacked(values: Sequence[Value]) -> Value:
    if len({(value.shape, value.dtype) for value in values}) > 1:
        spelt = ", ".join(str(list(value.shape)) for value in values[:4])
        raise ValueError(f"iterations give results of the shapes {spelt}")
    return concatenate([unsqueeze(value, [0]) for value in values], 0)


def _counted(
    node: Node, run: Run, count: int, carried: Sequence[Value], *, is_exact: bool
) -> list[Value]:
    """A scan over the numbers of the iterations, which no condition ends if the number is
    exact."""
    if not 1 <= count <= _COUNTED:
        raise _Conditional if count else ValueError("no iterations")
    body, going = node.attribute("body", None), _scalar(node, 1, "bool")

    def step(number: Value, *states: Value) -> tuple[list[Value], list[Value]]:
        condition, *results = run(body, [number, going, *states])
        if not (is_exact or _goes_on(condition)):
            raise _Conditional
        return results[: len(states)], results[len(states) :]

    numbers = node.builder.constant(np.arange(count))
    states, results = scans.scan(node.builder, "loop", count, [numbers], carried, step)
    return [*states, *results]


def _conditional(node: Node, run: Run, carried: Sequence[Value]) -> list[Value]:
    """A scan that ends as soon as the body's condition is false, or after the trips that
    are only known at run time."""
    if len(node.outputs) > len(carried):
        reason = (
            "stacks the results of its iterations, whose number is computed at run time; it must "
            "be known at import"
        )
        for value in (node.optional(0), node.optional(1)):
            if value is not None and value.array is None:
                raise node.computed_at_run_time(value, reason)
        raise node.refusal(reason)
    body, going = node.attribute("body", None), _scalar(node, 1, "bool")
    trips, begins = node.optional(0), node.optional(1)
    count = _number(trips)
    limit = None if trips is None or count is not None else reshape(trips, ())

    def running(condition: Value, number: Value) -> Value:
        """Whether iteration `number` is begun."""
        condition = reshape(condition, ())
        if limit is None:
            return condition
        return compare("and", lambda c, i, n: c & (i < n), condition, number, limit)

    def step(_: Value, number: Value, *states: Value) -> tuple[list[Value], list[Value]]:
        condition, *results = run(body, [number, going, *states])
        after = elementwise("next", lambda e: e + 1, number)
        return [running(condition, after), after, *results[: len(states)]], []

    first = [running(going if begins is None else begins, _scalar(node, 0)), _scalar(node, 0)]
    name, most = "while", NO_LIMIT if count is None else count
    states, _ = scans.scan(node.builder, name, most, [], [*first, *carried], step, conditional=True)
    return states[2:]


def scan(node: Node, run: Run) -> Results:
    """Inputs are walked along an axis, states go from one step to the next."""
    count = int(node.attribute("num_scan_inputs", 1))
    if node.opset < 9:
        return _batched_scan(node, run, count)
    values = [node[place] for place in range(len(node.inputs))]
    states, inputs = values[:-count], values[-count:]
    stacked = len(node.outputs) - len(states)
    return _scanned(
        node,
        run,
        states,
        [
            _axis_first(value, axis)
            for value, axis in zip(
                inputs, node.attribute("scan_input_axes", None) or [0] * count, strict=True
            )
        ],
        node.attribute("scan_input_directions", None) or [],
        node.attribute("scan_output_axes", None) or [0] * stacked,
        node.attribute("scan_output_directions", None) or [],
    )


def _scanned(
    node: Node,
    run: Run,
    states: Sequence[Value],
    inputs: Sequence[Value],
    directions: Sequence[int],
    axes: Sequence[int],
    output_directions: Sequence[int],
) -> list[Value]:
    count, body = inputs[0].shape[0], node.attribute("body", None)

    def step(*values: Value) -> tuple[list[Value], list[Value]]:
        slices, held = values[: len(inputs)], values[len(inputs) :]
        results = run(body, [*held, *slices])
        return results[: len(held)], results[len(held) :]

    last, results = scans.scan(
        node.builder,
        "scan",
        count,
        inputs,
        states,
        step,
        backward=[bool(direction) for direction in directions],
        backward_results=[bool(direction) for direction in output_directions],
    )
    return [
        *last,
        *(_axis_to(value, axis) for value, axis in zip(results, axes, strict=True)),
    ]


def _batched_scan(node: Node, run: Run, count: int) -> list[Value]:
    """Opset 8: everything has a batch in front, whose entries are walked apart."""
    values = [node[place] for place in range(1, len(node.inputs))]
    states, inputs = values[:-count], values[-count:]
    batch, steps = inputs[0].shape[:2]
    lengths = node.known(0)
    if lengths is not None and not np.all(lengths == steps):
        raise node.refusal(f"has sequences of several lengths, all must have {steps}")
    stacked = len(node.outputs) - len(states)

    def entry(*slices: Value) -> tuple[list[Value], list[Value]]:
        held, walked = slices[: len(states)], slices[len(states) :]
        directions = node.attribute("directions", None) or []
        return [], _scanned(node, run, held, walked, directions, [0] * stacked, [])

    return scans.scan(node.builder, "batch", batch, values, [], entry)[1]


def _axis_first(value: Value, axis: int) -> Value:
    axis %= value.rank
    return transpose(value, [axis, *(other for other in range(value.rank) if other != axis)])


def _axis_to(value: Value, axis: int) -> Value:
    """The first dimension moved to a place among the others."""
    order = list(range(1, value.rank))
    order.insert(axis % value.rank, 0)
    return transpose(value, order)


Control = Callable[[Node, Run], Results]
TABLE: Mapping[str, Control] = {"If": branch, "Loop": loop, "Scan": scan}
