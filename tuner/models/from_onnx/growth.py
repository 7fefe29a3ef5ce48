"""States of ONNX's `Loop` that its iterations only append to.

Such a state is what it was before, and behind (or in front) the pieces of the iterations: it
need not be carried, nor copied in each of them. Pieces may have extents of run time, among them
those that a branch appends or does not. Sequences of tensors are carried no other way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import onnx

from tuner.models.from_onnx.lookahead import Run, inputs_of, makers_of
from tuner.models.from_onnx.node import Node
from tuner.models.from_onnx.sequences import number_of
from tuner.models.operators.extents import count_of, counted, joined, whole
from tuner.models.operators.movement import concatenate, flip
from tuner.models.operators.stacks import Items, Stack, first_of_each, side_by_side
from tuner.models.operators.values import Value
from tuner.workload.arrays import numpy_dtype


@dataclass(frozen=True, kw_only=True)
class _State:
    place: int  # among all states
    axis: int | None  # of a tensor; None for a sequence
    in_front: bool = False


@dataclass(frozen=True, kw_only=True)
class Growing:
    """A loop without the states that only grow: their pieces are its last results, those of
    sequences behind the extents of the others."""

    whole: Node
    node: Node
    states: Sequence[_State]

    @property
    def sequences(self) -> int:
        """The number of last results that are pieces of sequences."""
        return sum(state.axis is None for state in self.states)

    def counting(self, run: Run) -> Run:
        """`run` for the loop without these states: the body gives the extent of each piece of a
        tensor too, along which it is appended."""
        axes = [state.axis for state in self.states if state.axis is not None]
        body = self.node.attribute("body", None)

        def with_extents(graph: Any, inputs: Sequence[Value]) -> list[Value]:
            results = run(graph, inputs)
            if graph is not body:
                return results
            last = len(results) - self.sequences
            first = last - len(axes)
            pieces = [*zip(results[first:last], axes, strict=True)]
            return [
                *results[:first],
                *(_without_count(piece, axis) for piece, axis in pieces),
                *(count_of(piece, axis % piece.rank) for piece, axis in pieces),
                *results[last:],
            ]

        return with_extents

    def results(self, values: Sequence[Value | Items]) -> list[Value | Items]:
        """The results of the whole loop of those of the one without these states."""
        tensors = len(self.states) - self.sequences
        count = len(values) - len(self.states) - tensors
        results, behind = list(values[:count]), count + 2 * tensors
        pieces = [*values[count : count + tensors], *values[behind:]]
        extents = [*values[count + tensors : behind], *(() for _ in values[behind:])]
        grown = zip(self.states, pieces, extents, strict=True)
        for state, stacked, each in sorted(grown, key=lambda given: given[0].place):
            results.insert(state.place, self._grown(state, stacked, each))
        return results

    def _grown(self, state: _State, pieces: Value | Items, extents: Value | Items) -> Value | Items:
        if state.axis is None:
            before = self.whole.sequences[2 + state.place]
            return (*before, *((Stack(pieces),) if isinstance(pieces, Value) else pieces))
        assert isinstance(pieces, Value) and isinstance(extents, Value), "tensors are stacked"
        begin = self.whole[2 + state.place]
        return _longer(begin, state.axis % begin.rank, pieces, extents, in_front=state.in_front)


def _without_count(piece: Value, axis: int) -> Value:
    axis %= piece.rank
    return counted(whole(piece), {a: n for a, n in piece.counts.items() if a != axis})


def _longer(begin: Value, axis: int, stacked: Value, extents: Value, *, in_front: bool) -> Value:
    """A tensor with pieces behind it, or in front with the last piece first; `extents` are those
    of each along the axis."""
    are_whole = extents.array is not None and (extents.array == stacked.shape[1 + axis]).all()
    if are_whole and not (in_front and stacked.counts):
        added = side_by_side(Stack(flip(stacked, 0) if in_front else stacked), axis)
    else:
        added = first_of_each(Stack(stacked), extents, axis, backward=in_front)
    if added.counts and not begin.elements:
        return added
    both = [added, begin] if in_front else [begin, added]
    return joined(both, axis) if added.counts else concatenate(both, axis)


def without_growth(node: Node, *, of_tensors: bool = True) -> Growing:
    """The loop without the sequences that it carries, and without the tensors that it only
    appends to.

    Raises ModelRefused for sequences that it does more with than append to.
    """
    body = node.attribute("body", None)
    makers, (_, _, *states) = makers_of(body), inputs_of(body)
    used = _reads(body) + Counter(value.name for value in body.output)
    asked = Counter(op.input[0] for op in body.node if op.op_type == "SequenceLength")
    tensors, sequences = [], []
    lengths: dict[str, int] = {}  # of sequences, before and after the first iteration's insertion
    for place, state in enumerate(states):
        names = _copies(body.output[1 + place].name, makers)
        alone = all(used[name] == 1 + asked[name] for name in (state, *names))
        last = makers.get(names[-1]) if alone else None
        if 2 + place in node.sequences:
            if last is None or not _inserts(last, state):
                raise node.refusal(
                    f"carries the sequence {state[:80]!r}; each iteration must insert one tensor "
                    f"at its end (SequenceInsert without a position), and nothing else than "
                    f"SequenceLength may read it"
                )
            if any(asked[name] for name in (state, *names)):
                before = number_of(node, node.sequences[2 + place])
                lengths |= {state: before, **dict.fromkeys(names, before + 1)}
            sequences.append(_State(place=place, axis=None))
            continue
        if of_tensors and _may_grow(node[2 + place]):
            growth = _Growth(state)
            if growth.follows(body.output[1 + place].name, body) and growth.is_alone(used):
                (way,) = growth.ways
                tensors.append(_State(place=place, axis=way[0], in_front=way[1]))
    growing = [*tensors, *sequences]
    shorter = _without(node, states, growing, lengths) if growing else node
    return Growing(whole=node, node=shorter, states=growing)


@dataclass
class _Growth:
    """How a tensor becomes what an iteration makes of it."""

    state: str
    ways: set[tuple[int, bool]] = field(default_factory=set)  # axis, and whether in front
    reads: Counter[str] = field(default_factory=Counter)  # of names on the way

    def follows(self, name: str, graph: Any) -> bool:
        """Whether a value of a graph is the state, the state with pieces appended by `Concat`,
        or what an `If` gives whose sides give such values."""
        makers = makers_of(graph)
        names = _copies(name, makers)
        self.reads.update(names)
        if names[-1] == self.state:
            return True
        op = makers.get(names[-1])
        if op is None:
            return False
        if op.op_type == "If":
            place = [*op.output].index(names[-1])
            return all(self.follows(side.output[place].name, side) for side in _graphs(op))
        if op.op_type == "Loop":
            return self._follows_loop(op, [*op.output].index(names[-1]))
        ends = (op.input[0], op.input[-1]) if len(op.input) > 1 else ()
        if op.op_type != "Concat" or self.state not in ends:
            return False
        self.reads[self.state] += 1
        axis = next(a.i for a in op.attribute if a.name == "axis")
        self.ways.add((axis, self.state == op.input[-1]))
        return True

    def _follows_loop(self, op: Any, place: int) -> bool:
        """Whether a loop's state of this place begins as the state, and only grows."""
        (body,), carried = _graphs(op), [*op.input[2:]]
        if place >= len(carried) or carried[place] != self.state:
            return False
        inner = _Growth(inputs_of(body)[2 + place])
        used = _reads(body) + Counter(value.name for value in body.output)
        if not (inner.follows(body.output[1 + place].name, body) and inner.is_alone(used)):
            return False
        self.reads[self.state] += 1
        self.ways |= inner.ways
        return True

    def is_alone(self, used: Counter[str]) -> bool:
        """Whether it grows at one end, and nothing else reads it; `used` are all reads."""
        return len(self.ways) == 1 and all(used[name] == n for name, n in self.reads.items())


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
        for inner in _graphs(op):
            read += _reads(inner) + Counter(v.name for v in inner.output)
    return read


