"""ONNX's evaluator on float16 and bfloat16 computes each operator in float32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tuner.models.files.onnx_file import read_model
from tuner.models.reading import read_graph
from tuner.models.reference.accuracy import relative_error
from tuner.models.reference.node_check import verdict_on
from tuner.models.reference.onnx_evaluation import evaluate
from tuner.models.reference.verdict import Right

# With the distance from 1 to the next number.
NARROW = [
    (TensorProto.FLOAT16, np.float16, 2.0**-10),
    (TensorProto.BFLOAT16, ml_dtypes.bfloat16, 2.0**-7),
]


def model(kind: int, dtype: Any) -> bytes:
    """A layer norm, a sum of squares, and a cast that stays what it is."""
    gamma = numpy_helper.from_array(np.ones(64, dtype), "g")
    nodes = [
        helper.make_node("LayerNormalization", ["x", "g"], ["n"]),
        helper.make_node("ReduceL2", ["x"], ["r"], keepdims=0),
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT),
    ]
    outputs = [
        helper.make_tensor_value_info("n", kind, [4, 64]),
        helper.make_tensor_value_info("r", kind, []),
        helper.make_tensor_value_info("f", TensorProto.FLOAT, [4, 64]),
    ]
    given = [helper.make_tensor_value_info("x", kind, [4, 64])]
    graph = helper.make_graph(nodes, "narrow", given, outputs, [gamma])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize(("kind", "dtype", "unit"), NARROW)
def test_sums_of_squares_are_finite(kind: int, dtype: Any, unit: float) -> None:
    x = (300 * np.random.default_rng(0).standard_normal((4, 64))).astype(dtype)
    normal, size, wide = evaluate(read_model(model(kind, dtype), {}), [x])
    exact = x.astype(np.float64)
    centred = exact - exact.mean(axis=1, keepdims=True)
    right = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True))
    assert relative_error(normal, right) <= unit
    assert relative_error(size, np.array(np.sqrt((exact**2).sum()))) <= unit
    assert normal.dtype == size.dtype == dtype and wide.dtype == np.float32
    np.testing.assert_array_equal(wide, x.astype(np.float32))


@pytest.mark.parametrize(("kind", "dtype", "unit"), NARROW)
def test_the_import_is_right_where_half_would_overflow(kind: int, dtype: Any, unit: float) -> None:
    content = model(kind, dtype)
    x = (300 * np.random.default_rng(0).standard_normal((4, 64))).astype(dtype)
    verdict = verdict_on(read_model(content, {}), read_graph(content, {}), [x], {})
    assert isinstance(verdict, Right), verdict
    assert verdict.error <= unit
