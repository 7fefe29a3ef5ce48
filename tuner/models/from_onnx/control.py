"""Control flow of ONNX: `If`, `Loop` and `Scan`, whose bodies are graphs of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.models.from_onnx.growth import without_growth
from tuner.models.from_onnx.iterations import most_iterations
from tuner.models.from_onnx.lookahead import Lookahead, Run, look_ahead, with_read_states
from tuner.models.from_onnx.node import ComputedAtRunTime, Node
from tuner.models.nodes import NO_LIMIT
from tuner.models.operators import branches, scans
from tuner.models.operators.elementwise import compare, elementwise
from tuner.models.operators.extents import counted
from tuner.models.operators.indexing import gather
from tuner.models.operators.movement import concatenate, reshape, transpose, unsqueeze
from tuner.models.operators.stacks import Items
from tuner.models.operators.values import Value

UNROLLED = 64  # iterations of a loop that are made nodes of their own, at most
_APART = 4  # branches behind each other whose sides are read apart, at most; ways are 2 to that
_COUNTED = 1 << 16  # iterations whose numbers are a constant, at most


# Results of a graph inside of a branch, for no inputs; and what is made of such results.
Sides = Callable[[Any, Sequence[Value]], Sequence[Value | Items]]
Following = Callable[[Sequence[Value | Items]], Sequence[Value | Items]]


class _Conditional(Exception):
    """Whether a loop goes on is only known at run time."""


class _NotConstant(Exception):
    """What an iteration gives is only known at run time."""


def branch(node: Node, run: Sides) -> Sequence[Value | Items]:
    """The branch that a known condition chooses; else both, of which one is computed.

    Raises SidesApart where no tensors stand for the results of both.
    """
    condition = node[0].array
    if condition is not None:
        chosen = "then_branch" if condition.reshape(-1)[0] else "else_branch"
        return run(node.attribute(chosen, None), [])
    try:
        return _chosen(node, run, lambda results: results)
    except branches.SidesDiffer as error:
        raise SidesApart(node, run) from error


class SidesApart(Exception):
    """The sides of a branch give sequences, or tensors of several dtypes or numbers of
    dimensions."""

    def __init__(self, node: Node, run: Sides) -> None:
        super().__init__(node.name)
        self._node, self._run = node, run

    def joined(self, following: Following, around: int) -> list[Value]:
        """What `following` makes of the results of the side that is chosen, which is itself
        behind so many branches of this kind.

        Raises ModelRefused where no tensors stand for that either, or behind too many.
        """
        if around >= _APART:
            raise self._node.refusal(
                f"depends on {around} others, and the sides of all give sequences, or several "
                f"dtypes or numbers of dimensions; what follows is computed for each way through "
                f"them, and there may be {_APART}"
            )
        try:
            return _chosen(self._node, self._run, following)
        except ValueError as error:
            reason = f"has no expression: {error}"
            raise self._node.computed_at_run_time(self._node[0], reason) from error


def _chosen(node: Node, run: Sides, following: Following) -> list[Value]:
    late: list[ComputedAtRunTime] = []

    def side(name: str) -> list[Value]:
        try:
            results = following(run(node.attribute(name, None), []))
        except ComputedAtRunTime as error:
            late.append(error)
            raise
        tensors = [result for result in results if isinstance(result, Value)]
        if len(tensors) < len(results):
            raise branches.SidesDiffer("sides give sequences, which graphs have no outputs for")
        return tensors

    then, other = partial(side, "then_branch"), partial(side, "else_branch")
    results = branches.branch(node.builder, "if", node[0], then, other)
    if late:  # known once inputs are fixed
        raise late[0]
    return results


def loop(node: Node, run: Run) -> list[Value | Items]:
    """A loop; what its iterations only append to tensors and sequences are results of these."""
    first: ModelRefused | ValueError | None = None
    for of_tensors in (True, False):  # the second where what is appended changes its shape
        growing = without_growth(node, of_tensors=of_tensors)
        inner = _with_known_extents(growing.node, growing.counting(run))
        try:
            return growing.results(_loop(growing.node, inner, growing.sequences))
        except (ModelRefused, ValueError) as error:
            first = first or error
        if len(growing.states) == growing.sequences:  # the second way is the first
            break
    assert first is not None, "a loop without results was refused"
    raise first


def _with_known_extents(node: Node, run: Run) -> Run:
    """`run` for the body of a loop, whose iterations take and give tensors of known extents."""

    def checked(graph: Any, inputs: Sequence[Value]) -> list[Value]:
        results = run(graph, inputs)
        late = [number for value in (*inputs, *results) for number in value.counts.values()]
        if late:
            raise node.computed_at_run_time(
                late[0],
                "hands on a tensor with an extent that is computed at run time; iterations may "
                "append such tensors to one that nothing else reads, by Concat",
            )
        return results

    return checked


def _loop(node: Node, run: Run, apart: int) -> Sequence[Value | Items]:
    """As many iterations as are known at import: a scan, or nodes of their own where shapes
    change. Else a scan that a condition ends. The last results, so many as are `apart`, may be
    the sequences of what the iterations give, which then need not have one shape."""
    carried = [node[place] for place in range(2, len(node.inputs))]
    trips, going = node.optional(0), node.optional(1)
    count = NO_LIMIT if trips is None else _number(trips)
    starts = True if going is None else _number(going)
    stacks = len(node.outputs) > len(carried)
    if count is None or starts is None:
        most = most_iterations(node, run, carried, by_body=stacks)
        if most:
            return _conditional(node, run, carried, Lookahead(count=most))
    count = count if count and starts else 0
    carried = with_read_states(node, run, carried) if count else carried
    ahead = look_ahead(node, run, count, carried)
    if stacks and ahead.count > _COUNTED:
        most = most_iterations(node, run, carried, by_body=True)
        ahead = replace(ahead, count=min(ahead.count, most))
    count = ahead.count
    try:
        if count <= UNROLLED and all(value.array is not None for value in carried):
            with suppress(_NotConstant):
                return _unrolled(node, run, count, carried, apart, are_constant=True)
        return _counted(node, run, ahead, carried)
    except _Conditional:
        return _conditional(node, run, carried, ahead)
    except ModelRefused:
        if count > UNROLLED:
            raise
    except ValueError as error:
        if count > UNROLLED:
            raise node.refusal(
                f"has {count} iterations, and {error}; iterations are written out up to "
                f"{UNROLLED}, in longer loops each must give the shapes that it takes, but of "
                f"tensors that it only appends to by Concat"
            ) from error
    try:
        return _unrolled(node, run, count, carried, apart)
    except _Conditional:
        return _conditional(node, run, carried, ahead)


def _number(value: Value | None) -> int | None:
    return None if value is None or value.array is None else int(value.array.reshape(-1)[0])


def _scalar(node: Node, number: int, dtype: str = "int64") -> Value:
    return node.builder.constant(np.array(number, dtype))


def _goes_on(value: Value) -> bool:
    number = _number(value)
    if number is None:
        raise _Conditional
    return bool(number)


def _unrolled(
    node: Node,
    run: Run,
    count: int,
    carried: Sequence[Value],
    apart: int,
    *,
    are_constant: bool = False,
) -> list[Value | Items]:
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
    if not parts and len(node.outputs) > len(states) + apart:
        raise node.refusal("is done zero times, and stacks the results of each time")
    given: list[tuple[Value, ...]] = [*zip(*parts, strict=True)] if parts else [()] * apart
    first = len(given) - apart
    return [*states, *(_stacked(values) for values in given[:first]), *given[first:]]


def _stacked(values: Sequence[Value]) -> Value:
    if len({(value.shape, value.dtype) for value in values}) > 1:
        spelt = ", ".join(str(list(value.shape)) for value in values[:4])
        raise ValueError(f"iterations give results of the shapes {spelt}")
    return concatenate([unsqueeze(value, [0]) for value in values], 0)


def _iteration(
    node: Node, run: Run, ahead: Lookahead, carried: Sequence[Value]
) -> tuple[list[int], Callable[[Value, Sequence[Value]], tuple[Value, list[Value], list[Value]]]]:
    """The places of states that are computed; and what gives the condition, these states, and
    the other results for the number of an iteration and the states before it."""
    body, going = node.attribute("body", None), _scalar(node, 1, "bool")
    foretold = {*ahead.states, *ahead.unchanged}
    places = [place for place in range(len(carried)) if place not in foretold]

    def computed(number: Value, states: Sequence[Value]) -> tuple[Value, list[Value], list[Value]]:
        given = dict(zip(places, states, strict=True))
        given |= {place: ahead.state(place, number, carried) for place in foretold}
        inputs = [given[place] for place in range(len(carried))]
        condition, *results = run(body, [ahead.number(number), going, *inputs])
        return condition, [results[place] for place in places], results[len(carried) :]

    return places, computed


def _counted(node: Node, run: Run, ahead: Lookahead, carried: Sequence[Value]) -> list[Value]:
    """A scan over the numbers of the iterations, which no condition ends if the number is
    exact."""
    count = ahead.count
    if not 1 <= count <= _COUNTED:
        raise _Conditional if count else ValueError("no iterations")
    places, computed = _iteration(node, run, ahead, carried)

    def step(number: Value, *states: Value) -> tuple[list[Value], list[Value]]:
        condition, after, results = computed(number, states)
        if not (ahead.is_exact or _goes_on(condition)):
            raise _Conditional
        return after, results

    builder, begins = node.builder, [carried[place] for place in places]
    numbers = builder.constant(np.arange(count))
    states, results = scans.scan(builder, "loop", count, [numbers], begins, step, numbered=0)
    last = {**dict(enumerate(carried)), **dict(zip(places, states, strict=True))}
    last |= {place: builder.constant(rows[-1]) for place, rows in ahead.states.items()}
    return [*(last[place] for place in range(len(carried))), *results]


def _conditional(node: Node, run: Run, carried: Sequence[Value], ahead: Lookahead) -> list[Value]:
    """A scan that ends as soon as the body's condition is false, or after the trips that
    are only known at run time. What it stacks has so many entries, up to a bound."""
    is_bounded = ahead.count <= _COUNTED
    if len(node.outputs) > len(carried) and not is_bounded:
        reason = (
            "stacks the results of its iterations, whose number is computed at run time; it must "
            "be known at import"
        )
        for value in (node.optional(0), node.optional(1)):
            if value is not None and value.array is None:
                raise node.computed_at_run_time(value, reason)
        raise node.refusal(reason)
    going, (places, computed) = _scalar(node, 1, "bool"), _iteration(node, run, ahead, carried)
    trips, begins = node.optional(0), node.optional(1)
    limit = None if trips is None or trips.array is not None else reshape(trips, ())

    def running(condition: Value, number: Value) -> Value:
        """Whether iteration `number` is begun."""
        condition = reshape(condition, ())
        if limit is None:
            return condition
        return compare("and", lambda c, i, n: c & (i < n), condition, number, limit)

    def step(_: Value, number: Value, *states: Value) -> tuple[list[Value], list[Value]]:
        condition, following, results = computed(number, states)
        after = elementwise("next", lambda e: e + 1, number)
        return [running(condition, after), after, *following], results if is_bounded else []

    first = [running(going if begins is None else begins, _scalar(node, 0)), _scalar(node, 0)]
    first += [carried[place] for place in places]
    ends, results = scans.scan(
        node.builder, "while", ahead.count, [], first, step, conditional=True, numbered=1
    )
    done, states = ends[1], ends[2:]
    last = {**dict(enumerate(carried)), **dict(zip(places, states, strict=True))}
    for place, rows in ahead.states.items():
        last[place] = gather(node.builder.constant(rows), done, 0)
    stacked = [counted(value, {0: done}) for value in results]
    return [*(last[place] for place in range(len(carried))), *stacked]


def scan(node: Node, run: Run) -> list[Value]:
    """Inputs are walked along an axis, states go from one step to the next."""
    run = _with_known_extents(node, run)
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


LOOPS: Mapping[str, Callable[[Node, Run], Sequence[Value | Items | None]]] = {
    "Loop": loop,
    "Scan": scan,
}
