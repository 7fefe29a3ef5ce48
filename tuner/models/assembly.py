"""The graph of a model from the calls that an importer gives.

A call becomes a node whose tensors have the graph's names. A call on constants alone is
evaluated and becomes a constant. A call that only reshapes becomes an alias.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, Protocol

import numpy as np

from tuner.lowering.indices import tidy
from tuner.models.graph import Array, Graph
from tuner.spaces.rewrite.stages import is_elementwise
from tuner.workload.expression import (
    Binary,
    Cast,
    Const,
    Expression,
    Read,
    Scalar,
    Stage,
    Tensor,
    Unary,
    Var,
    reads,
    rewrite,
    substitute,
)
from tuner.workload.inputs import numpy_dtype
from tuner.workload.reference import evaluate
from tuner.workload.scalar_operators import BINARY_OPERATORS

# Elements of the largest tensor whose copy is compared with a reshape, index by index.
_MOST_POINTS = 1 << 24


class Call(Protocol):
    """A call of a function on tensors of the model, as an importer gives it."""

    @property
    def expression(self) -> Expression: ...
    @property
    def inputs(self) -> tuple[str, ...]: ...
    @property
    def outputs(self) -> tuple[str, ...]: ...


@dataclass(kw_only=True)
class _Parts:
    """The graph's parts, collected call by call."""

    constants: dict[str, Array]
    nodes: list[Expression]
    aliases: dict[str, str]
    shapes: dict[str, Tensor]


def assemble(
    *,
    inputs: Sequence[Tensor],
    constants: Mapping[str, Array],
    calls: Sequence[Call],
    outputs: Sequence[str],
    labels: Sequence[str],
) -> Graph:
    """The graph of the calls, in their order. Nothing is fused yet."""
    parts = _Parts(constants=dict(constants), nodes=[], aliases={}, shapes={})
    for call in calls:
        for node in _separated(_named(call)):
            _add(node, parts)
    return without_unused(
        Graph(
            inputs=tuple(inputs),
            constants=parts.constants,
            nodes=tuple(parts.nodes),
            outputs=tuple(outputs),
            aliases=parts.aliases,
            shapes=parts.shapes,
            labels=tuple(labels),
        )
    )


def _add(node: Expression, parts: _Parts) -> None:
    """Enters the node as constants, as an alias, or as a node."""
    source = _reshaped(node)
    if all(tensor.name in parts.constants for tensor in node.inputs):
        values = evaluate(
            node, {tensor.name: parts.constants[tensor.name] for tensor in node.inputs}
        )
        for name in node.outputs:
            parts.constants[name] = np.ascontiguousarray(
                values[name].astype(numpy_dtype(node.tensor(name).dtype))
            )
    elif source is not None:
        (name,) = node.outputs
        parts.aliases[name] = parts.aliases.get(source, source)
        parts.shapes[name] = node.tensor(name)
    else:
        parts.nodes.append(node)


def _named(call: Call) -> Expression:
    """The call's expression with the graph's names.

    Inner stages are named after its first output.
    """
    expression = call.expression
    names = {
        tensor.name: given for tensor, given in zip(expression.inputs, call.inputs, strict=True)
    }
    names |= dict(zip(expression.outputs, call.outputs, strict=True))
    inner = [stage.name for stage in expression.stages if stage.name not in names]
    names |= {name: f"{call.outputs[0]}s{number}" for number, name in enumerate(inner)}
    inputs = {
        names[tensor.name]: replace(tensor, name=names[tensor.name]) for tensor in expression.inputs
    }
    return replace(
        expression,
        inputs=tuple(inputs.values()),
        stages=tuple(
            without_units(replace(stage, name=names[stage.name], body=renamed(stage.body, names)))
            for stage in expression.stages
        ),
        outputs=call.outputs,
    )


def without_units(stage: Stage) -> Stage:
    """The stage without reduction axes of extent 1.

    A 1x1 convolution has two of them, a depthwise convolution has one. A stage keeps at
    least one reduction axis.
    """
    units = [axis for axis in stage.reduce_axes if axis.extent == 1]
    units = units[1:] if len(units) == len(stage.reduce_axes) else units
    if not units:
        return stage
    zeros: dict[str, Scalar] = {axis.name: Const(0, "int64") for axis in units}

    def change(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read) or reads_below(node):
            return None
        return Read(node.tensor, tuple(tidy(index) for index in node.indices), node.pad)

    axes = tuple(axis for axis in stage.reduce_axes if axis not in units)
    return replace(stage, reduce_axes=axes, body=rewrite(substitute(stage.body, zeros), change))


