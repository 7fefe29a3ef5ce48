"""Models compiled with regions that the float64 reference evaluates: no compiler takes part."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tuner.models.from_torch.region import memory_order
from tuner.models.from_torch.traced import Order
from tuner.models.reference.evaluation import evaluate_graph
from tuner.torch.compiling import RegionFunction, compiled
from tuner.torch.layouts import strides_of
from tuner.torch.partition import EagerCall, Partition, Region, partition
from tuner.torch.rebuilding import Function, of_pytorch, rebuilt


def evaluated(region: Region, eager: Function) -> Function:
    """A region as its graph of expressions computes it."""
    orders = region.part.orders
    given = [orders.get(node) or memory_order(node.meta["val"]) for node in region.part.inputs]
    made = [(node.meta["val"], orders.get(node)) for node in region.part.outputs]

    def function(*tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        arrays = [
            _array(tensor if order is None else tensor.permute(order))
            for tensor, order in zip(tensors, given, strict=True)
        ]
        with np.errstate(all="ignore"):
            values = evaluate_graph(region.graph, arrays)
        return tuple(
            _in_memory(values[name], meta, order)
            for name, (meta, order) in zip(region.graph.outputs, made, strict=True)
        )

    function.__name__ = "evaluated_region"
    return function


def _array(tensor: torch.Tensor) -> Any:
    plain = tensor.detach().contiguous()
    if plain.is_complex():
        plain = torch.view_as_real(plain)
    return plain.float().numpy() if plain.dtype == torch.bfloat16 else plain.numpy()


def _in_memory(array: Any, meta: torch.Tensor, given: Order | None) -> torch.Tensor:
    """The array, which is in the order of memory, with the strides of that order, or the traced
    tensor's."""
    order = given or memory_order(meta) or tuple(range(meta.dim()))
    strides = meta.stride() if given is None else strides_of(meta.shape, given)
    result = torch.empty_strided(meta.shape, strides, dtype=meta.dtype)
    stored = array.astype(np.float32) if meta.dtype == torch.bfloat16 else array
    stored = torch.from_numpy(np.ascontiguousarray(stored))
    if meta.is_complex():
        stored = torch.view_as_complex(stored.reshape(*stored.shape[: meta.dim()], 2))
    stored = stored.to(meta.dtype)
    result.permute(order).copy_(stored.reshape([meta.shape[axis] for axis in order]))
    return result


class Traced:
    """A backend for `torch.compile`; `parts` are the partitions that it made."""

    def __init__(self, function_of: RegionFunction, calls: int) -> None:
        self.parts: list[Partition] = []
        self.function_of = function_of
        self.calls = calls  # of dynamic shapes, until they are cut

    def __call__(self, module: torch.fx.GraphModule, inputs: Sequence[Any]) -> Function:
        return compiled(
            module,
            inputs,
            self.function_of,
            lambda traced, cut: self.parts.append(cut),
            calls=self.calls,
        )

    @property
    def regions(self) -> list[Region]:
        return [region for cut in self.parts for region in cut.regions]

    @property
    def left(self) -> list[EagerCall]:
        return [left for cut in self.parts for left in cut.left]


def compile_evaluated(
    model: Callable[..., Any], calls: int = 1
) -> tuple[Callable[..., Any], Traced]:
    return compile_traced(model, evaluated, calls)


def compile_traced(
    model: Callable[..., Any], function_of: RegionFunction, calls: int = 1
) -> tuple[Callable[..., Any], Traced]:
    torch._dynamo.reset()
    backend = Traced(function_of, calls)
    return torch.compile(model, backend=backend), backend


def evaluate_traced(function: Callable[..., Any], *inputs: Any) -> Any:
    """What a function of tensors gives where its operators are one region, evaluated.

    Raises AssertionError with the reason where an operator is left.
    """
    module = make_fx(function, tracing_mode="fake")(*inputs)
    cut = partition(module.graph)
    assert len(cut.regions) == 1 and not cut.left, cut.left
    functions = [evaluated(region, of_pytorch(module, region.part)) for region in cut.regions]
    return rebuilt(module, cut, functions)(*inputs)
