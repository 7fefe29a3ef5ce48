"""Truth values that are compared with each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
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
