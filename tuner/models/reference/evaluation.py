"""A graph evaluated node by node in float64, without a compiler: what its kernels are held
against, and what holds an import against the file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.models.graph import Array, Graph
from tuner.models.nodes import Branch, Node, Scan
from tuner.workload.arrays import numpy_dtype
from tuner.workload.expression import Expression
from tuner.workload.reference import evaluate


def evaluate_graph(graph: Graph, inputs: Sequence[Array]) -> dict[str, Array]:
    """Every tensor of the graph by name, in its dtype, for inputs in the graph's order.

    What is computed inside of scans and branches is left out. Raises ModelRefused where a
    side of a branch is chosen that could not be read.
    """
    tensors: dict[str, Array] = {
        tensor.name: np.asarray(array).reshape(tensor.shape)
        for tensor, array in zip(graph.inputs, inputs, strict=True)
    }
    tensors |= graph.constants
    _nodes(graph.nodes, graph, tensors)
    outside = [name for name, root in graph.aliases.items() if root in tensors]
    return {name: _tensor(name, graph, tensors) for name in [*tensors, *outside]}


def evaluate_outputs(graph: Graph, inputs: Sequence[Array]) -> list[Array]:
    """The graph's outputs in its order; otherwise as `evaluate_graph`."""
    tensors = evaluate_graph(graph, inputs)
    return [tensors[name] for name in graph.outputs]


def _tensor(name: str, graph: Graph, tensors: dict[str, Array]) -> Array:
    array = tensors[graph.root(name)]
    return array.reshape(graph.shapes[name].shape) if name in graph.shapes else array


def _nodes(nodes: Iterable[Node], graph: Graph, tensors: dict[str, Array]) -> None:
    for node in nodes:
        if isinstance(node, Expression):
            _expression(node, graph, tensors)
        elif isinstance(node, Scan):
            _scan(node, graph, tensors)
        else:
            _branch(node, graph, tensors)


def _expression(node: Expression, graph: Graph, tensors: dict[str, Array]) -> None:
    results = evaluate(node, {t.name: _tensor(t.name, graph, tensors) for t in node.inputs})
    for name in node.outputs:
        tensors[name] = results[name].astype(numpy_dtype(node.tensor(name).dtype))


def _branch(branch: Branch, graph: Graph, tensors: dict[str, Array]) -> None:
    chosen = branch.then if _tensor(branch.condition, graph, tensors).item() else branch.other
    if chosen.refusal:
        raise ModelRefused(
            f"the inputs choose a branch that was left out: {chosen.refusal}; give others by "
            f"--inputs FILE.npz"
        )
    inside = dict(tensors)
    _nodes(chosen.nodes, graph, inside)
    for tensor, name in zip(branch.results, chosen.results, strict=True):
        tensors[tensor.name] = inside[name].reshape(tensor.shape)


def _scan(scan: Scan, graph: Graph, tensors: dict[str, Array]) -> None:
    for sequence in scan.sequences:
        tensors[sequence.name] = np.zeros(sequence.shape, numpy_dtype(sequence.dtype))
    for state in scan.states:
        initial = _tensor(state.initial, graph, tensors)
        tensors[state.tensor.name] = initial.reshape(state.tensor.shape).copy()
    written = scan.written
    for iteration in range(scan.count):
        if scan.condition is not None and not tensors[scan.condition].item():
            break
        inside = dict(tensors)
        places = {name: w.start + w.step * iteration for name, w in scan.windows.items()}
        for name, window in scan.windows.items():
            if name not in written:
                whole = _tensor(window.tensor, graph, tensors)
                inside[name] = whole[places[name]].reshape(scan.shapes[name].shape)
        _nodes(scan.body, graph, inside)
        for name in written:
            whole = tensors[scan.windows[name].tensor]
            whole[places[name]] = inside[name].reshape(whole.shape[1:])
        for state in scan.states:
            after = _tensor(state.after, graph, inside)
            tensors[state.tensor.name] = after.reshape(state.tensor.shape)
