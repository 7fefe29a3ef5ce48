"""A traced graph with its regions as single calls, as a function of PyTorch."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tuner.models.from_torch.traced import TracedPart
from tuner.torch.partition import Node, Partition, Region

Function = Callable[..., Any]


def rebuilt(
    module: torch.fx.GraphModule, cut: Partition, functions: Sequence[Function]
) -> torch.fx.GraphModule:
    """The module with each region called as a function of its inputs; `functions` are in
    the order of the regions. Each returns a tuple of its outputs, and may write those that
    replace inputs over these: the others are copied there."""
    graph = torch.fx.Graph()
    values: dict[Node, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            values[node] = graph.node_copy(node)
    number = 0
    for step in cut.steps:
        if isinstance(step, Region):
            arguments = tuple(values[node] for node in step.part.inputs)
            call = graph.call_function(replacing(functions[number], step.replaced), arguments)
            unread = {place for place, _ in step.replaced}
            for place, output in enumerate(step.part.outputs):
                if place not in unread:
                    values[output] = graph.call_function(operator.getitem, (call, place))
            number += 1
        else:
            values[step] = graph.node_copy(step, lambda node: values[node])
    (end,) = (node for node in module.graph.nodes if node.op == "output")
    graph.node_copy(end, lambda node: values[node])
    return torch.fx.GraphModule(module, graph)


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


def of_pytorch(module: torch.fx.GraphModule, part: TracedPart) -> Function:
    """A region as PyTorch computes it: a tuple of its outputs."""
    graph = torch.fx.Graph()
    values = {node: graph.placeholder(node.name) for node in part.inputs}
    for node in part.nodes:
        values[node] = graph.node_copy(node, lambda node: values[node])
    graph.output(tuple(values[node] for node in part.outputs))
    forward: Function = torch.fx.GraphModule(module, graph).forward
    return forward
