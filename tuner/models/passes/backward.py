"""The derivative of a model as a graph: reverse mode over its nodes.

The graph takes the model's inputs, then for each output of floats a loss's derivative by
it; it computes the model forwards, and the derivatives by chosen inputs. Each node's
derivative is a program (`tuner.workload.derivative`) that reads what the node computed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tuner.errors import WorkloadError
from tuner.models.errors import ModelRefused
from tuner.models.graph import Graph, check_graph, without_unused
from tuner.models.nodes import Node, reads_of
from tuner.models.passes.equal_nodes import without_equal
from tuner.models.passes.fusion import fuse
from tuner.workload.derivative.program import dependent, derivative, distinct
from tuner.workload.expression import (
    Axis,
    Binary,
    Expression,
    Read,
    Scalar,
    Stage,
    Tensor,
    Var,
)
from tuner.workload.grammar import suggestion
from tuner.workload.notation import parse
from tuner.workload.printing import notation_text
from tuner.workload.renaming import rename_reads

_MARK = "d"  # before the label of a tensor, in that of its derivative


def backward(graph: Graph, wrt: Sequence[str] | None = None) -> Graph:
    """The graph of the derivatives by inputs, named as the model's file does; without `wrt` by
    all that have one.

    Its inputs are the model's, then `dy` for each output `y` of floats; its outputs `dx`
    for each input `x` in `wrt`, of its shape and dtype. Labels that exist get a number.
    Constants have no derivative: a weight that is trained must be an input of the model.

    Raises ModelRefused for an input that does not exist or has no derivative, for control
    flow and outputs of computed extents on the way, and for a node whose derivative is
    beyond the limits of one program.
    """
    builder = _Builder(graph, _inputs_of(graph, wrt), wrt is not None)
    made = fuse(without_equal(without_unused(builder.graph_of_derivatives())))
    check_graph(made)
    return made


def _inputs_of(graph: Graph, wrt: Sequence[str] | None) -> dict[str, str]:
    """The labels of the inputs to differentiate by, by their names in the graph."""
    labels = dict(zip(graph.labels, (tensor.name for tensor in graph.inputs), strict=False))
    floats = [label for label, name in labels.items() if "float" in graph.tensor(name).dtype]
    if wrt is not None and not wrt:
        raise ModelRefused(f"wrt names no input; the model's inputs are {', '.join(labels)}")
    for label in floats if wrt is None else wrt:
        if label not in labels:
            raise ModelRefused(
                f"the model has no input {label[:64]!r}{suggestion(label, list(labels))}; its "
                f"inputs are {', '.join(labels)}"
            )
        if label not in floats:
            raise ModelRefused(
                f"there is no derivative by {label!r}: it holds "
                f"{graph.tensor(labels[label]).dtype}, not floating-point numbers"
            )
    return {labels[label]: label for label in (floats if wrt is None else dict.fromkeys(wrt))}


@dataclass
class _Builder:
    """Makes the graph of one model's derivatives."""

    graph: Graph
    wrt: Mapping[str, str]  # labels by name
    is_asked: bool  # for all of these; else those without a derivative are left out
    nodes: list[Node] = field(default_factory=list)  # the backward ones
    # by the tensor that holds the bytes, tensors that add up to its derivative
    summands: dict[str, list[Tensor]] = field(default_factory=dict)
    aliases: dict[str, str] = field(default_factory=dict)
    shapes: dict[str, Tensor] = field(default_factory=dict)
    count: int = 0  # of tensors that were made
    model_names: set[str] = field(default_factory=set)  # of stages in nodes too

    def graph_of_derivatives(self) -> Graph:
        graph = self.graph
        self.model_names = _names_in(graph)
        varying = self._varying()
        weights: list[Tensor] = []
        for name in graph.outputs:
            tensor = graph.tensor(name)
            if "float" in tensor.dtype:
                weights.append(replace(tensor, name=self._fresh()))
                if graph.root(name) in varying:
                    self._add(graph.root(name), weights[-1])
        if graph.bounded:
            raise ModelRefused(
                f"outputs whose extents are computed have no derivative: {', '.join(graph.bounded)}"
            )
        for node in reversed(graph.nodes):
            if any(name in self.summands for name in node.outputs):
                self._pass_on(node, varying)
        results = {label: self._result(name) for name, label in self._with_derivative().items()}
        given = graph.labels[len(graph.inputs) :]
        smooth = [
            label
            for label, name in zip(given, graph.outputs, strict=True)
            if "float" in graph.tensor(name).dtype
        ]
        labels = list(graph.labels[: len(graph.inputs)])
        for label in (*smooth, *results):
            labels.append(distinct(_MARK + label, labels))
        return replace(
            graph,
            inputs=(*graph.inputs, *weights),
            nodes=(*graph.nodes, *self.nodes),
            outputs=tuple(results.values()),
            aliases={**graph.aliases, **self.aliases},
            shapes={**graph.shapes, **self.shapes},
            labels=tuple(labels),
            formats={
                label: format
                for label, format in graph.formats.items()
                if label in graph.labels[: len(graph.inputs)]
            },
            fast=frozenset(),
        )

    def _varying(self) -> set[str]:
        """The tensors that depend smoothly on the inputs to differentiate by."""
        varying = set(self.wrt)
        for node in self.graph.nodes:
            read = {name for name in reads_of(node) if self.graph.root(name) in varying}
            if isinstance(node, Expression):
                varying |= dependent(node, read) & {*node.outputs}
            elif read:
                floats = (n for n in node.outputs if "float" in node.tensor(n).dtype)
                varying |= {*floats}
        return varying

    def _with_derivative(self) -> dict[str, str]:
        """Labels by name of the inputs that have a derivative. Raises ModelRefused."""
        kept = {name: label for name, label in self.wrt.items() if name in self.summands}
        missing = [label for name, label in self.wrt.items() if name not in kept]
        if not kept or (missing and self.is_asked):
            raise ModelRefused(
                f"there is no derivative by {', '.join(map(repr, missing)) or 'any input'}: no "
                f"output depends on it by other ways than steps, conditions and indices"
            )
        return kept

    def _fresh(self) -> str:
        self.count += 1
        while (name := f"g{self.count}") in self.model_names:  # of a derivative's own graph
            self.count += 1
        return name

    def _add(self, root: str, tensor: Tensor) -> None:
        self.summands.setdefault(root, []).append(tensor)

    def _pass_on(self, node: Node, varying: set[str]) -> None:
        """Adds what a node's derivative gives to the tensors that it reads."""
        if not isinstance(node, Expression):
            raise ModelRefused(
                f"{node.name} on the way from the inputs to the outputs is a loop or a branch, "
                f"of which there is no derivative"
            )
        weighed = tuple(name for name in node.outputs if name in self.summands)
        narrowed = replace(node, outputs=weighed)
        read = (t.name for t in node.inputs if self.graph.root(t.name) in varying)
        chosen = [name for name in read if _derivative(narrowed, [name]) is not None]
        weights = {name: self._shaped(self._sum(name), node.tensor(name)) for name in weighed}
        try:
            self._differentiate(narrowed, chosen, weights)
        except WorkloadError as error:  # all at once are beyond the limits of a program
            if len(chosen) < 2:
                raise _beyond(node, error) from None
            for name in chosen:
                try:
                    self._differentiate(narrowed, [name], weights)
                except WorkloadError as beyond:
                    raise _beyond(node, beyond) from None

    def _differentiate(
        self, node: Expression, chosen: Sequence[str], weights: Mapping[str, Tensor]
    ) -> None:
        """Appends the node's derivative. Raises WorkloadError beyond the limits."""
        program = _derivative(node, chosen)
        if program is None:
            return
        parsed = parse(notation_text(program), {})
        names: dict[str, str] = {}
        own = {*(tensor.name for tensor in node.inputs), *node.outputs}
        for tensor, read in zip(program.inputs, parsed.inputs, strict=True):
            if tensor.name in own:
                names[read.name] = tensor.name
            else:
                names[read.name] = weights[_original(tensor.name, weights)].name
        for stage in parsed.stages:
            names[stage.name] = self._fresh()
        self.nodes.append(_renamed(parsed, names, f"{node.name}_grad"))
        for output, name in zip(parsed.outputs, chosen, strict=True):
            made = replace(parsed.tensor(output), name=names[output])
            self._add(self.graph.root(name), made)

    def _sum(self, root: str) -> Tensor:
        """The sum of a tensor's summands, which a node adds up where there are several; of a
        number with one dimension."""
        tensor = self.graph.tensor(root)
        tensor = replace(tensor, shape=tensor.shape or (1,))
        parts = [self._shaped(part, tensor) for part in self.summands[root]]
        if len(parts) == 1:
            return parts[0]
        return self._added(tensor, parts)

    def _result(self, root: str) -> str:
        """The derivative by an input, always written by a node."""
        total = self._sum(root)
        written = {name for node in self.nodes for name in node.outputs}
        made = total if total.name in written else self._added(total, [total])
        return self._shaped(made, self.graph.tensor(root)).name

    def _added(self, tensor: Tensor, parts: Sequence[Tensor]) -> Tensor:
        axes = tuple(Axis(name=f"i{d}", extent=extent) for d, extent in enumerate(tensor.shape))
        indices = tuple(Var(axis.name) for axis in axes)
        distinct = {part.name: part for part in parts}
        first, *others = (Read(part.name, indices) for part in parts)
        body: Scalar = first
        for read in others:
            body = Binary("add", body, read)
        stage = Stage(name=self._fresh(), axes=axes, body=body, dtype=tensor.dtype)
        expression = Expression(
            name="sum", inputs=tuple(distinct.values()), stages=(stage,), outputs=(stage.name,)
        )
        # Parsed, so that narrow floats are added in float32.
        parsed = parse(notation_text(expression), {})
        self.nodes.append(_renamed(parsed, {}, "sum"))
        return stage.tensor

    def _shaped(self, tensor: Tensor, like: Tensor) -> Tensor:
        """The tensor under the shape of another one of as many elements."""
        if tensor.shape == like.shape:
            return tensor
        alias = Tensor(name=self._fresh(), shape=like.shape, dtype=tensor.dtype)
        self.shapes[alias.name] = alias
        self.aliases[alias.name] = self.aliases.get(tensor.name, tensor.name)
        return alias


