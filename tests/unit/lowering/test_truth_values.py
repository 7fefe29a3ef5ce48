"""Truth values that are compared with each other, or added, multiplied and ordered."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.elementwise import elementwise
from tuner.models.operators.scalars import Elem, cast_to, maximum, minimum
from tuner.models.reading import read_graph
from tuner.models.workloads import workloads_of


@pytest.mark.parametrize(("op", "function"), [("Xor", np.logical_xor), ("Equal", np.equal)])
def test_two_are_compared(op: str, function: np.ufunc, tmp_path: Path) -> None:
    x, y = np.array([False, False, True, True]), np.array([False, True, False, True])
    values = [helper.make_tensor_value_info(name, TensorProto.BOOL, [4]) for name in "xyz"]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "y"], ["z"])], "g", values[:2], values[2:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    read = read_graph(model.SerializeToString(), {})
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(read)}
    library = exported(read, kernels, tmp_path / "out", "compared")
    np.testing.assert_array_equal(library.run_compared(x, y), function(x, y))


def test_sums_are_of_either_and_products_of_both(tmp_path: Path) -> None:
    """As PyTorch has them of tensors of bools; so are the greater and the lesser."""
    builder = GraphBuilder()
    x, y = builder.input([4], "bool"), builder.input([4], "bool")

    def counted(a: Elem, b: Elem) -> Elem:
        places = [cast_to("int32", e) for e in (a + b, a * b, maximum(a, b), minimum(a, b))]
        return places[0] + places[1] * 2 + places[2] * 4 + places[3] * 8

    graph = builder.graph([elementwise("counted", counted, x, y, dtype="int32")], ["x", "y", "z"])
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    library = exported(graph, kernels, tmp_path / "out", "counted")
    left, right = np.array([False, False, True, True]), np.array([False, True, False, True])
    assert library.run_counted(left, right).tolist() == [0, 5, 5, 15]
