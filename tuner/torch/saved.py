"""Tensors that a forward graph computes for its backward graph alone.

Nobody else sees them, so they need not lie in memory as the trace has them. A convolution is
computed with its channels last, and so are its derivatives: where the trace has them in front,
that would cost a copy in each of the two graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch._functorch.partitioners import min_cut_rematerialization_partition

from tuner.models.from_torch.traced import Order


class SavedTensors:
    """Those of one graph of Dynamo's. A node has the same name in both of its graphs."""

    def __init__(self) -> None:
        self.names: frozenset[str] = frozenset()
        self._orders: dict[str, Order] = {}

    def partition(
        self, joint: torch.fx.GraphModule, inputs: Any, *, num_fwd_outputs: int, **more: Any
    ) -> tuple[torch.fx.GraphModule, torch.fx.GraphModule]:
        """The forward and the backward graph, as AOTAutograd has its joint graph divided."""
        forward, backward = min_cut_rematerialization_partition(
            joint, inputs, num_fwd_outputs=num_fwd_outputs, **more
        )
        (end,) = (node for node in forward.graph.nodes if node.op == "output")
        (results,) = end.args
        shown, kept = results[:num_fwd_outputs], results[num_fwd_outputs:]
        self.names = frozenset(
            node.name for node in kept if node.op == "call_function" and node not in shown
        )
        return forward, backward

    def note(self, orders: Mapping[Any, Order]) -> None:
        """Keeps the orders of dimensions in which nodes of the forward graph lie."""
        self._orders |= {node.name: order for node, order in orders.items()}

    def given(self, graph: torch.fx.Graph) -> dict[Any, Order]:
        """The orders of the inputs of a graph that were noted."""
        return {
            node: self._orders[node.name]
            for node in graph.nodes
            if node.op == "placeholder" and node.name in self._orders
        }
