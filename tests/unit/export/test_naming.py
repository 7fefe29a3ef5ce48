"""C names: derived from the operator or notation, valid everywhere, unique, and refused
when given wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tuner.export.errors import ExportRefused
from tuner.export.kernel import ExportKernel
from tuner.export.naming import base_name, check_library_name, named

Make = Callable[..., ExportKernel]
MLP = "kernel mlp(A: f32[M, K]) -> (C: f32[M]) { C[i] += A[i, k] }"


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        (
            {"op": "matmul", "params": {"M": 512, "N": 256, "K": 64, "dtype": "float32"}},
            "matmul_m512_n256_k64",
        ),
        (
            {"op": "matmul", "params": {"M": 5, "transpose_a": True, "transpose_b": False}},
            "matmul_m5_transpose_a",
        ),
        (
            {"op": "dense", "params": {"M": 1, "bias": True, "act": "relu", "dtype": "float16"}},
            "dense_m1_bias_relu_f16",
        ),
        ({"op": "layer_norm", "params": {"M": 2, "eps": 1e-05}}, "layer_norm_m2_eps1e_05"),
        ({"op": "softmax", "params": {}}, "kernel_softmax"),
        ({"op": None, "params": {}, "notation": MLP, "shapes": {"M": 3, "K": 4}}, "mlp_m3_k4"),
        (
            {
                "op": None,
                "params": {},
                "notation": "kernel exp(A: f32[4]) -> (C: f32[4]) { C[i] = exp(A[i]) }",
            },
            "kernel_exp",
        ),
        ({"op": None, "params": {}, "notation": None}, "kernel_kernel"),
        (
            {"op": None, "params": {}, "notation": "kernel pthread_create(A: f32[4])"},
            "kernel_pthread_create",
        ),
        ({"op": None, "params": {}, "notation": "kernel run_all(A: f32[4])"}, "kernel_run_all"),
    ],
)
def test_names_follow_operator_and_dimensions(
    kernel: Make, changes: dict[str, Any], name: str
) -> None:
    assert base_name(kernel(**changes)) == name


def test_long_names_are_cut_and_told_apart(kernel: Make) -> None:
    params = {f"parameter_{index}": index for index in range(20)}
    name = base_name(kernel(op="conv2d", params=params))
    assert len(name) <= 89
    assert name.endswith("_" + "ab" * 4)


def test_equal_names_become_unique_in_a_stable_way(kernel: Make) -> None:
    kernels = [
        kernel(threads=1),
        kernel(threads=2),
        kernel(threads=2),
        kernel(threads=2),
        kernel(threads=2, symbol="mine"),
    ]
    names = [kernel.symbol for kernel in named(kernels, "kit")]
    base = "elementwise_n1024_double"
    assert names == [base, f"{base}_t2", f"{base}_t2_abababab", f"{base}_t2_abababab_2", "mine"]
    assert names == [kernel.symbol for kernel in named(kernels, "kit")]


@pytest.mark.parametrize(
    "name",
    [
        "",
        "1kit",
        "my-kit",
        "a" * 65,
        "lib",
        "Include",
        "class",
        "int",
        "lambda",
        "std",
        "numpy",
        "kit\n",
        "math",
        "errno",
        "json",
        "linux",
    ],
)
def test_bad_library_names_are_refused(name: str) -> None:
    with pytest.raises(ExportRefused, match="library name"):
        check_library_name(name)


@pytest.mark.parametrize(
    "symbol",
    [
        "1f",
        "a b",
        "while",
        "malloc",
        "expf",
        "kit_alloc",
        "kit",
        "f\n",
        "tensor",
        "tuner_call",
        "TVMFFI",
    ],
)
def test_bad_function_names_are_refused(kernel: Make, symbol: str) -> None:
    with pytest.raises(ExportRefused, match="function name"):
        named([kernel(symbol=symbol)], "kit")


def test_a_function_name_twice_is_refused(kernel: Make) -> None:
    with pytest.raises(ExportRefused, match="'f_1' is used twice"):
        named([kernel(symbol="f_1"), kernel(symbol="f_1")], "kit")
