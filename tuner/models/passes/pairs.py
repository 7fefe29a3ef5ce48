"""Elementwise nodes as one node with the results of both, where calls of kernels count.

That is in the body of a scan, which is repeated often, and for results so small that a call
takes as long as its arithmetic, such as what a batch normalisation has of each channel. Each
kernel of a model takes a part of the time that it is tuned in, however small it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from math import prod
from typing import TypeGuard

from tuner.models.graph import Graph
from tuner.models.nodes import Node, reads_of
from tuner.models.passes.joints import joint_of, with_replaced
from tuner.spaces.rewrite.stages import is_elementwise
from tuner.workload.expression import Expression

SMALL = 4096  # elements of a result

Related = Callable[[Expression, Expression], bool]


def with_pairs(graph: Graph) -> Graph:
    """Elementwise nodes that read the result of another become one node with it, which has
    the results of both. For nodes that are called so often that calls count."""
    return _paired(graph, lambda first, second: _reads(second, first))


def with_small_pairs(graph: Graph) -> Graph:
    """Likewise, where the results are small; also of nodes that both read a tensor that is no
    constant."""

    def related(first: Expression, second: Expression) -> bool:
        sources = {graph.root(name) for name in reads_of(first)} - graph.constants.keys()
        common = not sources.isdisjoint(graph.root(name) for name in reads_of(second))
        small = all(prod(extents) <= SMALL for extents in _extents(first))
        return small and (common or _reads(second, first))

    return _paired(graph, related)


def _reads(reader: Expression, node: Expression) -> bool:
    return not {*node.outputs}.isdisjoint(reads_of(reader))


def _paired(graph: Graph, related: Related) -> Graph:
    position = 0
    while position < len(graph.nodes):
        node = graph.nodes[position]
        pair = next(_pairs(graph, node, related), None)
        if pair is None:
            position += 1
            continue
        reader, both = pair
        graph = with_replaced(graph, {id(node): (both,), id(reader): ()})
    return graph


def _pairs(graph: Graph, node: Node, related: Related) -> Iterator[tuple[Expression, Expression]]:
    """The later nodes that can be computed where the node is, each with the two as one."""
    if not _is_elementwise(node):
        return
    place = next(number for number, other in enumerate(graph.nodes) if other is node)
    later = {name for other in graph.nodes[place + 1 :] for name in other.outputs}
    for reader in graph.nodes[place + 1 :]:
        if not _is_elementwise(reader) or _extents(reader) != _extents(node):
            continue
        roots = {graph.root(name) for name in reads_of(reader)}
        under_own_name = {*reads_of(reader)} & {*node.outputs}
        if roots & {*node.outputs} != under_own_name or roots & later:
            continue
        if not related(node, reader):
            continue
        rest = [other for other in graph.nodes if other is not reader]
        seen = {graph.root(name) for other in rest for name in reads_of(other)}
        seen |= {*graph.outputs, *graph.aliases.values()}
        kept = tuple(name for name in node.outputs if name in seen)
        if both := joint_of(node, reader, kept):
            yield reader, both


def _is_elementwise(node: Node) -> TypeGuard[Expression]:
    return isinstance(node, Expression) and all(is_elementwise(stage) for stage in node.stages)


def _extents(node: Expression) -> set[tuple[int, ...]]:
    """The shapes of the results, without dimensions of one point."""
    shapes = (node.tensor(name).shape for name in node.outputs)
    return {tuple(extent for extent in shape if extent > 1) for shape in shapes}
