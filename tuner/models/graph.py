"""A model as a graph of expressions, with its constants; its form between processes."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import prod
from typing import Any, cast
from zipfile import BadZipFile

import numpy as np

from tuner.models.errors import ModelRefused
from tuner.models.scan import Node, Scan, Window, calls, reads_of, slice_bytes
from tuner.workload.bounds import check_bounds
from tuner.workload.budgets import check_budgets
from tuner.workload.expression import DTYPE_BYTES, DType, Expression, Tensor
from tuner.workload.structure import check_structure
from tuner.workload.tree import expression_document, expression_from

Array = np.ndarray[Any, np.dtype[Any]]
SCHEMA = 1
LARGEST_FIXED = 1024  # elements of an input with only one value; texts of a library show it
_HEADER = "graph"  # member of the archive with everything but the arrays
_CONSTANT, _FIXED = "constant", "fixed"  # before the names of their arrays in the archive


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A model. Each node is an expression whose inputs and outputs are graph tensors, or a
    scan of some.

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
    # Inputs with the only value they may have; no node reads them.
    fixed: Mapping[str, Array] = field(default_factory=dict)
    # Nodes under fast numerics, by the name of their first output; the others are strict.
    fast: frozenset[str] = frozenset()

    def tensor(self, name: str) -> Tensor:
        """Shape and dtype of a tensor of the graph, constants included.

        Raises StopIteration for a name that the graph does not have.
        """
        for tensor in self.inputs:
            if tensor.name == name:
                return tensor
        if name in self.shapes:
            return self.shapes[name]
        if name in self.constants:
            array = self.constants[name]
            return Tensor(name=name, shape=array.shape, dtype=cast(DType, array.dtype.name))
        for node in self.nodes:
            if name in node.outputs:
                return node.tensor(name)
            if isinstance(node, Scan):
                if name in node.shapes:
                    return node.shapes[name]
                for inner in node.body:
                    if name in inner.outputs:
                        return inner.tensor(name)
        raise StopIteration(name)

    @property
    def expressions(self) -> tuple[Expression, ...]:
        """Those of the nodes, and of the bodies of scans, in order."""
        return tuple(expression for expression, _ in calls(self.nodes))

    def root(self, name: str) -> str:
        """The name of the tensor that holds the bytes: an alias resolved."""
        return self.aliases.get(name, name)

    @property
    def nbytes(self) -> int:
        """Bytes of all constants."""
        return sum(array.nbytes for array in self.constants.values())


def packed(graph: Graph) -> bytes:
    """The graph as an `.npz`: the constants' arrays and one of JSON text."""
    header = {
        "schema": SCHEMA,
        "inputs": [_tensor_document(tensor) for tensor in graph.inputs],
        "nodes": [_node_document(node) for node in graph.nodes],
        "outputs": list(graph.outputs),
        "aliases": dict(graph.aliases),
        "shapes": {name: _tensor_document(tensor) for name, tensor in graph.shapes.items()},
        "labels": list(graph.labels),
    }
    if graph.fast:
        header["fast"] = sorted(graph.fast)
    stream = io.BytesIO()
    arrays: dict[str, Any] = {
        f"{_CONSTANT}:{name}": array for name, array in graph.constants.items()
    }
    arrays |= {f"{_FIXED}:{name}": array for name, array in graph.fixed.items()}
    arrays[_HEADER] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(stream, **arrays)
    return stream.getvalue()


