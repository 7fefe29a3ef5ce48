"""Parts of a traced `torch.fx` graph of ATen operators as graphs of expressions."""

from __future__ import annotations

import operator
from dataclasses import replace
from typing import Any

from tuner.errors import WorkloadError
from tuner.models.errors import ModelRefused
from tuner.models.from_torch.call import dtype_of
from tuner.models.from_torch.reader import UNSET, Reader, is_random
from tuner.models.from_torch.traced import Order, TakenApart, TracedPart, whole
from tuner.models.graph import Graph, check_graph
from tuner.models.operators.builder import MOST_ELEMENTS
from tuner.models.operators.complex_values import Complex, pairs
from tuner.models.operators.elementwise import cast
from tuner.models.operators.movement import reshape, transpose
from tuner.models.operators.values import Value

DEVICES = ("cpu", "cuda")  # that regions are computed on
_MOST_CONSTANT = 1 << 24  # elements of what a call without inputs makes


def graph_of_part(part: TracedPart, apart: TakenApart = whole) -> Graph:
    """The graph of a part, before fusion. Its inputs and outputs are stored as the traced
    tensors lie in memory, those without gaps, unless the part says otherwise. Inputs that are
    indices have their ranges. `apart` takes calls apart whose operators have no expression.

    Raises ModelRefused for an operator at fault, and WorkloadError.
    """
    return graph_and_orders(part, apart)[0]


def graph_and_orders(part: TracedPart, apart: TakenApart) -> tuple[Graph, dict[Any, Order]]:
    """The graph of a part, and the order of each output that lies otherwise than traced."""
    import torch  # noqa: PLC0415  # loaded by whoever traced the graph
    from torch.utils._python_dispatch import _disable_current_modes  # noqa: PLC0415

    reader = Reader(apart)
    for node in part.inputs:
        reader.input(node, part.orders.get(node) or memory_order(node.meta["val"]))
    # Constants are computed, not traced.
    with _disable_current_modes(), torch.no_grad():
        for node in part.nodes:
            reader.call(node)
    outputs, orders = list[Value](), dict[Any, Order]()
    for node in part.outputs:
        value = _as_traced(reader.values[node], node)
        order = _order_of(value, node) if node in part.as_computed else None
        if order is not None:
            orders[node] = order
        outputs.append(_stored(value, node, order))
    # Names of the trace would make equal parts of two traces differ.
    labels = [f"in{number}" for number in range(len(part.inputs))]
    labels += [f"out{number}" for number in range(len(outputs))]
    graph = replace(reader.builder.graph(outputs, labels), ranges=reader.builder.ranges)
    check_graph(graph)
    return graph, orders


def _as_traced(value: Value | Complex | None, node: Any) -> Value:
    """A result in the dtype and shape that the trace has for it. Complex numbers have their
    parts as last dimension."""
    if value is None:
        raise ModelRefused(f"result {node.name!r} has no expression yet")
    meta = node.meta["val"]
    if isinstance(value, Complex) != meta.dtype.is_complex:
        raise ModelRefused(f"result {node.name!r} is not {meta.dtype}, as traced")
    if isinstance(value, Complex):
        value = pairs(value)
    dtype = dtype_of(meta.dtype, f"{node.name!r}")
    return reshape(cast(value, dtype), [*meta.shape, *(2,) * meta.dtype.is_complex])


def _order_of(value: Value, node: Any) -> Order | None:
    """The order in which a result is computed; None where that is the trace's."""
    meta = node.meta["val"]
    if not value.whole or value.rank != meta.dim():
        return None
    order, traced = value.order, memory_order(meta) or range(meta.dim())
    assert order is not None, "a whole tensor has one"
    long = [axis for axis in order if meta.shape[axis] > 1]
    return None if long == [axis for axis in traced if meta.shape[axis] > 1] else order


def _stored(value: Value, node: Any, order: Order | None) -> Value:
    """A result with its dimensions as they lie in memory, in the given order or the trace's."""
    meta = node.meta["val"]
    if not lies_without_gaps(meta) and not is_free(node):
        raise ModelRefused(f"result {node.name!r} lies in memory with gaps")
    order = order or memory_order(meta)
    if order is None:
        return value
    return transpose(value, [*order, *range(len(order), value.rank)])


def memory_order(tensor: Any) -> tuple[int, ...] | None:
    """The order of dimensions in which a tensor without gaps lies in memory, the slowest
    first; None where they are in order, or where there are gaps."""
    if tensor.is_contiguous():
        return None
    strides = tensor.stride()
    order = tuple(sorted(range(tensor.dim()), key=lambda axis: (-strides[axis], axis)))
    following = 1
    for axis in reversed(order):
        if tensor.shape[axis] != 1 and strides[axis] != following:
            return None
        following *= tensor.shape[axis]
    return order


