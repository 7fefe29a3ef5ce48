"""Operators of QONNX, against their definition in NumPy."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

from tests.support.graph_values import graph_outputs
from tuner.models.errors import ModelRefused
from tuner.models.graph import Graph, check_graph
from tuner.models.reading import read_graph

RNG = np.random.default_rng(7)
X = np.concatenate([RNG.standard_normal(240) * 3, np.arange(-24, 24) / 2]).astype(np.float32)
X = X.reshape(2, 3, 6, 8)
SCALES = np.array([0.5, 0.11, 0.037], np.float32).reshape(1, 3, 1, 1)

ROUNDINGS: Mapping[str, Callable[[Any], Any]] = {
    "ROUND": np.round,
    "half_even": np.round,
    "CEIL": np.ceil,
    "FLOOR": np.floor,
    "UP": lambda a: np.sign(a) * np.ceil(np.abs(a)),
    "DOWN": np.trunc,
    "HALF_UP": lambda a: np.sign(a) * np.floor(np.abs(a) + np.float32(0.5)),
    "HALF_DOWN": lambda a: np.sign(a) * np.ceil(np.abs(a) - np.float32(0.5)),
}


def model_of(
    op: str,
    parameters: tuple[Any, ...],
    attributes: Mapping[str, Any],
    domain: str,
    *,
    is_stated: bool = True,
) -> Any:
    """One operator of X with constant parameters."""
    kind = onnx.TensorProto.FLOAT
    names = [f"p{number}" for number in range(len(parameters))]
    graph = helper.make_graph(
        [helper.make_node(op, ["x", *names], ["y"], domain=domain, **attributes)],
        "g",
        [helper.make_tensor_value_info("x", kind, X.shape)],
        [helper.make_tensor_value_info("y", kind, None)],
        [
            numpy_helper.from_array(np.asarray(array, np.float32), name)
            for name, array in zip(names, parameters, strict=True)
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)][: 1 + is_stated]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def read(
    op: str, *parameters: Any, domain: str = "qonnx.custom_op.general", **attributes: Any
) -> Graph:
    model = model_of(op, parameters, attributes, domain)
    graph = read_graph(model.SerializeToString(), {})
    check_graph(graph)
    return graph


def computed(op: str, *parameters: Any, **attributes: Any) -> Any:
    (result,) = graph_outputs(read(op, *parameters, **attributes), [X])
    assert result.dtype == np.float32
    return result


def limits(bits: int, signed: int, narrow: int) -> tuple[int, int]:
    """As tables have them: 8 bits are -128 to 127, narrow -127 to 127, unsigned 0 to 255."""
    if signed:
        return -(2 ** (bits - 1)) + narrow, 2 ** (bits - 1) - 1
    return 0, 2**bits - 1 - narrow


def quantized(
    scale: Any, zero: Any, bits: int, signed: int, narrow: int, rounding: str = "ROUND"
) -> Any:
    scale, zero = np.float32(scale), np.float32(zero)
    low, high = limits(bits, signed, narrow)
    integers = ROUNDINGS[rounding](np.clip(X / scale + zero, np.float32(low), np.float32(high)))
    return (integers.astype(np.float32) - zero) * scale


@pytest.mark.parametrize("signed", [0, 1])
@pytest.mark.parametrize("narrow", [0, 1])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_integers_of_any_width(bits: int, narrow: int, signed: int) -> None:
    got = computed("IntQuant", SCALES, 0, bits, signed=signed, narrow=narrow)
    np.testing.assert_array_equal(got, quantized(SCALES, 0, bits, signed, narrow))


@pytest.mark.parametrize("rounding", ROUNDINGS)
def test_every_rounding(rounding: str) -> None:
    got = computed("Quant", 1, 0, 6, signed=1, narrow=0, rounding_mode=rounding)
    np.testing.assert_array_equal(got, quantized(1, 0, 6, 1, 0, rounding))


def test_a_zero_point_comes_before_the_rounding() -> None:
    got = computed("Quant", SCALES, 2.5, 4, signed=0, narrow=0)
    np.testing.assert_array_equal(got, quantized(SCALES, 2.5, 4, 0, 0))


def test_one_bit_is_a_sign() -> None:
    signs = np.where(X >= 0, 1, -1).astype(np.float32)
    np.testing.assert_array_equal(computed("Quant", 0.5, 0, 1, signed=1, narrow=1), signs / 2)
    np.testing.assert_array_equal(computed("BipolarQuant", SCALES), signs * SCALES)


@pytest.mark.parametrize(
    ("exponent", "mantissa", "bias", "greatest", "dtype"),
    [
        (4, 3, 7, 448, ml_dtypes.float8_e4m3fn),
        (5, 2, 15, 57344, ml_dtypes.float8_e5m2),
        (2, 1, 1, 6, ml_dtypes.float4_e2m1fn),
        (3, 2, 3, 28, ml_dtypes.float6_e3m2fn),
    ],
)
def test_floats_of_any_width(
    exponent: int, mantissa: int, bias: int, greatest: float, dtype: Any
) -> None:
    scale = np.float32(0.01)
    numbers = np.clip(X / scale, -greatest, greatest).astype(np.float32).astype(dtype)
    got = computed("FloatQuant", scale, exponent, mantissa, bias, greatest, saturation=1)
    np.testing.assert_array_equal(got, numbers.astype(np.float32) * scale)


@pytest.mark.parametrize("rounding", ["FLOOR", "ROUND"])
def test_the_lowest_bits_are_left_out(rounding: str) -> None:
    integers = np.round(X / np.float32(0.25) + 3)
    shifted = ROUNDINGS[rounding](integers / 4).astype(np.float32)
    got = computed("Trunc", 0.25, 3, 8, 6, rounding_mode=rounding)
    np.testing.assert_array_equal(got, (shifted - 3) * np.float32(0.25))
    limited = ROUNDINGS[rounding](np.clip(integers / 4, -8, 7)).astype(np.float32)
    got = computed("Trunc", 0.25, 3, 8, 1.0, 4, rounding_mode=rounding, signed=1, narrow=0)
    np.testing.assert_array_equal(got, limited - np.float32(0.75))


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_thresholds_are_counted(layout: str) -> None:
    axis = 1 if layout == "NCHW" else 3
    thresholds = np.sort(RNG.standard_normal((X.shape[axis], 7)).astype(np.float32), axis=1)
    reached = np.moveaxis(X, axis, -1)[..., None] >= thresholds
    right = np.moveaxis(reached.sum(-1), -1, axis).astype(np.float32) * 2 - 7
    got = computed(
        "MultiThreshold", thresholds, data_layout=layout, out_dtype="INT4", out_scale=2.0,
        out_bias=-7.0,
    )  # fmt: skip
    np.testing.assert_array_equal(got, right)


def test_a_file_need_not_name_the_domain() -> None:
    domain = "finn.custom_op.general"
    model = model_of("Quant", (0.5, 0, 4), {"signed": 1, "narrow": 0}, domain, is_stated=False)
    (result,) = graph_outputs(read_graph(model.SerializeToString(), {}), [X])
    np.testing.assert_array_equal(result, quantized(0.5, 0, 4, 1, 0))


@pytest.mark.parametrize(
    ("op", "parameters", "attributes", "reason"),
    [
        ("Im2Col", (), {}, "no expression yet"),
        ("Quant", (1, 0, 40), {}, "has 40 bits; 1 to 32 are taken"),
        ("Quant", (1, 0, [2, 4, 8]), {}, "no single number as input 3"),
        ("Quant", (1, 0, 4), {"rounding_mode": "SOMEHOW"}, "rounds by 'SOMEHOW'"),
        ("FloatQuant", (1, 4, 3, 7, 448), {"saturation": 0}, "only saturation=1 is taken"),
        ("MultiThreshold", ([[0.0], [1.0]],), {}, "thresholds of 2 channels for 3"),
    ],
)
def test_what_is_refused(
    op: str, parameters: tuple[Any, ...], attributes: Mapping[str, Any], reason: str
) -> None:
    with pytest.raises(ModelRefused, match=reason):
        read(op, *parameters, **attributes)