def unpacked(content: bytes) -> Graph:
    """The inverse of `packed`. The graph is checked as `check_graph` does.

    Raises ModelRefused, also for bytes that are no such archive.
    """
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            header = json.loads(archive[_HEADER].tobytes())
            arrays = {name: archive[name] for name in archive.files if name != _HEADER}
        graph = Graph(
            inputs=tuple(_tensor(document) for document in header["inputs"]),
            constants=_named(arrays, _CONSTANT),
            fixed=_named(arrays, _FIXED),
            nodes=tuple(_node(document) for document in header["nodes"]),
            outputs=tuple(str(name) for name in header["outputs"]),
            aliases={str(name): str(other) for name, other in header["aliases"].items()},
            shapes={str(name): _tensor(document) for name, document in header["shapes"].items()},
            labels=tuple(str(name) for name in header["labels"]),
            fast=frozenset(str(name) for name in header.get("fast", ())),
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        OSError,
        AttributeError,
        EOFError,
        BadZipFile,
    ) as error:
        raise ModelRefused(
            f"the model could not be read: {type(error).__name__}: {error}"
        ) from error
    check_graph(graph)
    return graph


def _named(arrays: Mapping[str, Array], kind: str) -> dict[str, Array]:
    """The arrays of a kind by their names in the graph."""
    parts = ((name.partition(":"), array) for name, array in arrays.items())
    return {name: array for (before, _, name), array in parts if before == kind}


def check_graph(graph: Graph) -> None:
    """Checks that each tensor exists before it is read and has the shape readers expect.

    Raises ModelRefused, or WorkloadError for a node that is no valid expression.
    """
    tensors: dict[str, Tensor] = {tensor.name: tensor for tensor in graph.inputs}
    for name, array in graph.fixed.items():
        tensor = Tensor(name=name, shape=array.shape, dtype=cast(DType, array.dtype.name))
        if tensors.get(name) != tensor or array.size > LARGEST_FIXED:
            raise ModelRefused(f"{name!r} is fixed at a value that no input has")
    tensors |= {name: graph.tensor(name) for name in graph.constants}
    waiting = {name: other for name, other in graph.aliases.items()}
    _note_aliases(graph, tensors, waiting)
    for node in graph.nodes:
        if isinstance(node, Scan):
            _check_scan(node, graph, tensors, waiting)
        else:
            _check_node(node, tensors)
        _note_aliases(graph, tensors, waiting)
    missing = [name for name in graph.outputs if name not in tensors]
    if missing or waiting or not graph.outputs:
        raise ModelRefused(f"the model has no {', '.join(missing or waiting or ['outputs'])}")
    if len(graph.labels) != len(graph.inputs) + len(graph.outputs):
        raise ModelRefused(
            f"{len(graph.labels)} names for {len(graph.inputs)} inputs and "
            f"{len(graph.outputs)} outputs"
        )


def _check_node(node: Expression, tensors: dict[str, Tensor]) -> None:
    """Checks an expression, and adds its outputs to the tensors that exist."""
    check_structure(node)
    check_bounds(node)
    check_budgets(node)
    for tensor in node.inputs:
        if tensors.get(tensor.name) != tensor:
            raise ModelRefused(
                f"a part of the model reads {tensor.name!r}, which does not exist by then "
                f"or is another"
            )
    for name in node.outputs:
        _add(node.tensor(name), tensors)


def _add(tensor: Tensor, tensors: dict[str, Tensor]) -> None:
    if tensor.name in tensors:
        raise ModelRefused(f"{tensor.name!r} is written twice")
    tensors[tensor.name] = tensor


def _check_scan(
    scan: Scan, graph: Graph, tensors: dict[str, Tensor], waiting: dict[str, str]
) -> None:
    """Checks that windows stay inside their tensors and each slice is written once."""
    if scan.count < 1:
        raise ModelRefused(f"{scan.name} is repeated {scan.count} times")
    for tensor in scan.sequences:
        _add(tensor, tensors)
    for name, source in scan.initial.items():
        whole, first = scan.tensor(name), tensors.get(source)
        if first is None or first.nbytes != slice_bytes(whole) or first.dtype != whole.dtype:
            raise ModelRefused(f"{name!r} does not begin with {source!r}")
    inside = dict(tensors)
    written = {name for node in scan.body for name in node.outputs}
    for name, window in scan.windows.items():
        sliced, shape = tensors.get(window.tensor), scan.shapes[name]
        last = window.start + window.step * (scan.count - 1)
        if (
            sliced is None
            or shape.dtype != sliced.dtype
            or shape.nbytes != slice_bytes(sliced)
            or not 0 <= min(window.start, last) <= max(window.start, last) < sliced.shape[0]
        ):
            raise ModelRefused(f"{name!r} is no slice of {window.tensor!r}")
        if name in written and (window.step == 0 or window.tensor not in scan.outputs):
            raise ModelRefused(f"{name!r} writes no slices of a sequence")
        if name not in written:
            _add(shape, inside)
    for node in scan.body:
        _check_node(node, inside)
        _note_aliases(graph, inside, waiting)


