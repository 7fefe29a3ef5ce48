"""Cuts a traced graph into the largest regions that have expressions; the rest stays.

A node has a level: how many regions lie on the way to it from the inputs. What is ours
at one level is a region, since all that it reads lies in earlier levels or is ours too.
So there are as few regions as there can be.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeAlias

import torch

from tuner.errors import WorkloadError
from tuner.models.errors import ModelRefused
from tuner.models.from_torch.reader import is_random
from tuner.models.from_torch.region import (
    device_of,
    graph_and_orders,
    is_free,
    lies_without_gaps,
    refusal,
)
from tuner.models.from_torch.traced import (
    Order,
    TakenApart,
    TracedPart,
    described,
    gotten_of,
    whole,
)
from tuner.models.graph import Graph
from tuner.runtime.wrapper import MAX_ARGUMENTS
from tuner.torch.packed_graph import PackedGraph
from tuner.torch.saved import SavedTensors

Node: TypeAlias = Any  # torch.fx.Node, of a package that is read without its types

# Normalisations whose second and third results are statistics, and what reads these.
_NORMS = (
    "aten._native_batch_norm_legit_functional.default",
    "aten.native_layer_norm.default",
    "aten.native_group_norm.default",
)
_NORM_DERIVATIVES = (
    "aten.native_batch_norm_backward.default",
    "aten.native_layer_norm_backward.default",
    "aten.native_group_norm_backward.default",
)


@dataclass(frozen=True, kw_only=True)
class EagerCall:
    """A call that stays with PyTorch."""

    operator: str  # e.g. aten.sort.stable
    name: str  # in the traced graph
    reason: str


@dataclass(frozen=True, kw_only=True)
class Region:
    """Calls that are computed together, and their graph of expressions."""

    part: TracedPart
    graph: Graph
    # Outputs that replace inputs, as an optimiser's step replaces parameters: the numbers of
    # both. Nobody else reads either, so the region may write the output over the input.
    replaced: tuple[tuple[int, int], ...] = ()

    @cached_property
    def packed(self) -> PackedGraph:
        return PackedGraph.of(self.graph)


@dataclass(frozen=True, kw_only=True)
class Partition:
    """What a traced graph is computed by, in order: regions and nodes of PyTorch."""

    steps: tuple[Region | Node, ...]
    left: tuple[EagerCall, ...]
    # The order of dimensions of tensors that regions make or take otherwise than traced.
    orders: Mapping[Node, Order] = field(default_factory=dict)

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(step for step in self.steps if isinstance(step, Region))


def partition(
    graph: torch.fx.Graph, apart: TakenApart = whole, saved: SavedTensors | None = None
) -> Partition:
    """The partition of a graph of ATen operators, as AOTAutograd makes it: functional, but for
    what is copied to its inputs at the end. Calls whose operators have no expression are ours
    if all that `apart` takes them apart into is. What is `saved` lies as its region computes it,
    where regions alone read it.

    Views at the end of a region are PyTorch's, of what the region computes, so that they
    alias what they alias there. Random operators keep their order. What writes, and what sees
    that, comes last.
    """
    return _Cut(graph, apart, saved or SavedTensors()).partition()


class _Cut:
    def __init__(self, graph: torch.fx.Graph, apart: TakenApart, saved: SavedTensors) -> None:
        self.graph, self.apart, self.saved = graph, apart, saved
        self.orders = saved.given(graph)
        calls = [node for node in graph.nodes if node.op == "call_function"]
        self.last = _writing(calls)
        self.calls = [node for node in calls if node not in self.last]
        self.copies = {node.args[1]: node for node in self.last if _is_copy(node)}
        self.reasons = self._reasons()
        self.levels: dict[Node, int] = {}
        self.left: list[EagerCall] = []
        self.steps: list[Region | Node] = []

    def partition(self) -> Partition:
        # What reads no tensors is computed first, and within each region that reads it.
        self.steps += [node for node in self.graph.nodes if node.op == "get_attr"]
        self.steps += [node for node in self.calls if self._is_constant(node)]
        self._find_levels()
        for node, reason in self.reasons.items():
            if reason is not None and node.target is not operator.getitem:
                self._leave(node, reason)
        for level in range(max(self.levels.values(), default=0) + 1):
            own = [node for node in self.calls if self.levels.get(node) == level]
            ours = [node for node in own if self._is_ours(node)]
            for device in dict.fromkeys(map(device_of, ours)):
                self._add([node for node in ours if device_of(node) == device])
            self.steps += [node for node in own if not self._is_ours(node)]
        self.steps += self.last
        for node in self.last:
            if not _is_copy(node):
                self._leave(node, "writes its arguments, or sees what was written")
        return Partition(steps=self._needed(), left=tuple(self.left), orders=self.orders)

    def _reasons(self) -> dict[Node, str | None]:
        """Why each call stays; None for those that are ours. Equal calls are tried once."""
        tried: dict[str, str | None] = {}
        reasons: dict[Node, str | None] = {}
        for node in self.calls:
            if node.target is operator.getitem:
                reasons[node] = reasons[node.args[0]]
                continue
            key = described(node)
            if key not in tried:
                tried[key] = refusal(node, self.apart)
            reasons[node] = tried[key]
            if tried[key] is None and _has_untraced_statistics(node):
                reasons[node] = "has statistics of another dtype than its trace says"
        return reasons

    def _is_ours(self, node: Node) -> bool:
        return node in self.reasons and self.reasons[node] is None

    def _is_constant(self, node: Node) -> bool:
        return self._is_ours(node) and not node.all_input_nodes

    def _find_levels(self) -> None:
        random = 0
        for node in self.calls:
            if self._is_constant(node):
                continue
            before = 0
            for source in node.all_input_nodes:
                if self._is_constant(source):
                    continue
                enters = self._is_ours(node) and not self._is_ours(source)
                before = max(before, self.levels.get(source, 0) + enters)
            if self._is_ours(node):
                before = max(before, 1)
            elif is_random(node):
                before = random = max(before, random)
            self.levels[node] = before

    def _leave(self, node: Node, reason: str) -> None:
        self.left.append(EagerCall(operator=str(node.target), name=node.name, reason=reason))

    def _add(self, nodes: Sequence[Node]) -> None:
        """Adds a region of nodes of one level, or several where it has too many tensors,
        or PyTorch's own calls where there is none."""
        part, views = self._part(nodes)
        if all(is_free(node) for node in part.nodes):
            self.steps += nodes
            return
        count = len(part.inputs) + len(part.outputs)
        if count > MAX_ARGUMENTS:
            halves = [half for half in _halves(nodes) if half]
            if len(halves) > 1:
                for half in halves:
                    self._add(half)
                return
        try:
            if count > MAX_ARGUMENTS:
                raise ModelRefused(f"it has {count} tensors, the limit is {MAX_ARGUMENTS}")
            self.steps.append(self._region(part))
            self.steps += views
        except (ModelRefused, WorkloadError) as error:
            self.steps += nodes
            for node in nodes:
                if not is_free(node):
                    self._leave(node, f"its region has no graph: {error}")

    def _region(self, part: TracedPart) -> Region:
        """The region, with the copies of its outputs to inputs, which are left out of `last`."""
        graph, orders = graph_and_orders(part, self.apart)
        part = replace(part, orders={**part.orders, **orders})
        for node, order in list(orders.items()):
            orders |= {user: order for user in node.users if _is_alias(user)}
        self.orders |= orders
        self.saved.note(orders)
        inside, inputs = set(part.nodes), list(part.inputs)
        roots = [graph.root(name) for name in graph.outputs]
        computed = {name for node in graph.nodes for name in node.outputs}
        replaced = []
        for number, output in enumerate(part.outputs):
            copy = self.copies.get(output)
            if copy is None or roots.count(roots[number]) > 1 or roots[number] not in computed:
                continue
            old = copy.args[0]
            readers = {*old.users, *output.users} - {copy}
            alone = readers <= inside and not copy.users
            if old in inputs and alone and _lie_alike(old, output):
                replaced.append((number, inputs.index(old)))
                del self.last[copy]
        labels, count = graph.labels, len(inputs)
        replacing = {labels[count + number]: labels[place] for number, place in replaced}
        return Region(
            part=part, graph=replace(graph, replacing=replacing), replaced=tuple(replaced)
        )

    def _part(self, nodes: Sequence[Node]) -> tuple[TracedPart, list[Node]]:
        """The region of these nodes, and the views behind it."""
        inside, outputs, views = set(nodes), dict[Node, None](), set[Node]()
        waiting = [node for node in nodes if any(user not in inside for user in node.users)]
        while waiting:
            node = waiting.pop()
            if node in views or node in outputs:
                continue
            if not is_free(node):
                outputs[node] = None
                continue
            views.add(node)
            waiting += [source for source in node.all_input_nodes if source in inside]
        needed = set(outputs)
        for node in reversed(nodes):
            if node in needed:
                needed |= {source for source in node.all_input_nodes if source in inside}
        own = [node for node in nodes if node in needed]
        read = dict.fromkeys(source for node in own for source in node.all_input_nodes)
        constants = [node for node in read if self._is_constant(node)]
        part = TracedPart(
            nodes=[*constants, *own],
            inputs=[node for node in read if node not in needed and node not in constants],
            outputs=[node for node in own if node in outputs],
            orders={node: self.orders[node] for node in read if node in self.orders},
            as_computed=[node for node in outputs if self._is_for_regions(node)],
        )
        return part, [node for node in nodes if node in views]

    def _is_for_regions(self, node: Node) -> bool:
        """Whether only regions of this graph and the backward graph read a node, by itself or by
        an alias. Any other view may be PyTorch's, which makes it of a tensor that lies as
        traced."""
        is_saved = node.name in self.saved.names
        aliases = [user for user in node.users if _is_alias(user)]
        return (
            (is_saved or bool(aliases))
            and all(map(self._is_for_regions, aliases))
            and all(
                is_saved if user.op == "output" else self._is_ours(user) and not is_free(user)
                for user in node.users
                if user not in aliases
            )
        )

    def _needed(self) -> tuple[Region | Node, ...]:
        """The steps whose results somebody reads."""
        (end,) = (node for node in self.graph.nodes if node.op == "output")
        needed = set(end.all_input_nodes)
        kept: list[Region | Node] = []
        for step in reversed(self.steps):
            if isinstance(step, Region):
                needed |= set(step.part.inputs)
            elif step in needed or step.is_impure():
                needed |= set(step.all_input_nodes)
            else:
                continue
            kept.append(step)
        return tuple(reversed(kept))


