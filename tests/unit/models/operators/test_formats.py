"""Number formats that kernels only convert, against ml_dtypes and ONNX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.support.graph_values import graph_outputs
from tuner.models.errors import ModelRefused
from tuner.models.from_onnx.reader import graph_of
from tuner.models.graph import Array
from tuner.models.graph_archive import packed, unpacked
from tuner.models.library.library import model_arguments
from tuner.models.operators.builder import GraphBuilder
from tuner.models.operators.formats import (
    FORMATS,
    SMALL_FLOATS,
    SMALL_INTEGERS,
    PowerOfTwo,
    Rounding,
    SmallFloat,
    SmallInteger,
)
from tuner.models.operators.scalars import Elem
from tuner.workload.dtypes import DType

SPECIAL = np.array([0, -0.0, np.inf, -np.inf, 464, 465, 480, 61439, 61440, 247.9, 248], np.float32)


def computed(function: Callable[[Elem], Elem], x: Array, source: DType, result: DType) -> Array:
    builder = GraphBuilder()
    value = builder.input(x.shape, source)
    graph = builder.graph(
        [builder.compute("t", x.shape, lambda i: function(value[i]), dtype=result)], ["x", "y"]
    )
    (array,) = graph_outputs(graph, [x])
    return array


def dtype_of(name: str) -> np.dtype[Any]:
    made: np.dtype[Any] = np.dtype(getattr(ml_dtypes, name))
    return made


@pytest.mark.parametrize("name", [kept.name for kept in (*SMALL_FLOATS, PowerOfTwo())])
def test_each_code_stands_for_its_number(name: str) -> None:
    bits = int(name.removeprefix("float")[0])
    codes = np.arange(2**bits, dtype=np.uint8)
    right = codes.view(dtype_of(name)).astype(np.float32)
    got = computed(FORMATS[name].decoded, codes, "uint8", "float32")
    np.testing.assert_array_equal(got, right)
    numbers = ~np.isnan(right)
    np.testing.assert_array_equal(np.signbit(got[numbers]), np.signbit(right[numbers]))


@pytest.mark.parametrize("kept", SMALL_FLOATS, ids=[kept.name for kept in SMALL_FLOATS])
@pytest.mark.parametrize("saturate", [True, False])
@settings(deadline=None, max_examples=20)
@given(st.lists(st.floats(width=32, allow_nan=False) | st.floats(-500, 500, width=32), min_size=8))
def test_numbers_are_rounded_to_even(
    kept: SmallFloat, saturate: bool, numbers: list[float]
) -> None:
    x = np.concatenate([np.array(numbers, np.float32), SPECIAL])
    dtype = dtype_of(kept.name)
    with np.errstate(all="ignore"):
        right = onnx.numpy_helper.saturate_cast(x, dtype) if saturate else x.astype(dtype)
    rounding = Rounding(saturate=saturate)
    got = computed(lambda e: kept.encoded(e, rounding), x, "float32", "uint8")
    numeric = ~np.isnan(right.astype(np.float32))
    np.testing.assert_array_equal(got[numeric], right.view(np.uint8)[numeric])
    assert np.isnan(got.view(dtype).astype(np.float32)[~numeric]).all()


@pytest.mark.parametrize("kept", SMALL_FLOATS, ids=[kept.name for kept in SMALL_FLOATS])
def test_each_float_survives_the_way_there_and_back(kept: SmallFloat) -> None:
    codes = np.arange(2 ** (1 + kept.exponent_bits + kept.mantissa_bits), dtype=np.uint8)
    back = computed(lambda e: kept.encoded(kept.decoded(e), Rounding()), codes, "uint8", "uint8")
    numbers = ~np.isnan(codes.view(dtype_of(kept.name)).astype(np.float32))
    if kept.infinity is not None:  # saturated
        numbers &= (codes & 0x7F) != kept.infinity
    np.testing.assert_array_equal(back[numbers], codes[numbers])


@pytest.mark.parametrize("saturate", [True, False])
@pytest.mark.parametrize("mode", ["up", "down", "nearest"])
def test_powers_of_two_are_rounded_as_onnx_rounds_them(mode: str, saturate: bool) -> None:
    rng = np.random.default_rng(0)
    x = np.frombuffer(rng.bytes(4000), np.float32)
    right = onnx.numpy_helper.to_float8e8m0(x, saturate, mode).view(np.uint8)
    rounding = Rounding(saturate=saturate, mode=mode)
    with np.errstate(all="ignore"):
        got = computed(lambda e: PowerOfTwo().encoded(e, rounding), x, "float32", "uint8")
    np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize("kept", SMALL_INTEGERS, ids=[kept.name for kept in SMALL_INTEGERS])
def test_integers_keep_their_low_bits(kept: SmallInteger) -> None:
    x = np.arange(-100, 100, dtype=np.int32)
    got = computed(lambda e: kept.encoded(e, Rounding()), x, "int32", kept.storage)
    np.testing.assert_array_equal(got, x.astype(dtype_of(kept.name)).astype(kept.storage))


def model(
    nodes: list[onnx.NodeProto], source: int, result: int, shape: list[int]
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", source, shape)],
        [helper.make_tensor_value_info("y", result, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=11)


def test_moved_bytes_keep_their_format() -> None:
    nodes = [
        helper.make_node("Cast", ["x"], ["f"], to=TensorProto.FLOAT8E5M2),
        helper.make_node("Transpose", ["f"], ["t"], perm=[1, 0]),
        helper.make_node("Identity", ["t"], ["y"]),
    ]
    graph = graph_of(model(nodes, TensorProto.FLOAT, TensorProto.FLOAT8E5M2, [2, 3]))
    assert graph.formats == {"y": "float8_e5m2"}
    assert unpacked(packed(graph)).formats == graph.formats
    x, output = model_arguments(graph)
    assert (x.format, output.dtype, output.format) == ("", "uint8", "float8_e5m2")
    array = np.array([[1, 2.4, -3], [1e9, 0.1, 0]], np.float32)
    (got,) = graph_outputs(graph, [array])
    right = onnx.numpy_helper.saturate_cast(array, np.dtype(ml_dtypes.float8_e5m2)).T
    np.testing.assert_array_equal(got, np.ascontiguousarray(right).view(np.uint8))


def test_arithmetic_on_a_format_is_refused() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    with pytest.raises(ModelRefused, match="does not compute with int4; put a Cast before it"):
        graph_of(model(nodes, TensorProto.INT4, TensorProto.INT4, [4]))
