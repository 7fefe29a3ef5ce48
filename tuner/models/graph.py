"""A model as a graph of expressions, with its constants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod
from typing import Any, cast

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.models.nodes import (
    NO_LIMIT,
    Branch,
    Node,
    Scan,
    Window,
    calls,
    every_node,
    reads_of,
    slice_bytes,
)
from tuner.workload.bounded import BoundedExtents
from tuner.workload.bounds import check_bounds
from tuner.workload.budgets import check_budgets
from tuner.workload.dtypes import DType
from tuner.workload.expression import Expression, Stage, Tensor, Within, reads
from tuner.workload.facts import fact_error
from tuner.workload.structure import check_structure

Array = np.ndarray[Any, np.dtype[Any]]
LARGEST_FIXED = 1024  # elements of an input with only one value; texts of a library show it


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A model. Each node is an expression whose inputs and outputs are graph tensors, or
    repeats some nodes, or chooses among them.

    A node reads only inputs, constants, aliases, and the outputs of earlier nodes. An
    alias is another tensor under another shape: the same bytes in the same order.
    """

    inputs: tuple[Tensor, ...]
    constants: Mapping[str, Array]
    nodes: tuple[Node, ...]
    outputs: tuple[str, ...]
    # name of an alias -> name of the tensor it stands for, which is no alias itself
    aliases: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Tensor] = field(default_factory=dict)  # of the aliases
    labels: tuple[str, ...] = ()  # the file's names of the inputs, then of the outputs
    # the file's name of an input or output -> the format of its numbers, such as
    # float8_e4m3fn or int4, which its dtype only holds
    formats: Mapping[str, str] = field(default_factory=dict)
    # Outputs whose extents are computed at run time, by their labels.
    bounded: Mapping[str, BoundedExtents] = field(default_factory=dict)
    # Inputs with the only value they may have; no node reads them.
    fixed: Mapping[str, Array] = field(default_factory=dict)
    # Inputs whose elements must lie in a range, which each call of a library for a CPU checks.
    # Nodes take what lies outside all the same, for the nearest index.
    ranges: Mapping[str, Within] = field(default_factory=dict)
    # Nodes under fast numerics, by the name of their first output; the others are strict.
    fast: frozenset[str] = frozenset()
    # Outputs that replace an input, both by their labels: a caller may pass the input's
    # memory for such an output.
    replacing: Mapping[str, str] = field(default_factory=dict)

    def tensor(self, name: str) -> Tensor:
        """Shape and dtype of a tensor of the graph, constants included.

        Raises KeyError for a name that the graph does not have.
        """
        return self._tensors[name]

    @cached_property
    def readers(self) -> Mapping[str, Sequence[Node]]:
        """The nodes that read each tensor under its own name, in order."""
        reading: dict[str, list[Node]] = {}
        for node in self.nodes:
            for name in dict.fromkeys(reads_of(node)):
                reading.setdefault(name, []).append(node)
        return reading

    @cached_property
    def makers(self) -> Mapping[str, tuple[int, Node]]:
        """The node that computes each tensor, with its place."""
        return {
            name: (place, node) for place, node in enumerate(self.nodes) for name in node.outputs
        }

    @cached_property
    def visible(self) -> frozenset[str]:
        """The tensors that an output or an alias shows."""
        return frozenset((*self.outputs, *self.aliases.values()))

    @cached_property
    def _tensors(self) -> dict[str, Tensor]:
        tensors = {tensor.name: tensor for tensor in self.inputs} | dict(self.shapes)
        for name, array in self.constants.items():
            dtype = cast(DType, array.dtype.name)
            tensors.setdefault(name, Tensor(name=name, shape=array.shape, dtype=dtype))
        for node in every_node(self.nodes):
            tensors |= {name: node.tensor(name) for name in node.outputs}
            if isinstance(node, Scan):
                tensors |= node.shapes
        return tensors

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Those of the nodes and inside of them, in order."""
        return tuple(expression for expression, _ in calls(self.nodes))

    @property
    def refusals(self) -> tuple[str, ...]:
        """Why sides of branches could not be read; calls that choose them fail."""
        return tuple(
            side.refusal
            for node in every_node(self.nodes)
            if isinstance(node, Branch)
            for side in (node.then, node.other)
            if side.refusal
        )

    def root(self, name: str) -> str:
        """The name of the tensor that holds the bytes: an alias resolved."""
        return self.aliases.get(name, name)

    @property
    def replaced(self) -> dict[int, int]:
        """The inputs that outputs replace, by the numbers of these outputs.

        Raises KeyError for a label that the graph does not have.
        """
        count = len(self.inputs)
        given = {label: number for number, label in enumerate(self.labels[:count])}
        made = {label: number for number, label in enumerate(self.labels[count:])}
        return {made[output]: given[label] for output, label in self.replacing.items()}

    @property
    def nbytes(self) -> int:
        """Bytes of all constants."""
        return sum(array.nbytes for array in self.constants.values())


def check_graph(graph: Graph) -> None:
    """Checks that each tensor exists before it is read and has the shape readers expect.

    Raises ModelRefused, or WorkloadError for a node that is no valid expression.
    """
    check = _Check(graph)
    check.nodes(graph.nodes)
    missing = [name for name in graph.outputs if name not in check.tensors]
    if missing or check.waiting or not graph.outputs:
        raise ModelRefused(f"the model has no {', '.join(missing or check.waiting or ['outputs'])}")
    if len(graph.labels) != len(graph.inputs) + len(graph.outputs):
        raise ModelRefused(
            f"{len(graph.labels)} names for {len(graph.inputs)} inputs and "
            f"{len(graph.outputs)} outputs"
        )
    outputs = dict(zip(graph.labels[len(graph.inputs) :], graph.outputs, strict=True))
    for label, bounded in graph.bounded.items():
        if label not in outputs or not _counts(
            graph.tensor(outputs[label]), bounded.axes, outputs.get(bounded.extents), graph
        ):
            raise ModelRefused(f"{bounded.extents!r} does not have the extents of {label!r}")
    _check_replaced(graph)
    _check_ranges(graph)


def _check_ranges(graph: Graph) -> None:
    inputs = {tensor.name: tensor for tensor in graph.inputs}
    for name, within in graph.ranges.items():
        if name not in inputs:
            raise ModelRefused(f"{name!r} has a range, but is no input")
        error = fact_error(replace(inputs[name], fact=within))
        if error is not None:
            raise ModelRefused(error)


def _check_replaced(graph: Graph) -> None:
    """An output that replaces an input is as large and computed, and each replaces another."""
    count = len(graph.inputs)
    unknown = {*graph.replacing} - {*graph.labels[count:]}
    unknown |= {*graph.replacing.values()} - {*graph.labels[:count]}
    if unknown:
        raise ModelRefused(
            f"{min(unknown)!r} is no output that replaces an input, and no such input"
        )
    given = {*graph.constants, *(tensor.name for tensor in graph.inputs)}
    seen: set[str] = set()
    for output, number in graph.replaced.items():
        name, tensor = graph.outputs[output], graph.inputs[number]
        root = graph.root(name)
        if not _alike(graph.tensor(name), tensor) or root in given or {root, tensor.name} & seen:
            raise ModelRefused(f"output {name!r} cannot replace the input {tensor.name!r}")
        seen |= {root, tensor.name}


def _counts(tensor: Tensor, axes: tuple[int, ...], extents: str | None, graph: Graph) -> bool:
    """Whether a tensor has a number for each of the dimensions of another."""
    if extents is None or not axes or sorted({*axes}) != list(axes):
        return False
    numbers = graph.tensor(extents)
    return (
        0 <= axes[0] <= axes[-1] < len(tensor.shape)
        and numbers.dtype == "int64"
        and numbers.shape == (len(axes),)
    )


class _Check:
    """Walks a graph's nodes in order. `tensors` are those that exist where it is."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.tensors = {tensor.name: tensor for tensor in graph.inputs}
        for name, array in graph.fixed.items():
            tensor = Tensor(name=name, shape=array.shape, dtype=cast(DType, array.dtype.name))
            if self.tensors.get(name) != tensor or array.size > LARGEST_FIXED:
                raise ModelRefused(f"{name!r} is fixed at a value that no input has")
        self.tensors |= {name: graph.tensor(name) for name in graph.constants}
        self.names = {*self.tensors}  # of all tensors, those of inner nodes included
        self.waiting = dict(graph.aliases)  # until the tensor they stand for exists
        self.note_aliases()

    def nodes(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if isinstance(node, Expression):
                self.expression(node)
            elif isinstance(node, Scan):
                self.scan(node)
            else:
                self.branch(node)
            self.note_aliases()

    def expression(self, node: Expression) -> None:
        check_structure(node)
        check_bounds(node)
        check_budgets(node)
        for tensor in node.inputs:
            if self.tensors.get(tensor.name) != tensor:
                raise ModelRefused(
                    f"a part of the model reads {tensor.name!r}, which does not exist by then "
                    f"or is another"
                )
        for name in node.outputs:
            self.add(node.tensor(name))

    def add(self, tensor: Tensor) -> None:
        if tensor.name in self.names:
            raise ModelRefused(f"{tensor.name!r} is written twice")
        self.names.add(tensor.name)
        self.tensors[tensor.name] = tensor

    def note_aliases(self) -> None:
        """Moves aliases whose tensor exists by now from `waiting` to `tensors`."""
        for name, other in list(self.waiting.items()):
            if other not in self.tensors or other in self.graph.aliases:
                continue
            tensor = self.graph.shapes.get(name)
            if tensor is None or name in self.names or not _alike(tensor, self.tensors[other]):
                raise ModelRefused(f"{name!r} is not {other!r} with another shape")
            self.names.add(name)
            self.tensors[name] = tensor
            del self.waiting[name]

    def scan(self, scan: Scan) -> None:
        """Windows stay inside their tensors, and each slice is written once."""
        if not 1 <= scan.count <= NO_LIMIT:
            raise ModelRefused(f"{scan.name} is repeated {scan.count} times")
        for state in scan.states:
            self.same(state.tensor, state.initial)
        outside = dict(self.tensors)
        for tensor in scan.results:
            self.add(tensor)
        written = scan.written
        for name, window in scan.windows.items():
            self.window(scan, name, window, written=name in written)
        states = {state.tensor.name: state.tensor for state in scan.states}
        condition = scan.condition
        if condition is not None and (condition not in states or not _is_flag(states[condition])):
            raise ModelRefused(f"{scan.name} ends by {condition!r}, which is no state of it")
        replaced = states.keys() & {window.tensor for window in written.values()}
        body_reads = {name for node in every_node(scan.body) for name in reads_of(node)}
        if replaced & {self.graph.root(name) for name in body_reads}:
            raise ModelRefused(f"{scan.name} reads the state {min(replaced)!r}, which it writes")
        self.nodes(scan.body)
        for state in scan.states:
            self.same(state.tensor, state.after)
            if state.after in states and state.after != state.tensor.name:
                raise ModelRefused(f"{state.tensor.name!r} becomes the state {state.after!r}")
        outside |= {tensor.name: tensor for tensor in scan.results}
        self.tensors = {
            name: tensor
            for name, tensor in self.tensors.items()
            if self.graph.root(name) in outside
        }

    def window(self, scan: Scan, name: str, window: Window, *, written: bool) -> None:
        sliced, shape = self.tensors.get(window.tensor), scan.shapes[name]
        last = window.start + window.step * (scan.count - 1)
        if (
            sliced is None
            or shape.dtype != sliced.dtype
            or shape.nbytes != slice_bytes(sliced)
            or not 0 <= min(window.start, last) <= max(window.start, last) < sliced.shape[0]
        ):
            raise ModelRefused(f"{name!r} is no slice of {window.tensor!r}")
        own = {tensor.name for tensor in scan.sequences}
        own |= {s.tensor.name for s in scan.states if written and s.after == s.tensor.name}
        if written != (window.tensor in own) or (written and window.step == 0):
            raise ModelRefused(f"{name!r} writes no slices of a sequence, or reads some")
        if not written:
            self.add(shape)

    def branch(self, branch: Branch) -> None:
        """The sides have the same results."""
        condition = self.tensors.get(branch.condition)
        if condition is None or not _is_flag(condition):
            raise ModelRefused(f"{branch.name} is chosen by {branch.condition!r}")
        outside = dict(self.tensors)
        for side in (branch.then, branch.other):
            if side.refusal:
                continue
            self.nodes(side.nodes)
            if len(side.results) != len(branch.results):
                raise ModelRefused(f"a side of {branch.name} has {len(side.results)} results")
            for tensor, name in zip(branch.results, side.results, strict=True):
                self.same(tensor, name)
            self.tensors = dict(outside)
        for tensor in branch.results:
            self.add(tensor)

    def same(self, tensor: Tensor, source: str) -> None:
        """Checks that a tensor can be copied from another."""
        other = self.tensors.get(source)
        if other is None or not _alike(tensor, other):
            raise ModelRefused(f"{tensor.name!r} does not become {source!r}")


def _alike(tensor: Tensor, other: Tensor) -> bool:
    """Whether both have the same bytes, shapes aside."""
    return tensor.nbytes == other.nbytes and tensor.dtype == other.dtype


def _is_flag(tensor: Tensor) -> bool:
    return tensor.dtype == "bool" and prod(tensor.shape) == 1


def without_unused(graph: Graph) -> Graph:
    """The graph without nodes, aliases and constants that no output depends on.

    Scans write only those of their sequences that are read. Its inputs stay.
    """
    live = set(graph.outputs)
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        live |= {graph.aliases[name] for name in live if name in graph.aliases}
        if live & set(node.outputs):
            kept = _without_unread(node, live, graph) if isinstance(node, Scan) else node
            nodes.append(kept)
            live |= {name for inner in every_node([kept]) for name in reads_of(inner)}
    live |= {graph.aliases[name] for name in live if name in graph.aliases}
    return replace(
        graph,
        nodes=tuple(reversed(nodes)),
        constants={name: array for name, array in graph.constants.items() if name in live},
        aliases={name: other for name, other in graph.aliases.items() if name in live},
        shapes={name: tensor for name, tensor in graph.shapes.items() if name in live},
    )


def _without_unread(scan: Scan, live: set[str], graph: Graph) -> Scan:
    """The scan with those of its results that are live, the condition, the states that its
    iterations need for these, and what computes them."""
    lasting = live | ({scan.condition} if scan.condition is not None else set())
    while True:
        kept = _with_results(scan, lasting, graph)
        inner = every_node(kept.body)
        read = {graph.root(name) for node in inner for name in reads_of(node)}
        further = {state.tensor.name for state in scan.states if state.tensor.name in read}
        if further <= lasting:
            return kept
        lasting = lasting | further


def _with_results(scan: Scan, lasting: set[str], graph: Graph) -> Scan:
    """The scan with these results, and what computes them from all of its states."""
    sequences = tuple(tensor for tensor in scan.sequences if tensor.name in lasting)
    states = tuple(state for state in scan.states if state.tensor.name in lasting)
    written = scan.written
    results = {name for name, window in written.items() if window.tensor in lasting}
    needed = {state.after for state in states} | results
    body: list[Node] = []
    for node in reversed(scan.body):
        roots = {graph.root(name) for name in needed}
        if roots & {*node.outputs}:
            kept = _narrowed(node, roots) if isinstance(node, Expression) else node
            body.append(kept)
            needed |= {name for inner in every_node([kept]) for name in reads_of(inner)}
    needed = {graph.root(name) for name in needed}
    windows = {
        name: window
        for name, window in scan.windows.items()
        if name in (results if name in written else needed)
    }
    return replace(
        scan,
        body=tuple(reversed(body)),
        windows=windows,
        shapes={name: scan.shapes[name] for name in windows},
        sequences=sequences,
        states=states,
    )


def _narrowed(node: Expression, live: set[str]) -> Expression:
    """The node with those of its results that are live, and the stages that these need."""
    outputs = tuple(name for name in node.outputs if name in live)
    needed, stages = {*outputs}, list[Stage]()
    for stage in reversed(node.stages):
        if stage.name in needed:
            stages.append(stage)
            needed |= {read.tensor for read in reads(stage.body)}
    inputs = tuple(tensor for tensor in node.inputs if tensor.name in needed)
    return replace(node, inputs=inputs, stages=tuple(reversed(stages)), outputs=outputs)