def without_unused(graph: Graph) -> Graph:
    """The graph without nodes, aliases and constants that no output depends on.

    Its inputs stay.
    """
    live = set(graph.outputs)
    nodes: list[Node] = []
    for node in reversed(graph.nodes):
        live |= {graph.aliases[name] for name in live if name in graph.aliases}
        if live & set(node.outputs):
            nodes.append(node)
            live |= {*reads_of(node)}
            if isinstance(node, Scan):  # aliases within an iteration
                live |= {tensor.name for inner in node.body for tensor in inner.inputs}
    live |= {graph.aliases[name] for name in live if name in graph.aliases}
    return replace(
        graph,
        nodes=tuple(reversed(nodes)),
        constants={name: array for name, array in graph.constants.items() if name in live},
        aliases={name: other for name, other in graph.aliases.items() if name in live},
        shapes={name: tensor for name, tensor in graph.shapes.items() if name in live},
    )


def _note_aliases(graph: Graph, tensors: dict[str, Tensor], waiting: dict[str, str]) -> None:
    """Moves aliases whose tensor exists by now from `waiting` to `tensors`."""
    for name, other in list(waiting.items()):
        if other not in tensors or other in graph.aliases:
            continue
        tensor = graph.shapes.get(name)
        if (
            tensor is None
            or name in tensors
            or tensor.nbytes != tensors[other].nbytes
            or tensor.dtype != tensors[other].dtype
        ):
            raise ModelRefused(f"{name!r} is not {other!r} with another shape")
        tensors[name] = tensor
        del waiting[name]


def _node_document(node: Node) -> Any:
    if not isinstance(node, Scan):
        return expression_document(node)
    return {
        "scan": node.name,
        "count": node.count,
        "body": [expression_document(inner) for inner in node.body],
        "windows": [
            [_tensor_document(node.shapes[name]), window.tensor, window.start, window.step]
            for name, window in node.windows.items()
        ],
        "sequences": [_tensor_document(tensor) for tensor in node.sequences],
        "initial": dict(node.initial),
    }


def _node(document: Any) -> Node:
    if "scan" not in document:
        return expression_from(document)
    shapes = [_tensor(entry[0]) for entry in document["windows"]]
    windows = {
        shape.name: Window(tensor=str(tensor), start=int(start), step=int(step))
        for shape, (_, tensor, start, step) in zip(shapes, document["windows"], strict=True)
    }
    return Scan(
        name=str(document["scan"]),
        count=int(document["count"]),
        body=tuple(expression_from(inner) for inner in document["body"]),
        windows=windows,
        shapes={shape.name: shape for shape in shapes},
        sequences=tuple(_tensor(sequence) for sequence in document["sequences"]),
        initial={str(name): str(source) for name, source in document["initial"].items()},
    )


def _tensor_document(tensor: Tensor) -> list[Any]:
    return [tensor.name, tensor.dtype, list(tensor.shape)]


def _tensor(document: Any) -> Tensor:
    name, dtype, shape = document
    if (
        dtype not in DTYPE_BYTES
        or not all(isinstance(extent, int) and extent >= 0 for extent in shape)
        or prod(shape) > 1 << 40
    ):
        raise ValueError(f"{name!r} has dtype {dtype!r} and shape {shape!r}")
    return Tensor(name=str(name), shape=tuple(shape), dtype=cast(DType, dtype))