def lies_without_gaps(tensor: Any) -> bool:
    """Whether a tensor's elements fill the memory between the first and the last of them."""
    return bool(tensor.is_contiguous()) or memory_order(tensor) is not None


def refusal(node: Any, apart: TakenApart = whole) -> str | None:
    """Why a call of a traced graph is none of a graph of expressions; None for one that is."""

    def checked(node: Any) -> TracedPart | None:
        part = apart(node)
        for each in () if part is None else part.nodes:
            if each.target is not operator.getitem:
                _check(each)
        return part

    try:
        _check(node)
        results = _results(node)
        gotten = [result for result in results if result is not node]
        part = TracedPart(nodes=[node, *gotten], inputs=node.all_input_nodes, outputs=results)
        graph_of_part(part, checked)
    except (ModelRefused, WorkloadError) as error:
        return str(error)
    return None


def device_of(node: Any) -> str | None:
    """The kind of device on which the results of a node lie; None where it has no tensors."""
    if node.target is operator.getitem:  # of a result that there is none of
        return device_of(node.args[0])
    value = node.meta.get("val")
    parts = value if isinstance(value, list | tuple) else [value]
    return next((part.device.type for part in parts if hasattr(part, "device")), None)


def is_free(node: Any) -> bool:
    """Whether a call computes nothing from tensors: it makes a view, or has no tensors."""
    if node.target is operator.getitem:
        return is_free(node.args[0])
    if not node.all_input_nodes:
        return True
    returns = node.target._schema.returns
    return bool(returns) and all(result.alias_info is not None for result in returns)


def _results(node: Any) -> list[Any]:
    """The nodes that hold the call's tensors, those that somebody reads."""
    if isinstance(node.meta.get("val"), list | tuple):
        return [user for user in node.users if user.target is operator.getitem and user.users]
    return [node]


def _check(node: Any) -> None:
    """Raises ModelRefused for what no region has, whatever the operator. Results that
    nobody reads do not count."""
    if not hasattr(node.target, "_schema"):
        raise ModelRefused(f"{node.target} ({node.name!r}) is no operator of ATen")
    if node.target._schema.is_mutable:
        raise ModelRefused(f"operator {node.target} ({node.name!r}) writes its arguments")
    if str(node.target) in UNSET or is_random(node):
        raise ModelRefused(f"operator {node.target} ({node.name!r}) is random")
    for source in node.all_input_nodes:
        if _lies_conjugated(source):
            raise ModelRefused(f"{source.name!r} is no plain tensor")
    everything = (*node.all_input_nodes, *_results(node))
    for other in everything:
        _check_tensor(other.meta.get("val"), other.name)
    if len({device_of(other) for other in everything}) > 1:
        raise ModelRefused(f"operator {node.target} ({node.name!r}) takes tensors of two devices")
    made = 0 if node.all_input_nodes else node.meta["val"].numel()
    if made > _MOST_CONSTANT:
        raise ModelRefused(
            f"{node.name!r} is a constant of {made} elements, the limit is {_MOST_CONSTANT}"
        )


def _lies_conjugated(node: Any) -> bool:
    """Whether memory holds the conjugates of what a traced tensor is, because somebody
    outside the graph made it so."""
    while getattr(node.meta.get("val"), "is_conj", bool)():
        if str(node.target) == "aten._conj.default":
            return False
        if node.op == "placeholder":
            return True
        node = node.all_input_nodes[0]
    return False


def _check_tensor(tensor: Any, name: str) -> None:
    import torch  # noqa: PLC0415

    if not isinstance(tensor, torch.Tensor):
        raise ModelRefused(f"{name!r} is a symbolic number, as of a dynamic shape")
    dtype_of(tensor.dtype, f"{name!r}")
    if tensor.device.type not in DEVICES or tensor.device.index not in (None, 0):
        raise ModelRefused(
            f"{name!r} lies on {tensor.device}; regions take tensors of the CPU and of the "
            f"first GPU"
        )
    if tensor.layout != torch.strided or tensor.is_neg() or tensor.is_quantized:
        raise ModelRefused(f"{name!r} is no plain tensor")
    if any(not isinstance(extent, int) for extent in (*tensor.shape, *tensor.stride())):
        raise ModelRefused(f"{name!r} has a dynamic shape {list(tensor.shape)}")
    if not 0 < tensor.numel() <= MOST_ELEMENTS:
        raise ModelRefused(
            f"{name!r} has {tensor.numel()} elements; regions take 1 to {MOST_ELEMENTS}"
        )
