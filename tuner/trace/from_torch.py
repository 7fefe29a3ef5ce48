"""Calls of PyTorch as graphs of expressions.

A recorded call is traced again, on tensors without memory, down to the core ATen
operators that `tuner.models.from_torch` has. That takes PyTorch, as reading its models does.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any

from tuner.models.errors import ModelRefused
from tuner.models.from_torch.region import graph_of_part, is_free, memory_order
from tuner.models.from_torch.traced import TracedPart
from tuner.models.operators.attention import Mask, attention
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.movement import expand, transpose
from tuner.models.operators.scalars import Elem, where
from tuner.models.operators.values import Value
from tuner.trace.binding import Binding, Result
from tuner.trace.layout import order_in_memory, stored_input
from tuner.trace.record import Argument, TracedCall
from tuner.trace.recorder.torch_calls import DTYPES


def bound_torch(call: TracedCall) -> Binding | None:
    """The graph of a call, before fusion, and its arguments; None for one that computes
    nothing, as of a view.

    Raises ModelRefused for one without expression, and where PyTorch is not installed.
    """
    if find_spec("torch") is None:
        raise ModelRefused("reading PyTorch's calls needs PyTorch beside tuner; install torch")
    for argument in call.arguments:
        if "shape" in argument and 0 not in argument["shape"]:
            order_in_memory(argument["shape"], argument["strides"])
    if call.operator == "aten::scaled_dot_product_attention":
        return _attention(call)
    overload, nodes = _traced(call)
    calls = [node for node in nodes if node.op == "call_function"]
    if all(map(is_free, calls)):
        return None
    inputs = [node for node in nodes if node.op == "placeholder"]
    (output,) = (node for node in nodes if node.op == "output")
    outputs = [_stored(node) for node in output.all_input_nodes if node.op == "call_function"]
    calls = _needed(outputs)
    for node in (*inputs, *outputs):
        if not node.meta["val"].numel():
            raise ModelRefused(f"{call.operator} has a tensor without elements")
    graph = graph_of_part(TracedPart(nodes=calls, inputs=inputs, outputs=outputs))
    return Binding(
        graph=graph,
        inputs=tuple(n for n, argument in enumerate(call.arguments) if "shape" in argument),
        result=None if _writes(call) else _result(output.args[0], outputs),
        overload=overload,
    )


def _writes(call: TracedCall) -> bool:
    """Whether a call changes its first argument: the graph is that of the one which does not."""
    return call.operator.endswith("_") and not call.operator.endswith("__")


def _result(given: Any, stored: Sequence[Any]) -> Result | None:
    """The tensor of a call whose memory is all of the one that its kernel fills."""
    if not hasattr(given, "meta") or len(stored) != 1:
        return None
    tensor, whole = given.meta["val"], stored[0].meta["val"]
    if not all(map(_is_dense, (tensor, whole))) or tensor.storage_offset():
        return None
    if tensor.numel() != whole.numel() or tensor.dtype != whole.dtype:
        return None
    return Result(
        shape=tuple(tensor.shape),
        strides=tuple(tensor.stride()),
        dtype=str(tensor.dtype).removeprefix("torch."),
    )


def _is_dense(tensor: Any) -> bool:
    return bool(tensor.is_contiguous()) or memory_order(tensor) is not None


def _stored(node: Any) -> Any:
    """What a view at the end of a call is of: who calls the kernel makes the view again."""
    while is_free(node) and node.target is not operator.getitem:
        (source,) = node.all_input_nodes or (None,)
        if source is None or source.op != "call_function":
            return node
        node = source
    return node


def _needed(outputs: Sequence[Any]) -> list[Any]:
    """The calls that outputs are computed from, in the order of the graph."""
    waiting, needed = [*outputs], set[Any]()
    while waiting:
        node = waiting.pop()
        if node.op == "call_function" and node not in needed:
            needed.add(node)
            waiting += node.all_input_nodes
    return [node for node in outputs[0].graph.nodes if node in needed] if outputs else []


def _rules() -> Mapping[Any, Callable[..., Any]]:
    """How operators are taken apart into those of the core."""
    import torch  # noqa: PLC0415
    from torch._decomp import core_aten_decompositions  # noqa: PLC0415

    return {**core_aten_decompositions(), torch.ops.aten.transpose.int: _transposed}


def _transposed(x: Any, first: int, second: int) -> Any:
    order = list(range(x.dim()))
    order[first], order[second] = order[second], order[first]
    return x.permute(order)


def _attention(call: TracedCall) -> Binding:
    """Attention as one expression: PyTorch's own parts of it differ from processor to
    processor. Its result lies in memory as PyTorch's for CPUs does, with the heads of a query
    side by side. Raises ModelRefused."""
    q, k, v, mask, dropout, is_causal, scale, _ = call.arguments
    if dropout.get("value") or len(q["shape"]) != 4:
        raise ModelRefused(f"{call.operator} with dropout, or without heads, has no expression")
    builder = GraphBuilder()
    queries, keys, values = (stored_input(builder, argument) for argument in (q, k, v))
    score: Mask | None = None
    if is_causal.get("value"):
        score = _causal
    elif "shape" in mask:
        shape = [*queries.shape[:3], keys.shape[2]]
        score = _masked(expand(stored_input(builder, mask), shape))
    factor = scale.get("value") or queries.shape[3] ** -0.5
    result, _, _ = attention(queries, keys, values, scale=float(factor), mask=score)
    inputs = [number for number, argument in enumerate(call.arguments) if "shape" in argument]
    graph = builder.graph(
        [transpose(result, [0, 2, 1, 3])], ["q", "k", "v", *["mask"] * (len(inputs) > 3), "out"]
    )
    _batch, heads, length, width = result.shape
    strides = (length * heads * width, width, heads * width, 1)
    return Binding(
        graph=graph,
        inputs=tuple(inputs),
        result=Result(shape=tuple(result.shape), strides=strides, dtype=result.dtype),
        overload=call.operator,
    )


def _causal(e: Elem, b: Elem, h: Elem, s: Elem, t: Elem) -> Elem:
    return where(t <= s, e, -math.inf)


def _masked(mask: Value) -> Mask:
    def score(e: Elem, *place: Elem) -> Elem:
        return where(mask[place], e, -math.inf) if mask.dtype == "bool" else e + mask[place]

    return score


def _traced(call: TracedCall) -> tuple[str, Sequence[Any]]:
    """The overload, and the nodes of the call's graph of core operators. Raises ModelRefused."""
    from torch._subclasses.fake_tensor import FakeTensorMode  # noqa: PLC0415
    from torch.fx.experimental.proxy_tensor import make_fx  # noqa: PLC0415

    reason: Exception | None = None
    rules = _rules()
    for overload in _overloads(call):
        try:
            with FakeTensorMode():
                function, tensors = _bound(overload, call.arguments)
                traced = make_fx(function, decomposition_table=rules)(*tensors)
        except ModelRefused:
            raise
        except Exception as error:  # whatever an operator says of arguments of another overload
            reason = reason or error
            continue
        traced.graph.eliminate_dead_code()
        return overload.name(), list(traced.graph.nodes)
    said = "" if reason is None else f": {str(reason).splitlines()[0]}"
    raise ModelRefused(f"{call.operator} cannot be traced again{said}")


