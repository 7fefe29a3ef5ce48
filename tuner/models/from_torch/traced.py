"""Calls of a traced `torch.fx` graph: which are computed together, what tells them apart."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Order = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class TracedPart:
    """Calls of a traced graph that are computed together. A node's `meta["val"]` has its
    shape, dtype and strides."""

    nodes: Sequence[Any]  # of torch.fx, in the graph's order
    inputs: Sequence[Any]  # nodes that are tensors
    outputs: Sequence[Any]
    # The order of dimensions, the slowest first, of tensors that lie otherwise than traced.
    orders: Mapping[Any, Order] = field(default_factory=dict)
    as_computed: Collection[Any] = ()  # outputs that may lie in any order


TakenApart = Callable[[Any], TracedPart | None]
"""What a call is made of, if its operator has no expression: inputs in the order of the call's
`all_input_nodes`, an output for each result of the call, None for what nobody reads."""


def whole(node: Any) -> None:
    """Takes no call apart."""


def gotten_of(node: Any) -> set[int]:
    """Of a call with several results the places of those that somebody reads."""
    users = [user for user in node.users if user.target is operator.getitem and user.users]
    return {user.args[1] for user in users}


def described(node: Any) -> str:
    """A call with its tensors' kinds in place of their names: equal for calls that differ in
    the tensors' values alone."""
    import torch  # noqa: PLC0415  # loaded by whoever traced the graph

    places = {source: place for place, source in enumerate(node.all_input_nodes)}

    def kind(value: Any) -> str:
        if isinstance(value, list | tuple):
            return str([kind(part) for part in value])
        if not isinstance(value, torch.Tensor):
            return type(value).__name__
        strides = list(value.stride()) if value.layout == torch.strided else value.layout
        return f"{value.dtype}{list(value.shape)}{strides}{value.device}"

    def argument(source: Any) -> str:
        return f"{places[source]}:{kind(source.meta.get('val'))}"

    arguments = torch.fx.node.map_arg((node.args, node.kwargs), argument)
    result = kind(node.meta.get("val"))
    return f"{node.target} {arguments} {result} {sorted(gotten_of(node))}"
