"""Derivatives of exported sums of products, and operators of PyTorch that have them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.export.derivatives import product_of
from tuner.export.kernel import ExportKernel, arguments_of
from tuner.export.library import export_library
from tuner.runtime.link import runtime_sources
from tuner.runtime.toolchain import Toolchain
from tuner.workload.expression import Expression
from tuner.workload.notation import parse
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec

EINSUMS = [
    "matmul:M=3,N=4,K=5",
    "matmul:M=3,N=4,K=5,transpose_a=true,transpose_b=true",
    "batch_matmul:B=2,M=3,N=4,K=5",
    "dense:M=3,N=4,K=5",
    "matmul:M=3,N=4,K=5,dtype=float16",
]
OTHERS = [
    "dense:M=3,N=4,K=5,bias=true",
    "dense:M=3,N=4,K=5,act=relu",
    "matmul:M=3,N=4,K=5,dtype=int8",
    "reduce_sum:M=3,N=4",
    "reduce_max:M=3,N=4",
    "softmax:M=3,N=4",
    "elementwise:M=3,N=4,act=relu",
]
PROGRAM = """
import torch, kit
x = torch.randn(32, 32, requires_grad=True)
torch.manual_seed(0)
y = torch.randn(32, 32, requires_grad=True)
weight = torch.randn(32, 32)
(torch.ops.kit.scaled(x, y) * weight).sum().backward()
torch.testing.assert_close(x.grad, weight * y)
torch.testing.assert_close(y.grad, weight * x)
torch.library.opcheck(kit.operators.scaled, (x.detach().requires_grad_(), y.detach()))
try:
    torch.ops.kit.plain(torch.randn(1024, requires_grad=True)).sum().backward()
    raise SystemExit("no error")
except RuntimeError as error:
    assert "no autograd formula" in str(error)
"""


def einsum(product: Any, arrays: list[Any]) -> Any:
    operands = [v for pair in zip(arrays, map(list, product.inputs), strict=True) for v in pair]
    return np.einsum(*operands, list(product.output))


@pytest.mark.parametrize("spec", EINSUMS)
def test_sums_of_products_are_einsums(spec: str) -> None:
    expression = parse_spec(spec).expression
    product = product_of(expression)
    assert product is not None
    random = np.random.default_rng(0)
    arrays = [random.standard_normal(tensor.shape) for tensor in expression.inputs]
    named = dict(zip((tensor.name for tensor in expression.inputs), arrays, strict=True))
    (right,) = evaluate(expression, named).values()
    np.testing.assert_allclose(einsum(product, arrays), right, rtol=1e-2)


@pytest.mark.parametrize("spec", OTHERS)
def test_others_are_not(spec: str) -> None:
    assert product_of(parse_spec(spec).expression) is None


@pytest.mark.parametrize(
    "text",
    [
        "kernel k(A: f32[4, 4], B: f32[4]) -> (C: f32[4]) { C[i] = A[i, i] * B[i] }",
        "kernel k(A: f32[8], B: f32[4]) -> (C: f32[4]) { C[i] = A[i] * B[i] for i in 0:4 }",
        "kernel k(A: f32[4], B: f32[4]) -> (C: f32[4]) { C[i] = A[i] * A[i] * B[i] }",
        "kernel k(A: f32[4], B: f32[4]) -> (C: f32[4]) { C[i] = A[i] * B[3 - i] }",
        "kernel k(A: f32[4], B: f32[4]) -> (C: f32[4]) { C[i] = A[i] * B[i] * 2 }",
        "kernel k(A: f32[4], B: f32[4]) -> (C: f32[4, 2]) { C[i, j] = A[i] * B[i] for j in 0:2 }",
        "kernel k(A: f32[4], B: f32[4]) -> (C: f32[4]) { C[i] max= A[i] * B[j] }",
    ],
)
def test_reads_of_another_kind_are_not(text: str) -> None:
    assert product_of(parse(text, {})) is None


def test_nothing_is_known_of_a_kernel_without_expression() -> None:
    assert product_of(None) is None


def scaled() -> Expression:
    text = "kernel scaled(X: f32[32, 32], Y: f32[32, 32]) -> (Z: f32[32, 32]) {\n"
    return parse(text + "  Z[i, j] = X[i, j] * Y[i, j]\n}", {})


OBJECT = """
#include "tvm_abi.h"
__attribute__((visibility("default"))) int __tvm_ffi_scaled(void *s, const TunerAny *a, int32_t n, TunerAny *r) {
  (void)s, (void)n, (void)r;
  const TunerDLTensor *x = a[0].value.v_ptr, *y = a[1].value.v_ptr, *z = a[2].value.v_ptr;
  for (int i = 0; i < 1024; ++i) ((float *)z->data)[i] = ((float *)x->data)[i] * ((float *)y->data)[i];
  return 0;
}
"""  # noqa: E501


@pytest.mark.slow  # a process that loads PyTorch's compiler
@pytest.mark.skipif(find_spec("torch") is None, reason="no torch here")
def test_operators_of_pytorch_have_derivatives(
    tmp_path: Path, kernel: Callable[..., ExportKernel], toolchain: Toolchain
) -> None:
    headers = {"tvm_abi.h": runtime_sources()["tvm_abi.h"]}
    expression = scaled()
    product = replace(
        kernel(),
        symbol="scaled",
        expression=expression,
        arguments=arguments_of(expression),
        object_code=toolchain.compile("scaled.c", OBJECT, headers).read_bytes(),
        tvm_symbol="__tvm_ffi_scaled",
        expected=None,
    )
    export_library([product, kernel(symbol="plain")], tmp_path / "kit", "kit", toolchain=toolchain)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={"PYTHONPATH": str(tmp_path / "kit")},
        capture_output=True, text=True, check=False, timeout=170,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
