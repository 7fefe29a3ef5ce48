"""A model for those who have not read its file: what it takes and gives, its kernels in order.

It has neither constants nor expressions, so it is small and can be shown and stored.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tuner.models.graph import Graph
from tuner.models.memory import plan_memory
from tuner.models.scan import Scan
from tuner.models.workloads import workload_of
from tuner.workload.expression import Expression, Tensor

SCHEMA = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One node of the graph, or of a scan's body."""

    kernel: str  # key of its workload
    name: str  # of its expression
    calls: int  # in one call of the model
    reads: tuple[Tensor, ...]
    constants: tuple[str, ...]  # those of `reads` that are constants of the model
    writes: tuple[Tensor, ...]
    after: tuple[int, ...]  # positions of the steps whose results it reads


@dataclass(frozen=True, kw_only=True)
class Description:
    """A model's inputs and outputs under the file's names, its steps, its memory."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    steps: tuple[Step, ...]
    constants_bytes: int
    activations_bytes: int  # of a call, at its peak, without inputs and outputs


def described(graph: Graph) -> Description:
    inputs = [tensor.name for tensor in graph.inputs]
    labels = graph.labels[: len(inputs)], graph.labels[len(inputs) :]
    return Description(
        inputs=_labelled(graph, inputs, labels[0]),
        outputs=_labelled(graph, graph.outputs, labels[1]),
        steps=tuple(_steps(graph)),
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


def _steps(graph: Graph) -> list[Step]:
    steps: list[Step] = []
    writers: dict[str, set[int]] = {}  # name of a tensor that is no alias -> steps
    for node in graph.nodes:
        if isinstance(node, Scan):
            for sequence, source in node.initial.items():
                writers[sequence] = set(writers.get(graph.root(source), ()))
            windows = {name: window.tensor for name, window in node.windows.items()}
            for inner in node.body:
                _add(steps, inner, node.count, graph, writers, windows)
        else:
            _add(steps, node, 1, graph, writers, {})
    return steps


def _add(
    steps: list[Step],
    node: Expression,
    count: int,
    graph: Graph,
    writers: dict[str, set[int]],
    windows: Mapping[str, str],
) -> None:
    """Adds a node that is computed `count` times. `windows` maps those of its scan to the
    tensors behind them; a step that writes a window writes these."""
    sources = [graph.root(windows.get(t.name, graph.root(t.name))) for t in node.inputs]
    step = Step(
        kernel=workload_of(node, graph).key,
        name=node.name,
        calls=count,
        reads=node.inputs,
        constants=tuple(
            tensor.name
            for tensor, source in zip(node.inputs, sources, strict=True)
            if source in graph.constants
        ),
        writes=tuple(node.tensor(name) for name in node.outputs),
        after=tuple(sorted({step for name in sources for step in writers.get(name, ())})),
    )
    for name in node.outputs:
        writers.setdefault(windows.get(name, name), set()).add(len(steps))
    steps.append(step)


def to_json(description: Description) -> bytes:
    return json.dumps({"schema": SCHEMA, **asdict(description)}, separators=(",", ":")).encode()


def from_json(content: bytes) -> Description:
    """The inverse of `to_json`. Raises ValueError, KeyError or TypeError for other bytes."""
    document = json.loads(content)
    del document["schema"]
    document |= {
        "inputs": _tensors(document["inputs"]),
        "outputs": _tensors(document["outputs"]),
        "steps": tuple(
            Step(
                **{
                    **step,
                    "reads": _tensors(step["reads"]),
                    "writes": _tensors(step["writes"]),
                    "constants": tuple(step["constants"]),
                    "after": tuple(step["after"]),
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
