"""What is known of the iterations of ONNX's `Loop` before they are computed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from tuner.models.errors import ModelRefused
from tuner.models.from_onnx.node import Node
from tuner.models.graph import Array
from tuner.models.operators.foreseen import MOST_ITERATIONS, foreseen
from tuner.models.operators.values import Value

Run = Callable[[Any, Sequence[Value]], list[Value]]  # results of a graph for given inputs
Followed = tuple[int, str]  # a value of the body: place of its output, 0 for a condition; its name

_FOLLOWED = 64  # elements of a state that is computed at import, at most
_CONTROL = ("If", "Loop", "Scan")


@dataclass(frozen=True, kw_only=True)
class Lookahead:
    """States are named by their place."""

    count: int  # iterations, at most
    is_exact: bool = False  # nothing that is computed ends them earlier
    # Before each iteration and after the last, [count + 1, ...].
    states: Mapping[int, Array] = field(default_factory=dict)
    unchanged: frozenset[int] = frozenset()

    def state(self, place: int, number: Value, carried: Sequence[Value]) -> Value:
        """A state that is known before an iteration."""
        if place in self.unchanged:
            return carried[place]
        return foreseen(number, self.states[place][:-1])

    def number(self, number: Value) -> Value:
        """The number of an iteration with what it is in each."""
        if self.count > MOST_ITERATIONS:
            return number
        return foreseen(number, np.arange(self.count))


def look_ahead(node: Node, run: Run, most: int, carried: Sequence[Value]) -> Lookahead:
    """States that follow in each iteration from its number and constants, as counters do, and
    the number of iterations, at most `most`, where conditions that do so end them."""
    body = node.attribute("body", None)
    conditions = {(0, name) for name in _conditions(node, run)}
    unchanged = _unchanged(body)
    followed = conditions | {
        (1 + place, body.output[1 + place].name)
        for place, value in enumerate(carried)
        if place not in unchanged and _is_small(value)
    }
    while followed := followed_in(body, followed):
        if most > MOST_ITERATIONS and not any(place == 0 for place, _ in followed):
            break
        walked = _walked(node, run, most, carried, sorted(followed))
        if isinstance(walked, Lookahead):
            is_exact = walked.is_exact and conditions <= followed
            return replace(walked, is_exact=is_exact, unchanged=unchanged)
        followed -= walked
    return Lookahead(count=most, unchanged=unchanged)


def with_read_states(node: Node, run: Run, carried: Sequence[Value]) -> list[Value]:
    """The states before the first iteration of a loop that has one. Those that no iteration
    reads are only results: what they are before has no meaning, nor a shape of its own."""
    body, builder = node.attribute("body", None), node.builder
    read = _read_in(body) | {value.name for value in body.output}
    unread = {place for place, name in enumerate(inputs_of(body)[2:]) if name not in read}
    if not unread:
        return list(carried)
    number, going = builder.constant(np.array(0)), builder.constant(np.array(True))
    try:
        with builder.body():  # for the shapes alone
            _, *after = run(body, [number, going, *carried])
    except ModelRefused:  # which the loop itself will say
        return list(carried)
    return [
        builder.constant(np.broadcast_to(0, after[place].shape), after[place].dtype)
        if place in unread and not alike(value, after[place])
        else value
        for place, value in enumerate(carried)
    ]


def _read_in(graph: Any) -> set[str]:
    return {name for op in graph.node for name in reads_of(op)}


def reads_of(op: Any) -> set[str]:
    """Names that an operator reads, and those of the graphs inside of it."""
    names = {name for name in op.input if name}
    for attribute in op.attribute:
        if attribute.HasField("g"):
            inner = attribute.g
            names |= _read_in(inner) | {value.name for value in inner.output}
    return names


def _is_small(value: Value) -> bool:
    return value.array is not None and value.elements <= _FOLLOWED and value.format is None


def _walked(
    node: Node, run: Run, most: int, carried: Sequence[Value], followed: Sequence[Followed]
) -> Lookahead | set[Followed]:
    """What these are in each iteration; or those that are computed at run time."""
    body, builder = node.attribute("body", None), node.builder
    part = part_of(body, [name for _, name in followed], body.input)
    values, going = list(carried), builder.constant(np.array(True))
    rows = {place - 1: [carried[place - 1].array] for place, _ in followed if place}
    count = most
    with builder.body():  # what is recorded here is no node of the model
        for number in range(min(most, MOST_ITERATIONS)):
            try:
                results = run(part, [builder.constant(np.array(number)), going, *values])
            except ModelRefused:
                return {*followed}
            given = list(zip(followed, results, strict=True))
            late = {
                (place, name)
                for (place, name), value in given
                if value.array is None or (place and not alike(value, carried[place - 1]))
            }
            if late:
                return late
            for (place, _), value in given:
                if place:
                    values[place - 1] = value
                    rows[place - 1].append(value.array)
            if not all(place or _is_true(value) for (place, _), value in given):
                count = number + 1
                break
    if count > MOST_ITERATIONS:
        return Lookahead(count=count)
    states = {place: np.stack(arrays) for place, arrays in rows.items()}  # type: ignore[arg-type]  # none is late
    return Lookahead(count=count, is_exact=any(not place for place, _ in followed), states=states)


def alike(value: Value, other: Value) -> bool:
    return (value.shape, value.dtype) == (other.shape, other.dtype)


def _is_true(value: Value) -> bool:
    return value.array is not None and bool(value.array.reshape(-1)[0])


def _conditions(node: Node, run: Run) -> set[str]:
    """What must all be true for another iteration, and means one if it is."""
    body = node.attribute("body", None)
    pending, conditions = [body.output[0].name], set[str]()
    while pending:
        name = pending.pop()
        both = _conjunction(name, makers_of(body))
        if both is not None and _is_kept(node, run, name, both.output[0]):
            pending += both.input
        else:
            conditions.add(name)
    return conditions - {inputs_of(body)[1]}  # true in every iteration


def _conjunction(name: str, makers: Mapping[str, Any]) -> Any | None:
    """The `And` that a value is computed from by operators of one input besides constants."""
    while name in makers:
        op = makers[name]
        if op.op_type == "And":
            return op
        given = [i for i in op.input if i not in makers or makers[i].op_type != "Constant"]
        if len(given) != 1 or op.op_type in _CONTROL:
            return None
        name = given[0]
    return None


def _is_kept(node: Node, run: Run, name: str, source: str) -> bool:
    """Whether a value is true just where the one that it is computed from is."""
    part = part_of(node.attribute("body", None), [name], [onnx.ValueInfoProto(name=source)])
    try:
        kept = [run(part, [node.builder.constant(np.array(flag))])[0] for flag in (True, False)]
    except ModelRefused:
        return False
    return _is_true(kept[0]) and kept[1].array is not None and not _is_true(kept[1])


def followed_in(body: Any, followed: set[Followed]) -> set[Followed]:
    """Those that are computed from the number of the iteration, and from states among them,
    alone; conditions where they change at all."""
    number, going, *states = inputs_of(body)
    constant = {states[place] for place in _unchanged(body)}
    while True:
        foretold = {
            number,
            going,
            *constant,
            *(states[place - 1] for place, _ in followed if place),
        }
        kept = set()
        for place, name in followed:
            operators, reads = _needed(body, [name], by_content=True)
            reads &= {number, going, *states}
            has_graphs = any(op.op_type in _CONTROL for op in operators)
            if reads <= foretold and not has_graphs and (place or reads - {going}):
                kept.add((place, name))
        if kept == followed:
            return kept
        followed = kept


def _unchanged(body: Any) -> frozenset[int]:
    """The places of states that every iteration hands on as they are."""
    makers, (_, _, *states) = makers_of(body), inputs_of(body)
    places = set()
    for place, state in enumerate(states):
        name = body.output[1 + place].name
        while name in makers and makers[name].op_type == "Identity":
            name = makers[name].input[0]
        if name == state:
            places.add(place)
    return frozenset(places)


def makers_of(body: Any) -> dict[str, Any]:
    return {name: op for op in body.node for name in op.output}


def inputs_of(body: Any) -> list[str]:
    """The number of the iteration, the condition, and the states."""
    initial = {tensor.name for tensor in body.initializer}
    return [value.name for value in body.input if value.name not in initial]


def _needed(
    body: Any, names: Sequence[str], *, by_content: bool = False, given: Sequence[str] = ()
) -> tuple[list[Any], set[str]]:
    """The operators that compute these values from the given ones, and all names that they
    read; `by_content` without what only shapes are asked of, which are known."""
    makers, pending, visited = makers_of(body), [*names], set[str]()
    while pending:
        name = pending.pop()
        if name in visited:
            continue
        visited.add(name)
        op = makers.get(name)
        if op is not None and name not in given:
            pending += [] if by_content and op.op_type in ("Shape", "Size") else op.input
    operators = [op for op in body.node if visited & {*op.output} - {*given}]
    return operators, visited


def part_of(body: Any, names: Sequence[str], inputs: Sequence[Any]) -> Any:
    """A graph of what computes these values of a loop's body from its inputs."""
    return type(body)(
        name=body.name,
        node=_needed(body, names, given=[value.name for value in inputs])[0],
        initializer=body.initializer,
        input=inputs,
        output=[onnx.ValueInfoProto(name=name) for name in names],
    )
