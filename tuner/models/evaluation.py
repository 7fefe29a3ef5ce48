"""A graph evaluated node by node in float64, without a compiler: what its kernels are held
against, and what holds an import against the file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tuner.models.graph import Array, Graph
from tuner.models.scan import Scan
from tuner.workload.arrays import numpy_dtype
from tuner.workload.expression import Expression
from tuner.workload.reference import evaluate


def evaluate_graph(graph: Graph, inputs: Sequence[Array]) -> dict[str, Array]:
    """Every tensor of the graph by name, in its dtype, for inputs in the graph's order."""
    tensors: dict[str, Array] = {
        tensor.name: np.asarray(array).reshape(tensor.shape)
        for tensor, array in zip(graph.inputs, inputs, strict=True)
    }
    tensors |= graph.constants
    for node in graph.nodes:
        if isinstance(node, Scan):
            _scan(node, graph, tensors)
        else:
            _expression(node, graph, tensors)
    outside = [name for name, root in graph.aliases.items() if root in tensors]
    return {name: _tensor(name, graph, tensors) for name in [*tensors, *outside]}


def _tensor(name: str, graph: Graph, tensors: dict[str, Array]) -> Array:
    array = tensors[graph.root(name)]
    return array.reshape(graph.shapes[name].shape) if name in graph.shapes else array


def _expression(node: Expression, graph: Graph, tensors: dict[str, Array]) -> None:
    results = evaluate(node, {t.name: _tensor(t.name, graph, tensors) for t in node.inputs})
    for name in node.outputs:
        tensors[name] = results[name].astype(numpy_dtype(node.tensor(name).dtype))


def _scan(scan: Scan, graph: Graph, tensors: dict[str, Array]) -> None:
    for sequence in scan.sequences:
        tensors[sequence.name] = np.zeros(sequence.shape, numpy_dtype(sequence.dtype))
    for name, source in scan.initial.items():
        first = tensors[name][0]
        first[...] = _tensor(source, graph, tensors).reshape(first.shape)
    written = {name for node in scan.body for name in node.outputs}
    for iteration in range(scan.count):
        places = {name: w.start + w.step * iteration for name, w in scan.windows.items()}
        for name, window in scan.windows.items():
            if name not in written:
                whole = _tensor(window.tensor, graph, tensors)
                tensors[name] = whole[places[name]].reshape(scan.shapes[name].shape)
        for node in scan.body:
            _expression(node, graph, tensors)
        for name in written & {*scan.windows}:
            whole = tensors[scan.windows[name].tensor]
            whole[places[name]] = tensors[name].reshape(whole.shape[1:])
    for name in written | scan.windows.keys():
        del tensors[name]
