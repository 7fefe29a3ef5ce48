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
from tuner.models.reference.evaluation import evaluate_graph
from tuner.models.reading import read_graph

def model(*shape):
    node = helper.make_node("ComplexMul", ["a", "b"], ["y"], name="turn", domain="com.microsoft")
    a, b, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "aby")
    graph = helper.make_graph([node], "g", [a, b], [y])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()

rng = np.random.default_rng(0)
a, b = (rng.standard_normal((5, 3, 2)).astype(np.float32) for _ in range(2))
graph = read_graph(model(5, 3, 2), {})
y = evaluate_graph(graph, [a, b])[graph.outputs[0]]
product = (a[..., 0] + 1j * a[..., 1]) * (b[..., 0] + 1j * b[..., 1])
assert np.allclose(y, np.stack([product.real, product.imag], -1), atol=1e-6), y
try:
    read_graph(model(5, 3), {})
except ModelRefused as error:
    assert "'turn'" in str(error) and "complex numbers of shapes [5, 3]" in str(error), error
else:
    raise AssertionError("numbers without parts are taken")
"""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root, edited = how_to.carry_out("add-a-model-operator.md", tmp_path_factory.mktemp("page"))
    assert edited == [
        "tuner/models/operators/elementwise.py",
        "tuner/models/from_onnx/microsoft.py",
    ]
    return root


def test_files_with_it_are_read_or_refused_by_name(source: Path) -> None:
    how_to.run(source, "-c", READ)


def test_it_passes_the_checks_of_style(source: Path) -> None:
    suite = ("-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider")
    assert " passed" in how_to.run(source, *suite, "tests/unit/test_style.py")
