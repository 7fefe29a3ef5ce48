"""Operators of the standard on ONNX's own cases: each is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from benchmarks.models.onnx_cases import FIXED, FOLDED, RIGHT, cases_of, verdict
from tests.support.graph_values import graph_outputs
from tests.support.model_kernels import compiled
from tests.support.model_libraries import exported
from tuner.models.reading import read_graph
from tuner.models.workloads import workloads_of

# Operators by the module of `onnx.backend.test.case.node` that has their cases.
OPERATORS = {
    "bitcast": "BitCast",
    "bitshift": "BitShift",
    "bitwisenot": "BitwiseNot",
    "blackmanwindow": "BlackmanWindow",
    "cast": "Cast",
    "castlike": "CastLike",
    "causal_conv_with_state": "CausalConvWithState",
    "col2im": "Col2Im",
    "compress": "Compress",
    "deformconv": "DeformConv",
    "dequantizelinear": "DequantizeLinear",
    "det": "Det",
    "dft": "DFT",
    "dynamicquantizelinear": "DynamicQuantizeLinear",
    "eyelike": "EyeLike",
    "flexattention": "FlexAttention",
    "gridsample": "GridSample",
    "hammingwindow": "HammingWindow",
    "hannwindow": "HannWindow",
    "maxunpool": "MaxUnpool",
    "melweightmatrix": "MelWeightMatrix",
    "mod": "Mod",
    "nonmaxsuppression": "NonMaxSuppression",
    "nonzero": "NonZero",
    "quantizelinear": "QuantizeLinear",
    "roialign": "RoiAlign",
    "stft": "STFT",
    "tensorscatter": "TensorScatter",
    "tfidfvectorizer": "TfIdfVectorizer",
    "unique": "Unique",
}


@pytest.mark.parametrize(("module", "op"), OPERATORS.items(), ids=list(OPERATORS.values()))
def test_an_operator_is_right_on_the_cases_of_the_standard(module: str, op: str) -> None:
    verdicts = {case.name: verdict(case) for case in cases_of(op, module)}
    assert verdicts
    assert {
        name: text for name, text in verdicts.items() if text not in (RIGHT, FIXED, FOLDED)
    } == {}


def test_kernels_that_read_between_elements_compile_to_what_they_say(tmp_path: Path) -> None:
    """Those of the largest trees: cubic taps mirrored at the border, and regions of any size."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((1, 2, 6, 7)).astype(np.float32)
    grid = rng.uniform(-2, 2, (1, 3, 4, 2)).astype(np.float32)
    regions = np.array([[0, 0, 5, 6], [1, 2, 9, 4]], np.float32)
    nodes = [
        helper.make_node(
            "GridSample", ["x", "grid"], ["y"], mode="cubic", padding_mode="reflection"
        ),
        helper.make_node(
            "RoiAlign", ["x", "regions", "batch"], ["z"], output_height=2, output_width=3
        ),
    ]
    inputs = {"x": x, "grid": grid, "regions": regions}
    made = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in inputs.items()],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 2, 3, 4)),
            helper.make_tensor_value_info("z", TensorProto.FLOAT, (2, 2, 2, 3)),
        ],
        [numpy_helper.from_array(np.zeros(2, np.int64), "batch")],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    graph = read_graph(model.SerializeToString(), {})
    kernels = {part.workload.key: compiled(part.workload, None) for part in workloads_of(graph)}
    library = exported(graph, kernels, tmp_path / "out", "places")
    results = library.run_places(*inputs.values())
    for got, right in zip(results, graph_outputs(graph, list(inputs.values())), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
    for got, right in zip(results, ReferenceEvaluator(model).run(None, inputs), strict=True):
        np.testing.assert_allclose(got, right, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("align_corners", [0, 1])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_a_grid_may_lie_far_outside(mode: str, padding: str, align_corners: int) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((1, 1, 5, 6)).astype(np.float32)
    grid = rng.uniform(-3, 3, (1, 4, 5, 2)).astype(np.float32)
    node = helper.make_node(
        "GridSample",
        ["x", "grid"],
        ["y"],
        mode=mode,
        padding_mode=padding,
        align_corners=align_corners,
    )
    inputs = {"x": x, "grid": grid}
    made = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info(n, TensorProto.FLOAT, a.shape) for n, a in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 1, 4, 5))],
    )
    model = helper.make_model(made, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    (right,) = ReferenceEvaluator(model).run(None, inputs)
    graph = read_graph(model.SerializeToString(), {})
    (got,) = graph_outputs(graph, list(inputs.values()))
    np.testing.assert_allclose(got, right, rtol=1e-4, atol=1e-5)
