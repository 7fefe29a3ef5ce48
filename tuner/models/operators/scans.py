"""Scans: nodes that are computed once for each slice of their inputs, or while a
condition holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.models.nodes import Scan, State, Window, reads_of
from tuner.models.operators.builder import GraphBuilder, Recorded
from tuner.models.operators.movement import reshape
from tuner.models.operators.values import Value, Written
from tuner.models.operators.zeros import is_never_negative_zero
from tuner.models.passes.fusion import fuse
from tuner.models.passes.pairs import with_pairs
from tuner.workload.expression import Const, Tensor, substitute


def scan(
    builder: GraphBuilder,
    name: str,
    count: int,
    inputs: Sequence[Value],
    states: Sequence[Value],
    body: Callable[..., tuple[Sequence[Value], Sequence[Value]]],
    *,
    backward: Sequence[bool] = (),
    backward_results: Sequence[bool] = (),
    conditional: bool = False,
    numbered: int | None = None,
) -> tuple[list[Value], list[Value]]:
    """States that each iteration computes from those of the one before, and from a
    slice along the first dimension of each input.

    `body(*slices, *states)` gives the new states and other results. Returned are the
    last states, and the results of all iterations, `[count, ...]`. Of inputs and
    results that are `backward` the last slice belongs to the first iteration. If it is
    `conditional`, the first state is a bool without which no further iteration begins; then
    there are no inputs, and what results have behind the last iteration has no meaning.

    `numbered` is the place of an argument of the body that is the number of the iteration.
    States of which an iteration replaces a slice that its number alone decides are written
    where they lie, if nothing else of the body reads them. A state that the body does not read
    is no state of its own if another becomes the same.

    Raises ValueError for a state that changes its shape or dtype, and without steps.
    """
    if count < 1:
        raise ValueError(f"a scan of {count} steps")
    if count == 1 and not conditional:
        after, given = body(*(_first(value) for value in inputs), *states)
        return list(after), [_alone(value) for value in given]
    wholes = [builder.shaped(value) for value in inputs]
    begins = [builder.plain(value).tensor for value in states]
    held = [builder.named("h", value.shape, value.dtype) for value in states]
    windows: dict[str, Window] = {}
    slices = []
    for number, value in enumerate(wholes):
        slices.append(builder.named("w", value.shape[1:], value.dtype))
        windows[slices[-1].tensor] = _window(value.tensor, count, number, backward)
        builder.note_sources(slices[-1].tensor, value.tensor)
    for value, begin in zip(held, begins, strict=True):
        builder.note_sources(value.tensor, begin)
    moving = {value.tensor for value in (*slices, *held)}
    sequences: list[Tensor] = []
    results: list[Value] = []
    with builder.body() as inner:
        after, given = body(*slices, *held)
        counter = None if numbered is None else [*slices, *held][numbered]
        iteration = _Iteration(
            builder=builder, body=inner, states=held, begins=states, after=after, results=given
        )
        ends_as = [*range(len(held))]
        if not conditional:
            ends_as = iteration.ends_as()
        elif _is_true(states[0]):  # there is a first iteration
            rest = iteration.of(range(1, len(held))).ends_as()
            ends_as = [0, *(1 + place for place in rest)]
        own = sorted({*ends_as})
        iteration = iteration.of(own)
        begins, held = [begins[place] for place in own], [*iteration.states]
        replaced = iteration.replaced(counter)
        lasting = [
            None if place in replaced else _lasting(builder, state, iteration.after[place], moving)
            for place, state in enumerate(held)
        ]
        written: list[str] = []
        for place, how in replaced.items():
            held[place] = _in_slices(builder, held[place], how)
            written.append(_own_result(builder, how.content, inner, written))
            whole = builder.root(held[place].tensor)
            windows[written[-1]] = Window(tensor=whole, start=how.start, step=how.step)
        for number, value in enumerate(given):
            if value.array is not None:
                spread = np.broadcast_to(value.array, (count, *value.shape))
                results.append(builder.constant(spread, value.dtype))
                continue
            results.append(builder.named("q", (count, *value.shape), value.dtype))
            sequences.append(builder.tensor(results[-1].tensor))
            written.append(_own_result(builder, value, inner, written))
            windows[written[-1]] = _window(results[-1].tensor, count, number, backward_results)
        _hoist(builder, inner, moving, written)
        ends = [other for other in lasting if other is not None]
        body_graph = builder.part(inner.nodes, [*ends, *written])
    nodes = with_pairs(fuse(body_graph)).nodes
    roots = [builder.root(value.tensor) for value in held]
    for root, begin, other in zip(roots, begins, lasting, strict=True):
        builder.note_sources(root, begin, *(written if other is None else [other]))
    alive = {builder.root(read) for node in nodes for read in reads_of(node)}
    alive |= {builder.root(other) for other in (*ends, *written)}
    used = {other: window for other, window in windows.items() if other in alive}
    node = Scan(
        name=name,
        count=count,
        body=nodes,
        windows=used,
        shapes={other: builder.tensor(other) for other in used},
        sequences=tuple(sequences),
        states=tuple(
            State(tensor=builder.tensor(root), initial=begin, after=other or root)
            for root, begin, other in zip(roots, begins, lasting, strict=True)
        ),
        condition=held[0].tensor if conditional else None,
    )
    builder.append(node)
    return [held[own.index(place)] for place in ends_as], results


def _is_true(flag: Value) -> bool:
    return flag.array is not None and bool(flag.array.all())


@dataclass(frozen=True, kw_only=True)
class _Iteration:
    """The body of a scan as it was recorded, and what becomes of each state in it."""

    builder: GraphBuilder
    body: Recorded
    states: Sequence[Value]  # as the body reads them
    begins: Sequence[Value]  # what they are before the first iteration
    after: Sequence[Value]  # what they become
    results: Sequence[Value]  # the other results

    def of(self, places: Sequence[int]) -> _Iteration:
        """The same with some of the states."""
        return replace(
            self,
            states=[self.states[place] for place in places],
            begins=[self.begins[place] for place in places],
            after=[self.after[place] for place in places],
        )

    def ends_as(self) -> list[int]:
        """For each state the place of one that is the same after an iteration, its own if
        there is none. The body reads no state that is the same as another."""
        values = [value for value in (*self.after, *self.results) if value.array is None]
        read = {self.builder.root(name) for node in self.body.nodes for name in reads_of(node)}
        read |= {self.builder.root(value.tensor) for value in values}
        unread = [state.tensor not in read for state in self.states]
        first: dict[tuple[object, ...], int] = {}
        ends_as = [*range(len(self.states))]
        for place in sorted(ends_as, key=lambda place: unread[place]):
            state, value = self.states[place], self.after[place]
            how = _slice_of(state, self.begins[place], value)
            key = (*_elements(value), value.shape)
            if how is not None and how.content.array is None:
                key = (*_elements(how.whole), *_elements(how.content), how.start, how.step)
            key = (*key, state.shape, state.dtype)
            if value.array is None and first.setdefault(key, place) != place and unread[place]:
                ends_as[place] = first[key]
        return ends_as

    def replaced(self, counter: Value | None) -> dict[int, Written]:
        """The states of which a slice is replaced, by their places, that nothing else reads.

        `counter` is the number of the iteration, which must decide which slice it is.
        """
        replaced = {
            place: how
            for place, (state, begin, value) in enumerate(
                zip(self.states, self.begins, self.after, strict=True)
            )
            if (how := _slice_of(state, begin, value)) is not None
            and counter is not None
            and how.number.tensor == counter.tensor
            and how.content.array is None
            and _elements(how.whole) == _elements(state)
        }
        while replaced:
            others = [value for place, value in enumerate(self.after) if place not in replaced]
            values = [*others, *self.results, *(how.content for how in replaced.values())]
            needed = {
                self.builder.root(self.builder.plain(v).tensor) for v in values if v.array is None
            }
            for node in reversed(self.body.nodes):
                if needed & {*node.outputs}:
                    needed |= {self.builder.root(name) for name in reads_of(node)}
            read = {place for place in replaced if self.states[place].tensor in needed}
            if not read:
                break
            replaced = {place: how for place, how in replaced.items() if place not in read}
        return replaced


def _slice_of(state: Value, begin: Value, after: Value) -> Written | None:
    """The slice that is all that differs between what a state becomes and another tensor."""
    made = after.made
    if not isinstance(made, Written) or after.shape != state.shape:
        return None
    if made.zero_added and not (
        _elements(made.whole) == _elements(state) and is_never_negative_zero(begin)
    ):
        return None
    return made


def _elements(value: Value) -> tuple[object, ...]:
    """What tells views of tensors apart, whatever the indices along extents of 1 are."""
    units = {str(n): Const(0, "int64") for n, extent in enumerate(value.shape) if extent == 1}
    return (value.tensor, *(substitute(place, units) for place in value.access))


def _in_slices(builder: GraphBuilder, state: Value, how: Written) -> Value:
    """A tensor for the state whose first dimension counts slices, in the state's shape."""
    count = state.elements // how.content.elements
    shape = [count, how.content.elements]
    return reshape(builder.named("h", shape, state.dtype), state.shape)


