"""Operators one by one: what they become computes what ONNX's reference evaluator says."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from tests.support import onnx_networks as nets
from tests.support.graph_values import graph_outputs
from tuner.errors import UsageError
from tuner.models.reading import read_graph
from tuner.workload.expression import Read, Var, walk

SHAPE = (1, 4, 8, 8)
CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "AveragePool": ({}, {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}),
    "Clip": ({"low": np.float32(0), "high": np.float32(0.5)}, {}),
    "Concat": ({"other": np.ones((1, 2, 8, 8), np.float32)}, {"axis": 1}),
    "Conv": (
        {"w": np.full((2, 4, 3, 3), 0.1, np.float32)},
        {"pads": [0, 1, 2, 1], "dilations": [2, 1], "strides": [1, 2]},
    ),
    "ConvTranspose": ({"w": np.full((4, 3, 2, 2), 0.1, np.float32)}, {"strides": [2, 2]}),
    "DepthToSpace": ({}, {"blocksize": 2}),
    "Elu": ({}, {}),
    "Flatten": ({}, {}),
    "Gelu": ({}, {}),
    "GlobalMaxPool": ({}, {}),
    "HardSigmoid": ({}, {}),
    "HardSwish": ({}, {}),
    "InstanceNormalization": (
        {"scale": np.full(4, 1.5, np.float32), "shift": np.full(4, 0.5, np.float32)},
        {},
    ),
    "LeakyRelu": ({}, {"alpha": 0.1}),
    "LogSoftmax": ({}, {"axis": 1}),
    "MaxPool": ({}, {"kernel_shape": [3, 3], "pads": [1] * 4, "strides": [2, 2]}),
    "Mish": ({}, {}),
    "PRelu": ({"slope": np.full((4, 1, 1), 0.1, np.float32)}, {}),
    "Pad": ({"pads": np.array([0, 0, 1, 2, 0, 0, 1, 0])}, {}),
    "Pow": ({"power": np.float32(2)}, {}),
    "ReduceMax": ({"axes": np.array([1])}, {"keepdims": 0}),
    "ReduceMean": ({"axes": np.array([2, 3])}, {"keepdims": 1}),
    "Sigmoid": ({}, {}),
    "Slice": ({"starts": np.array([1]), "ends": np.array([3]), "axes": np.array([1])}, {}),
    "Softmax": ({}, {"axis": -1}),
    "Softplus": ({}, {}),
    "Split": ({"parts": np.array([1, 3])}, {"axis": 1}),
    "Tanh": ({}, {}),
    "Transpose": ({}, {"perm": [0, 2, 3, 1]}),
    "Unsqueeze": ({"axes": np.array([0])}, {}),
}


def model_of(op: str) -> Any:
    constants, attributes = CASES[op]
    outputs = ["y", "z"] if op == "Split" else ["y"]
    node = helper.make_node(op, ["x", *constants], outputs, **attributes)
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    return onnx.shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    )


def check(model: Any) -> None:
    given = nets.feeds(model)
    right = ReferenceEvaluator(model).run(None, given)
    got = graph_outputs(read_graph(model.SerializeToString(), {}), list(given.values()))
    for actual, expected in zip(got, right, strict=True):
        assert actual.shape == expected.shape
        assert np.abs(actual - expected).max() <= 1e-5 * max(np.abs(expected).max(), 1.0)


@pytest.mark.parametrize("op", list(CASES))
def test_an_operator_keeps_its_values(op: str) -> None:
    check(model_of(op))


@pytest.mark.parametrize(
    "model",
    [
        nets.perceptron(),
        nets.resnet(size=16, width=8, blocks=(1, 1)),
        nets.mobilenet(size=16, width=8, blocks=((8, 1), (16, 2))),
        nets.bert(layers=2),
    ],
    ids=["perceptron", "resnet", "mobilenet", "bert"],
)
def test_fusion_keeps_the_values_of_a_net(model: Any) -> None:
    check(model)


def test_gathers_stay_inside_whatever_the_index() -> None:
    """A negative index counts from the end; what lies beyond either end is the nearest."""
    make = nets.Maker()
    table = make.constant("table", np.arange(12, dtype=np.float32).reshape(6, 2))
    model = make.model(
        {"x": (5,)}, make.add("Gather", table, "x", axis=0), (5, 2), TensorProto.INT64
    )
    (got,) = graph_outputs(
        read_graph(nets.serialized(model), {}), [np.array([0, 5, -1, 400, -400])]
    )
    np.testing.assert_array_equal(got[:, 0], [0, 10, 10, 10, 0])


def test_an_empty_list_of_indices_takes_nothing() -> None:
    make = nets.Maker()
    none = make.constant("none", np.zeros(0, np.int64))
    taken = make.add("Gather", "x", none, axis=1)
    check(make.model({"x": (2, 3)}, make.add("Concat", taken, "x", axis=1), (2, 3)))


def test_an_operator_without_an_expression_is_named() -> None:
    node = helper.make_node("ImageDecoder", ["x"], ["y"])
    graph = helper.make_graph(
        [node],
        "one",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, [99])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, [8, 8, 3])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    with pytest.raises(UsageError, match="ImageDecoder"):
        read_graph(model.SerializeToString(), {})


@pytest.mark.parametrize(
    ("op", "number", "dtype"),
    [("Add", 0, "int64"), ("Sub", 0, "float32"), ("Mul", 1, "float32"), ("Div", 1, "int64")],
)
def test_neutral_constants_compute_nothing(op: str, number: int, dtype: str) -> None:
    """But where another number stands beside, or the result is larger; and where 0 makes 0 of
    -0."""

    def operations(op: str, dtype: str, numbers: list[Any]) -> int:
        make = nets.Maker()
        other = np.array(numbers, dtype)
        constant = make.constant("other", other)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
        shape = np.broadcast_shapes((4,), other.shape)
        model = make.model({"x": (4,)}, make.add("Neg", make.add(op, "x", constant)), shape, kind)
        model.graph.output[0].type.tensor_type.elem_type = kind
        (node,) = read_graph(nets.serialized(model), {}).expressions
        assert node.tensor(node.outputs[0]).shape == shape
        parts = (part for stage in node.stages for part in walk(stage.body))
        return sum(not isinstance(part, Read | Var) for part in parts)

    assert operations(op, dtype, [number]) == operations(op, dtype, [number] * 4) == 1
    assert operations(op, dtype, [number, number, 3, number]) > 1
    assert operations(op, dtype, [[number], [number]]) >= 1
    assert operations("Add", "float32", [0]) > 1
    assert operations("Sub", "float32", [-0.0]) > 1
    assert operations("Sub", "float32", [0.0, -0.0, 0.0, 0.0]) > 1
