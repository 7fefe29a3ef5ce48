"""A graph of Dynamo's, taken apart, cut into regions, and put together as a function."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.eval_frame import innermost_fn
from torch._functorch.aot_autograd import make_boxed_func
from torch.fx._lazy_graph_module import _LazyGraphModule

from tuner.torch.apart import Apart
from tuner.torch.decompositions import is_training, rules, rules_without_kernels
from tuner.torch.kept_trace import TraceStore
from tuner.torch.notices import Notices
from tuner.torch.partition import EagerCall, Partition, Region, partition
from tuner.torch.rebuilding import (
    Function,
    OfPyTorch,
    of_pytorch,
    rebuilt,
    replacing,
    uncompiled_of,
)
from tuner.torch.recurrent import kept_whole, recurrent_calls
from tuner.torch.saved import SavedTensors
from tuner.torch.shapes import ByShape, is_dynamic

RegionFunction = Callable[[Region, OfPyTorch], Function]
"""What computes a region, given what PyTorch computes it by. With an attribute `is_pytorch` it says
whether PyTorch does at the next call, and nothing else is to be done."""

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
    traces: TraceStore | None = None,
) -> Function:
    """The function of a graph of Dynamo's; forward and backward graphs are cut alike.

    One with dynamic shapes is cut for each shape, from its call number `calls` on; the
    observer is called then. What `traces` keep of a graph takes the place of its trace, and
    nobody observes it.
    """
    if not is_dynamic(inputs):
        return _static(module, inputs, function_of, observer, traces)
    pytorch = _static(module, inputs, by_pytorch, lambda traced, cut: None)
    return ByShape(
        module,
        inputs,
        pytorch,
        lambda static, tensors: _static(static, tensors, function_of, observer, traces),
        notices or Notices(),
        calls,
    )


def by_pytorch(region: Region, eager: OfPyTorch) -> Function:
    """A region as PyTorch computes it."""

    def function(*tensors: Any) -> Any:  # a graph takes no method of another module
        return eager(*tensors)

    return function


def _static(
    module: torch.fx.GraphModule,
    inputs: Sequence[Any],
    function_of: RegionFunction,
    observer: Observer,
    traces: TraceStore | None = None,
) -> Function:
    _LazyGraphModule.force_recompile(module)  # else each call of `forward` would look for its code
    training = is_training(inputs)
    file = None if traces is None or training else traces.file(module, inputs)
    kept = None if file is None else file.load()
    if kept is not None:
        return _unless_of_pytorch(kept[0], module.forward, kept[1])
    apart, saved, functions = Apart(rules()), SavedTensors(), list[Function]()

    def compile_traced(traced: torch.fx.GraphModule, _: Sequence[Any]) -> Function:
        cut = partition(traced.graph, apart, saved)
        observer(traced, cut)
        whole = uncompiled_of(module, traced, cut)
        own = [
            function_of(region, OfPyTorch(of_pytorch(traced, region.part), whole))
            for region in cut.regions
        ]
        functions.extend(own)
        calls = [
            replacing(each, region.replaced) for each, region in zip(own, cut.regions, strict=True)
        ]
        graph = rebuilt(traced, cut, calls)
        if file is not None and whole is None:
            file.note(traced, cut, graph, calls)
        boxed: Function = make_boxed_func(graph.forward)
        return boxed

    layers = recurrent_calls(module.graph)
    if layers:
        whole = None if training else kept_whole(module)
        if whole is None:
            observer(module, Partition(steps=(), left=tuple(map(_left_layer, layers))))
            eager: Function = module.forward
            return eager
        module = whole

    def through_autograd(compiler: Any) -> Function:
        autograd = aot_autograd(
            fw_compiler=compiler,
            bw_compiler=compile_traced,
            decompositions=rules_without_kernels(),
            partition_fn=saved.partition,
            keep_inference_input_mutations=True,  # regions may write them themselves
        )
        function: Function = innermost_fn(autograd(module, inputs))  # Dynamo keeps off what we give
        return function

    if file is None:
        function = through_autograd(compile_traced)
    else:
        function = file.recorded(compile_traced, through_autograd)
    return _unless_of_pytorch(function, module.forward, functions)


def _unless_of_pytorch(
    compiled_function: Function, uncompiled: Function, functions: Sequence[Function]
) -> Function:
    """The compiled function, but without it where PyTorch computes all regions: what is made
    functional writes new tensors that it copies then, and calls the same kernels otherwise."""

    def function(*inputs: Any) -> Any:
        for each in functions:
            if not getattr(each, "is_pytorch", False):
                return compiled_function(*inputs)
        return uncompiled(*inputs)

    return function if functions else uncompiled


def _left_layer(node: Any) -> EagerCall:
    reason = "is a recurrent layer in training or under autocast, with dropout or packed sequences"
    return EagerCall(operator=f"torch.{node.target.__name__}", name=node.name, reason=reason)
