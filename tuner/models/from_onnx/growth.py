"""States of ONNX's `Loop` that its iterations only append to.

Such a state is what it was before, and behind (or in front) the pieces of the iterations: it
need not be carried, nor copied in each of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from tuner.models.from_onnx.lookahead import inputs_of, makers_of
from tuner.models.from_onnx.node import Node
from tuner.models.operators.extents import count, counted, joined, scalar, whole
from tuner.models.operators.movement import concatenate, flip, reshape, transpose
from tuner.models.operators.values import Value


@dataclass(frozen=True, kw_only=True)
class _State:
    place: int  # among all states
    axis: int
    in_front: bool


@dataclass(frozen=True, kw_only=True)
class Growing:
    """A loop without the states that only grow: their pieces are its last results."""

    node: Node
    begins: Sequence[Value]  # of all states
    states: Sequence[_State]

    def results(self, values: Sequence[Value]) -> list[Value]:
        """The results of the whole loop of those of the one without these states."""
        others, pieces = values[: -len(self.states)], values[-len(self.states) :]
        results = list(others)
        for state, piece in zip(self.states, pieces, strict=True):
            results.insert(state.place, self._grown(state, piece))
        return results

    def _grown(self, state: _State, stacked: Value) -> Value:
        begin = self.begins[state.place]
        axis = state.axis % begin.rank
        if state.in_front and stacked.counts:
            raise self.node.refusal(
                "puts in front of a tensor in iterations whose number is computed at run time"
            )
        pieces = flip(whole(stacked), 0) if state.in_front else whole(stacked)
        rank, shape = begin.rank, list(pieces.shape[1:])
        extent = shape[axis]
        shape[axis] *= pieces.shape[0]
        order = [*range(1, axis + 1), 0, *range(axis + 1, rank + 1)]
        added = reshape(transpose(pieces, order), shape)
        if not stacked.counts:
            return concatenate([added, begin] if state.in_front else [begin, added], axis)
        total = count(added, scalar(stacked.counts[0]) * extent)
        added = counted(added, {axis: total})
        return joined([begin, added], axis) if begin.elements else added


def without_growth(node: Node) -> Growing | None:
    """The loop without the states that it only appends to; None where it has none."""
    body = node.attribute("body", None)
    makers, (_, _, *states) = makers_of(body), inputs_of(body)
    used = _reads(body) + Counter(value.name for value in body.output)
    growing = []
    for place, state in enumerate(states):
        last = makers.get(body.output[1 + place].name)
        if last is None or last.op_type != "Concat" or state not in (last.input[0], last.input[-1]):
            continue
        alone = used[state] == 1 and used[last.output[0]] == 1 and len(last.input) > 1
        begin = node[2 + place]
        if alone and begin.rank and not begin.counts and begin.format is None:
            axis = next(a.i for a in last.attribute if a.name == "axis")
            in_front = state == last.input[-1]
            growing.append(_State(place=place, axis=axis, in_front=in_front))
    if not growing:
        return None
    places = {state.place for state in growing}
    return Growing(
        node=_without(node, [states[place] for place in sorted(places)], places),
        begins=[node[2 + place] for place in range(len(states))],
        states=growing,
    )


def _reads(graph: Any) -> Counter[str]:
    """How often operators of a graph, and of the graphs inside of them, read each name."""
    read = Counter[str]()
    for op in graph.node:
        read.update(op.input)
        for attribute in op.attribute:
            if attribute.HasField("g"):
                read += _reads(attribute.g) + Counter(v.name for v in attribute.g.output)
    return read


def _without(node: Node, names: Sequence[str], places: set[int]) -> Node:
    """The loop with what is appended to some states as results in their place."""
    body = type(node.attribute("body", None))()
    body.CopyFrom(node.attribute("body", None))
    for op in body.node:
        kept = [name for name in op.input if name not in names]
        if len(kept) < len(op.input):
            del op.input[:]
            op.input.extend(kept)
    inputs, outputs = list(body.input), list(body.output)
    moved = [outputs[1 + place] for place in sorted(places)]
    rest = [value for place, value in enumerate(outputs) if place - 1 not in places]
    del body.input[:]
    body.input.extend(value for value in inputs if value.name not in names)
    del body.output[:]
    body.output.extend([*rest, *moved])
    results = [*node.outputs, *("" for _ in range(len(outputs) - 1 - len(node.outputs)))]
    return replace(
        node,
        inputs=tuple(v for place, v in enumerate(node.inputs) if place - 2 not in places),
        outputs=(
            *(name for place, name in enumerate(results) if place not in places),
            *(results[place] for place in sorted(places)),
        ),
        attributes={**node.attributes, "body": body},
    )
