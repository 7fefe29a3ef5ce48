"""Maps that read each other's results computed part by part, so that these stay in a cache.

A node is a kernel, so a map whose result is an output writes all of it before the next map
reads it. Of tensors that the second cache does not hold both come from farther away. Here
such maps become the body of a scan over parts that it holds, as loops are blocked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from math import prod

from tuner.models.graph import Graph
from tuner.models.nodes import Node, Scan, Window, reads_of
from tuner.models.passes.joints import is_map
from tuner.spaces.rewrite.stages import fresh_name
from tuner.workload.dtypes import DTYPE_BYTES
from tuner.workload.expression import (
    Axis,
    Const,
    Expression,
    Read,
    Scalar,
    Stage,
    Tensor,
    Var,
    reads,
    rewrite,
    walk,
)

ALIGNMENT = 64  # bytes, of a part: kernels work on parts where they are
LEAST_ELEMENTS = 2048  # of a part; calls of kernels on fewer are felt
SHARE = 2  # of the cache one half is for a part of all tensors


def in_parts(graph: Graph, cache_bytes: int) -> Graph:
    """The graph with runs of maps in scans, where a cache of so many bytes does not hold what
    they read and write."""
    for run in list(_runs(graph)):
        split = _Run(graph, run)
        count = split.count(cache_bytes)
        if count > 1:
            graph = split.scanned(count)
    return graph


def _runs(graph: Graph) -> Iterator[list[Expression]]:
    """Consecutive maps of the same points, each of which reads what one before it reads or
    writes, under the same name."""
    run: list[Expression] = []
    for node in graph.nodes:
        if run and _joins(node, run, graph):
            assert isinstance(node, Expression)
            run.append(node)
            continue
        if len(run) > 1:
            yield run
        run = [node] if isinstance(node, Expression) and _is_pointwise(node) else []
    if len(run) > 1:
        yield run


def _joins(node: Node, run: Sequence[Expression], graph: Graph) -> bool:
    if not isinstance(node, Expression) or not _is_pointwise(node):
        return False
    made = {other.outputs[0] for other in run}
    seen = made | {tensor.name for other in run for tensor in _moving(other)}
    renamed = any(graph.root(tensor.name) in made - {tensor.name} for tensor in node.inputs)
    return (
        _shape(node) == _shape(run[0])
        and not renamed
        and any(tensor.name in seen for tensor in _moving(node))
    )


def _shape(node: Expression) -> tuple[int, ...]:
    return node.tensor(node.outputs[0]).shape


def _moving(node: Expression) -> list[Tensor]:
    """The inputs that have an element for each of the node's result."""
    return [tensor for tensor in node.inputs if prod(tensor.shape) > 1]


def _is_pointwise(node: Expression) -> bool:
    """Whether a map reads at each point that point of tensors of its shape, and tensors of one
    element, and nothing depends on where the point is."""
    shape = _shape(node)
    if not is_map(node) or prod(shape) < 2:
        return False
    return all(
        stage.tensor.shape == shape or (stage.points == 1 and prod(stage.tensor.shape) == 1)
        for stage in node.stages
    ) and all(_reads_in_place(stage, node, shape) for stage in node.stages)


def _reads_in_place(stage: Stage, node: Expression, shape: tuple[int, ...]) -> bool:
    shapes = node.shapes
    here = tuple(Var(axis.name) for axis in stage.axes)
    for read in reads(stage.body):
        alone = prod(shapes[read.tensor]) == 1
        moves = shapes[read.tensor] == shape == stage.tensor.shape and read.indices == here
        if read.pad is not None or not (alone or moves):
            return False
    bare = rewrite(stage.body, lambda part: Const(0, "int64") if isinstance(part, Read) else None)
    return not any(isinstance(part, Var) for part in walk(bare))


