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
from tuner.workload.bounds import check_bounds
from tuner.workload.budgets import check_budgets
from tuner.workload.expression import DTYPE_BYTES, DType, Expression, Tensor
from tuner.workload.structure import check_structure
from tuner.workload.tree import expression_document, expression_from

Array = np.ndarray[Any, np.dtype[Any]]
SCHEMA = 1
_HEADER = "graph"  # member of the archive with everything but the constants


@dataclass(frozen=True, kw_only=True)
class Graph:
    """A model. Each node is an expression whose inputs and outputs are graph tensors.

    A node reads only inputs, constants, aliases, and the outputs of earlier nodes. An
    alias is another tensor under another shape: the same bytes in the same order.
    """

    inputs: tuple[Tensor, ...]
    constants: Mapping[str, Array]
    nodes: tuple[Expression, ...]
    outputs: tuple[str, ...]
    # name of an alias -> name of the tensor it stands for, which is no alias itself
    aliases: Mapping[str, str] = field(default_factory=dict)
    shapes: Mapping[str, Tensor] = field(default_factory=dict)  # of the aliases
    labels: tuple[str, ...] = ()  # the file's names of the inputs, then of the outputs

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
        return next(node.tensor(name) for node in self.nodes if name in node.outputs)

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
        "nodes": [expression_document(node) for node in graph.nodes],
        "outputs": list(graph.outputs),
        "aliases": dict(graph.aliases),
        "shapes": {name: _tensor_document(tensor) for name, tensor in graph.shapes.items()},
        "labels": list(graph.labels),
    }
    stream = io.BytesIO()
    arrays: dict[str, Any] = {f"constant:{name}": array for name, array in graph.constants.items()}
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
            constants = {
                name.partition(":")[2]: archive[name] for name in archive.files if name != _HEADER
            }
        graph = Graph(
            inputs=tuple(_tensor(document) for document in header["inputs"]),
            constants=constants,
            nodes=tuple(expression_from(document) for document in header["nodes"]),
            outputs=tuple(str(name) for name in header["outputs"]),
            aliases={str(name): str(other) for name, other in header["aliases"].items()},
            shapes={str(name): _tensor(document) for name, document in header["shapes"].items()},
            labels=tuple(str(name) for name in header["labels"]),
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


def check_graph(graph: Graph) -> None:
    """Checks that each tensor exists before it is read and has the shape readers expect.

    Raises ModelRefused, or WorkloadError for a node that is no valid expression.
    """
    tensors: dict[str, Tensor] = {tensor.name: tensor for tensor in graph.inputs}
    tensors |= {name: graph.tensor(name) for name in graph.constants}
    waiting = {name: other for name, other in graph.aliases.items()}
    _note_aliases(graph, tensors, waiting)
    for node in graph.nodes:
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
            if name in tensors:
                raise ModelRefused(f"{name!r} is written twice")
            tensors[name] = node.tensor(name)
        _note_aliases(graph, tensors, waiting)
    missing = [name for name in graph.outputs if name not in tensors]
    if missing or waiting or not graph.outputs:
        raise ModelRefused(f"the model has no {', '.join(missing or waiting or ['outputs'])}")
    if len(graph.labels) != len(graph.inputs) + len(graph.outputs):
        raise ModelRefused(
            f"{len(graph.labels)} names for {len(graph.inputs)} inputs and "
            f"{len(graph.outputs)} outputs"
        )


def without_unused(graph: Graph) -> Graph:
    """The graph without nodes, aliases and constants that no output depends on.

    Its inputs stay.
    """
    live = set(graph.outputs)
    nodes: list[Expression] = []
    for node in reversed(graph.nodes):
        live |= {graph.aliases[name] for name in live if name in graph.aliases}
        if live & set(node.outputs):
            nodes.append(node)
            live |= {tensor.name for tensor in node.inputs}
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


def _tensor_document(tensor: Tensor) -> list[Any]:
    return [tensor.name, tensor.dtype, list(tensor.shape)]


def _tensor(document: Any) -> Tensor:
    name, dtype, shape = document
    if (
        dtype not in DTYPE_BYTES
        or not all(isinstance(extent, int) and extent > 0 for extent in shape)
        or prod(shape) > 1 << 40
    ):
        raise ValueError(f"{name!r} has dtype {dtype!r} and shape {shape!r}")
    return Tensor(name=str(name), shape=tuple(shape), dtype=cast(DType, dtype))
