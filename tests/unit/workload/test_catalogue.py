"""Every operator, in combinations of its choices over small odd shapes, means what it
says; dtypes, inputs, structure."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from tests.support.operator_samples import SIZES, combinations
from tests.unit.workload.operators import MEANING
from tuner.errors import WorkloadError
from tuner.workload.catalogue import CATALOGUE, OPERATORS
from tuner.workload.expression import Binary, Cast, Read, arithmetic
from tuner.workload.inputs import Kind, make_inputs
from tuner.workload.operator import Operator
from tuner.workload.reference import evaluate_with_magnitude
from tuner.workload.spec import workload_from_params


def test_every_operator_has_a_meaning() -> None:
    assert set(MEANING) == set(OPERATORS)


@pytest.mark.parametrize("operator", CATALOGUE, ids=lambda operator: operator.name)
@pytest.mark.parametrize("kind", ["normal", pytest.param("large", marks=pytest.mark.slow)])
def test_operator_means_what_it_says(operator: Operator, kind: Kind) -> None:
    tried = 0
    for params in combinations(operator):
        workload = workload_from_params(operator.name, params)
        expression = workload.expression
        inputs = make_inputs(expression, 3, kind)
        exact = {
            name: array.astype(np.float64 if "float" in str(array.dtype) else np.int64)
            for name, array in inputs.items()
        }
        with np.errstate(all="ignore"):
            want = MEANING[operator.name](params, *exact.values())
        values, magnitudes = evaluate_with_magnitude(expression, inputs)
        (got,), (size,) = values.values(), magnitudes.values()
        assert got.shape == want.shape, params
        with np.errstate(invalid="ignore"):  # an infinity of both is no difference
            difference = np.where(got == want, 0.0, np.abs(got - want))
        np.testing.assert_array_less(difference, 1e-12 * size + 1e-300, err_msg=str(params))
        tried += 1
    assert tried >= len(operator.dtypes)


@pytest.mark.parametrize("operator", CATALOGUE, ids=lambda operator: operator.name)
def test_dtypes(operator: Operator) -> None:
    for params in combinations(operator):
        expression = workload_from_params(operator.name, params).expression
        dtype = params["dtype"]
        others = {"int8", "uint8"} if "weight" in params else set()
        if "y_zero" in params:
            others |= {"int8", "float32"}
        is_mixed = "of the weights" in operator.param("dtype").about
        if is_mixed:
            others |= {"float32"}
        if params.get("mask") == "keep":
            others |= {"uint8"}
        assert {tensor.dtype for tensor in expression.inputs} <= {
            dtype,
            params.get("index", "int32"),
            *others,
        }
        is_mixed |= params.get("activations") == "int8"  # sums are of what it rounds to
        if is_mixed or any("int" in expression.tensor(name).dtype for name in expression.outputs):
            continue  # hashes are integers of floats
        for stage in expression.stages:
            if "int" not in dtype:
                assert stage.accumulator == ("float64" if dtype == "float64" else "float32")
                assert stage.dtype == (
                    dtype if stage.name in expression.outputs else stage.accumulator
                )


@pytest.mark.parametrize(
    ("op", "names"),
    [
        ("matmul", "A B"),
        ("batch_matmul", "A B"),
        ("dense", "X W bias"),
        ("conv1d", "X W bias"),
        ("conv2d", "X W bias"),
        ("conv3d", "X W bias"),
        ("conv2d_transpose", "X W bias"),
        ("depthwise_conv2d", "X W bias"),
        ("max_pool2d", "X"),
        ("softmax", "X"),
        ("reduce_sum", "X"),
        ("transpose", "X"),
        ("layer_norm", "X gamma beta"),
        ("rms_norm", "X gamma"),
        ("attention", "Q K V"),
        ("embedding_bag", "P J W"),
        ("segment_reduce", "P X"),
        ("spmv", "P J A X"),
        ("spmm", "P J A X"),
        ("sddmm", "R J A B"),
        ("scatter_add", "J X"),
        ("gather_matmul", "I A B"),
        ("slide_layer", "J X W bias"),
        ("slide_layer_gradient", "J G W"),
        ("simhash", "X R"),
        ("dwta_hash", "I O X"),
    ],
)
def test_order_of_inputs(op: str, names: str) -> None:
    params = {
        param.name: SIZES[param.name] for param in OPERATORS[op].params if param.kind == "extent"
    }
    if "bias" in names and op != "slide_layer":
        params["bias"] = True
    assert [
        tensor.name for tensor in workload_from_params(op, params).expression.inputs
    ] == names.split()


@pytest.mark.parametrize(
    "op",
    [
        "matmul",
        "batch_matmul",
        "dense",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv2d_transpose",
        "depthwise_conv2d",
    ],
)
def test_products_are_one_plain_stage(op: str) -> None:
    for params in combinations(OPERATORS[op]):
        stages = [
            stage for stage in workload_from_params(op, params).expression.stages if stage.reducer
        ]
        assert len(stages) == 1
        body = stages[0].body
        assert isinstance(body, Binary) and body.op == "mul"
        for factor in (body.lhs, body.rhs):
            assert isinstance(factor.arg if isinstance(factor, Cast) else factor, Read)


def test_no_padding_leaves_no_padded_read() -> None:
    workload = workload_from_params(
        "conv2d", {"N": 1, "H": 5, "W": 5, "CI": 2, "CO": 3, "KH": 1, "KW": 1}
    )
    body = workload.expression.stages[0].body
    assert isinstance(body, Binary) and isinstance(body.lhs, Read) and body.lhs.pad is None


@pytest.mark.parametrize(
    ("op", "params", "multiply_adds"),
    [
        ("matmul", {"M": 509, "N": 509, "K": 509}, 509**3),
        ("dense", {"M": 128, "N": 3072, "K": 768, "bias": True, "act": "gelu"}, 128 * 3072 * 768),
        (
            "batch_matmul",
            {"B": 12, "M": 128, "N": 128, "K": 64, "transpose_b": True},
            12 * 128 * 128 * 64,
        ),
        (
            "conv2d",
            {
                "N": 1,
                "H": 224,
                "W": 224,
                "CI": 3,
                "CO": 64,
                "KH": 7,
                "KW": 7,
                "stride": 2,
                "pad": 3,
                "layout": "NHWC",
                "act": None,
            },
            112 * 112 * 64 * 147,
        ),
        (
            "depthwise_conv2d",
            {
                "N": 1,
                "H": 56,
                "W": 56,
                "C": 128,
                "KH": 3,
                "KW": 3,
                "stride": 1,
                "pad": 1,
                "layout": "NHWC",
            },
            56 * 56 * 128 * 9,
        ),
    ],
)
def test_operations_are_counted(op: str, params: dict[str, Any], multiply_adds: int) -> None:
    expression = workload_from_params(op, params).expression
    extra = sum(
        math.prod(axis.extent for axis in stage.axes) * arithmetic(stage.body)
        for stage in expression.stages
        if stage.reducer is None
    )
    assert expression.flops == 2 * multiply_adds + extra


def test_optional_parts_of_attention_and_mlp_are_inputs_of_their_own() -> None:
    attention = workload_from_params(
        "attention", {"B": 1, "H": 4, "HKV": 2, "S": 1, "SK": 9, "D": 4, "DV": 6, "mask": "keep"}
    ).expression
    assert [(tensor.name, tensor.shape) for tensor in attention.inputs] == [
        ("Q", (1, 4, 1, 4)),
        ("K", (1, 2, 9, 4)),
        ("V", (1, 2, 9, 6)),
        ("M", (1, 1, 9)),
    ]
    gated = {"M": 3, "K": 4, "J": 5, "N": 7, "gate": True, "bias": True}
    mlp = workload_from_params("mlp", gated).expression
    assert [tensor.name for tensor in mlp.inputs] == ["X", "G", "U", "W", "bg", "bu", "bw"]
    assert mlp.tensor("Y").shape == (3, 7)


def test_attention_keeps_its_key_where_nothing_is_added() -> None:
    params = {"B": 1, "H": 2, "S": 8, "D": 4}
    assert workload_from_params("attention", params).key.startswith("2596da26")
    assert workload_from_params("attention", params | {"HKV": 2, "SK": 8, "DV": 4}).key.startswith(
        "2596da26"
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [({"HKV": 4}, "HKV=4 must divide H=6"), ({"SK": 3}, "SK=3 must be 0 or at least S=4")],
)
def test_attention_refuses_heads_and_positions_that_do_not_fit(
    given: dict[str, int], message: str
) -> None:
    with pytest.raises(WorkloadError, match=message):
        workload_from_params("attention", {"B": 1, "H": 6, "S": 4, "D": 4} | given)
