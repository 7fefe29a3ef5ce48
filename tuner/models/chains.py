"""Chains: nodes of a model that one kernel may compute, each in the tiles of its reader.

A node is a kernel, so what lies between two nodes goes through memory. Where a space can
place one in the tiles of the other (`tuner.spaces.rewrite.tile_fusion`), both as one node
are a workload too. The model keeps its nodes: which of the two is faster inside of it is
measured there (`chain_race`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeGuard

from tuner.errors import WorkloadError
from tuner.models.fusion import (
    inlined_within_bounds,
    is_map,
    joint_of,
    only_reader,
    with_replaced,
)
from tuner.models.graph import Graph
from tuner.models.nodes import Branch, Node, Side
from tuner.models.workloads import ModelWorkload, workload_of
from tuner.spaces.by_target import CATALOGUES
from tuner.spaces.rewrite.padded_maps import with_padded_maps
from tuner.spaces.rewrite.stages import plainly_named
from tuner.spaces.rewrite.tile_fusion import parts_in_tiles
from tuner.target.roofline import Work, bandwidth_at, least_seconds
from tuner.target.target import Target
from tuner.workload.expression import Expression, Tensor
from tuner.workload.renaming import rename_reads

# Nodes of a chain at most: an inverted residual has three, and each further one computes
# more where tiles overlap.
LONGEST = 3
# Of the least time of its nodes, what a chain must spare of moving what lies between them.
WORTH = 0.02
# Products of other dtypes have instructions that fused nests do not use.
_DTYPES = frozenset({"float32", "float64"})
_FLAG = "_chained"  # the input of a graph with choices; no other tensor has the name
_SIDES = ("_together", "_apart")  # what names of results on the sides of a choice end in


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Nodes of a graph, each read by later ones of them alone, but the last."""

    node: Expression  # all of them as one
    parts: tuple[Expression, ...]  # in the graph's order

    @property
    def result(self) -> str:
        return self.node.outputs[0]


def chains_of(graph: Graph, target: Target) -> tuple[Chain, ...]:
    """The chains of a graph that may be faster as one kernel; no node is in two.

    None for a target whose sketches fuse no groups, or whose limits were not measured.
    """
    if target.limits is None or not CATALOGUES[target.kind].fuses:
        return ()
    search = _Search(graph, target)
    return tuple(search.chains())


def with_chains(graph: Graph, chains: Sequence[Chain]) -> Graph:
    """The graph with these chains as nodes, under strict numerics."""
    changes: dict[int, tuple[Node, ...]] = {}
    for chain in chains:
        *before, last = chain.parts
        changes |= {id(part): () for part in before} | {id(last): (chain.node,)}
    fast = graph.fast - {part.outputs[0] for chain in chains for part in chain.parts}
    return replace(with_replaced(graph, changes), fast=fast)


def with_choice(graph: Graph, chains: Sequence[Chain]) -> Graph:
    """The graph with one more input, a byte: 1 for each of the chains as one, 0 for its nodes.

    It comes last. Nodes inside of a choice have results of other names (`choice_of`).
    """
    changes: dict[int, tuple[Node, ...]] = {}
    fast = graph.fast
    for chain in chains:
        *before, last = chain.parts
        changes |= {id(part): () for part in before} | {id(last): (_choice(chain),)}
        if chain.result in fast:
            fast = fast - {chain.result} | {chain.result + _SIDES[1]}
    flag = Tensor(name=_FLAG, shape=(1,), dtype="uint8")
    place = len(graph.inputs)
    return replace(
        with_replaced(graph, changes),
        inputs=(*graph.inputs, flag),
        labels=(*graph.labels[:place], _FLAG, *graph.labels[place:]),
        fast=fast,
    )


def choice_of(chain: Chain) -> tuple[str, tuple[str, ...]]:
    """The results of a choice's nodes: of all as one, and of each apart."""
    together, apart = (chain.result + side for side in _SIDES)
    return together, (*(part.outputs[0] for part in chain.parts[:-1]), apart)


def chain_workloads(graph: Graph, chains: Sequence[Chain]) -> list[ModelWorkload]:
    """The distinct workloads of the chains, with how often the model would call each."""
    strict = replace(graph, fast=frozenset())
    distinct: dict[str, ModelWorkload] = {}
    for chain in chains:
        workload = workload_of(chain.node, strict)
        before = distinct.get(workload.key)
        keys = tuple(workload_of(part, strict).key for part in chain.parts)
        distinct[workload.key] = ModelWorkload(
            workload=workload,
            calls=1 if before is None else before.calls + 1,
            instead_of=keys if before is None else before.instead_of,
        )
    return list(distinct.values())


def _choice(chain: Chain) -> Branch:
    *before, last = chain.parts
    together, apart = (
        _with_result(node, node.outputs[0] + side)
        for node, side in zip((chain.node, last), _SIDES, strict=True)
    )
    return Branch(
        name=chain.node.name,
        condition=_FLAG,
        then=Side(nodes=(together,), results=together.outputs),
        other=Side(nodes=(*before, apart), results=apart.outputs),
        results=(last.tensor(chain.result),),
    )


