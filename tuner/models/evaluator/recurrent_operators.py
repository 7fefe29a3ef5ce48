"""`LSTM`, `GRU` and `RNN` for ONNX's reference evaluator, whose own leave out lengths of
sequences, clipping, activations and coupled gates without a word."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx.reference.op_run import OpRun

Array = np.ndarray[Any, np.dtype[Any]]
Function = Callable[..., Array]

# Functions of an array and of the parameters that they take, with these parameters' defaults.
_ACTIVATIONS: Mapping[str, tuple[Function, tuple[float, ...]]] = {
    "affine": (lambda a, alpha, beta: alpha * a + beta, (1.0, 0.0)),
    "elu": (lambda a, alpha: np.where(a >= 0, a, alpha * np.expm1(np.minimum(a, 0))), (1.0,)),
    "hardsigmoid": (lambda a, alpha, beta: np.clip(alpha * a + beta, 0, 1), (0.2, 0.5)),
    "leakyrelu": (lambda a, alpha: np.where(a >= 0, a, alpha * a), (0.01,)),
    "relu": (lambda a: np.maximum(a, 0), ()),
    "scaledtanh": (lambda a, alpha, beta: alpha * np.tanh(beta * a), (1.0, 1.0)),
    "sigmoid": (lambda a: 1 / (1 + np.exp(-a)), ()),
    "softplus": (lambda a: np.logaddexp(a, 0), ()),
    "softsign": (lambda a: a / (1 + np.abs(a)), ()),
    "tanh": (np.tanh, ()),
    "thresholdedrelu": (lambda a, alpha: np.where(a > alpha, a, 0), (1.0,)),
}


def recurrent_operators() -> list[type[OpRun]]:
    return [LSTM, GRU, RNN]


@dataclass(frozen=True, kw_only=True)
class _Weights:
    """Of one direction, in float64: the state's product and bias, and the functions."""

    states: Array  # [gates * hidden, hidden]
    bias: Array  # [gates * hidden]
    peepholes: Array  # [3, hidden]
    functions: tuple[Function, ...]


class _Recurrent(OpRun):  # type: ignore[misc]  # onnx has no types here
    op_domain = ""
    gates: int
    states: int
    defaults: tuple[str, ...]

    @abstractmethod
    def step(self, x: Array, held: list[Array], weights: _Weights) -> list[Array]:
        """The states after a step. `x` is the input's product, [batch, gates * hidden]."""

    def _run(
        self, x: Array, w: Array, r: Array, b: Array | None = None, lengths: Array | None = None,
        *rest: Array | None, **given: Any,
    ) -> tuple[Array, ...]:  # fmt: skip
        values = x.swapaxes(0, 1) if given.get("layout") else x
        (steps, batch), (directions, _, hidden) = values.shape[:2], r.shape
        ends = np.full(batch, steps) if lengths is None else lengths
        biases = np.zeros((directions, 2, self.gates * hidden)) if b is None else b
        biases = biases.reshape(directions, 2, -1).astype(np.float64)
        initial, peepholes = list(rest[: self.states]), rest[self.states :]
        held_first = [
            np.zeros((directions, batch, hidden)) if value is None
            else (value.swapaxes(0, 1) if given.get("layout") else value)
            for value in (*initial, *[None] * (self.states - len(initial)))
        ]  # fmt: skip
        holes = np.zeros((directions, 3, hidden))
        if peepholes and peepholes[0] is not None:
            holes = peepholes[0].reshape(directions, 3, hidden)
        functions = self.functions(directions, given)
        every = np.zeros((steps, directions, batch, hidden))
        last = []
        for d in range(directions):
            weights = _Weights(
                states=r[d].astype(np.float64), bias=biases[d, 1], peepholes=holes[d],
                functions=functions[d * len(self.defaults) : (d + 1) * len(self.defaults)],
            )  # fmt: skip
            products = values.astype(np.float64) @ w[d].T.astype(np.float64) + biases[d, 0]
            held = [value[d].astype(np.float64) for value in held_first]
            backward = d == 1 or given.get("direction") == "reverse"
            for t in reversed(range(steps)) if backward else range(steps):
                going = (t < ends)[:, None]
                after = self.step(products[t], held, weights)
                held = [np.where(going, new, old) for new, old in zip(after, held, strict=True)]
                every[t, d] = np.where(going, held[0], 0)
            last.append(held)
        finals = [np.stack([held[number] for held in last]) for number in range(self.states)]
        if given.get("layout"):
            every = every.transpose(2, 0, 1, 3)
            finals = [final.swapaxes(0, 1) for final in finals]
        count = len(self.onnx_node.output)
        return tuple(result.astype(x.dtype) for result in (every, *finals)[:count])

    def functions(self, directions: int, given: Mapping[str, Any]) -> tuple[Function, ...]:
        """Of all directions. Those of gates work on what the clip leaves of their argument;
        that of an LSTM's cell is not clipped, as ONNX Runtime has it."""
        names = given.get("activations") or [*self.defaults] * directions
        parameters = [
            iter(given.get(name) or ()) for name in ("activation_alpha", "activation_beta")
        ]
        clip = given.get("clip")
        each = len(self.defaults)
        return tuple(
            _activation(name, parameters, clip if place % each < 2 else None)
            for place, name in enumerate(names)
        )


def _activation(name: str, parameters: Sequence[Any], clip: float | None) -> Function:
    function, defaults = _ACTIVATIONS[name.lower()]
    own = [next(values, other) for values, other in zip(parameters, defaults, strict=False)]
    if clip is None:
        return lambda a: function(a, *own)
    return lambda a: function(np.clip(a, -clip, clip), *own)


class LSTM(_Recurrent):
    gates, states, defaults = 4, 2, ("Sigmoid", "Tanh", "Tanh")

    def step(self, x: Array, held: list[Array], weights: _Weights) -> list[Array]:
        state, cell = held
        i, o, f, c = np.split(x + state @ weights.states.T + weights.bias, 4, axis=1)
        gate, inner, outer = weights.functions
        kept = gate(i + weights.peepholes[0] * cell)
        forgotten = 1 - kept if self.input_forget else gate(f + weights.peepholes[2] * cell)
        after = forgotten * cell + kept * inner(c)
        return [gate(o + weights.peepholes[1] * after) * outer(after), after]


class GRU(_Recurrent):
    gates, states, defaults = 3, 1, ("Sigmoid", "Tanh")

    def step(self, x: Array, held: list[Array], weights: _Weights) -> list[Array]:
        (state,), hidden = held, weights.states.shape[1]
        gate, inner = weights.functions
        pair = x[:, : 2 * hidden] + weights.bias[: 2 * hidden]
        update, reset = np.split(gate(pair + state @ weights.states[: 2 * hidden].T), 2, axis=1)
        rows, bias = weights.states[2 * hidden :].T, weights.bias[2 * hidden :]
        after = self.linear_before_reset
        product = reset * (state @ rows + bias) if after else (reset * state) @ rows + bias
        return [(1 - update) * inner(x[:, 2 * hidden :] + product) + update * state]


class RNN(_Recurrent):
    gates, states, defaults = 1, 1, ("Tanh",)

    def step(self, x: Array, held: list[Array], weights: _Weights) -> list[Array]:
        return [weights.functions[0](x + held[0] @ weights.states.T + weights.bias)]
