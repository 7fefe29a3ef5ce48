"""LSTM, GRU and RNN of ONNX, in one direction or two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tuner.models.from_onnx.node import Convert, Node, Results
from tuner.models.operators import elementwise as maps
from tuner.models.operators import recurrent
from tuner.models.operators.movement import along, concatenate, reshape, transpose, unsqueeze
from tuner.models.operators.recurrent import Activation, Layer
from tuner.models.operators.scalars import Elem, where
from tuner.models.operators.values import Value

# Functions of an element and of the parameters that they take, alpha and then beta.
_ACTIVATIONS: Mapping[str, tuple[Callable[..., Elem], tuple[float, ...]]] = {  # defaults
    "affine": (lambda e, alpha, beta: e * alpha + beta, (1.0, 0.0)),
    "elu": (maps.elu, (1.0,)),
    "hardsigmoid": (maps.hard_sigmoid, (0.2, 0.5)),
    "leakyrelu": (maps.leaky_relu, (0.01,)),
    "relu": (maps.relu, ()),
    "scaledtanh": (lambda e, alpha, beta: recurrent.tanh(e * beta) * alpha, (1.0, 1.0)),
    "sigmoid": (maps.sigmoid, ()),
    "softplus": (maps.softplus, ()),
    "softsign": (maps.softsign, ()),
    "tanh": (recurrent.tanh, ()),
    "thresholdedrelu": (lambda e, alpha: where(e > alpha, e, 0), (1.0,)),
}

Direction = Callable[[Value, Layer, Sequence[Value], Sequence[Activation], int], Sequence[Value]]


def activations(node: Node, default: Sequence[str], directions: int) -> list[Activation]:
    """Of all directions. Those that take parameters consume the node's in their order."""
    names = [str(name) for name in node.attribute("activations", None) or [*default] * directions]
    given = [
        iter(node.attribute(name, None) or []) for name in ("activation_alpha", "activation_beta")
    ]
    result: list[Activation] = []
    for name in names:
        if name.lower() not in _ACTIVATIONS:
            raise node.refusal(f"has the activation {name!r}")
        function, defaults = _ACTIVATIONS[name.lower()]
        parameters = [
            float(next(values, other)) for values, other in zip(given, defaults, strict=False)
        ]
        result.append(_with(function, parameters))
    return result


def _with(function: Callable[..., Elem], parameters: Sequence[float]) -> Activation:
    return lambda e: function(e, *parameters)


def converted(
    node: Node,
    states: int,
    default: Sequence[str],
    direction: Direction,
    operand: Callable[[Value], Value] | None = None,
) -> Results:
    """The layer's results for all directions: of each step, then the last states.

    `operand` gives what products read of the inputs and of a state.
    """
    x = node[0]
    by_batch = bool(node.attribute("layout", 0))
    if by_batch:
        x = transpose(x, [1, 0, 2])
    steps, batch = x.shape[:2]
    lengths = node.optional(4)
    if lengths is not None and lengths.array is not None and np.all(lengths.array == steps):
        lengths = None
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
            lengths=lengths,
            operand=operand,
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


def lstm(node: Node, operand: Callable[[Value], Value] | None = None) -> Results:
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

    return converted(node, 2, ["Sigmoid", "Tanh", "Tanh"], direction, operand)


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
