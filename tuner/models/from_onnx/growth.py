"""States of ONNX's `Loop` that its iterations only append to.

Such a state is what it was before, and behind (or in front) the pieces of the iterations: it
need not be carried, nor copied in each of them. Sequences of tensors are carried no other way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import onnx

from tuner.models.from_onnx.lookahead import inputs_of, makers_of
from tuner.models.from_onnx.node import Node
from tuner.models.from_onnx.sequences import number_of
from tuner.models.operators.extents import joined
from tuner.models.operators.movement import concatenate, flip
from tuner.models.operators.stacks import Items, Stack, side_by_side
from tuner.models.operators.values import Value


@dataclass(frozen=True, kw_only=True)
class _State:
    place: int  # among all states
    axis: int | None  # of a tensor; None for a sequence
    in_front: bool = False


@dataclass(frozen=True, kw_only=True)
class Growing:
    """A loop without the states that only grow: their pieces are its last results, those of
    sequences behind the others."""

    whole: Node
    node: Node
    states: Sequence[_State]

    @property
    def sequences(self) -> int:
        """The number of last results that are pieces of sequences."""
        return sum(state.axis is None for state in self.states)

    def results(self, values: Sequence[Value | Items]) -> list[Value | Items]:
        """The results of the whole loop of those of the one without these states."""
        count = len(values) - len(self.states)
        results = list(values[:count])
        grown = zip(self.states, values[count:], strict=True)
        for state, pieces in sorted(grown, key=lambda pair: pair[0].place):
            results.insert(state.place, self._grown(state, pieces))
        return results

    def _grown(self, state: _State, pieces: Value | Items) -> Value | Items:
        if state.axis is None:
            begin = self.whole.sequences[2 + state.place]
            return (*begin, *((Stack(pieces),) if isinstance(pieces, Value) else pieces))
        assert isinstance(pieces, Value), "tensors are stacked"
        return self._longer(self.whole[2 + state.place], state.axis, state.in_front, pieces)

    def _longer(self, begin: Value, axis: int, in_front: bool, stacked: Value) -> Value:
        axis %= begin.rank
        if in_front and stacked.counts:
            raise self.node.refusal(
                "puts in front of a tensor in iterations whose number is computed at run time"
            )
        added = side_by_side(Stack(flip(stacked, 0) if in_front else stacked), axis)
        if not stacked.counts:
            return concatenate([added, begin] if in_front else [begin, added], axis)
        return joined([begin, added], axis) if begin.elements else added


def without_growth(node: Node, *, of_tensors: bool = True) -> Growing:
    """The loop without the sequences that it carries, and without the tensors that it only
    appends to.

    Raises ModelRefused for sequences that it does more with than append to.
    """
    body = node.attribute("body", None)
    makers, (_, _, *states) = makers_of(body), inputs_of(body)
    used = _reads(body) + Counter(value.name for value in body.output)
    counted = Counter(op.input[0] for op in body.node if op.op_type == "SequenceLength")
    tensors, sequences = [], []
    lengths: dict[str, int] = {}  # of sequences, before and after the first iteration's insertion
    for place, state in enumerate(states):
        names = _copies(body.output[1 + place].name, makers)
        alone = all(used[name] == 1 + counted[name] for name in (state, *names))
        last = makers.get(names[-1]) if alone else None
        if 2 + place in node.sequences:
            if last is None or not _inserts(last, state):
                raise node.refusal(
                    f"carries the sequence {state[:80]!r}; each iteration must insert one tensor "
                    f"at its end (SequenceInsert without a position), and nothing else than "
                    f"SequenceLength may read it"
                )
            if any(counted[name] for name in (state, *names)):
                before = number_of(node, node.sequences[2 + place])
                lengths |= {state: before, **dict.fromkeys(names, before + 1)}
            sequences.append(_State(place=place, axis=None))
            continue
        if not of_tensors or last is None or last.op_type != "Concat" or len(last.input) < 2:
            continue
        in_front = state == last.input[-1]
        if (in_front or state == last.input[0]) and _may_grow(node[2 + place]):
            axis = next(a.i for a in last.attribute if a.name == "axis")
            tensors.append(_State(place=place, axis=axis, in_front=in_front))
    growing = [*tensors, *sequences]
    places = [state.place for state in growing]
    shorter = _without(node, states, places, lengths) if growing else node
    return Growing(whole=node, node=shorter, states=growing)


def _copies(name: str, makers: Mapping[str, Any]) -> list[str]:
    """A value, and those that it is a copy of by Identity."""
    names = [name]
    while names[-1] in makers and makers[names[-1]].op_type == "Identity":
        names.append(makers[names[-1]].input[0])
    return names


def _inserts(op: Any, sequence: str) -> bool:
    """Whether an operator inserts a tensor at the end of the sequence."""
    at_end = op.op_type == "SequenceInsert" and not any(op.input[2:])
    return bool(at_end and op.input[0] == sequence)


def _may_grow(begin: Value) -> bool:
    return bool(begin.rank) and not begin.counts and begin.format is None


def _reads(graph: Any) -> Counter[str]:
    """How often operators of a graph, and of the graphs inside of them, read each name."""
    read = Counter[str]()
    for op in graph.node:
        read.update(op.input)
        for attribute in op.attribute:
            if attribute.HasField("g"):
                read += _reads(attribute.g) + Counter(v.name for v in attribute.g.output)
    return read


def _without(
    node: Node, states: Sequence[str], places: Sequence[int], lengths: Mapping[str, int]
) -> Node:
    """The loop with what is appended to some states as results in their place.

    `lengths` are those of sequences in the first iteration, which grow by 1 in each.
    """
    names = {states[place] for place in places}
    body = type(node.attribute("body", None))()
    body.CopyFrom(node.attribute("body", None))
    for op in body.node:
        if op.op_type == "SequenceLength" and op.input[0] in lengths:
            first = f"{op.output[0]}.first"
            length = np.array(lengths[op.input[0]], np.int64)
            body.initializer.append(onnx.numpy_helper.from_array(length, first))
            op.op_type = "Add"
            del op.input[:]
            op.input.extend([inputs_of(body)[0], first])
        if names.isdisjoint(op.input):
            continue
        kept = [name for name in op.input if name and name not in names]
        del op.input[:]
        op.input.extend(kept)
        if op.op_type == "SequenceInsert":
            op.op_type = "Identity"
    inputs, outputs = list(body.input), list(body.output)
    moved = [outputs[1 + place] for place in places]
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
            *(results[place] for place in places),
        ),
        attributes={**node.attributes, "body": body},
        sequences={},
    )
