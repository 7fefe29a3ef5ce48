"""Files whose operators do not stand in the order in which they are computed."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tuner.models.files.onnx_order import sort_operators
from tuner.models.reading import read_graph
from tuner.models.reference.evaluation import evaluate_graph

n = helper.make_node


def test_operators_in_any_order_are_read() -> None:
    """Also where only a graph inside of an operator reads a result."""
    side = helper.make_graph(
        [n("Neg", ["t"], ["u"]), n("Exp", ["b"], ["t"])],
        "side", [], [helper.make_tensor_value_info("u", TensorProto.FLOAT, [3])],
    )  # fmt: skip
    nodes = [
        n("Add", ["c", "b"], ["y"]),
        n("If", ["yes"], ["c"], then_branch=side, else_branch=side),
        n("Tanh", ["a"], ["b"]),
        n("Relu", ["x"], ["a"]),
    ]
    tensor = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "g", [tensor("x", TensorProto.FLOAT, [3])], [tensor("y", TensorProto.FLOAT, [3])],
        [numpy_helper.from_array(np.array(True), "yes")],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    x = np.array([-1, 0.5, 2], np.float32)
    b = np.tanh(np.maximum(x, 0))
    read = read_graph(made.SerializeToString(), {})
    np.testing.assert_allclose(evaluate_graph(read, [x])[read.outputs[0]], b - np.exp(b), 1e-6)


def test_operators_in_order_stay_where_they_are() -> None:
    nodes = [n("Relu", ["x"], ["b"]), n("Relu", ["x"], ["a"]), n("Add", ["a", "b"], ["y"])]
    graph = onnx.GraphProto(node=nodes)
    sort_operators(graph)
    assert [*graph.node] == nodes
