"""Maps that are computed again by all who read them, where that moves fewer bytes.

A node is a kernel, so a map that several nodes read is written once and read by each of them.
In a derivative that is often a difference to a mean, or a product with what was saved, whose
operands are no larger than itself. Where each reader takes each element once, it may as well
read the operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import prod

from tuner.models.graph import Graph
from tuner.models.nodes import Node
from tuner.models.passes.joints import (
    is_map,
    joint_of,
    reads_once,
    with_replaced,
)
from tuner.spaces.rewrite.access import Access, accesses
from tuner.spaces.rewrite.algorithm import simplified
from tuner.spaces.rewrite.stages import is_expensive
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import Binary, Expression, Stage, arithmetic, reads, walk

# Operations on an element that are repeated: about what reading it from the third cache takes.
MOST_OPERATIONS = 8
_COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def with_maps_in_readers(graph: Graph) -> Graph:
    """The graph without such maps."""
    position = 0
    while position < len(graph.nodes):
        changes = _in_readers(graph, graph.nodes[position])
        if changes is None:
            position += 1
        else:
            graph = with_replaced(graph, changes)
    return graph


def _in_readers(graph: Graph, node: Node) -> dict[int, tuple[Expression, ...]] | None:
    """What replaces the map and its readers; None where it stays."""
    if not is_map(node) or not _walks_in_order(node):
        return None
    (name,) = node.outputs
    reading = graph.readers.get(name, ())
    plain = [reader for reader in reading if isinstance(reader, Expression)]
    if not plain or len(plain) < len(reading) or name in graph.visible:
        return None
    if len(plain) > 1 and any(_is_compared(name, reader) for reader in plain):
        return None
    if not _moves_less(node, plain):
        return None
    if _takes_long(node) and not _is_summed_once(name, plain):
        return None
    changes: dict[int, tuple[Expression, ...]] = {id(node): ()}
    for reader in plain:
        joint = joint_of(node, reader) if reads_once(reader, name) else None
        if joint is None or not _is_gone(node, joint):
            return None
        changes[id(reader)] = (replace(joint, name=reader.name),)
    return changes


def _is_compared(name: str, reader: Expression) -> bool:
    """Whether the node compares the tensor with another one, which may come from it, as its
    greatest element does: that was rounded where it was stored."""
    for stage in reader.stages:
        for part in walk(stage.body):
            if isinstance(part, Binary) and part.op in _COMPARISONS:
                sides = [{read.tensor for read in reads(side)} for side in (part.lhs, part.rhs)]
                if all(sides) and name in sides[0] | sides[1]:
                    return True
    return False


def _is_summed_once(name: str, reading: Sequence[Expression]) -> bool:
    """Whether one reduction alone reads the tensor: nothing is computed twice then."""
    stages = [stage for reader in reading for stage in reader.consumers(name)]
    return len(stages) == 1 and stages[0].reducer is not None


def _takes_long(node: Expression) -> bool:
    """Of what each element takes; a value for a row or a channel is little beside that."""
    points = node.stage(node.outputs[0]).points
    bodies = [stage.body for stage in node.stages if 2 * stage.points > points]
    return any(map(is_expensive, bodies)) or sum(map(arithmetic, bodies)) > MOST_OPERATIONS


def _walks_in_order(node: Expression) -> bool:
    """Whether the map reads vectors where it writes some, nothing by computed indices and
    nothing beyond a tensor: what reads it then walks through the operands as through it."""
    shapes = node.shapes
    for stage in node.stages:
        along = next((axis.name for axis in reversed(stage.axes) if axis.extent > 1), None)
        for read in accesses(stage, shapes):
            if read.gathered or read.padded:
                return False
            if along is not None and read.stride(along) not in (0, 1):
                return False
    return True


def _moves_less(node: Expression, reading: Sequence[Expression]) -> bool:
    """Whether the readers move fewer bytes if they compute the map."""
    sizes = _bytes_read(node)
    whole = node.tensor(node.outputs[0]).nbytes
    before = sum(sizes.values()) + whole * (1 + len(reading))
    after = 0
    for reader in reading:
        inputs = {tensor.name for tensor in reader.inputs}
        after += sum(nbytes for name, nbytes in sizes.items() if name not in inputs)
    return after < before


def _bytes_read(node: Expression) -> Mapping[str, int]:
    """Of each input, each element once at most."""
    inputs = {tensor.name: tensor for tensor in node.inputs}
    sizes = dict.fromkeys(inputs, 0)
    for stage in node.stages:
        for read in accesses(stage, node.shapes):
            if (tensor := inputs.get(read.read.tensor)) is not None:
                moved = _points(stage, read) * DTYPE_BYTES[tensor.dtype]
                sizes[tensor.name] = min(sizes[tensor.name] + moved, tensor.nbytes)
    return sizes


def _points(stage: Stage, read: Access) -> int:
    return prod(extent for name, extent in stage.extents.items() if name in read.axes)


def _is_gone(node: Expression, joint: Expression) -> bool:
    """Whether the joint node does not store the map, and sketches see how each read of what the
    map reads moves."""
    plain, operands = simplified(joint), {tensor.name for tensor in node.inputs}
    return all(
        stage.name not in node.outputs
        and all(
            read.strides is not None
            for read in accesses(stage, plain.shapes)
            if read.read.tensor in operands
        )
        for stage in plain.stages
    )
