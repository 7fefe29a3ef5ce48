"""Holds an imported graph against ONNX's reference evaluator, and finds the operator at fault.

The graph that is tuned is evaluated in float64 on the same inputs. Where an output is
wrong, the file is recorded once more with the result of every operator as an output, so
that the first wrong one can be named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tuner.models.errors import NotEvaluated
from tuner.models.files.input_values import InputValues
from tuner.models.from_onnx.reader import graph_of_all, without_functions
from tuner.models.graph import Array, Graph
from tuner.models.reference.accuracy import relative_error, tolerance_of
from tuner.models.reference.amplification import allowed_error
from tuner.models.reference.bounded_outputs import filled
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.reference.onnx_evaluation import evaluate, evaluate_all
from tuner.models.reference.verdict import Right, Unjudged, Verdict, Wrong
from tuner.workload.bounded import first


def verdict_on(model: Any, graph: Graph, inputs: Sequence[Array], values: InputValues) -> Verdict:
    """Whether the graph computes what ONNX's evaluator does of the checked `ModelProto`.

    `inputs` are in the graph's order. `values` are those that the graph was read with.
    """
    try:
        right = evaluate(model, inputs)
    except NotEvaluated as error:
        return Unjudged(reason=str(error), evaluable=False)
    right = filled(graph, right)
    with np.errstate(all="ignore"):
        tensors = evaluate_graph(graph, inputs)
    errors = [
        _apart(tensors[name], array) for name, array in zip(graph.outputs, right, strict=True)
    ]
    worst = int(np.argmax(errors))
    tolerance = allowed_error(graph, inputs, tolerance_of(graph), errors[worst])
    if errors[worst] <= tolerance:
        return Right(error=errors[worst], outputs=tuple(right))
    label = graph.labels[len(graph.inputs) + worst]
    return Wrong(
        message=f"output {label!r} {_off(errors[worst], tolerance)}; "
        f"{_at_fault(model, inputs, values, tolerance)}"
    )


def _at_fault(model: Any, inputs: Sequence[Array], values: InputValues, tolerance: float) -> str:
    """What is known of the operator that makes an output wrong."""
    plain = without_functions(model)
    recorded = graph_of_all(plain, values)
    results = evaluate_all(plain, inputs)
    with np.errstate(all="ignore"):
        tensors = evaluate_graph(recorded, inputs)
    labels = recorded.labels[len(recorded.inputs) :]
    whole = {label: tensors[name] for label, name in zip(labels, recorded.outputs, strict=True)}
    computed = {
        label: first(array, recorded.bounded[label], whole) if label in recorded.bounded else array
        for label, array in whole.items()
    }
    for node in plain.graph.node:
        for name in node.output:
            error = _error(name, computed, results)
            if error > tolerance:
                spelt = node.name or name
                off = _off(error, tolerance)
                return f"the first wrong operator is {node.op_type} ({spelt!r}), which {off}"
    return "each operator is right by itself, so that fusing or folding them is at fault"


def _error(
    name: str,
    computed: Mapping[str, Array],
    results: Mapping[str, Array],
) -> float:
    if name not in computed or name not in results:
        return 0.0
    return _apart(computed[name], results[name])


def _apart(got: Array, right: Array) -> float:
    """The relative error; a graph's tensors may lack dimensions of one element."""
    if got.size != right.size:
        return float("inf")
    return relative_error(got.reshape(right.shape), right)


def _off(error: float, tolerance: float) -> str:
    return f"is off by {error:.3g} of its greatest value, {tolerance:.2g} is allowed"
