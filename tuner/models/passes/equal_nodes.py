"""Equal nodes of a graph computed once, and equal constants kept once.

Nodes are equal that compute the same program from the same tensors, such as two heads
that normalise one input, or a table of positions that every layer makes anew. Files have
them under different names, and reshape their inputs at different places.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any

import numpy as np

from tuner.models.graph import Array, Graph, without_unused
from tuner.models.nodes import Branch, Node, Side
from tuner.workload.expression import Expression
from tuner.workload.renaming import anonymous, rename_reads


def without_equal(graph: Graph) -> Graph:
    """The same outputs, each of several equal nodes and constants once.

    Nodes inside of scans and branches stay, and read what is left.
    """
    merge = _Merge(graph)
    nodes = tuple(merge.left(graph.nodes))
    merged = replace(
        graph,
        nodes=nodes,
        outputs=tuple(merge.name(name) for name in graph.outputs),
        aliases={name: merge.root(name) for name in graph.aliases},
    )
    return without_unused(merged)


class _Merge:
    """The names under which tensors are read from now on."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._names = _equal_constants(graph.constants)
        self._nodes: dict[Any, Expression] = {}  # by what they compute
        self._aliases: dict[tuple[str, tuple[int, ...]], str] = {}  # by root and shape

    def root(self, name: str) -> str:
        root = self._graph.root(name)
        return self._names.get(root, root)

    def name(self, name: str) -> str:
        """The tensor that is read instead, of the same shape and contents."""
        root, shape = self.root(name), self._graph.tensor(name).shape
        if self._graph.tensor(root).shape == shape:
            return root
        return self._aliases.setdefault((root, shape), name)

    def left(self, nodes: Iterable[Node]) -> list[Node]:
        """The nodes that none before them equals, in order."""
        left: list[Node] = []
        for node in nodes:
            renamed = self._renamed(node)
            if isinstance(renamed, Expression):
                first = self._nodes.setdefault(_program(renamed), renamed)
                if first is not renamed:
                    self._names |= dict(zip(node.outputs, first.outputs, strict=True))
                    continue
            left.append(renamed)
        return left

    def _renamed(self, node: Node) -> Node:
        if isinstance(node, Expression):
            names = {tensor.name: self.name(tensor.name) for tensor in node.inputs}
            inputs = {names[t.name]: replace(t, name=names[t.name]) for t in node.inputs}
            stages = tuple(replace(s, body=rename_reads(s.body, names)) for s in node.stages)
            return replace(node, inputs=tuple(inputs.values()), stages=stages)
        if isinstance(node, Branch):
            return replace(
                node,
                condition=self.name(node.condition),
                then=self._side(node.then),
                other=self._side(node.other),
            )
        return replace(
            node,
            body=self._bodies(node.body),
            windows={
                name: replace(window, tensor=self.name(window.tensor))
                for name, window in node.windows.items()
            },
            states=tuple(
                replace(state, initial=self.name(state.initial), after=self.name(state.after))
                for state in node.states
            ),
        )

    def _side(self, side: Side) -> Side:
        return replace(
            side,
            nodes=self._bodies(side.nodes),
            results=tuple(self.name(name) for name in side.results),
        )

    def _bodies(self, nodes: Sequence[Node]) -> tuple[Node, ...]:
        return tuple(self._renamed(node) for node in nodes)


def _program(node: Expression) -> tuple[Any, ...]:
    """What two equal nodes share. The names of their results are not in it."""
    places = {stage.name: number for number, stage in enumerate(node.stages)}
    results = tuple(places[name] for name in node.outputs)
    return node.inputs, anonymous(node.stages), results


def _equal_constants(constants: Mapping[str, Array]) -> dict[str, str]:
    """The first constant of the same bytes and shape, by the names of the others.

    Only those of a size that another has are read.
    """
    alike: dict[tuple[Any, ...], list[str]] = {}
    for name, array in constants.items():
        alike.setdefault((array.shape, array.dtype.str), []).append(name)
    first: dict[bytes, str] = {}
    names: dict[str, str] = {}
    for (shape, dtype), group in alike.items():
        if len(group) == 1:
            continue
        for name in group:
            digest = sha256(f"{shape}{dtype}".encode())
            digest.update(constants[name].reshape(-1).view(np.uint8).data)
            if (other := first.setdefault(digest.digest(), name)) != name:
                names[name] = other
    return names