def _graphs(op: Any) -> Iterator[Any]:
    return (attribute.g for attribute in op.attribute if attribute.HasField("g"))


def _without(
    node: Node, states: Sequence[str], growing: Sequence[_State], lengths: Mapping[str, int]
) -> Node:
    """The loop with what is appended to some states as results in their place.

    `lengths` are those of sequences in the first iteration, which grow by 1 in each.
    """
    places = [state.place for state in growing]
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
        if op.op_type == "SequenceInsert" and op.input[0] in names:
            op.op_type = "Identity"
            kept = [name for name in op.input[1:] if name]
            del op.input[:]
            op.input.extend(kept)
    for state in growing:
        if state.axis is not None:
            name, begin = states[state.place], node[2 + state.place]
            shape = [*begin.shape]
            shape[state.axis] = 0
            nothing = np.empty(shape, numpy_dtype(begin.dtype))
            body.initializer.append(onnx.numpy_helper.from_array(nothing, f"{name}.nothing"))
            _begin_with_nothing(body, name)
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


def _begin_with_nothing(graph: Any, state: str) -> None:
    """Has what grows from a state grow from an empty tensor, in place."""
    for op in graph.node:
        kept = [name for name in op.input if name != state]
        names = kept if op.op_type == "Concat" else [_renamed(name, state) for name in op.input]
        del op.input[:]
        op.input.extend(names)
        for inner in _graphs(op):
            _begin_with_nothing(inner, state)
            for value in inner.output:
                value.name = _renamed(value.name, state)


def _renamed(name: str, state: str) -> str:
    return f"{state}.nothing" if name == state else name
