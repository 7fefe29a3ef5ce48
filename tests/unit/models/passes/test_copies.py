"""Models that compute nothing: they have a kernel too, which copies."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.graph_values import graph_outputs
from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
from tuner.models.graph import Graph, check_graph
from tuner.models.reading import read_graph
from tuner.models.workloads import workloads_of


def flattened(dtype: str) -> Graph:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    graph = helper.make_graph(
        [helper.make_node("Flatten", ["x"], ["y"]), helper.make_node("Identity", ["x"], ["z"])],
        "movements",
        [helper.make_tensor_value_info("x", kind, [2, 3, 4])],
        [helper.make_tensor_value_info("y", kind, [2, 12]),
         helper.make_tensor_value_info("z", kind, [2, 3, 4])],
    )  # fmt: skip
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return read_graph(model.SerializeToString(), {})


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64", "int64", "int8", "bool"])
def test_one_output_is_copied_by_a_kernel(dtype: str) -> None:
    graph = flattened(dtype)
    check_graph(graph)
    assert [node.name for node in graph.nodes] == ["copy"]
    x = np.random.default_rng(0).integers(0, 2, (2, 3, 4)).astype(dtype)
    first, second = graph_outputs(graph, [x])
    np.testing.assert_array_equal(first, x.reshape(2, 12))
    np.testing.assert_array_equal(second, x)


@pytest.mark.slow
def test_the_library_copies_both(tmp_path: Path) -> None:
    graph = flattened("float32")
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    library = exported(graph, kernels, tmp_path / "out", "copies")
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype(np.float32)
    first, second = library.run_copies(x)
    np.testing.assert_array_equal(first, x.reshape(2, 12))
    np.testing.assert_array_equal(second, x)


def test_what_is_known_is_not_copied() -> None:
    graph = helper.make_graph(
        [helper.make_node("Shape", ["x"], ["y"])],
        "shape",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.INT64, [2])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert read_graph(model.SerializeToString(), {}).nodes == ()


def test_a_number_is_copied() -> None:
    kind = TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("Squeeze", ["x"], ["y"])],
        "number",
        [helper.make_tensor_value_info("x", kind, [1, 1])],
        [helper.make_tensor_value_info("y", kind, [])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    read = read_graph(model.SerializeToString(), {})
    check_graph(read)
    (number,) = graph_outputs(read, [np.full((1, 1), 3, np.float32)])
    assert number.shape == () and number == 3
