"""Chains: nodes of a model that one kernel may compute, each in the tiles of its reader.

A node is a kernel, so what lies between two nodes goes through memory. Where a space can
place one in the tiles of the other (`tuner.spaces.rewrite.tile_fusion`), both as one node
are a workload too: a substitution to the nodes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TypeGuard

from tuner.errors import WorkloadError
from tuner.models.graph import Graph
from tuner.models.nodes import Node
from tuner.models.passes.joints import is_map, joint_of, only_reader
from tuner.models.passes.substitutions import Substitution, with_names
from tuner.spaces.by_target import CATALOGUES
from tuner.spaces.rewrite.padded_maps import with_padded_maps
from tuner.spaces.rewrite.stages import inlined_within_bounds, plainly_named
from tuner.spaces.rewrite.tile_fusion import parts_in_tiles
from tuner.target.roofline import Work, bandwidth_at, least_seconds
from tuner.target.target import Target
from tuner.workload.expression import Expression

# Nodes of a chain at most: an inverted residual has three, and each further one computes
# more where tiles overlap.
LONGEST = 3
# Of the least time of its nodes, what a chain must spare of moving what lies between them.
WORTH = 0.02
# Products of other dtypes have instructions that fused nests do not use.
_DTYPES = frozenset({"float32", "float64"})


def chains_of(graph: Graph, target: Target) -> tuple[Substitution, ...]:
    """The chains of a graph that may be faster as one kernel; no node is in two.

    None for a target whose sketches fuse no groups, or whose limits were not measured.
    """
    if target.limits is None or not CATALOGUES[target.kind].fuses:
        return ()
    search = _Search(graph, target)
    return tuple(search.chains())


class _Search:
    """The chains of one graph."""

    def __init__(self, graph: Graph, target: Target) -> None:
        self.graph, self.target = graph, target
        self.judged: dict[str, bool] = {}  # by the key of a chain's workload: whether it can fuse
        self.places = {id(node): place for place, node in enumerate(graph.nodes)}
        self.writers = {node.outputs[0]: node for node in graph.nodes if _is_sum(node)}

    def chains(self) -> Iterator[Substitution]:
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

    def _chain(self, parts: Sequence[Expression]) -> Substitution | None:
        """The nodes as one; None where these cannot be fused."""
        *before, joint = parts
        for part in reversed(before):
            both = joint_of(part, joint)
            if both is None:
                return None
            joint = both
        chain = Substitution(nodes=(joint,), parts=tuple(parts))
        return chain if self._fuses(chain) else None

    def _fuses(self, chain: Substitution) -> bool:
        """Whether one fused group would compute all parts, within the limits of a workload."""
        try:
            (workload,) = chain.workloads(self.graph)
        except WorkloadError:
            return False
        if workload.key not in self.judged:
            self.judged[workload.key] = self._all_in_tiles(chain)
        return self.judged[workload.key]

    def _all_in_tiles(self, chain: Substitution) -> bool:
        """Whether one fused group would have a sum of each part."""
        prefixes = [f"part{number}stage" for number in range(len(chain.parts))]
        names = {
            stage.name: f"{prefix}{place}"
            for prefix, part in zip(prefixes, chain.parts, strict=True)
            for place, stage in enumerate(part.stages)
        }
        simplify = CATALOGUES[self.target.kind].simplify
        (joint,) = chain.nodes
        plain = plainly_named(inlined_within_bounds(with_names(joint, names)))
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
