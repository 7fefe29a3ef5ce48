"""Functions of a model's own, of another opset than the model's."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.support.graph_values import graph_outputs
from tuner.models.reading import read_graph


def model_of(nodes: list[Any], opset: int) -> Any:
    """A function of opset 21, which is called with a constant and with its own result."""
    function = helper.make_function(
        "own", "step", ["a", "b"], ["c"], nodes, [helper.make_opsetid("", 21)]
    )
    graph = helper.make_graph(
        [
            helper.make_node("step", ["x", "two"], ["t"], domain="own"),
            helper.make_node("step", ["t", "x"], ["y"], domain="own"),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3])],
        [numpy_helper.from_array(np.full((2, 3), 2, np.float32), "two")],
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=10)


def test_a_function_of_another_opset_takes_constants_and_results_of_functions() -> None:
    nodes = [helper.make_node("Neg", ["a"], ["n"]), helper.make_node("Sub", ["n", "b"], ["c"])]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    for opset in (21, 22):
        graph = read_graph(model_of(nodes, opset).SerializeToString(), {})
        np.testing.assert_array_equal(graph_outputs(graph, [x])[0], 2.0 + x - x)


def test_a_function_of_an_older_opset_may_call_others() -> None:
    """As KNNImputer's file has them: no file says what type the result of a call is."""
    opsets, of_files = [helper.make_opsetid("", 16)], helper.make_opsetid("own", 1)

    def function(name: str, nodes: list[Any]) -> Any:
        return helper.make_function("own", name, ["x"], ["y"], nodes, [*opsets, of_files])

    def call(name: str, x: str, y: str) -> Any:
        return helper.make_node(name, [x], [y], domain="own")

    inner = function("inner", [helper.make_node("Exp", ["x"], ["y"])])
    outer = function("outer", [call("inner", "x", "t"), call("inner", "t", "y")])
    arguments = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph([call("outer", "x", "y")], "net", arguments[:1], arguments[1:])
    made = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", 18), of_files],
        functions=[inner, outer],
        ir_version=8,
    )
    x = np.array([0, 0.5, -1], np.float32)
    (got,) = graph_outputs(read_graph(made.SerializeToString(), {}), [x])
    np.testing.assert_allclose(got, np.exp(np.exp(x)), 1e-6)
