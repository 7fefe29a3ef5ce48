"""A traced graph with its regions as single calls, as a function of PyTorch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tuner.models.from_torch.traced import TracedPart
from tuner.torch.layouts import lying_as
from tuner.torch.partition import Node, Partition, Region

Function = Callable[..., Any]


def rebuilt(
    module: torch.fx.GraphModule, cut: Partition, functions: Sequence[Function]
) -> torch.fx.GraphModule:
    """The module with each region called as a function of its inputs; `functions` are in
    the order of the regions. Each returns a tuple of its outputs, and leaves those that replace
    inputs in these (`replacing`)."""
    graph = torch.fx.Graph()
    values: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = graph.node_copy(node)
            if node.target.startswith("tangents"):  # as AOTAutograd names a backward graph's
                values[node] = graph.call_function(_plain, (values[node],))
    traced: dict[Node, Node] = {}  # of what lies otherwise: copies for PyTorch

    def as_traced(node: Node) -> Node:
        if node not in cut.orders:
            return values[node]
        if node not in traced:
            traced[node] = _lying_as_traced(graph, values[node], node)
        return traced[node]

    number = 0
    for step in cut.steps:
        if isinstance(step, Region):
            arguments = tuple(values[node] for node in step.part.inputs)
            call = graph.call_function(functions[number], arguments)
            unread = {place for place, _ in step.replaced}
            for place, output in enumerate(step.part.outputs):
                if place not in unread:
                    values[output] = graph.call_function(operator.getitem, (call, place))
            number += 1
        else:
            # What lies otherwise and is PyTorch's is an alias.
            given = values.__getitem__ if step in cut.orders else as_traced
            values[step] = graph.node_copy(step, given)
    (end,) = (node for node in module.graph.nodes if node.op == "output")
    # The backward graph takes what regions made, and gives it to nobody else.
    graph.node_copy(end, lambda node: as_traced(node) if node.op == "placeholder" else values[node])
    return torch.fx.GraphModule(module, graph)


def _plain(gradient: torch.Tensor) -> torch.Tensor:
    """A gradient that lies in memory as it is. One from outside may have a bit that says that its
    memory holds the conjugate or the negative: no trace has it, and no library sees it."""
    return gradient.resolve_conj().resolve_neg()


def _lying_as_traced(graph: torch.fx.Graph, value: Node, node: Node) -> Node:
    """The value of a node with the strides that it was traced with."""
    return graph.call_function(lying_as, (value, tuple(node.meta["val"].stride())))


def replacing(function: Function, replaced: Sequence[tuple[int, int]]) -> Function:
    """The function of a region, after whose calls outputs are where the inputs were that they
    replace, each pair by its numbers."""
    if not replaced:
        return function

    def replacing_function(*tensors: Any) -> Any:
        results = function(*tensors)
        for output, number in replaced:
            result, old = results[output], tensors[number]
            if result is not old:
                old.copy_(result)
        return results

    return replacing_function


class OfPyTorch:
    """A region as PyTorch computes it: a tuple of its outputs, all of them new tensors."""

    def __init__(self, function: Function, uncompiled: Function | None = None) -> None:
        """`uncompiled` is what PyTorch runs without compilation where that is not `function`: it
        writes the results over the inputs that they replace, and gives nothing."""
        self._function, self.uncompiled = function, uncompiled

    def __call__(self, *tensors: Any) -> Any:
        return self._function(*tensors)


def of_pytorch(module: torch.fx.GraphModule, part: TracedPart) -> Function:
    """A region as PyTorch computes it, of tensors that lie as traced: a tuple of its outputs."""
    forward: Function = eager_module(module, part).forward
    return forward


def eager_module(module: torch.fx.GraphModule, part: TracedPart) -> torch.fx.GraphModule:
    """A region as a module of PyTorch's own."""
    graph = torch.fx.Graph()
    values = {node: graph.placeholder(node.name) for node in part.inputs}
    for node in part.inputs:
        if node in part.orders:
            values[node] = _lying_as_traced(graph, values[node], node)
    for node in part.nodes:
        values[node] = graph.node_copy(node, lambda node: values[node])
    graph.output(tuple(values[node] for node in part.outputs))
    return torch.fx.GraphModule(module, graph)


def uncompiled_of(
    module: torch.fx.GraphModule, traced: torch.fx.GraphModule, cut: Partition
) -> Function | None:
    """A graph of Dynamo's as a function of the inputs of its only region; `traced` is the graph
    made functional. None where the region is not all of it, or where it gives results."""
    (end,) = (node for node in traced.graph.nodes if node.op == "output")
    steps = [step for step in cut.steps if isinstance(step, Region) or step.op != "get_attr"]
    if end.all_input_nodes or len(steps) != 1 or not isinstance(steps[0], Region):
        return None
    given = steps[0].part.inputs
    places = [node for node in traced.graph.nodes if node.op == "placeholder"]
    graph = _with_attributes_given(module)
    count = sum(node.op == "placeholder" for node in graph.nodes)
    if count != len(places) or {*places} != {*given}:  # some are the same, or are not read
        return None
    order = [given.index(node) for node in places]
    forward = torch.fx.GraphModule(module, graph).forward

    def uncompiled(*tensors: Any) -> Any:
        return forward(*[tensors[number] for number in order])

    return uncompiled


def _with_attributes_given(module: torch.fx.GraphModule) -> torch.fx.Graph:
    """The graph, which takes parameters and buffers first, as AOTAutograd has them."""
    graph = torch.fx.Graph()
    owned = [*module.named_parameters(remove_duplicate=False)]
    owned += module.named_buffers(remove_duplicate=False)
    places = {name: graph.placeholder(f"own_{number}") for number, (name, _) in enumerate(owned)}
    values: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "get_attr" and node.target in places:
            values[node] = places[node.target]
        else:
            values[node] = graph.node_copy(node, lambda node: values[node])
    return graph
