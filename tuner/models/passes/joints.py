"""Nodes of a graph as one: what reads a tensor, and expressions put together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import TypeGuard

from tuner.models.graph import Graph
from tuner.models.nodes import Node
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.stages import inlined_within_bounds, is_elementwise
from tuner.workload.budgets import BUDGETS
from tuner.workload.expression import Expression, Stage, Tensor, reads


def is_map(node: Node) -> TypeGuard[Expression]:
    """Whether the node has one output and only elementwise stages."""
    return (
        isinstance(node, Expression)
        and len(node.outputs) == 1
        and all(is_elementwise(stage) for stage in node.stages)
    )


def only_reader(graph: Graph, name: str) -> Node | None:
    """The only node that reads a tensor; None where an output or an alias shows it too."""
    reading = graph.readers.get(name, ())
    return reading[0] if len(reading) == 1 and name not in graph.visible else None


def producers(graph: Graph, node: Expression) -> list[Expression]:
    """The nodes of one result that a node reads, in the graph's order."""
    makers = dict(
        graph.makers[tensor.name] for tensor in node.inputs if tensor.name in graph.makers
    )
    in_order = (makers[place] for place in sorted(makers))
    return [
        maker for maker in in_order if isinstance(maker, Expression) and len(maker.outputs) == 1
    ]


def inputs_of(stages: tuple[Stage, ...], tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """The tensors that the stages read and do not compute, each once, in order."""
    own = {stage.name for stage in stages}
    names_read = {read.tensor for stage in stages for read in reads(stage.body)} - own
    return tuple({tensor.name: tensor for tensor in tensors if tensor.name in names_read}.values())


def with_replaced(graph: Graph, changes: Mapping[int, Sequence[Node]]) -> Graph:
    """The graph with some nodes, given by `id`, replaced by any number of others."""
    return replace(
        graph, nodes=tuple(new for node in graph.nodes for new in changes.get(id(node), (node,)))
    )


def joint_of(
    first: Expression, second: Expression, kept: tuple[str, ...] = ()
) -> Expression | None:
    """Both nodes as one expression, whose results are those of the first that are kept and
    those of the second; None above the limit of tensors in an expression. A stage that both
    have is computed once."""
    names = {stage.name for stage in first.stages}
    stages = (*first.stages, *(stage for stage in second.stages if stage.name not in names))
    joint = Expression(
        name=first.name,
        inputs=inputs_of(stages, (*first.inputs, *second.inputs)),
        stages=stages,
        outputs=(*kept, *second.outputs),
    )
    if len(joint.inputs) + len(joint.stages) > BUDGETS.tensors:
        joint = inlined_within_bounds(joint)
        joint = replace(joint, inputs=inputs_of(joint.stages, joint.inputs))
    return joint if len(joint.inputs) + len(joint.stages) <= BUDGETS.tensors else None


def reads_once(reader: Expression, name: str) -> bool:
    """Whether each read of the tensor in a stage takes each element once, in any order."""
    shapes, size = reader.shapes, prod(reader.shapes[name])
    return all(
        _is_bijection(stage, read, size)
        for stage in reader.stages
        for read in accesses(stage, shapes)
        if read.read.tensor == name
    )


def _is_bijection(stage: Stage, read: Access, size: int) -> bool:
    """Whether the iterators of a stage count the elements of a tensor, each with the step that
    those below it leave."""
    if read.padded or read.gathered or read.strides is None:
        return False
    moving = [(name, extent) for name, extent in stage.extents.items() if extent > 1]
    steps = sorted((read.strides.get(name, 0), extent) for name, extent in moving)
    walked = 1
    for step, extent in steps:
        if step != walked:
            return False
        walked *= extent
    return walked == size
