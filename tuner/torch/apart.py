"""Calls of PyTorch's operators taken apart into those that expressions are made of.

What PyTorch computes in one kernel stays one call of a traced graph, so that PyTorch computes
it as it does without compilation. Only who reads a call as an expression takes it apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import _disable_current_modes

from tuner.models.errors import ModelRefused
from tuner.models.from_torch.traced import TracedPart, described, gotten_of


class Apart:
    """Gives the parts of a call; equal calls are traced once."""

    def __init__(self, rules: Mapping[Any, Callable[..., Any]]) -> None:
        """`rules` say what operators are made of."""
        self._rules = rules
        self._parts: dict[str, TracedPart | None] = {}

    def __call__(self, node: Any) -> TracedPart | None:
        """The calls that a call is made of; None where no rule takes it apart. Raises
        ModelRefused where one fails."""
        if node.target not in self._rules:
            return None
        key = described(node)
        if key not in self._parts:
            self._parts[key] = self._traced(node)
        return self._parts[key]

    def _traced(self, node: Any) -> TracedPart | None:
        sources = node.all_input_nodes
        tensors = [source.meta["val"] for source in sources]
        modes = [tensor.fake_mode for tensor in tensors if isinstance(tensor, FakeTensor)]
        mode = modes[0] if modes else FakeTensorMode()

        def function(*given: Any) -> Any:
            values = dict(zip(sources, given, strict=True))
            return node.target(
                *torch.fx.node.map_arg(node.args, values.__getitem__),
                **torch.fx.node.map_arg(node.kwargs, values.__getitem__),
            )

        with _disable_current_modes(), torch.no_grad(), mode:
            fakes = [
                tensor if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor)
                for tensor in tensors
            ]
            try:
                graph = make_fx(function, decomposition_table=self._rules)(*fakes).graph
            except Exception as error:  # the model goes on, whatever a rule of PyTorch's raises
                raise ModelRefused(
                    f"operator {node.target} ({node.name!r}) cannot be taken apart: {error}"
                ) from error
        (end,) = (each for each in graph.nodes if each.op == "output")
        (results,) = end.args
        several = isinstance(node.meta["val"], list | tuple)
        gotten = gotten_of(node) if several else {0}
        given = results if several else [results]
        results = [each if place in gotten else None for place, each in enumerate(given)]
        if any(results[place] is None for place in gotten):
            return None  # the rule does not give what somebody reads
        end.args = (results,)
        graph.eliminate_dead_code()
        nodes = [each for each in graph.nodes if each.op not in ("placeholder", "output")]
        if any(each.target is node.target for each in nodes):  # the rule does not take this call
            return None
        return TracedPart(
            nodes=nodes,
            inputs=[each for each in graph.nodes if each.op == "placeholder"],
            outputs=results,
        )
