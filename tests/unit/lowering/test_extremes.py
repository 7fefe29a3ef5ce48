"""Maxima and minima of floats are NaN where an operand is: in vectors, in their tails, in
parts that threads share, in epilogues, on every target."""

from __future__ import annotations

import re

import numpy as np
import pytest

from tests.support.checked_kernels import output_of
from tests.support.spaces import drawn_once
from tests.support.targets import NEOVERSE, SM_90, ZEN5, host_target
from tuner.lowering.compiler import compile_kernel
from tuner.lowering.cuda.codegen import cuda_kernels
from tuner.spaces.by_target import space_of
from tuner.spaces.default_schedule import default_program
from tuner.target.target import Target
from tuner.workload.arrays import numpy_dtype
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

SIZE = 67  # two vectors of 32 numbers and a tail, a prime
SQUARE = f"[{SIZE}, {SIZE}]"


def program(dtype: str, shape: str, body: str) -> Workload:
    return workload_from_notation(
        f"kernel k(X: {dtype}{SQUARE}) -> (Y: {dtype}{shape}) {{\n{body}\n}}", {}
    )


ALONG_ROWS = {
    f"{reducer} of {dtype}": program(dtype, f"[{SIZE}]", f"Y[i] {reducer}= X[i, j]")
    for reducer, dtype in (("max", "f32"), ("min", "f32"), ("max", "f64"), ("max", "bf16"))
}
ACROSS_ROWS = {
    f"{reducer} across": program("f32", f"[{SIZE}]", f"Y[j] {reducer}= X[i, j]")
    for reducer in ("max", "min")
}
OTHERS = {
    "softmax": parse_spec(f"softmax:M={SIZE},N={SIZE}"),
    "relu": program("f32", SQUARE, "Y[i, j] = max(X[i, j], 0)"),
    "clamp": program("f32", SQUARE, "Y[i, j] = clamp(X[i, j], -1, 1)"),
    "two tensors": program("f32", SQUARE, "Y[i, j] = max(X[i, j], min(X[j, i], X[i, j] + 1))"),
    "epilogue": program("f32", SQUARE, "P[i, j] += X[i, k] * X[j, k]\nY[i, j] = max(P[i, j], 0)"),
    "prologue": program(
        "f32", SQUARE, "R[i] max= abs(X[i, j])\nY[i, j] = min(X[i, j] / R[i], 0.5)"
    ),
}


def check(workload: Workload, configs: int, threads: int) -> None:
    """The default schedule and random ones, each row's NaN at another place and of
    either sign."""
    inputs = {
        tensor.name: np.random.default_rng(1).standard_normal(tensor.shape)
        for tensor in workload.expression.inputs
    }
    (first, *_) = workload.expression.inputs
    matrix = inputs[first.name].reshape(SIZE, SIZE)
    for row in range(0, SIZE - 1):
        matrix[row, (row * 5) % SIZE] = np.copysign(np.nan, (-1) ** row)
    inputs = {
        tensor.name: inputs[tensor.name].astype(numpy_dtype(tensor.dtype))
        for tensor in workload.expression.inputs
    }
    (name,) = workload.expression.outputs
    want = np.isnan(evaluate(workload.expression, inputs)[name])
    assert want.any()
    space = space_of(workload, host_target(), threads)
    points = drawn_once(space.space, np.random.default_rng(2), configs)
    programs = [space.program(space.space.config(point)) for point in points]
    for made in [default_program(workload), *programs]:
        got = output_of(made, workload.expression, inputs)
        np.testing.assert_array_equal(np.isnan(got.astype(np.float64)), want)


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", [*ALONG_ROWS, *ACROSS_ROWS])
def test_a_reduction_keeps_a_nan_at_every_place(case: str, threads: int) -> None:
    check((ALONG_ROWS | ACROSS_ROWS)[case], 3, threads)


@pytest.mark.parametrize("case", OTHERS)
def test_so_do_clamps_epilogues_and_what_reads_the_reduction(case: str) -> None:
    check(OTHERS[case], 3, 1)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_so_does_a_window_beside_padding(dtype: str) -> None:
    workload = parse_spec(f"max_pool2d:N=1,H=9,W=9,C=24,KH=3,KW=3,stride=2,pad=1,dtype={dtype}")
    x = np.full((1, 9, 9, 24), -np.inf)
    for channel in range(20):
        x[0, channel % 9, (channel * 4) % 9, channel] = np.nan
    x[..., 22] = np.inf
    inputs = {"X": x.astype(dtype)}
    want = evaluate(workload.expression, inputs)["Y"]
    space = space_of(workload, host_target(), 1)
    for point in drawn_once(space.space, np.random.default_rng(2), 3):
        got = output_of(space.program(space.space.config(point)), workload.expression, inputs)
        np.testing.assert_array_equal(got, want)


def instructions(spec: str, target: Target) -> str:
    workload = parse_spec(spec)
    space = space_of(workload, target, 1).space
    (point,) = space.sample(np.random.default_rng(3), 1)
    compiled = compile_kernel(
        workload=workload, target=target, threads=1, config=space.config(point), symbol="k"
    )
    return compiled.sources["asm"]


def test_an_operand_that_is_a_number_costs_nothing() -> None:
    text = instructions("elementwise:M=64,N=256,act=relu", ZEN5)
    assert "vmaxps" in text and "cmpunord" not in text


def test_an_instruction_that_keeps_nans_is_used_alone() -> None:
    text = instructions("reduce_max:M=64,N=256,axis=0", NEOVERSE)
    assert "fmax" in text and not re.search(r"\b(fcmgt|bsl|bif|bit)\b", text)


@pytest.mark.parametrize("case", ["relu", "two tensors", "softmax"])
def test_no_kernel_of_a_gpu_calls_a_maximum_that_drops_nans(case: str) -> None:
    space = space_of(OTHERS[case], SM_90, 1)
    (point,) = space.space.sample(np.random.default_rng(3), 1)
    text = cuda_kernels(space.program(space.space.config(point)), SM_90, "k").text
    kernels = text[text.index('extern "C" __global__') :]
    assert "max.NaN.f32" in text
    assert set(re.findall(r"\w*max\w*(?=\()", kernels)) == {"tuner_maximum"}
