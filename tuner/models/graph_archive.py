"""A graph as the bytes of an `.npz`: its form between processes, and in stores.

One member is JSON text with everything but the arrays, which are members of their own.
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping
from math import prod
from typing import Any, BinaryIO, cast

import numpy as np

from tuner.models.arrays import arrays_in, write_npz
from tuner.models.errors import ModelRefused
from tuner.models.graph import Array, Graph, check_graph
from tuner.models.nodes import Branch, Node, Scan, Side, State, Window
from tuner.workload.bounded import bounded_from
from tuner.workload.dtypes import DTYPE_BYTES, DType
from tuner.workload.expression import Expression, Tensor, Within
from tuner.workload.tree import expression_document, expression_from

SCHEMA = 1
_HEADER = "graph"  # member of the archive with everything but the arrays
_CONSTANT, _FIXED = "constant", "fixed"  # before the names of their arrays in the archive


def packed(graph: Graph) -> bytes:
    """The graph as the bytes of an `.npz`."""
    stream = io.BytesIO()
    pack(graph, stream)
    return stream.getvalue()


def pack(graph: Graph, stream: BinaryIO) -> None:
    """Writes the graph as an `.npz`: the constants' arrays and one of JSON text."""
    header = {
        "schema": SCHEMA,
        "inputs": [_tensor_document(tensor) for tensor in graph.inputs],
        "nodes": [_node_document(node) for node in graph.nodes],
        "outputs": list(graph.outputs),
        "aliases": dict(graph.aliases),
        "shapes": {name: _tensor_document(tensor) for name, tensor in graph.shapes.items()},
        "labels": list(graph.labels),
    }
    if graph.formats:
        header["formats"] = dict(graph.formats)
    if graph.bounded:
        header["bounded"] = {label: bounded.document for label, bounded in graph.bounded.items()}
    if graph.ranges:
        header["ranges"] = {
            name: [within.start, within.stop] for name, within in graph.ranges.items()
        }
    if graph.fast:
        header["fast"] = sorted(graph.fast)
    if graph.replacing:
        header["replacing"] = dict(graph.replacing)
    arrays: dict[str, Any] = {
        f"{_CONSTANT}:{name}": array for name, array in graph.constants.items()
    }
    arrays |= {f"{_FIXED}:{name}": array for name, array in graph.fixed.items()}
    arrays[_HEADER] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    write_npz(stream, arrays)


def is_packed(content: bytes | memoryview) -> bool:
    """Whether these are the bytes of a packed graph rather than of an ONNX file."""
    return bytes(content[:4]) == b"PK\x03\x04"  # how archives begin, but no ONNX file


def unpacked(content: bytes | memoryview) -> Graph:
    """The inverse of `packed`. The graph is checked as `check_graph` does.

    Raises ModelRefused, also for bytes that are no such archive.
    """
    try:
        arrays = arrays_in(content)
        header = json.loads(arrays.pop(_HEADER).tobytes())
        graph = Graph(
            inputs=tuple(_tensor(document) for document in header["inputs"]),
            constants=_named(arrays, _CONSTANT),
            fixed=_named(arrays, _FIXED),
            nodes=tuple(_node(document) for document in header["nodes"]),
            outputs=tuple(str(name) for name in header["outputs"]),
            aliases={str(name): str(other) for name, other in header["aliases"].items()},
            shapes={str(name): _tensor(document) for name, document in header["shapes"].items()},
            labels=tuple(str(name) for name in header["labels"]),
            formats={str(name): str(kept) for name, kept in header.get("formats", {}).items()},
            bounded={
                str(label): bounded_from(document)
                for label, document in header.get("bounded", {}).items()
            },
            ranges={
                str(name): Within(start=int(start), stop=int(stop))
                for name, (start, stop) in header.get("ranges", {}).items()
            },
            fast=frozenset(str(name) for name in header.get("fast", ())),
            replacing={
                str(output): str(given) for output, given in header.get("replacing", {}).items()
            },
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ModelRefused(
            f"the model could not be read: {type(error).__name__}: {error}"
        ) from error
    check_graph(graph)
    return graph


def _named(arrays: Mapping[str, Array], kind: str) -> dict[str, Array]:
    """The arrays of a kind by their names in the graph."""
    parts = ((name.partition(":"), array) for name, array in arrays.items())
    return {name: array for (before, _, name), array in parts if before == kind}


def _node_document(node: Node) -> Any:
    if isinstance(node, Expression):
        return expression_document(node)
    if isinstance(node, Branch):
        return {
            "branch": node.name,
            "condition": node.condition,
            "then": _side_document(node.then),
            "other": _side_document(node.other),
            "results": [_tensor_document(tensor) for tensor in node.results],
        }
    return {
        "scan": node.name,
        "count": node.count,
        "body": [_node_document(inner) for inner in node.body],
        "windows": [
            [_tensor_document(node.shapes[name]), window.tensor, window.start, window.step]
            for name, window in node.windows.items()
        ],
        "sequences": [_tensor_document(tensor) for tensor in node.sequences],
        "states": [
            [_tensor_document(state.tensor), state.initial, state.after] for state in node.states
        ],
        "condition": node.condition,
    }


def _side_document(side: Side) -> Any:
    return {
        "nodes": [_node_document(node) for node in side.nodes],
        "results": list(side.results),
        "refusal": side.refusal,
    }


def _node(document: Any) -> Node:
    if "branch" in document:
        return Branch(
            name=str(document["branch"]),
            condition=str(document["condition"]),
            then=_side(document["then"]),
            other=_side(document["other"]),
            results=tuple(_tensor(result) for result in document["results"]),
        )
    if "scan" not in document:
        return expression_from(document)
    shapes = [_tensor(entry[0]) for entry in document["windows"]]
    windows = {
        shape.name: Window(tensor=str(tensor), start=int(start), step=int(step))
        for shape, (_, tensor, start, step) in zip(shapes, document["windows"], strict=True)
    }
    condition = document["condition"]
    return Scan(
        name=str(document["scan"]),
        count=int(document["count"]),
        body=tuple(_node(inner) for inner in document["body"]),
        windows=windows,
        shapes={shape.name: shape for shape in shapes},
        sequences=tuple(_tensor(sequence) for sequence in document["sequences"]),
        states=tuple(
            State(tensor=_tensor(tensor), initial=str(initial), after=str(after))
            for tensor, initial, after in document["states"]
        ),
        condition=None if condition is None else str(condition),
    )


def _side(document: Any) -> Side:
    return Side(
        nodes=tuple(_node(node) for node in document["nodes"]),
        results=tuple(str(name) for name in document["results"]),
        refusal=str(document["refusal"]),
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