def _with_result(node: Expression, name: str) -> Expression:
    """The node with another name for its only result."""
    return _renamed(node, {node.outputs[0]: name})


def _renamed(node: Expression, names: Mapping[str, str]) -> Expression:
    """The node with other names for some of its stages."""
    stages = tuple(
        replace(
            stage,
            name=names.get(stage.name, stage.name),
            body=rename_reads(stage.body, names),
        )
        for stage in node.stages
    )
    return replace(
        node, stages=stages, outputs=tuple(names.get(name, name) for name in node.outputs)
    )


class _Search:
    """The chains of one graph."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph, self.target = graph, target
        self.judged: dict[str, bool] = {}  # by the key of a chain's workload: whether it can fuse
        self.places = {id(node): place for place, node in enumerate(graph.nodes)}
        self.writers = {node.outputs[0]: node for node in graph.nodes if _is_sum(node)}

    def chains(self) -> Iterator[Chain]:
        """Those that spare most first; what can be no chain leaves its nodes to others."""
        offered = [parts for node in self.writers.values() for parts in self._ending((node,))]
        offered.sort(key=lambda parts: (-self._moved_s(parts), self.places[id(parts[-1])]))
        grouped: set[int] = set()
        for parts in offered:
            if grouped.isdisjoint(map(id, parts)) and (chain := self._chain(parts)) is not None:
                grouped |= {id(part) for part in parts}
                yield chain

    def _ending(self, parts: tuple[Expression, ...]) -> Iterator[tuple[Expression, ...]]:
        """These nodes with some more before them that only these read, where that is worth it."""
        if len(parts) > 1 and self._is_worth(parts):
            yield parts
        if len(parts) == LONGEST:
            return
        for name in dict.fromkeys(tensor.name for part in parts for tensor in part.inputs):
            node = self.writers.get(name)
            if node is not None and self._may_join(node, parts):
                longer = sorted((node, *parts), key=lambda part: self.places[id(part)])
                yield from self._ending(tuple(longer))

    def _may_join(self, node: Expression, parts: Sequence[Expression]) -> bool:
        """Whether it is none of these nodes and only they read it."""
        reader = only_reader(self.graph, node.outputs[0])
        return not any(node is part for part in parts) and any(reader is part for part in parts)

    def _is_worth(self, parts: Sequence[Expression]) -> bool:
        """Whether moving what lies between takes a part of the time that can be noticed."""
        least_s = sum(
            least_seconds(Work(flops=part.flops, nbytes=part.nbytes), self.target) for part in parts
        )
        return self._moved_s(parts) >= WORTH * least_s

    def _moved_s(self, parts: Sequence[Expression]) -> float:
        """Seconds of writing and reading what lies between."""
        limits = self.target.limits
        assert limits is not None
        between = [part.tensor(part.outputs[0]).nbytes for part in parts[:-1]]
        return sum(2 * nbytes / bandwidth_at(limits, nbytes) for nbytes in between)

    def _chain(self, parts: Sequence[Expression]) -> Chain | None:
        """The nodes as one; None where these cannot be fused."""
        *before, joint = parts
        for part in reversed(before):
            both = joint_of(part, joint)
            if both is None:
                return None
            joint = both
        chain = Chain(node=joint, parts=tuple(parts))
        return chain if self._fuses(chain) else None

    def _fuses(self, chain: Chain) -> bool:
        """Whether one fused group would compute all parts, within the limits of a workload."""
        try:
            workload = workload_of(chain.node, replace(self.graph, fast=frozenset()))
        except WorkloadError:
            return False
        if workload.key not in self.judged:
            self.judged[workload.key] = self._all_in_tiles(chain)
        return self.judged[workload.key]

    def _all_in_tiles(self, chain: Chain) -> bool:
        """Whether one fused group would have a sum of each part."""
        prefixes = [f"part{number}stage" for number in range(len(chain.parts))]
        names = {
            stage.name: f"{prefix}{place}"
            for prefix, part in zip(prefixes, chain.parts, strict=True)
            for place, stage in enumerate(part.stages)
        }
        simplify = CATALOGUES[self.target.kind].simplify
        plain = plainly_named(inlined_within_bounds(_renamed(chain.node, names)))
        expression = with_padded_maps(simplify(plain))
        sums = {stage.name for stage in expression.stages if stage.reducer is not None}
        return any(
            all(any(name.startswith(prefix) for name in group & sums) for prefix in prefixes)
            for group in parts_in_tiles(expression)
        )


def _is_sum(node: Node) -> TypeGuard[Expression]:
    """Whether the node has one result, reduces, and computes in dtypes that fused nests take."""
    return (
        isinstance(node, Expression)
        and len(node.outputs) == 1
        and not is_map(node)
        and all(tensor.dtype in _DTYPES for tensor in node.tensors.values())
    )