def renamed(body: Scalar, names: Mapping[str, str]) -> Scalar:
    """The body with the tensors it reads renamed; others keep their names."""

    def change(node: Scalar) -> Scalar | None:
        if not isinstance(node, Read):
            return None
        return Read(
            names.get(node.tensor, node.tensor),
            tuple(rewrite(index, change) for index in node.indices),
            node.pad,
        )

    return rewrite(body, change)


def _separated(node: Expression) -> tuple[Expression, ...]:
    """Elementwise stages with an output each become nodes of their own.

    So the parts of a split can be fused into different readers.
    """
    if len(node.outputs) == 1 or not all(
        is_elementwise(stage) and stage.name in node.outputs for stage in node.stages
    ):
        return (node,)
    return tuple(_only(stage, node) for stage in node.stages)


def _only(stage: Stage, node: Expression) -> Expression:
    """The one stage of the node, as an expression."""
    names_read = {read.tensor for read in reads(stage.body)}
    tensors = (*node.inputs, *(other.tensor for other in node.stages))
    return replace(
        node,
        inputs=tuple(tensor for tensor in tensors if tensor.name in names_read),
        stages=(stage,),
        outputs=(stage.name,),
    )


def _reshaped(node: Expression) -> str | None:
    """The tensor that the node only reshapes; None for any other node.

    A reshape reads each element at the row-major position where it writes it.
    """
    if len(node.stages) != 1 or len(node.inputs) != 1:
        return None
    (stage,), (source,) = node.stages, node.inputs
    read = stage.body
    if (
        not isinstance(read, Read)
        or read.pad is not None
        or stage.dtype != source.dtype
        or any(reads_below(read))
    ):
        return None
    count = prod(source.shape)
    if count != prod(axis.extent for axis in stage.axes) or count > _MOST_POINTS:
        return None
    grid = np.indices([axis.extent for axis in stage.axes], dtype=np.int64, sparse=True)
    point = {axis.name: values for axis, values in zip(stage.axes, grid, strict=True)}
    place: Any = np.int64(0)
    for index, extent in zip(read.indices, source.shape, strict=True):
        value = _index(index, point)
        if value is None:
            return None
        place = place * extent + value
    places = np.broadcast_to(place, [axis.extent for axis in stage.axes]).reshape(-1)
    return source.name if np.array_equal(places, np.arange(count)) else None


def reads_below(read: Read) -> tuple[Read, ...]:
    """The reads inside the read's own indices, as a gather has them."""
    return tuple(inner for index in read.indices for inner in reads(index))


def _index(node: Scalar, point: Mapping[str, Array]) -> Any:
    """The values of an integer index at all points, in the shape of the points' grid.

    None where the index has a node other than integer arithmetic.
    """
    match node:
        case Var(name=name):
            return point[name]
        case Const(value=value):
            return np.int64(value)
        case Cast(dtype="int64", arg=arg):
            return _index(arg, point)
        case Unary(op="neg", arg=arg):
            inner = _index(arg, point)
            return None if inner is None else -inner
        case Binary(op=op, lhs=lhs, rhs=rhs):
            a, b = _index(lhs, point), _index(rhs, point)
            if a is None or b is None or not BINARY_OPERATORS[op].is_integral:
                return None
            return BINARY_OPERATORS[op].evaluate(a, b)
        case _:
            return None


def without_unused(graph: Graph) -> Graph:
    """The graph without nodes, aliases and constants that no output depends on.

    Its inputs stay.
    """
    live = set(graph.outputs)
    nodes: list[Expression] = []
    for node in reversed(graph.nodes):
        live |= {graph.aliases[name] for name in live if name in graph.aliases}
        if live & set(node.outputs):
            nodes.append(node)
            live |= {tensor.name for tensor in node.inputs}
    live |= {graph.aliases[name] for name in live if name in graph.aliases}
    return replace(
        graph,
        nodes=tuple(reversed(nodes)),
        constants={name: array for name, array in graph.constants.items() if name in live},
        aliases={name: other for name, other in graph.aliases.items() if name in live},
        shapes={name: tensor for name, tensor in graph.shapes.items() if name in live},
    )
