"""Operators of the domain `com.microsoft`: what they become computes what ONNX Runtime does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from tests.support.graph_values import graph_outputs
from tests.unit.models.microsoft_cases import CASES, B, Case, D, H, S, real
from tuner.models.errors import ModelRefused
from tuner.models.graph import check_graph
from tuner.models.reading import read_graph
from tuner.workers.jobs.model_library import Model, right_outputs


def model_of(case: Case) -> tuple[Any, dict[str, Any]]:
    """The model without the types of its outputs, and the inputs that it is called with."""
    names = ["" if value is None else f"x{place}" for place, value in enumerate(case.inputs)]
    arrays = {name: np.asarray(v) for name, v in zip(names, case.inputs, strict=True) if name}
    fixed = {f"x{place}" for place in case.constants}
    node = helper.make_node(
        case.op, names, list(case.outputs), domain="com.microsoft", **case.attributes
    )
    graph = helper.make_graph(
        [node],
        "one",
        [described(name, array) for name, array in arrays.items() if name not in fixed],
        [onnx.ValueInfoProto(name=name) for name in case.outputs if name],
        [numpy_helper.from_array(arrays[name], name) for name in sorted(fixed)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    return model, {n: a for n, a in arrays.items() if n not in fixed}


def described(name: str, array: Any) -> Any:
    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape)


def run(model: Any, given: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 1  # by several, DynamicQuantizeLSTM rounds rows apart
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return list(session.run(None, given))


def read(model: Any, given: dict[str, Any], right: list[Any]) -> list[Any]:
    """What the graph computes; the outputs of the file are described as the right ones."""
    for output, array in zip(model.graph.output, right, strict=True):
        output.CopyFrom(described(output.name, array))
    graph = read_graph(model.SerializeToString(), {})
    check_graph(graph)
    return graph_outputs(graph, [given[name] for name in graph.labels[: len(graph.inputs)]])


def assert_near(got: list[Any], right: list[Any], tolerance: float) -> None:
    for actual, expected in zip(got, right, strict=True):
        assert actual.shape == expected.shape
        assert actual.dtype == expected.dtype
        bound = tolerance
        if expected.dtype.kind == "f":
            bound *= max(float(np.abs(expected).max()), 1.0)
        assert np.abs(actual.astype(float) - expected.astype(float)).max() <= bound


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join([case.op, case.label]).strip())
def test_an_operator_computes_what_onnx_runtime_does(case: Case) -> None:
    model, given = model_of(case)
    right = run(model, given)
    got = read(model, given, right)
    assert_near(got[: case.compared], right[: case.compared], case.tolerance)


# --- those that ONNX Runtime has for other devices alone, against NumPy


def softmax(x: Any) -> Any:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def gelu(x: Any) -> Any:
    return x * 0.5 * (1 + np.vectorize(math.erf)(x / math.sqrt(2)))


def packed_attention(qkv: Any) -> Any:
    q, k, v = (qkv[:, :, :, number].transpose(0, 2, 1, 3) for number in range(3))
    weights = softmax(q @ k.transpose(0, 1, 3, 2) * 0.7)
    return (weights @ v).transpose(0, 2, 1, 3).reshape(B, S, H * D)


def group_norm(x: Any, gamma: Any, beta: Any) -> Any:
    """Of channels last, in two groups, with SiLU."""
    parts = x.reshape(*x.shape[:3], 2, -1)
    centred = parts - parts.mean((1, 2, 4), keepdims=True)
    normal = centred / np.sqrt((centred**2).mean((1, 2, 4), keepdims=True) + 1e-5)
    y = normal.reshape(x.shape) * gamma + beta
    return y / (1 + np.exp(-y))


def split_gelu(x: Any, bias: Any) -> Any:
    left, right = np.split(x + bias, 2, -1)
    return left * gelu(right)


OTHERS = [
    (Case(op="BiasAdd", inputs=(real(2, 3, 4), real(4), real(2, 3, 4))), lambda x, b, s: x + b + s),
    (
        Case(op="BiasSoftmax", inputs=(real(2, 3, 4, 5), real(2, 1, 1, 5)), attributes={"axis": 3}),
        lambda x, b: softmax(x + b),
    ),
    (Case(op="BiasSplitGelu", inputs=(real(2, 3, 8), real(8))), split_gelu),
    (
        Case(
            op="GroupNorm",
            inputs=(real(2, 3, 3, 6), real(6), real(6)),
            attributes={"groups": 2, "activation": 1},
        ),
        group_norm,
    ),
    (
        Case(
            op="SkipGroupNorm",
            inputs=(real(2, 3, 3, 6), real(6), real(6), real(2, 6), real(6)),
            attributes={"groups": 2, "activation": 1},
        ),
        lambda x, g, b, s, v: group_norm(x + s[:, None, None] + v, g, b),
    ),
    (
        Case(
            op="MultiHeadAttention",
            inputs=(real(B, S, H, 3, D),),
            attributes={"num_heads": H, "scale": 0.7},
        ),
        packed_attention,
    ),
]


@pytest.mark.parametrize(("case", "function"), OTHERS, ids=[case.op for case, _ in OTHERS])
def test_an_operator_of_other_devices_computes_its_formula(case: Case, function: Any) -> None:
    model, given = model_of(case)
    right = [np.asarray(function(*given.values()), np.float32)]
    assert_near(read(model, given, right), right, 1e-5)


@pytest.mark.parametrize("op", ["LayerNormalization", "SimplifiedLayerNormalization"])
def test_a_norm_that_the_optimiser_writes_as_the_standards_is_read(op: str) -> None:
    """As of opset 12, which has neither."""
    case = Case(op=op, inputs=(real(3, 8), real(8)), attributes={"axis": -1, "epsilon": 1e-3})
    model, given = model_of(case)
    model.graph.node[0].domain = ""
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", 12))
    right = run(model, given)
    assert_near(read(model, given, right), right, 1e-5)


def test_an_operator_without_an_expression_is_named_with_its_domain() -> None:
    model, given = model_of(Case(op="NGramRepeatBlock", inputs=(np.zeros((2, 3), np.int64),)))
    with pytest.raises(ModelRefused, match=r"NGramRepeatBlock .* domain com.microsoft"):
        read(model, given, [np.zeros((2, 3), np.int64)])


def test_what_the_evaluator_of_onnx_does_not_run_is_evaluated_from_the_graph() -> None:
    """Also where nobody knew before that it does not."""
    case = next(case for case in CASES if case.op == "QuickGelu")
    file, given = model_of(case)
    file.graph.output[0].CopyFrom(described("y", given["x0"]))
    content = file.SerializeToString()
    model = Model(content=content, shapes={}, graph=read_graph(content, {}))
    (right,) = right_outputs(model, model.graph, [given["x0"]], {})
    np.testing.assert_allclose(right, given["x0"] / (1 + np.exp(-1.5 * given["x0"])), rtol=1e-5)
