"""Scans: nodes that are computed once for each slice of their inputs, or while a
condition holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tuner.models.fusion import fuse, with_pairs
from tuner.models.nodes import Scan, State, Window, reads_of
from tuner.models.operators.builder import GraphBuilder, Recorded
from tuner.models.operators.movement import reshape
from tuner.models.operators.values import Value
from tuner.workload.expression import Tensor


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
) -> tuple[list[Value], list[Value]]:
    """States that each iteration computes from those of the one before, and from a
    slice along the first dimension of each input.

    `body(*slices, *states)` gives the new states and other results. Returned are the
    last states, and the results of all iterations, `[count, ...]`. Of inputs and
    results that are `backward` the last slice belongs to the first iteration. If it is
    `conditional`, the first state is a bool without which no further iteration begins;
    then there are no inputs and no results.

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
        lasting = [_lasting(builder, *pair, moving) for pair in zip(held, after, strict=True)]
        written: list[str] = []
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
        body_graph = builder.part(inner.nodes, [*lasting, *written])
    nodes = with_pairs(fuse(body_graph)).nodes
    for value, begin, other in zip(held, begins, lasting, strict=True):
        builder.note_sources(value.tensor, begin, other)
    alive = {builder.root(read) for node in nodes for read in reads_of(node)}
    alive |= {builder.root(other) for other in (*lasting, *written)}
    used = {other: window for other, window in windows.items() if other in alive}
    node = Scan(
        name=name,
        count=count,
        body=nodes,
        windows=used,
        shapes={other: builder.tensor(other) for other in used},
        sequences=tuple(sequences),
        states=tuple(
            State(tensor=builder.tensor(value.tensor), initial=begin, after=other)
            for value, begin, other in zip(held, begins, lasting, strict=True)
        ),
        condition=held[0].tensor if conditional else None,
    )
    builder.append(node)
    return held, results


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
