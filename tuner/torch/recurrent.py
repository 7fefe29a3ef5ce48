"""Recurrent layers as single calls of a graph: in inference they are operators of their own.

Dynamo traces them where `torch._dynamo.config.allow_rnn` is set, which is its user's choice.
PyTorch takes them apart then, into hundreds of steps or a call of oneDNN's, whose derivative
AOTAutograd does not take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch

_OPTIONS = (
    "bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, "
    "bool batch_first"
)
_STATES: Mapping[str, str] = {
    "lstm": "Tensor[] hx",
    "gru": "Tensor hx",
    "rnn_tanh": "Tensor hx",
    "rnn_relu": "Tensor hx",
}
_LIBRARY = torch.library.Library("tuner", "FRAGMENT")


def _define() -> dict[Callable[..., Any], Any]:
    """The operators by PyTorch's functions."""
    operators = {}
    for name, states in _STATES.items():
        results = "(Tensor, Tensor, Tensor)" if name == "lstm" else "(Tensor, Tensor)"
        _LIBRARY.define(f"{name}(Tensor input, {states}, Tensor[] params, {_OPTIONS}) -> {results}")
        function = getattr(torch, name)
        _LIBRARY.impl(name, function, "CPU")
        _LIBRARY.impl(name, partial(_shapes, name), "Meta")
        operators[function] = getattr(torch.ops.tuner, name).default
    return operators


def _shapes(name: str, x: Any, states: Any, params: Any, *options: Any) -> tuple[Any, ...]:
    """Results as PyTorch's functions make them, without values."""
    *_, bidirectional, batch_first = options
    first = list(states) if name == "lstm" else [states]
    width = first[0].shape[-1] * (2 if bidirectional else 1)
    steps = x.new_empty(*x.shape[:-1], width)
    if batch_first:  # computed with the steps first
        steps = x.new_empty(x.shape[1], x.shape[0], width).transpose(0, 1)
    return (steps, *(state.new_empty(state.shape) for state in first))


_OPERATORS = _define()


def recurrent_calls(graph: torch.fx.Graph) -> list[Any]:
    """The calls of recurrent layers in a graph of Dynamo's."""
    return [node for node in graph.nodes if node.target in _OPERATORS]


def kept_whole(module: torch.fx.GraphModule) -> torch.fx.GraphModule | None:
    """A graph of Dynamo's with its recurrent layers as single calls. None where one is of
    packed sequences, draws numbers, or is under autocast."""
    graph, calls = module.graph, recurrent_calls(module.graph)
    autocast = torch.is_autocast_enabled("cpu") or _has_autocast(graph)
    if autocast or not all(map(_is_plain, calls)):
        return None
    copied = torch.fx.Graph()
    values: dict[Any, Any] = {}
    for node in graph.nodes:
        values[node] = copied.node_copy(node, lambda node: values[node])
        if node in calls:
            values[node].target = _OPERATORS[node.target]
    return torch.fx.GraphModule(module, copied)


def _is_plain(node: Any) -> bool:
    """Whether a call is of a batch of sequences of one length, without dropout, on the CPU."""
    if len(node.args) != 9 or node.kwargs:
        return False
    x, states, parameters, _, _, dropout, train, *_ = node.args
    given = states if isinstance(states, list | tuple) else [states]
    if not isinstance(parameters, list | tuple) or (train and dropout):
        return False  # its second argument is the lengths of packed sequences, or it is random
    tensors = [source.meta.get("example_value") for source in (x, *given, *parameters)]
    return (
        all(
            isinstance(tensor, torch.Tensor) and tensor.is_cpu and tensor.dim() > 0
            for tensor in tensors
        )
        and tensors[0].dim() == 3
    )


def _has_autocast(graph: torch.fx.Graph) -> bool:
    return any(node.target is torch.amp.autocast_mode._enter_autocast for node in graph.nodes)
