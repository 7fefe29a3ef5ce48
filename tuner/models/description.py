"""A model for those who have not read its file: what it takes and gives, its kernels in order.

It has neither constants nor expressions, so it is small and can be shown and stored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from tuner.measure.statistics import disturbed
from tuner.models.graph import Graph
from tuner.models.library.memory import plan_memory
from tuner.models.nodes import Branch, Node, Scan
from tuner.models.workloads import workload_of
from tuner.workload.bounded import BoundedExtents, bounded_from
from tuner.workload.expression import Expression, Tensor
from tuner.workload.workload import Numerics

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node of the graph, or inside of a scan or branch."""

    kernel: str  # key of its workload
    name: str  # of its expression
    numerics: Numerics
    calls: int  # in one call of the model
    reads: tuple[Tensor, ...]
    constants: tuple[str, ...]  # those of `reads` that are constants of the model
    writes: tuple[Tensor, ...]
    after: tuple[int, ...]  # positions of the steps whose results it reads
    inputs: tuple[int, ...]  # positions of the model's inputs that it reads
    outputs: tuple[int, ...]  # positions of the model's outputs that it computes


@dataclass(frozen=True, kw_only=True)
class Description:
    """A model's inputs and outputs under the file's names, its steps, its memory."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    constants_bytes: int
    activations_bytes: int  # of a call, at its peak, without inputs and outputs
    # Outputs whose extents are computed, by name.
    bounded: Mapping[str, BoundedExtents] = field(default_factory=dict)


def described(graph: Graph) -> Description:
    walk = _Steps(graph)
    walk.nodes(graph.nodes, 1)
    inputs = [tensor.name for tensor in graph.inputs]
    labels = graph.labels[: len(inputs)], graph.labels[len(inputs) :]
    outputs = _labelled(graph, graph.outputs, labels[1])
    return Description(
        inputs=_labelled(graph, inputs, labels[0]),
        outputs=outputs,
        bounded={
            tensor.name: graph.bounded[label]
            for tensor, label in zip(outputs, labels[1], strict=True)
            if label in graph.bounded
        },
        steps=walk.finished(),
        constants_bytes=graph.nbytes,
        activations_bytes=plan_memory(graph).arena_bytes,
    )


def _labelled(graph: Graph, names: Sequence[str], labels: Sequence[str]) -> tuple[Tensor, ...]:
    """The tensors under the file's names; a name that is there twice gets its position."""
    count = Counter(labels)
    tensors = [graph.tensor(name) for name in names]
    return tuple(
        Tensor(
            name=label if count[label] == 1 else f"{label}_{position}",
            shape=tensor.shape,
            dtype=tensor.dtype,
        )
        for position, (label, tensor) in enumerate(zip(labels, tensors, strict=True))
    )


