"""LSTM, GRU and RNN of ONNX, in one direction or two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from tuner.models.from_onnx.node import Convert, Node, Results
from tuner.models.operators import elementwise as maps
from tuner.models.operators import recurrent
from tuner.models.operators.builder import Value
from tuner.models.operators.movement import along, concatenate, reshape, transpose, unsqueeze
from tuner.models.operators.recurrent import Activation, Layer
from tuner.models.operators.scalars import Elem

_ACTIVATIONS: Mapping[str, Callable[..., Elem]] = {
    "affine": lambda e, alpha=1.0, beta=0.0: e * alpha + beta,
    "elu": lambda e, alpha=1.0, beta=0.0: maps.elu(e, alpha),
    "hardsigmoid": lambda e, alpha=0.2, beta=0.5: maps.hard_sigmoid(e, alpha, beta),
    "leakyrelu": lambda e, alpha=0.01, beta=0.0: maps.leaky_relu(e, alpha),
    "relu": lambda e, alpha=0.0, beta=0.0: maps.relu(e),
    "sigmoid": lambda e, alpha=0.0, beta=0.0: maps.sigmoid(e),
    "softplus": lambda e, alpha=0.0, beta=0.0: maps.softplus(e),
    "softsign": lambda e, alpha=0.0, beta=0.0: maps.softsign(e),
    "tanh": lambda e, alpha=0.0, beta=0.0: recurrent.tanh(e),
}

Direction = Callable[[Value, Layer, Sequence[Value], Sequence[Activation], int], Sequence[Value]]


def activations(node: Node, default: Sequence[str], directions: int) -> list[Activation]:
    """Of all directions, with the parameters that the node states."""
    names = [str(name) for name in node.attribute("activations", None) or [*default] * directions]
    alphas = list(node.attribute("activation_alpha", None) or [])
    betas = list(node.attribute("activation_beta", None) or [])
    result: list[Activation] = []
    for place, name in enumerate(names):
        if name.lower() not in _ACTIVATIONS:
            raise node.refusal(f"has the activation {name!r}")
        given = {}
        if place < len(alphas):
            given["alpha"] = float(alphas[place])
        if place < len(betas):
            given["beta"] = float(betas[place])
        result.append(partial(_ACTIVATIONS[name.lower()], **given))
    return result


def converted(node: Node, states: int, default: Sequence[str], direction: Direction) -> Results:
    """The layer's results for all directions: of each step, then the last states."""
    x = node[0]
    by_batch = bool(node.attribute("layout", 0))
    if by_batch:
        x = transpose(x, [1, 0, 2])
    steps, batch = x.shape[:2]
    lengths = node.optional(4)
    if lengths is not None and (lengths.array is None or not np.all(lengths.array == steps)):
        raise node.refusal("has sequences of several lengths; export it for one length")
    which = str(node.attribute("direction", "forward"))
    reversals = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[which]
    hidden = node[2].shape[2]
    given = activations(node, default, len(reversals))
    each = len(default)
    every, last = [], []
    for number, reverse in enumerate(reversals):
        bias = node.optional(3)
        halves: list[Value | None] = [None, None]
        if bias is not None:
            row = _row(bias, number)
            half = row.shape[0] // 2
            halves = [along(row, 0, place * half, half) for place in range(2)]
        layer = Layer(
            inputs=_row(node[1], number),
            states=_row(node[2], number),
            input_bias=halves[0],
            state_bias=halves[1],
            hidden=hidden,
            clip=node.attribute("clip", None),
            reverse=reverse,
        )
        begins = [
            _begin(node, 5 + place, number, batch, hidden, by_batch) for place in range(states)
        ]
        chosen = given[number * each : (number + 1) * each]
        results = direction(x, layer, begins, chosen, number)
        every.append(unsqueeze(results[0], [1]))
        last.append([unsqueeze(state, [0]) for state in results[1:]])
    together = concatenate(every, 1)
    finals = [concatenate([states_of[place] for states_of in last], 0) for place in range(states)]
    if by_batch:
        together = transpose(together, [2, 0, 1, 3])
        finals = [transpose(final, [1, 0, 2]) for final in finals]
    return [together, *finals]


def _row(value: Value, number: int) -> Value:
    return reshape(along(value, 0, number, 1), value.shape[1:])


def _begin(node: Node, place: int, number: int, batch: int, hidden: int, by_batch: bool) -> Value:
    given = node.optional(place)
    if given is None:
        return node.builder.constant(np.zeros((batch, hidden)), node[0].dtype)
    return _row(transpose(given, [1, 0, 2]) if by_batch else given, number)


def lstm(node: Node) -> Results:
    holes = node.optional(7)

    def direction(
        x: Value, layer: Layer, begins: Sequence[Value], given: Sequence[Activation], number: int
    ) -> Sequence[Value]:
        return recurrent.lstm(
            x,
            layer,
            *begins,
            peepholes=None if holes is None else _row(holes, number),
            activations=given,
            couple=bool(node.attribute("input_forget", 0)),
        )

    return converted(node, 2, ["Sigmoid", "Tanh", "Tanh"], direction)


def gru(node: Node) -> Results:
    def direction(
        x: Value, layer: Layer, begins: Sequence[Value], given: Sequence[Activation], number: int
    ) -> Sequence[Value]:
        after = bool(node.attribute("linear_before_reset", 0))
        return recurrent.gru(x, layer, begins[0], activations=given, reset_after=after)

    return converted(node, 1, ["Sigmoid", "Tanh"], direction)


def rnn(node: Node) -> Results:
    def direction(
        x: Value, layer: Layer, begins: Sequence[Value], given: Sequence[Activation], number: int
    ) -> Sequence[Value]:
        return recurrent.rnn(x, layer, begins[0], activation=given[0])

    return converted(node, 1, ["Tanh"], direction)


TABLE: Mapping[str, Convert] = {"GRU": gru, "LSTM": lstm, "RNN": rnn}