class _Run:
    """A run of maps and the names of its parts."""

    def __init__(self, graph: Graph, nodes: Sequence[Expression]) -> None:
        self.graph, self.nodes, self.shape = graph, nodes, _shape(nodes[0])
        self.size = prod(self.shape)
        self.made = [node.tensor(node.outputs[0]) for node in nodes]
        names = {tensor.name for tensor in self.made}
        given = {tensor.name: tensor for node in nodes for tensor in _moving(node)}
        self.given = [tensor for name, tensor in given.items() if name not in names]

    def count(self, cache_bytes: int) -> int:
        """The least number of equal, aligned parts of which the cache holds one; 1 where it
        holds the whole, or no part is as small."""
        widths = [DTYPE_BYTES[tensor.dtype] for tensor in (*self.given, *self.made)]
        whole = sum(widths) * self.size
        if whole <= cache_bytes:
            return 1
        least = -(-whole * SHARE // cache_bytes)
        for count in range(max(least, 2), self.size // LEAST_ELEMENTS + 1):
            length, rest = divmod(self.size, count)
            if rest == 0 and all(length * width % ALIGNMENT == 0 for width in widths):
                return count
        return 1

    def scanned(self, count: int) -> Graph:
        """The graph with the run in a scan of so many parts."""
        graph, length = self.graph, self.size // count
        reserved = {*_names(graph)}
        parts, wholes = dict[str, Tensor](), dict[str, Tensor]()
        for tensor in (*self.given, *self.made):
            names = [fresh_name(f"{tensor.name}_{kind}", reserved) for kind in ("part", "parts")]
            part = replace(tensor, name=names[0], shape=(length,))
            whole = replace(tensor, name=names[1], shape=(count, length))
            parts[tensor.name], wholes[tensor.name] = part, whole
            reserved |= {part.name, whole.name}
        scan = Scan(
            name=self.nodes[0].name,
            count=count,
            body=tuple(self._part(node, parts, length) for node in self.nodes),
            windows={
                parts[name].name: Window(tensor=whole.name, start=0, step=1)
                for name, whole in wholes.items()
            },
            shapes={part.name: part for part in parts.values()},
            sequences=tuple(wholes[tensor.name] for tensor in self.made),
            states=(),
        )
        # What was made is the whole of its parts under the shape that it had.
        made = {tensor.name: wholes[tensor.name].name for tensor in self.made}
        aliases = {name: made.get(root, root) for name, root in graph.aliases.items()} | made
        aliases |= {wholes[t.name].name: graph.root(t.name) for t in self.given}
        shapes = {**graph.shapes, **{tensor.name: tensor for tensor in self.made}}
        shapes |= {wholes[t.name].name: wholes[t.name] for t in self.given}
        last = self.nodes[-1]
        inside = {id(node) for node in self.nodes}
        nodes = tuple(
            scan if node is last else node
            for node in graph.nodes
            if node is last or id(node) not in inside
        )
        return replace(graph, nodes=nodes, aliases=aliases, shapes=shapes)

    def _part(self, node: Expression, parts: dict[str, Tensor], length: int) -> Expression:
        """The node on one part, an axis of so many points."""
        shapes = node.shapes

        def moved(stage: Stage) -> Stage:
            if stage.tensor.shape != self.shape:
                return stage
            axis = Axis(name=stage.axes[0].name, extent=length)

            def change(read: Scalar) -> Scalar | None:
                if not isinstance(read, Read):
                    return None
                if prod(shapes[read.tensor]) == 1:
                    return Read(read.tensor, (Const(0, "int64"),) * len(read.indices))
                name = parts[read.tensor].name if read.tensor in parts else read.tensor
                return Read(name, (Var(axis.name),))

            name = parts[stage.name].name if stage.name in parts else stage.name
            return replace(stage, name=name, axes=(axis,), body=rewrite(stage.body, change))

        return replace(
            node,
            inputs=tuple(parts.get(tensor.name, tensor) for tensor in node.inputs),
            stages=tuple(moved(stage) for stage in node.stages),
            outputs=tuple(parts[name].name for name in node.outputs),
        )


def _names(graph: Graph) -> Collection[str]:
    """All that a new tensor must not be called."""
    inner = {name for node in graph.expressions for name in node.tensors}
    every = {name for node in graph.nodes for name in (*node.outputs, *reads_of(node))}
    return {*inner, *every, *graph.constants, *graph.aliases, *(t.name for t in graph.inputs)}
