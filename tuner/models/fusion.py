"""Fusion over a graph: movements into their readers, elementwise nodes into what they
follow; what remains is one kernel a node.

A kernel ends up as a reduction (or rows of them) with all that is done to its result
point by point, which the spaces compute before the result leaves the registers.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tuner.models.assembly import reads_below, without_unused
from tuner.models.graph import Graph
from tuner.spaces.rewrite.stages import inline_into, inlined, is_elementwise
from tuner.workload.budgets import BUDGETS
from tuner.workload.expression import Expression, Read, Stage, Tensor, Var, reads


def fuse(graph: Graph) -> Graph:
    """The same outputs from fewer nodes."""
    graph, count = _moved(graph), len(graph.nodes) + 1
    while (
        len(graph.nodes) < count
    ):  # a chain that is joined may become the end of what it begins from
        count = len(graph.nodes)
        graph = _joined(_attached(graph))
    return without_unused(graph)


def is_map(node: Expression) -> bool:
    return len(node.outputs) == 1 and all(is_elementwise(stage) for stage in node.stages)


def readers(graph: Graph, name: str) -> list[Expression]:
    """Nodes that read a tensor under its own name."""
    return [node for node in graph.nodes if any(tensor.name == name for tensor in node.inputs)]


def _private(graph: Graph, name: str) -> Expression | None:
    """The one node that reads a tensor, where nothing else knows it: no output, no alias."""
    found = readers(graph, name)
    known = name in graph.outputs or name in graph.aliases.values()
    return found[0] if len(found) == 1 and not known else None


def _stage_of(node: Expression, name: str) -> Stage:
    return node.stage(name)


# --- movements
# ------------------------------------------------------------------------------


def _moved(graph: Graph) -> Graph:
    """Transpositions read where they are wanted, by nodes that reduce: these copy their
    operands into their own order anyway."""
    for node in graph.nodes:
        if not _is_movement(node):
            continue
        (name,) = node.outputs
        found = readers(graph, name)
        if not found or name in graph.outputs or name in graph.aliases.values():
            continue
        if all(not is_map(reader) and _unpadded(reader, name) for reader in found):
            graph = _replaced(
                graph,
                {id(reader): (_inlined_read(reader, node),) for reader in found} | {id(node): ()},
            )
    return graph


def _is_movement(node: Expression) -> bool:
    body = node.stages[0].body
    return (
        is_map(node)
        and len(node.stages) == 1
        and isinstance(body, Read)
        and body.pad is None
        and not reads_below(body)
    )


def _unpadded(reader: Expression, name: str) -> bool:
    return all(
        read.pad is None
        for stage in reader.stages
        for read in reads(stage.body)
        if read.tensor == name
    )


def _inlined_read(reader: Expression, node: Expression) -> Expression:
    stage = node.stages[0]
    stages = tuple(inline_into(one, stage) for one in reader.stages)
    return replace(reader, inputs=_inputs_of(stages, (*reader.inputs, *node.inputs)), stages=stages)


def _inputs_of(stages: tuple[Stage, ...], tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """Of the tensors those that the stages read, each once, in order."""
    own = {stage.name for stage in stages}
    wanted = {read.tensor for stage in stages for read in reads(stage.body)} - own
    return tuple({tensor.name: tensor for tensor in tensors if tensor.name in wanted}.values())


def _replaced(graph: Graph, changes: dict[int, tuple[Expression, ...]]) -> Graph:
    return replace(
        graph, nodes=tuple(new for node in graph.nodes for new in changes.get(id(node), (node,)))
    )


# --- elementwise nodes
# ------------------------------------------------------------------------------


def _attached(graph: Graph) -> Graph:
    """Each elementwise node, in order, becomes the end of the reduction it follows, if
    it is all that reads its result."""
    position = 0
    while position < len(graph.nodes):
        node = graph.nodes[position]
        merged = next(_merges(graph, node), None)
        if merged is None:
            position += 1
            continue
        producer, joint = merged
        graph = _replaced(graph, {id(producer): (), id(node): (joint,)})
    return graph


def _merges(graph: Graph, node: Expression) -> Iterator[tuple[Expression, Expression]]:
    """Reductions the node may end, the most expensive first, each with what the two become."""
    if not is_map(node):
        return
    wanted = {tensor.name for tensor in node.inputs}
    found = [
        one
        for one in graph.nodes
        if len(one.outputs) == 1 and one.outputs[0] in wanted and not is_map(one)
    ]
    for producer in sorted(found, key=lambda one: -one.flops):
        name = producer.outputs[0]
        if _private(graph, name) is not node or not _in_place(node, name):
            continue
        joint = _joint(producer, node)
        if joint is not None:
            yield producer, joint


def _in_place(node: Expression, name: str) -> bool:
    """Whether the node reads each point of a tensor once, with its axes in any order,
    at one place for all its stages."""
    shape = next(tensor.shape for tensor in node.inputs if tensor.name == name)
    output = _stage_of(node, node.outputs[0])
    if prod(shape) != prod(axis.extent for axis in output.axes):
        return False
    for stage in node.stages:
        extents = {axis.name: axis.extent for axis in stage.axes}
        for read in {read for read in reads(stage.body) if read.tensor == name}:
            names = [index.name if isinstance(index, Var) else "" for index in read.indices]
            if (
                read.pad is not None
                or sorted(names) != sorted(extents)
                or [extents[one] for one in names] != list(shape)
            ):
                return False
    return True


def _joint(first: Expression, second: Expression) -> Expression | None:
    """Both as one expression; None where it has more tensors than one may have."""
    stages = (*first.stages, *second.stages)
    joint = Expression(
        name=first.name,
        inputs=_inputs_of(stages, (*first.inputs, *second.inputs)),
        stages=stages,
        outputs=second.outputs,
    )
    if len(joint.inputs) + len(joint.stages) > BUDGETS.tensors:
        joint = inlined(joint)
        joint = replace(joint, inputs=_inputs_of(joint.stages, joint.inputs))
    return joint if len(joint.inputs) + len(joint.stages) <= BUDGETS.tensors else None


def _joined(graph: Graph) -> Graph:
    """Elementwise nodes into the one elementwise node that reads them."""
    position = 0
    while position < len(graph.nodes):
        node = graph.nodes[position]
        reader = _private(graph, node.outputs[0]) if is_map(node) else None
        joint = _joint(node, reader) if reader is not None and is_map(reader) else None
        if reader is None or joint is None:
            position += 1
            continue
        graph = _replaced(graph, {id(node): (), id(reader): (joint,)})
    return graph
