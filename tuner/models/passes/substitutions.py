"""Substitutions: nodes that a model may have in place of some of its own.

They compute the same in fewer kernels: a chain as one node (`chains`), siblings as one
(`siblings`). The model keeps its nodes: which are faster inside of it is measured there
(`chain_race`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from tuner.models.graph import Array, Graph, without_unused
from tuner.models.nodes import Branch, Node, Side, reads_of
from tuner.models.passes.joints import with_replaced
from tuner.models.workloads import ModelWorkload, workload_of
from tuner.workload.expression import Expression, Tensor
from tuner.workload.renaming import rename_reads
from tuner.workload.workload import Workload

Kind = Literal["chain", "siblings"]

_FLAG = "_chained"  # the input of a graph with choices; no other tensor has the name
_SIDES = ("_together", "_apart")  # what names of results on the sides of a choice end in


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined:
    """A constant that consists of constants of a graph, one behind the other."""

    parts: tuple[Tensor, ...]
    dimension: int

    def tensor(self, name: str) -> Tensor:
        shape = list(self.parts[0].shape)
        shape[self.dimension] = sum(part.shape[self.dimension] for part in self.parts)
        return replace(self.parts[0], name=name, shape=tuple(shape))

    def array(self, graph: Graph) -> Array:
        arrays = [graph.constants[graph.root(part.name)].reshape(part.shape) for part in self.parts]
        return np.concatenate(arrays, self.dimension)


@dataclass(frozen=True, slots=True, kw_only=True)
class Substitution:
    """Nodes in place of others, with the same results where anything else reads these."""

    # Those with results of their own read what is there before the first of the parts.
    nodes: tuple[Expression, ...]
    parts: tuple[Expression, ...]  # that they take the place of, in the graph's order
    # Nodes that stay: they read results of parts, and other parts read theirs.
    between: tuple[Expression, ...] = ()
    # Constants that only `nodes` read, by name. The graph has them once it has the nodes.
    constants: Mapping[str, Joined] = field(default_factory=dict)

    @property
    def kind(self) -> Kind:
        return "siblings" if self.constants else "chain"

    @property
    def written_twice(self) -> frozenset[str]:
        """The names that are written whichever nodes are chosen."""
        together, apart, between = (
            {name for node in nodes for name in node.outputs}
            for nodes in (self.nodes, self.parts, self.between)
        )
        return frozenset(together & apart | between)

    def workloads(self, graph: Graph) -> tuple[Workload, ...]:
        """Those of its nodes, which are strict. Raises WorkloadError beyond a limit."""
        strict = replace(graph, fast=frozenset())
        return tuple(workload_of(node, strict, self.constants) for node in self.nodes)

    def placed(self) -> dict[int, tuple[Node, ...]]:
        """What is in the place of each part, by its `id`: the nodes with its results, and those
        with results of their own where the first part was."""
        changes: dict[int, tuple[Node, ...]] = {id(part): () for part in self.parts}
        places = {part.outputs: part for part in self.parts}
        for node in self.nodes:
            changes[id(places.get(node.outputs, self.parts[0]))] += (node,)
        return changes


def with_substitutions(graph: Graph, substitutions: Sequence[Substitution]) -> Graph:
    """The graph with these nodes in place of its own, under strict numerics."""
    changes: dict[int, tuple[Node, ...]] = {}
    for each in substitutions:
        changes |= each.placed()
    parts = {part.outputs[0] for each in substitutions for part in each.parts}
    changed = replace(
        with_replaced(graph, changes),
        fast=graph.fast - parts,
        constants=_constants(graph, substitutions),
    )
    return without_unused(changed)


def with_choice(graph: Graph, substitutions: Sequence[Substitution]) -> Graph:
    """The graph with one more input, a byte: 1 for the substitutions, 0 for its own nodes.

    It comes last. Nodes inside of a choice have results of other names (`choice_of`).
    """
    chosen = replace(graph, constants=_constants(graph, substitutions))
    for each in substitutions:
        chosen = _with_branch(chosen, each)
    flag = Tensor(name=_FLAG, shape=(1,), dtype="uint8")
    place = len(graph.inputs)
    return replace(
        chosen,
        inputs=(*graph.inputs, flag),
        labels=(*graph.labels[:place], _FLAG, *graph.labels[place:]),
    )


def choice_of(substitution: Substitution) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The first results of a choice's nodes: of the substitution's, and of those apart."""
    renamed = substitution.written_twice
    together, apart = (
        tuple(node.outputs[0] + (side if node.outputs[0] in renamed else "") for node in nodes)
        for nodes, side in zip((substitution.nodes, substitution.parts), _SIDES, strict=True)
    )
    return together, apart