def _names_in(graph: Graph) -> set[str]:
    stages = (stage.name for node in graph.expressions for stage in node.stages)
    return {*(tensor.name for tensor in graph.inputs), *graph.constants, *graph.shapes, *stages}


def _derivative(node: Expression, chosen: Sequence[str]) -> Expression | None:
    """The node's derivative by some of its inputs; None where it has none by them."""
    try:
        return derivative(node, chosen, with_outputs=True)
    except WorkloadError:
        return None


def _original(name: str, names: Iterable[str]) -> str:
    """The tensor whose derivative has a name, which may have a number."""
    (original,) = (given for given in names if name == f"d{given}" or name.startswith(f"d{given}_"))
    return original


def _beyond(node: Expression, error: WorkloadError) -> ModelRefused:
    return ModelRefused(f"the derivative of {node.name} is no program: {error}")


def _renamed(expression: Expression, names: Mapping[str, str], name: str) -> Expression:
    """The expression with its tensors under other names, all others under their own."""
    stages = tuple(
        replace(
            stage,
            name=names.get(stage.name, stage.name),
            body=rename_reads(stage.body, names),
        )
        for stage in expression.stages
    )
    return replace(
        expression,
        name=name,
        inputs=tuple(
            replace(tensor, name=names.get(tensor.name, tensor.name))
            for tensor in expression.inputs
        ),
        stages=stages,
        outputs=tuple(names.get(output, output) for output in expression.outputs),
    )