class _Steps:
    """The steps of nodes, and of those inside of them, in their order."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.steps: list[Step] = []
        # Steps by what they write, a tensor that is no alias. The model's inputs count down
        # from -1.
        self.writers = {tensor.name: {-1 - n} for n, tensor in enumerate(graph.inputs)}
        self.behind: dict[str, str] = {}  # what lies inside of another tensor -> that

    def source(self, name: str) -> str:
        """The tensor that holds the bytes."""
        name = self.graph.root(name)
        while name in self.behind:
            name = self.graph.root(self.behind[name])
        return name

    def note(self, name: str, *sources: str) -> None:
        """A tensor becomes, or depends on, the content of others."""
        steps = (step for other in sources for step in self.writers.get(self.source(other), ()))
        self.writers.setdefault(self.source(name), set()).update(list(steps))

    def nodes(self, nodes: Iterable[Node], count: int) -> None:
        """`count` is the number of times that they are computed."""
        for node in nodes:
            if isinstance(node, Expression):
                self.add(node, count)
            elif isinstance(node, Scan):
                self.behind |= {name: window.tensor for name, window in node.windows.items()}
                for state in node.states:
                    self.note(state.tensor.name, state.initial)
                self.nodes(node.body, count * node.repeats)
                for state in node.states:
                    self.note(state.tensor.name, state.after)
            else:
                self.branch(node, count)

    def branch(self, branch: Branch, count: int) -> None:
        for side in (branch.then, branch.other):
            in_place = side.in_place
            self.behind |= {name: branch.outputs[number] for number, name in in_place.items()}
            self.nodes(side.nodes, count)
            for name, result in zip(side.results, branch.outputs, strict=False):
                self.note(result, name, branch.condition)

    def add(self, node: Expression, count: int) -> None:
        sources = [self.source(tensor.name) for tensor in node.inputs]
        before = sorted({step for name in sources for step in self.writers.get(name, ())})
        workload = workload_of(node, self.graph)
        step = Step(
            kernel=workload.key,
            name=node.name,
            numerics=workload.numerics,
            calls=count,
            reads=node.inputs,
            constants=tuple(
                tensor.name
                for tensor, source in zip(node.inputs, sources, strict=True)
                if source in self.graph.constants
            ),
            writes=tuple(node.tensor(name) for name in node.outputs),
            after=tuple(step for step in before if step >= 0),
            inputs=tuple(-1 - step for step in reversed(before) if step < 0),
            outputs=(),
        )
        for name in node.outputs:
            self.writers.setdefault(self.source(name), set()).add(len(self.steps))
        self.steps.append(step)

    def finished(self) -> tuple[Step, ...]:
        """The steps, with the model's outputs that each computes, alone or with others."""
        outputs: dict[int, list[int]] = {}
        for number, name in enumerate(self.graph.outputs):
            for step in self.writers.get(self.source(name), ()):
                outputs.setdefault(step, []).append(number)
        return tuple(
            replace(step, outputs=tuple(outputs.get(position, ())))
            for position, step in enumerate(self.steps)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelTime:
    """What a kernel takes within its model."""

    inside_s: float  # seconds of a call, the mean of its calls
    peak_fraction: float | None  # of the machine's multiply-add rate, where that is measured


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """A model's library as it was checked and timed."""

    median_s: float  # of a call
    ci95_s: tuple[float, float]
    max_rel_error: float  # of its outputs, against ONNX's reference evaluator
    kernels: Mapping[str, KernelTime]  # by the key of the workload

    @property
    def disturbed(self) -> bool:
        """Whether the interval is so wide that the median is in doubt."""
        return disturbed(self.median_s, self.ci95_s)


def measurement_from(document: Mapping[str, Any]) -> Measurement:
    """The inverse of `dataclasses.asdict`."""
    kernels = {key: KernelTime(**fields) for key, fields in document["kernels"].items()}
    low, high = document["ci95_s"]
    return Measurement(**{**document, "ci95_s": (low, high), "kernels": kernels})


def to_json(description: Description) -> bytes:
    return json.dumps({"schema": SCHEMA, **asdict(description)}, separators=(",", ":")).encode()


def from_json(content: bytes) -> Description:
    """The inverse of `to_json`. Raises ValueError, KeyError or TypeError for other bytes."""
    document = json.loads(content)
    del document["schema"]
    document |= {
        "inputs": _tensors(document["inputs"]),
        "outputs": _tensors(document["outputs"]),
        "bounded": {
            name: bounded_from(bounded) for name, bounded in document.get("bounded", {}).items()
        },
        "steps": tuple(
            Step(
                **{
                    **step,
                    "reads": _tensors(step["reads"]),
                    "writes": _tensors(step["writes"]),
                    **{
                        name: tuple(step[name])
                        for name in ("constants", "after", "inputs", "outputs")
                    },
                }
            )
            for step in document["steps"]
        ),
    }
    return Description(**document)


def _tensors(documents: Sequence[Any]) -> tuple[Tensor, ...]:
    return tuple(
        Tensor(name=each["name"], shape=tuple(each["shape"]), dtype=each["dtype"])
        for each in documents
    )