def _has_untraced_statistics(node: Node) -> bool:
    """Whether a normalisation gives or takes statistics of float32 whose trace says otherwise. So
    PyTorch's kernels have them where a tensor has another dtype than its weights, as under
    autocast."""
    name = str(node.target)
    if name not in _NORMS and name not in _NORM_DERIVATIVES:
        return False
    dtypes = {source.meta["val"].dtype for source in node.all_input_nodes}
    return len(dtypes) > 1 and (name in _NORM_DERIVATIVES or not gotten_of(node).isdisjoint({1, 2}))


def _writing(calls: Iterable[Node]) -> dict[Node, None]:
    """The calls that write their arguments, and those that read what these give, in order."""
    writing: dict[Node, None] = {}
    for node in calls:
        schema = getattr(node.target, "_schema", None)
        if (schema is not None and schema.is_mutable) or not writing.keys().isdisjoint(
            node.all_input_nodes
        ):
            writing[node] = None
    return writing


def _is_copy(node: Node) -> bool:
    """Whether a call copies a tensor to an input of the graph."""
    return (
        node.target is torch.ops.aten.copy_.default
        and node.args[0].op == "placeholder"
        and isinstance(node.args[1], torch.fx.Node)
    )


def _is_alias(node: Node) -> bool:
    """Whether a node is a tensor again, with the same shape and strides."""
    return node.target in (torch.ops.aten.alias.default, torch.ops.aten.detach.default)


def _lie_alike(old: Node, new: Node) -> bool:
    """Whether both are tensors of the CPU with the same elements at the same places, and no
    gaps."""
    before, after = old.meta["val"], new.meta["val"]
    return (
        not (before.is_cuda or after.is_cuda)
        and before.dtype == after.dtype
        and before.shape == after.shape
        and before.stride() == after.stride()
        and lies_without_gaps(after)
    )


def _halves(nodes: Sequence[Node]) -> tuple[Sequence[Node], Sequence[Node]]:
    """Two parts, which do not part a call from its results."""
    firsts = [place for place, node in enumerate(nodes) if node.target is not operator.getitem]
    middle = firsts[len(firsts) // 2]
    behind = set(nodes[middle:])
    parted = {
        node for node in behind if node.args[0] not in behind and node.target is operator.getitem
    }
    first = [*nodes[:middle], *(node for node in nodes[middle:] if node in parted)]
    return first, [node for node in nodes[middle:] if node not in parted]