def _overloads(call: TracedCall) -> Iterator[Any]:
    """The operator's overloads of so many arguments; of one that writes its first argument
    those that return it."""
    import torch  # noqa: PLC0415

    name = call.operator.removeprefix("aten::")
    for each in dict.fromkeys((name.removesuffix("_"), name)):
        packet = getattr(torch.ops.aten, each, None)
        if packet is None:
            continue
        for overload in [getattr(packet, variant) for variant in packet.overloads()]:
            arguments = overload._schema.arguments
            writes = overload._schema.is_mutable
            if len(arguments) == len(call.arguments) and not writes:
                yield overload


def _bound(overload: Any, arguments: Sequence[Argument]) -> tuple[Callable[..., Any], list[Any]]:
    """A function of the tensors alone, and tensors as they were recorded."""
    tensors: list[Any] = []
    makers: list[Callable[[Sequence[Any]], Any]] = []
    for described, declared in zip(arguments, overload._schema.arguments, strict=True):
        makers.append(_maker(described, declared, tensors))

    def function(*given: Any) -> Any:
        positional: list[Any] = []
        named: dict[str, Any] = {}
        for make, declared in zip(makers, overload._schema.arguments, strict=True):
            if declared.kwarg_only:
                named[declared.name] = make(given)
            else:
                positional.append(make(given))
        return overload(*positional, **named)

    return function, tensors


def _maker(
    described: Argument, declared: Any, tensors: list[Any]
) -> Callable[[Sequence[Any]], Any]:
    """What gives an argument from the function's tensors."""
    import torch  # noqa: PLC0415

    if "list" in described:
        makers = [_maker(entry, declared, tensors) for entry in described["list"]]
        return lambda given: [make(given) for make in makers]
    if "shape" in described:
        place = len(tensors)
        tensors.append(_tensor(described))
        return lambda given: given[place]
    value = described.get("value")
    if value is None and declared.has_default_value():
        default = declared.default_value  # as of texts, which are not recorded
        return lambda _: default
    if "ScalarType" in str(declared.type) and isinstance(value, int):
        dtype = getattr(torch, DTYPES[value])
        return lambda _: dtype
    if declared.name in ("layout", "device", "pin_memory", "memory_format"):
        return lambda _: None
    return lambda _: value


def _tensor(described: Mapping[str, Any]) -> Any:
    """A tensor without memory. Raises ModelRefused for a dtype that is not recorded."""
    import torch  # noqa: PLC0415

    dtype = described["dtype"]
    if dtype is None or not isinstance(getattr(torch, dtype, None), torch.dtype):
        raise ModelRefused(f"a tensor's dtype is {dtype or 'not recorded'}")
    return torch.empty_strided(
        described["shape"], described["strides"], dtype=getattr(torch, dtype)
    )
