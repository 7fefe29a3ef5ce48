"""One-hot rows: the evaluator takes the depth as the standard has it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tuner.models.reference.onnx_evaluation import evaluate


@pytest.mark.parametrize("depth", [np.array(4), np.array([4])], ids=["number", "vector"])
def test_the_depth_is_a_number_or_a_vector_of_one_element(depth: Any) -> None:
    node = helper.make_node("OneHot", ["x", "depth", "values"], ["y"], axis=1)
    constants = [
        numpy_helper.from_array(depth, "depth"),
        numpy_helper.from_array(np.array([-1, 5], np.float32), "values"),
    ]
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.INT64, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    (result,) = evaluate(model, [np.array([2, -4, 7])])
    np.testing.assert_array_equal(result, [[-1, -1, 5, -1], [5, -1, -1, -1], [-1, -1, -1, -1]])