def _lasting(builder: GraphBuilder, state: Value, after: Value, moving: set[str]) -> str:
    """The tensor that a state becomes; a number may become a vector of one. Another state or
    a slice is copied first, since these move while states are written."""
    if {after.shape, state.shape} == {(), (1,)}:
        after = reshape(after, state.shape)
    if (after.shape, after.dtype) != (state.shape, state.dtype):
        raise ValueError(
            f"a state of {state.dtype}{list(state.shape)} becomes {after.dtype}{list(after.shape)}"
        )
    plain = builder.plain(after)
    root = builder.root(plain.tensor)
    if root in moving and root != state.tensor:
        return builder.copied(after).tensor
    return root


def _own_result(builder: GraphBuilder, value: Value, body: Recorded, others: Sequence[str]) -> str:
    """The tensor of a value that a node of the body writes and no other result is."""
    root = builder.root(builder.plain(value).tensor)
    own = {name for node in body.nodes for name in node.outputs}
    return root if root in own - {*others} else builder.copied(value).tensor


def _hoist(builder: GraphBuilder, body: Recorded, moving: set[str], written: Sequence[str]) -> None:
    """Takes out of a scan's body what is the same in all iterations."""
    varying, nodes = {*moving}, []
    for node in body.nodes:
        reads = {builder.root(name) for name in reads_of(node)}
        if reads & varying or {*node.outputs} & {*written}:
            nodes.append(node)
            varying |= {*node.outputs}
        else:
            body.hoisted.append(node)
    body.nodes[:] = nodes


def _window(tensor: str, count: int, number: int, backward: Sequence[bool]) -> Window:
    """Slices of a tensor in the order of its input or result, one an iteration."""
    last_first = number < len(backward) and backward[number]
    start, step = (count - 1, -1) if last_first else (0, 1)
    return Window(tensor=tensor, start=start, step=step)


def _first(value: Value) -> Value:
    """The first slice."""
    if value.array is not None:
        return value.builder.constant(value.array[0], value.dtype)
    return value.view(value.shape[1:], lambda *i: (0, *i))


def _alone(value: Value) -> Value:
    """The value as the only slice."""
    if value.array is not None:
        return value.builder.constant(value.array[np.newaxis], value.dtype)
    return value.view((1, *value.shape), lambda *i: i[1:])