def substitution_workloads(
    graph: Graph, substitutions: Sequence[Substitution]
) -> list[ModelWorkload]:
    """The distinct workloads of the substitutions, with how often the model would call each."""
    strict = replace(graph, fast=frozenset())
    distinct: dict[str, ModelWorkload] = {}
    for each in substitutions:
        instead_of = tuple(workload_of(part, strict).key for part in each.parts)
        workloads = each.workloads(graph)
        keys = [workload.key for workload in workloads]
        for place, workload in enumerate(workloads):
            first = ModelWorkload(
                workload=workload,
                calls=0,
                instead_of=instead_of,
                beside=(*keys[:place], *keys[place + 1 :]),
            )
            before = distinct.get(workload.key, first)
            distinct[workload.key] = replace(before, calls=before.calls + 1)
    return list(distinct.values())


def between(graph: Graph, parts: Sequence[Expression]) -> list[Node]:
    """The other nodes that read results of parts, or what is computed from them, and that
    parts need."""
    inside = {id(part) for part in parts}
    written: set[str] = set()
    following: list[Node] = []
    for node in graph.nodes:
        if id(node) in inside or _roots(node, graph) & written:
            written |= {*node.outputs}
            following.append(node)
    needed: set[str] = set()
    staying: list[Node] = []
    for node in reversed(following):
        if id(node) in inside or {*node.outputs} & needed:
            needed |= _roots(node, graph)
            staying += [] if id(node) in inside else [node]
    return staying[::-1]


def _constants(graph: Graph, substitutions: Sequence[Substitution]) -> dict[str, Array]:
    """The graph's constants and those of the substitutions."""
    joined = {name: made for each in substitutions for name, made in each.constants.items()}
    return {**graph.constants, **{name: made.array(graph) for name, made in joined.items()}}


def _roots(node: Node, graph: Graph) -> set[str]:
    """The tensors whose bytes a node reads."""
    return {graph.root(name) for name in reads_of(node)}


def _with_branch(graph: Graph, substitution: Substitution) -> Graph:
    """The graph with a branch where the last part was, in place of all of them."""
    mine = {id(node) for node in (*substitution.parts, *substitution.between)}
    apart = [node for node in graph.nodes if id(node) in mine]
    changes = substitution.placed()
    together = [new for node in apart for new in changes.get(id(node), (node,))]
    before, behind = _around(graph, apart)
    shown = {name for node in (*before, *behind) for name in _roots(node, graph)}
    shown |= {graph.root(name) for name in graph.outputs}
    twice = substitution.written_twice
    results = tuple(
        node.tensor(name) for node in apart for name in node.outputs if name in twice & shown
    )
    aliased = [name for name, root in graph.aliases.items() if root in twice]
    sides = []
    for nodes, side in zip((together, apart), _SIDES, strict=True):
        names = {name: name + side for name in (*twice, *aliased)}
        renamed = tuple(with_names(node, names) for node in nodes if isinstance(node, Expression))
        sides.append(Side(nodes=renamed, results=tuple(names[each.name] for each in results)))
    then, other = sides
    name = substitution.nodes[0].name
    branch = Branch(name=name, condition=_FLAG, then=then, other=other, results=results)
    fast, strict = graph.fast & twice, {part.outputs[0] for part in substitution.parts}
    together_fast = {name + _SIDES[0] for name in fast - strict}
    return replace(
        graph,
        nodes=(*before, branch, *behind),
        aliases={
            **graph.aliases,
            **{name + side: graph.aliases[name] + side for side in _SIDES for name in aliased},
        },
        shapes={
            **graph.shapes,
            **{
                name + side: replace(graph.shapes[name], name=name + side)
                for side in _SIDES
                for name in aliased
            },
        },
        fast=graph.fast - fast | together_fast | {name + _SIDES[1] for name in fast},
    )


def _around(graph: Graph, nodes: Sequence[Node]) -> tuple[list[Node], list[Node]]:
    """The other nodes, before and behind the place of the last of these: those that read
    their results stand behind."""
    mine = {id(node) for node in nodes}
    place = max(number for number, node in enumerate(graph.nodes) if id(node) in mine)
    written = {name for node in nodes for name in node.outputs}
    before: list[Node] = []
    behind: list[Node] = []
    for node in graph.nodes[: place + 1]:
        if id(node) in mine:
            continue
        if _roots(node, graph) & written:
            written |= {*node.outputs}
            behind.append(node)
        else:
            before.append(node)
    return before, [*behind, *graph.nodes[place + 1 :]]


def with_names(node: Expression, names: Mapping[str, str]) -> Expression:
    """The node with other names for some of its tensors."""
    return replace(
        node,
        inputs=tuple(replace(t, name=names.get(t.name, t.name)) for t in node.inputs),
        stages=tuple(
            replace(
                stage,
                name=names.get(stage.name, stage.name),
                body=rename_reads(stage.body, names),
            )
            for stage in node.stages
        ),
        outputs=tuple(names.get(name, name) for name in node.outputs),
    )
