"""NaN, infinities, zeros of both signs, subnormal and huge numbers in models: operators
compute what ONNX's evaluator and PyTorch do with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.support.graph_values import graph_outputs
from tuner.models.exported_program import read_exported
from tuner.models.reading import read_graph

NAN, INF = math.nan, math.inf
X = np.array(
    [[NAN, 1, 2, 3], [1, NAN, 2, INF], [INF, -INF, 0, -0.0], [-INF, -INF, -INF, -INF],
     [1e-42, -1e-42, 3e38, 1], [1, 2, 3, NAN], [-1, -2, INF, INF], [0.5, -0.5, 2.5, -2.5]],
    np.float32,
)  # fmt: skip
Y = np.array(
    [[1, NAN, 0, -0.0], [INF, INF, -INF, 3], [0, 0, INF, 0], [NAN, 0, 1, -1],
     [1e-42, 2, -2, 3], [NAN, NAN, NAN, NAN], [-1, 2, -INF, INF], [0, 2, 3, -3]],
    np.float32,
)  # fmt: skip
Attributes = Mapping[str, Any]
AXIS, BOUNDS = {"axes": np.array([1])}, {"low": np.float32(-1), "high": np.float32(1)}
NO_DIMENSIONS: Attributes = {"keepdims": 0}
# By operator: its constants, and its attributes.
ONE_TENSOR: Mapping[str, tuple[Mapping[str, Any], Attributes]] = {
    "Relu": ({}, {}), "LeakyRelu": ({}, {}), "Elu": ({}, {}), "Softplus": ({}, {}),
    "Sigmoid": ({}, {}), "HardSigmoid": ({}, {}), "Tanh": ({}, {}), "Gelu": ({}, {}),
    "Sign": ({}, {}), "IsNaN": ({}, {}), "IsInf": ({}, {}), "Sqrt": ({}, {}), "Log": ({}, {}),
    "Round": ({}, {}), "Reciprocal": ({}, {}), "Softmax": ({}, {}), "Hardmax": ({}, {}),
    "Shrink": ({}, {"lambd": 1.5, "bias": 1.0}), "Clip": (BOUNDS, {}),
    "ReduceMax": (AXIS, NO_DIMENSIONS), "ReduceMin": (AXIS, NO_DIMENSIONS),
    "ReduceSum": (AXIS, NO_DIMENSIONS), "ReduceMean": (AXIS, NO_DIMENSIONS),
    "ArgMax": ({}, {"axis": 1}), "ArgMin": ({}, {"axis": 1, "select_last_index": 1}),
    "TopK": ({"k": np.array([3])}, {"largest": 1}),
}  # fmt: skip
TWO_TENSORS: Mapping[str, Attributes] = {
    "Max": {}, "Min": {}, "Less": {}, "GreaterOrEqual": {}, "Equal": {}, "Div": {}, "Mul": {},
    "Pow": {}, "Mod": {"fmod": 1},
}  # fmt: skip


def check_onnx(
    op: str,
    inputs: Mapping[str, NDArray[Any]],
    constants: Mapping[str, Any],
    attributes: Attributes,
) -> None:
    outputs = ["p", "q"] if op == "TopK" else ["p"]
    graph = helper.make_graph(
        [helper.make_node(op, [*inputs, *constants], outputs, **attributes)],
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, X.shape) for name in inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    )
    with np.errstate(all="ignore"):
        want = ReferenceEvaluator(model).run(None, dict(inputs))
    got = graph_outputs(read_graph(model.SerializeToString(), {}), list(inputs.values()))
    for actual, expected in zip(got, want, strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=2.0**-126)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of the evaluator, to itself
@pytest.mark.parametrize("op", ONE_TENSOR)
def test_onnx_operators_of_one_tensor(op: str) -> None:
    check_onnx(op, {"x": X}, *ONE_TENSOR[op])


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("op", TWO_TENSORS)
def test_onnx_operators_of_two_tensors(op: str) -> None:
    check_onnx(op, {"x": X, "y": Y}, {}, TWO_TENSORS[op])


PROGRAMS: Mapping[str, Callable[[Any, Any, Any], Any]] = {
    "relu": lambda torch, x, y: torch.relu(x),
    "clamp": lambda torch, x, y: x.clamp(-1, 1),
    "maximum": lambda torch, x, y: torch.maximum(x, y),
    "greatest": lambda torch, x, y: x.max(1),
    "amin": lambda torch, x, y: x.amin(0),
    "argmax": lambda torch, x, y: x.argmax(1),
    "sign": lambda torch, x, y: x.sign(),
    "comparisons": lambda torch, x, y: (x != y, ~(x < y), torch.isnan(x)),
    "softmax": lambda torch, x, y: (x.softmax(1), x.log_softmax(1)[:4]),
    "logsumexp": lambda torch, x, y: x.logsumexp(1),
    "sort": lambda torch, x, y: x.sort(1).values,
    "quotients": lambda torch, x, y: torch.div(x, y, rounding_mode="floor"),
    "remainders": lambda torch, x, y: (torch.fmod(x, y), torch.remainder(x, y)),
    "functions": lambda torch, x, y: (x.log1p(), x.expm1(), x.rsqrt(), x.tanh()),
    "shrink": lambda torch, x, y: torch.nn.functional.hardshrink(x),
    "pool": lambda torch, x, y: torch.max_pool2d(x.reshape(1, 1, 8, 4), 3, 2, 1),
}


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # of PyTorch to itself
@pytest.mark.parametrize("case", PROGRAMS)
def test_programs_of_pytorch(case: str) -> None:
    torch = pytest.importorskip("torch")

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]  # torch has no types here
        def forward(self, x: Any, y: Any) -> Any:
            return PROGRAMS[case](torch, x, y)

    x, y = torch.tensor(X), torch.tensor(Y)
    want = Module()(x, y)
    graph = read_exported(torch.export.export(Module(), (x, y)))
    for actual, expected in zip(
        graph_outputs(graph, [X, Y]), want if isinstance(want, tuple) else [want], strict=True
    ):
        np.testing.assert_allclose(actual, expected.numpy(), rtol=1e-5)
