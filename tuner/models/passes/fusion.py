"""Fusion of a graph's nodes, after which each node is one kernel.

Movements go into the nodes that read them, elementwise nodes into the node before them.
A kernel is then a reduction (or several along the same rows) with the elementwise
epilogue, which its schedule computes before the result leaves the registers. A softmax
between two products becomes one node with them, whose rows may stream. Sums along rows and
what reads them become one node, which computes a row while it is in a cache. A map that
several nodes read may be computed by each of them (`recomputation`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod

from tuner.models.graph import Graph, without_unused
from tuner.models.nodes import Node
from tuner.models.passes.joints import (
    inputs_of,
    is_map,
    joint_of,
    only_reader,
    producers,
    reads_once,
    with_replaced,
)
from tuner.models.passes.recomputation import with_maps_in_readers
from tuner.spaces.rewrite.algorithm import simplified
from tuner.spaces.rewrite.collapse import collapsed
from tuner.spaces.rewrite.groups import Group, RowGroup, groups
from tuner.spaces.rewrite.stages import inline_into
from tuner.spaces.rewrite.streaming import stream_group
from tuner.spaces.rewrite.unit_axes import without_unit_axes
from tuner.workload.expression import Expression, Read, Var, reads

# Rows of a node that computes a row at a time, at least: threads share them.
LEAST_ROWS = 64


def fuse(graph: Graph) -> Graph:
    """The same outputs from fewer nodes."""
    graph, count = _without_movements(graph), len(graph.nodes) + 1
    # Repeated, because a joined chain may become the epilogue of the node it reads.
    while len(graph.nodes) < count:
        count = len(graph.nodes)
        graph = _maps_joined(_epilogues_attached(graph))
    graph = with_maps_in_readers(_rows_streamed(graph))
    return without_unused(_rows_joined(graph))


def _without_movements(graph: Graph) -> Graph:
    """Movements inlined into the nodes that read them, where these all reduce.

    A reduction packs its operands into its own order anyway.
    """
    for node in graph.nodes:
        if not is_map(node) or not _is_movement(node):
            continue
        (name,) = node.outputs
        reading = graph.readers.get(name, ())
        if not reading or name in graph.visible:
            continue
        reductions = [
            reader
            for reader in reading
            if isinstance(reader, Expression) and not is_map(reader) and _unpadded(reader, name)
        ]
        if len(reductions) == len(reading):
            changes = {id(reader): (_inlined_read(reader, node),) for reader in reductions}
            graph = with_replaced(graph, changes | {id(node): ()})
    return graph


def _is_movement(node: Expression) -> bool:
    """Whether the node only copies elements to other places, as a transposition does."""
    body = node.stages[0].body
    return (
        len(node.stages) == 1
        and isinstance(body, Read)
        and body.pad is None
        and not any(any(reads(index)) for index in body.indices)
    )


def _unpadded(reader: Expression, name: str) -> bool:
    """Whether the node reads the tensor only within its bounds."""
    return all(
        read.pad is None
        for stage in reader.stages
        for read in reads(stage.body)
        if read.tensor == name
    )


def _inlined_read(reader: Expression, node: Expression) -> Expression:
    """The reader with the movement `node` inlined."""
    stage = node.stages[0]
    stages = tuple(inline_into(consumer, stage) for consumer in reader.stages)
    return replace(reader, inputs=inputs_of(stages, (*reader.inputs, *node.inputs)), stages=stages)


def _epilogues_attached(graph: Graph) -> Graph:
    """Each elementwise node, in order, becomes the epilogue of the reduction it reads.

    This needs a reduction whose result nothing else reads.
    """
    position = 0
    while position < len(graph.nodes):
        node = graph.nodes[position]
        merged = next(_merges(graph, node), None)
        if merged is None:
            position += 1
            continue
        producer, joint = merged
        graph = with_replaced(graph, {id(producer): (), id(node): (joint,)})
    return graph


def _merges(graph: Graph, node: Node) -> Iterator[tuple[Expression, Expression]]:
    """The reductions that the node can be the epilogue of, each with the fused node.

    The most expensive reduction comes first.
    """
    if not is_map(node):
        return
    reductions = [producer for producer in producers(graph, node) if not is_map(producer)]
    for producer in sorted(reductions, key=lambda producer: -producer.flops):
        name = producer.outputs[0]
        if only_reader(graph, name) is not node or not _takes_each_once(node, name):
            continue
        joint = joint_of(producer, node)
        if joint is not None and (_in_place(node, name) or _is_end(producer, joint)):
            yield producer, joint


def _takes_each_once(node: Expression, name: str) -> bool:
    """Whether each stage that reads the tensor reads every point of it exactly once, and the
    output has as many."""
    return node.stage(node.outputs[0]).points == prod(node.shapes[name]) and reads_once(node, name)


def _in_place(node: Expression, name: str) -> bool:
    """Whether each axis of the stages that read the tensor is one of its dimensions, in any
    order."""
    return all(
        read.pad is None and {*read.indices} == {Var(axis.name) for axis in stage.axes}
        for stage in node.stages
        for read in reads(stage.body)
        if read.tensor == name
    )


def _is_end(producer: Expression, joint: Expression) -> bool:
    """Whether what follows the producer, which it may show in another shape, is computed in the
    nests that the producer has without it."""
    return len(_groups(joint)) == len(_groups(producer))


def _groups(node: Expression) -> tuple[Group, ...]:
    """The nests of a node, where axes are as few as they can be."""
    return groups(collapsed(without_unit_axes(simplified(node))))


def _maps_joined(graph: Graph) -> Graph:
    """Elementwise nodes fused into the only node that reads them, if that is one too."""
    position = 0
    while position < len(graph.nodes):
        node = graph.nodes[position]
        reader = only_reader(graph, node.outputs[0]) if is_map(node) else None
        if is_map(node) and reader is not None and is_map(reader):
            joint = joint_of(node, reader)
            if joint is not None:
                graph = with_replaced(graph, {id(node): (), id(reader): (joint,)})
                continue
        position += 1
    return graph


def _rows_streamed(graph: Graph) -> Graph:
    """Products, the softmax that reads them, and the products with that, as one node, where
    several rows have the same columns: their rows can be computed part by part."""
    for node in graph.nodes:
        for parts, joint in _streams(graph, node):
            graph = with_replaced(graph, {id(part): () for part in parts} | {id(node): (joint,)})
            break
    return graph


def _streams(
    graph: Graph, node: Node
) -> Iterator[tuple[tuple[Expression, Expression], Expression]]:
    """The scores and the softmax before a sum, with all three as one node."""
    if not isinstance(node, Expression) or len(node.outputs) != 1:
        return
    for softmax in _producers(graph, node):
        if not any(stage.reducer == "max" for stage in softmax.stages):
            continue
        for scores in _producers(graph, softmax):
            weighted = None if is_map(scores) else joint_of(softmax, node)
            joint = None if weighted is None else joint_of(scores, weighted)
            group = None if joint is None else stream_group(simplified(joint))
            if joint is not None and group is not None and group.product and group.shared_rows:
                yield (scores, softmax), joint


def _producers(graph: Graph, node: Expression) -> list[Expression]:
    """The nodes of one result that only this node reads."""
    return [
        producer
        for producer in producers(graph, node)
        if only_reader(graph, producer.outputs[0]) is node
    ]


def _rows_joined(graph: Graph) -> Graph:
    """Reductions along rows in one node with the only node that reads them, if that goes along
    the same rows."""
    position = 0
    while position < len(graph.nodes):
        node = graph.nodes[position]
        joined = next(_joined_rows(graph, node), None)
        if joined is None:
            position += 1
            continue
        producer, joint = joined
        graph = with_replaced(graph, {id(producer): (), id(node): (joint,)})
        position -= 1  # the producer was before it
    return graph


def _joined_rows(graph: Graph, node: Node) -> Iterator[tuple[Expression, Expression]]:
    """The reductions that the node can be one with, each with both."""
    if not isinstance(node, Expression) or len(node.outputs) != 1:
        return
    for producer in _producers(graph, node):
        joint = None if is_map(producer) else joint_of(producer, node)
        if joint is not None and _is_along_rows(joint):
            yield producer, joint


def _is_along_rows(joint: Expression) -> bool:
    """Whether one group of stages along shared rows, many of them, computes it."""
    parts = _groups(joint)
    return (
        len(parts) == 1
        and isinstance(parts[0], RowGroup)
        and prod(axis.extent for axis in parts[0].rows) >= LEAST_ROWS
    )
