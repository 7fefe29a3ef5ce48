"""Recurrent layers: the products of all inputs first, then a scan over time.

Layouts are ONNX's: x in time, batch, features; weights with their gates stacked in rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tuner.models.operators import elementwise as maps
from tuner.models.operators.contraction import einsum, matmul
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.movement import along, reshape, transpose, unsqueeze
from tuner.models.operators.reduction import reduce
from tuner.models.operators.scalars import Elem, cast_to, clamp, unary, where
from tuner.models.operators.scans import scan
from tuner.models.operators.values import Value

Activation = Callable[[Elem], Elem]
Step = Callable[..., tuple[list[Value], list[Value]]]  # of a slice and states: states, results


@dataclass(frozen=True, kw_only=True)
class Layer:
    """One direction of a layer. `inputs` is [gates * hidden, features], `states` [gates *
    hidden, state], the biases [gates * hidden]. A state is as wide as `hidden`, or as what
    a projection [state, hidden] makes of it."""

    inputs: Value
    states: Value
    input_bias: Value | None
    state_bias: Value | None
    hidden: int
    clip: float | None = None
    reverse: bool = False
    # Of the sequences of the batch, where they end before the last step: integers [batch].
    lengths: Value | None = None
    projection: Value | None = None
    # What products read of the inputs of all steps and of the states of all sequences, such as
    # their nearest integers' values. None: as they are.
    operand: Callable[[Value], Value] | None = None

    def clipped(self, e: Elem) -> Elem:
        return e if self.clip is None else clamp(e, -self.clip, self.clip)


def tanh(e: Elem) -> Elem:
    return unary("tanh", e)


def _projected(x: Value, layer: Layer, gates: int, bias: Sequence[Value | None]) -> Value:
    """The products of all inputs, [time, batch, gates, hidden]."""
    product, vectors = (
        matmul(_operand(x, layer), transpose(layer.inputs, [1, 0])),
        [v for v in bias if v is not None],
    )
    if vectors:
        product = elementwise("bias", _sum, product, elementwise("bias", _sum, *vectors))
    stored = x.builder.stored(product.materialized())
    return x.builder.alias(stored, [*x.shape[:2], gates, layer.hidden])


def _operand(x: Value, layer: Layer) -> Value:
    """What the products of all inputs read: what lies behind all sequences is zero there."""
    if layer.operand is None:
        return x
    if layer.lengths is not None:
        longest = reduce("longest", "max", layer.lengths, [0], keep=False)
        steps = x.builder.constant(np.arange(x.shape[0]), layer.lengths.dtype)
        x = elementwise(
            "within",
            lambda e, t, n: where(t < n, e, 0),
            x,
            reshape(steps, [x.shape[0], 1, 1]),
            longest,
        )
    return layer.operand(x)


def _sum(first: Elem, *rest: Elem) -> Elem:
    for element in rest:
        first = first + element
    return first


def _recurred(state: Value, layer: Layer, gates: Sequence[int]) -> Value:
    """The products of a state for some gates, [batch, gates, hidden]."""
    state = state if layer.operand is None else layer.operand(state)
    rows = along(layer.states, 0, gates[0] * layer.hidden, len(gates) * layer.hidden)
    if len(gates) == 1:
        return unsqueeze(matmul(state, transpose(rows, [1, 0])), [1])
    weights = reshape(transpose(rows, [1, 0]), [state.shape[1], len(gates), layer.hidden])
    return einsum("bk,kgh->bgh", state, weights)


def _by_gate(vector: Value, gates: int) -> Value:
    return reshape(vector, [1, gates, vector.shape[0] // gates])


def _gate(value: Value, number: int) -> Value:
    """One gate of [batch, gates, hidden]."""
    return reshape(along(value, 1, number, 1), [value.shape[0], value.shape[2]])


def _over_time(
    name: str,
    projected: Value,
    begins: Sequence[Value],
    step: Step,
    layer: Layer,
) -> tuple[Value, ...]:
    """The results of all steps, then the last states."""
    steps, inputs = projected.shape[0], [projected]
    if layer.lengths is not None:
        inputs.append(projected.builder.constant(np.arange(steps), layer.lengths.dtype))
        step = _within(step, reshape(layer.lengths, [layer.lengths.elements, 1]), layer)
    last, (every,) = scan(
        projected.builder,
        name,
        steps,
        inputs,
        begins,
        step,
        backward=[layer.reverse] * len(inputs),
        backward_results=[layer.reverse],
    )
    return (every, *last)


def _within(step: Step, lengths: Value, layer: Layer) -> Step:
    """The step where sequences, of lengths [batch, 1], have not ended. Where they have,
    states stay and the result is zero. Behind the step at which they end, an operand that
    depends on all states reads zeros of theirs."""

    def kept(number: Value, new: Value, old: Value | None) -> Value:
        rest = [] if old is None else [old]
        return elementwise(
            "within",
            lambda e, t, n, *before: where(t < n, e, before[0] if before else 0),
            new,
            number,
            lengths,
            *rest,
        )

    def limited(given: Value, number: Value, *states: Value) -> tuple[list[Value], list[Value]]:
        read = states
        if layer.operand is not None:
            read = tuple(
                elementwise("read", lambda e, t, n: where(t > n, 0, e), state, number, lengths)
                for state in states
            )
        after, results = step(given, *read)
        pairs = zip(after, states, strict=True)
        return [kept(number, new, old) for new, old in pairs], [
            kept(number, result, None) for result in results
        ]

    return limited


def _turned(x: Value, lengths: Value) -> Value:
    """Each sequence of x, [time, batch, features], from its end to its begin, so that an
    operand that depends on all meets them in step."""
    steps = x.shape[0]

    def body(t: Elem, b: Elem, k: Elem) -> Elem:
        count = cast_to("int64", lengths[b])
        return x[clamp(where(t < count, count - 1 - t, t), 0, steps - 1), b, k]

    return x.builder.compute("turned", x.shape, body, dtype=x.dtype)


def lstm(
    x: Value,
    layer: Layer,
    h0: Value,
    c0: Value,
    *,
    peepholes: Value | None = None,
    activations: Sequence[Activation] = (maps.sigmoid, tanh, tanh),
    couple: bool = False,
) -> tuple[Value, ...]:
    """Hochreiter and Schmidhuber, "Long Short-Term Memory", 1997; gates in the order input,
    output, forget, cell. Results of all steps [time, batch, hidden], the last state and the
    last cell."""
    if layer.operand is not None and layer.reverse and layer.lengths is not None:
        every, *last = lstm(
            _turned(x, layer.lengths),
            replace(layer, reverse=False),
            h0,
            c0,
            peepholes=peepholes,
            activations=activations,
            couple=couple,
        )
        return (_turned(every, layer.lengths), *last)
    f, g, h = activations
    projected = _projected(x, layer, 4, [layer.input_bias, layer.state_bias])

    def peephole(number: int) -> Value | None:
        return (
            None if peepholes is None else along(peepholes, 0, number * layer.hidden, layer.hidden)
        )

    def step(given: Value, state: Value, cell: Value) -> tuple[list[Value], list[Value]]:
        summed = elementwise("gates", lambda a, b: a + b, _recurred(state, layer, range(4)), given)
        i, o, forget, c = (_gate(summed, number) for number in range(4))

        def new_cell(ie: Elem, fe: Elem, ce: Elem, before: Elem, *holes: Elem) -> Elem:
            if holes:
                ie, fe = ie + holes[0] * before, fe + holes[1] * before
            kept = f(layer.clipped(ie))
            forgotten = 1 - kept if couple else f(layer.clipped(fe))
            return forgotten * before + kept * g(layer.clipped(ce))

        holes = [hole for hole in (peephole(0), peephole(2)) if hole is not None]
        after = elementwise("cell", new_cell, i, forget, c, cell, *holes)

        def new_state(oe: Elem, ce: Elem, *holes: Elem) -> Elem:
            if holes:
                oe = oe + holes[0] * ce
            return f(layer.clipped(oe)) * h(ce)

        outward = [hole for hole in (peephole(1),) if hole is not None]
        hidden = elementwise("state", new_state, o, after, *outward)
        if layer.projection is not None:
            hidden = matmul(hidden, transpose(layer.projection, [1, 0]))
        return [hidden, after], [hidden]

    return _over_time("lstm", projected, [h0, c0], step, layer)


def gru(
    x: Value,
    layer: Layer,
    h0: Value,
    *,
    activations: Sequence[Activation] = (maps.sigmoid, tanh),
    reset_after: bool = False,
) -> tuple[Value, ...]:
    """Cho et al., "Learning Phrase Representations using RNN Encoder-Decoder", 2014; gates
    in the order update, reset, hidden. With `reset_after` the reset gate multiplies the
    product of the state, else the state. Results of all steps and the last state."""
    f, g = activations
    size = layer.hidden
    projected = _projected(x, layer, 3, [layer.input_bias])

    def step(given: Value, state: Value) -> tuple[list[Value], list[Value]]:
        hidden = after_product(given, state) if reset_after else before_product(given, state)
        return [hidden], [hidden]

    def after_product(given: Value, state: Value) -> Value:
        """With the products of all gates at once."""
        products = _recurred(state, layer, range(3))
        if layer.state_bias is not None:
            products = elementwise("bias", _sum, products, _by_gate(layer.state_bias, 3))

        def blended(*e: Elem) -> Elem:
            z, r = f(layer.clipped(e[0] + e[3])), f(layer.clipped(e[1] + e[4]))
            return (1 - z) * g(layer.clipped(e[2] + r * e[5])) + z * e[6]

        parts = [_gate(value, number) for value in (given, products) for number in range(3)]
        return elementwise("state", blended, *parts, state)

    def before_product(given: Value, state: Value) -> Value:
        """With that of the hidden gate after the reset of the state."""
        values = [_recurred(state, layer, range(2)), along(given, 1, 0, 2)]
        inner = [_gate(given, 2)]
        if layer.state_bias is not None:
            values.append(along(_by_gate(layer.state_bias, 3), 1, 0, 2))
            inner.append(along(layer.state_bias, 0, 2 * size, size))
        gates = elementwise("gates", lambda *e: f(layer.clipped(_sum(*e))), *values)
        kept = elementwise("reset", lambda r, e: r * e, _gate(gates, 1), state)

        def blended(z: Elem, before: Elem, *e: Elem) -> Elem:
            return (1 - z) * g(layer.clipped(_sum(*e))) + z * before

        product = _gate(_recurred(kept, layer, [2]), 0)
        return elementwise("state", blended, _gate(gates, 0), state, product, *inner)

    return _over_time("gru", projected, [h0], step, layer)


def rnn(x: Value, layer: Layer, h0: Value, *, activation: Activation = tanh) -> tuple[Value, ...]:
    """Elman's layer: h = f(W x + R h + b)."""
    projected = _projected(x, layer, 1, [layer.input_bias, layer.state_bias])

    def step(given: Value, state: Value) -> tuple[list[Value], list[Value]]:
        values = [_gate(_recurred(state, layer, [0]), 0), _gate(given, 0)]
        hidden = elementwise("state", lambda a, b: activation(layer.clipped(a + b)), *values)
        return [hidden], [hidden]

    return _over_time("rnn", projected, [h0], step, layer)
