"""A graph of Dynamo's, taken apart, cut into regions, and put together as a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._functorch.partitioners import min_cut_rematerialization_partition

from tuner.torch.decompositions import decompositions, is_training
from tuner.torch.notices import Notices
from tuner.torch.partition import Left, Partition, Region, partition
from tuner.torch.rebuilding import Function, of_pytorch, rebuilt
from tuner.torch.recurrent import kept_whole, recurrent_calls
from tuner.torch.shapes import ByShape, is_dynamic

RegionFunction = Callable[[Region, Function], Function]
"""What computes a region, given what PyTorch computes it by."""

Observer = Callable[[torch.fx.GraphModule, Partition], object]
"""Is called with each traced graph and its partition."""


def compiled(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    function_of: RegionFunction,
    observer: Observer = lambda module, cut: None,
    *,
    notices: Notices | None = None,
    calls: int = 2,
) -> Function:
    """The function of a graph of Dynamo's; forward and backward graphs are cut alike.

    One with dynamic shapes is cut for each shape, from its call number `calls` on; the
    observer is called then.
    """
    if not is_dynamic(inputs):
        return _static(module, inputs, function_of, observer)
    pytorch = _static(module, inputs, by_pytorch, lambda traced, cut: None)
    return ByShape(
        module,
        inputs,
        pytorch,
        lambda static, tensors: _static(static, tensors, function_of, observer),
        notices or Notices(),
        calls,
    )


def by_pytorch(region: Region, eager: Function) -> Function:
    """A region as PyTorch computes it."""

    def function(*tensors: Any) -> Any:  # a graph takes no method of another module
        return eager(*tensors)

    return function


def _static(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    function_of: RegionFunction,
    observer: Observer,
) -> Function:
    def compile_traced(traced: torch.fx.GraphModule, _: Sequence[Any]) -> Function:
        cut = partition(traced.graph)
        observer(traced, cut)
        functions = [function_of(region, of_pytorch(traced, region.part)) for region in cut.regions]
        boxed: Function = make_boxed_func(rebuilt(traced, cut, functions).forward)
        return boxed

    training = is_training(inputs)
    layers = recurrent_calls(module.graph)
    if layers:
        whole = None if training else kept_whole(module)
        if whole is None:
            observer(module, Partition(steps=(), left=tuple(map(_left_layer, layers))))
            eager: Function = module.forward
            return eager
        module = whole
    through_autograd = aot_autograd(
        fw_compiler=compile_traced,
        decompositions=decompositions(training=training),
        partition_fn=min_cut_rematerialization_partition,
        keep_inference_input_mutations=True,  # regions may write them themselves
    )
    function: Function = through_autograd(module, inputs)
    return function


def _left_layer(node: Any) -> Left:
    reason = "is a recurrent layer in training or under autocast, with dropout or packed sequences"
    return Left(operator=f"torch.{node.target.__name__}", name=node.name, reason=reason)
