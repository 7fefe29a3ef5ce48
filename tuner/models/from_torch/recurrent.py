"""`torch.lstm`, `torch.gru` and Elman's layers: several layers, in one direction or two."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tuner.models.from_torch.call import Call, Convert, Results
from tuner.models.operators import elementwise as maps
from tuner.models.operators import recurrent
from tuner.models.operators.movement import along, concatenate, reshape, transpose, unsqueeze
from tuner.models.operators.recurrent import Layer
from tuner.models.operators.values import Value

# The gates of PyTorch in the order of `operators.recurrent`.
_LSTM, _GRU, _RNN = (0, 3, 1, 2), (1, 0, 2), (0,)

Direction = Callable[[Value, Layer, Sequence[Value]], Sequence[Value]]


def _reordered(value: Value, gates: Sequence[int]) -> Value:
    size = value.shape[0] // len(gates)
    return concatenate([along(value, 0, gate * size, size) for gate in gates], 0)


def converted(call: Call, states: Sequence[Value], gates: Sequence[int], run: Direction) -> Results:
    """The last layer's results of all steps, then the last states of all layers."""
    x = call.value("input")
    if call.get("batch_first"):
        x = transpose(x, [1, 0, 2])
    parameters: Sequence[Value] = call["params"]
    biases = 2 if call["has_biases"] else 0
    projected = len({state.shape[-1] for state in states}) > 1  # of an LSTM's state, not its cell
    each = 2 + biases + projected
    directions = 2 if call["bidirectional"] else 1
    last: list[list[Value]] = []
    for number in range(call["num_layers"]):
        outputs = []
        for direction in range(directions):
            place = number * directions + direction
            own = parameters[place * each : (place + 1) * each]
            given = [_reordered(value, gates) for value in own[: 2 + biases]]
            layer = Layer(
                inputs=given[0],
                states=given[1],
                input_bias=given[2] if biases else None,
                state_bias=given[3] if biases else None,
                hidden=given[1].shape[0] // len(gates),
                reverse=bool(direction),
                projection=own[-1] if projected else None,
            )
            begins = [reshape(along(state, 0, place, 1), state.shape[1:]) for state in states]
            every, *finals = run(x, layer, begins)
            outputs.append(every)
            last.append([unsqueeze(final, [0]) for final in finals])
        x = outputs[0] if directions == 1 else concatenate(outputs, 2)
    if call.get("batch_first"):
        x = transpose(x, [1, 0, 2])
    finals = [concatenate([layer[place] for layer in last], 0) for place in range(len(states))]
    return [x, *finals]


def lstm(call: Call) -> Results:
    return converted(
        call, call["hx"], _LSTM, lambda x, layer, begins: recurrent.lstm(x, layer, *begins)
    )


def gru(call: Call) -> Results:
    def run(x: Value, layer: Layer, begins: Sequence[Value]) -> Sequence[Value]:
        return recurrent.gru(x, layer, begins[0], reset_after=True)

    return converted(call, [call["hx"]], _GRU, run)


def elman(activation: recurrent.Activation) -> Convert:
    def convert(call: Call) -> Results:
        def run(x: Value, layer: Layer, begins: Sequence[Value]) -> Sequence[Value]:
            return recurrent.rnn(x, layer, begins[0], activation=activation)

        return converted(call, [call["hx"]], _RNN, run)

    return convert


_LAYERS: Mapping[str, Convert] = {
    "gru": gru,
    "lstm": lstm,
    "rnn_relu": elman(maps.relu),
    "rnn_tanh": elman(recurrent.tanh),
}

# Of `torch.export`, and of the backend's own operators (tuner/torch/recurrent.py).
TABLE: Mapping[str, Convert] = {
    **{f"aten.{name}.input": convert for name, convert in _LAYERS.items()},
    **{f"tuner.{name}.default": convert for name, convert in _LAYERS.items()},
}
