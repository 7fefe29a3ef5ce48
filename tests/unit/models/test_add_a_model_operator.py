"""docs/how-to/add-a-model-operator.md, carried out on a copy of the source."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import how_to

pytestmark = pytest.mark.slow

READ = """
import numpy as np
from onnx import TensorProto, helper
from tuner.models.errors import ModelRefused
from tuner.models.evaluation import evaluate_graph
from tuner.models.reading import read_graph

def model(*shape):
    node = helper.make_node("Det", ["x"], ["y"], name="area")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, shape[:-2])
    graph = helper.make_graph([node], "g", [x], [y])
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString()

x = np.random.default_rng(0).standard_normal((5, 2, 2)).astype(np.float32)
graph = read_graph(model(5, 2, 2), {})
y = evaluate_graph(graph, [x])[graph.outputs[0]]
assert np.allclose(y, np.linalg.det(x), atol=1e-6), y
try:
    read_graph(model(5, 3, 3), {})
except ModelRefused as error:
    assert "'area'" in str(error) and "two rows are taken" in str(error), error
else:
    raise AssertionError("three rows are taken")
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, edited = how_to.carry_out("add-a-model-operator.md", tmp_path_factory.mktemp("page"))
    assert edited == ["tuner/models/operators/contraction.py", "tuner/models/from_onnx/products.py"]
    return root


def test_files_with_it_are_read_or_refused_by_name(source: Path) -> None:
    how_to.run(source, "-c", READ)


def test_it_passes_the_checks_of_style(source: Path) -> None:
    suite = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider")
    assert " passed" in how_to.run(source, *suite, "tests/unit/test_style.py")
