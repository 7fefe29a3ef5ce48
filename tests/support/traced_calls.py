"""Recorded calls as a traced program would leave them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tuner.models.graph import Graph
from tuner.models.reference.evaluation import evaluate_graph
from tuner.trace.record import Library, Trace, TracedCall
from tuner.trace.recorder.arguments import described


def call(operator: str, *arguments: Any, count: float = 1, total_s: float = 1.0) -> TracedCall:
    """A call of NumPy, or of PyTorch by a name such as aten::add; arguments that are documents
    are taken as they are."""
    library: Library = "torch" if "::" in operator else "numpy"
    return TracedCall(
        library=library,
        operator=operator,
        arguments=tuple(a if isinstance(a, dict) else described(a) for a in arguments),
        count=count,
        total_s=total_s,
    )


def trace_of(*calls: TracedCall) -> Trace:
    return Trace(
        command=("python", "program.py"),
        exit_code=0,
        elapsed_s=10.0,
        processes=(),
        calls=tuple(sorted(calls, key=lambda each: -each.total_s)),
    )


def evaluated(graph: Graph, *arrays: Any) -> Any:
    """The only output of a graph, whose inputs get arrays as they lie in memory."""
    stored = []
    for array in map(np.asarray, arrays):
        order = sorted(range(array.ndim), key=lambda axis: (-array.strides[axis], axis))
        stored.append(array.transpose(order))
    (output,) = graph.outputs
    return evaluate_graph(graph, stored)[output]
