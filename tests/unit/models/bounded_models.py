"""Models whose results have extents of run time, held against ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tests.support.graph_values import graph_outputs
from tuner.models.graph import Graph
from tuner.models.graph_archive import packed, unpacked
from tuner.models.reading import read_graph
from tuner.models.reference.bounded_outputs import cut

Array = np.ndarray[Any, np.dtype[Any]]
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
TYPES = {"float32": FLOAT, "int64": INT64, "bool": TensorProto.BOOL, "int32": TensorProto.INT32}


def model_of(
    inputs: Mapping[str, Array],
    nodes: Sequence[Any],
    outputs: Mapping[str, int],
    constants: Mapping[str, Any] | None = None,
) -> bytes:
    """A model whose outputs have a rank and open extents; dtypes are inferred."""
    graph = helper.make_graph(
        list(nodes),
        "net",
        [
            helper.make_tensor_value_info(name, TYPES[array.dtype.name], array.shape)
            for name, array in inputs.items()
        ],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(a), name) for name, a in (constants or {}).items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    content: bytes = helper.make_model(
        graph, opset_imports=opsets, ir_version=8
    ).SerializeToString()
    return content


def node(op: str, inputs: str, outputs: str = "y", **attributes: Any) -> Any:
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def read(content: bytes) -> Graph:
    """The graph, sent between processes and checked."""
    return unpacked(packed(read_graph(content, {})))


def outputs_of(graph: Graph, inputs: Mapping[str, Array]) -> list[Array]:
    with np.errstate(all="ignore"):
        return cut(graph, graph_outputs(graph, [*inputs.values()]))


def agree(content: bytes, *cases: Mapping[str, Array]) -> Graph:
    """Checks that a graph with bounded extents gives what ONNX Runtime does, shapes included."""
    graph = read(content)
    assert graph.bounded and not graph.fixed
    compare(graph, content, *cases)
    return graph


def compare(graph: Graph, content: bytes, *cases: Mapping[str, Array]) -> None:
    session = onnxruntime.InferenceSession(content)
    for inputs in cases:
        right = session.run(None, dict(inputs))
        for got, array in zip(outputs_of(graph, inputs), right, strict=True):
            assert got.dtype == array.dtype
            np.testing.assert_allclose(got, array, 1e-5, 1e-6, strict=True)
