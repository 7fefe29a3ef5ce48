"""Compiled kernels on integers of every width, and on the bits of numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tvm
from numpy.typing import NDArray

from tests.support.targets import host_target
from tuner.lowering.compiler import build
from tuner.lowering.schedule import schedule
from tuner.spaces.default_schedule import default_program
from tuner.workload.arrays import numpy_dtype
from tuner.workload.reference import evaluate
from tuner.workload.spec import workload_from_notation

M, N = 5, 37
# Arithmetic that LLVM must not take for arithmetic that stays inside its dtype.
WRAPPING = """
kernel k(A: D[M, N], B: D[N], X: f64[N]) -> (
    S: D[M, N], P: D[M, N], Q: D[M, N], L: bool[M, N], Z: D[M, N], R: D[M], G: D[M],
    F: f32[M, N], U: D[N], O: D[N]) {
  S[i, j] = A[i, j] - B[j] * A[i, j]
  P[i, j] = max(A[i, j] + B[j], min(-A[i, j], 7))
  Q[i, j] = (A[i, j] - B[j]) // 7 + A[i, j] % 5
  L[i, j] = A[i, j] - B[j] < B[j]
  Z[i, j] = shr(shl(A[i, j] * B[j], 3), 5)
  R[i] += A[i, j] * B[j]
  G[i] max= A[i, j] - B[j]
  F[i, j] = f32(A[i, j])
  U[j] = D(X[j])
  O[j] = B[j] * B[j] + D(j) * 113
}
"""
BITS = """
kernel k(H: f16[N], C: f32[N], E: f64[N], I: i32[N], W: bf16[N]) -> (
    O: u16[N], P: f32[N], Q: i64[N], R: f32[N], S: f16[N], T: u16[N], U: bf16[N], V: u16[N]) {
  O[i] = bitcast(u16, H[i])
  P[i] = bitcast(f32, bitand(bitcast(i32, C[i]), -65536))
  Q[i] = bitcast(i64, E[i])
  R[i] = bitcast(f32, I[i])
  S[i] = bitcast(f16, i16(I[i]))
  T[i] = bitcast(u16, W[i])
  U[i] = bitcast(bf16, u16(bitcast(u16, W[i]) + 1))
  V[i] = bitcast(u16, bf16(C[i]))
}
"""


# Numbers that no longer fit where they are converted or shifted to.
NARROWED = """
kernel k(A: u8[N], U: u32[N], V: u64[N], W: i32[N]) -> (
    O: bool[N], P: i32[N], Q: i32[N], R: i64[N], S: i32[N], T: i32[N]) {
  O[i] = i8(A[i]) < 0
  P[i] = i8(A[i]) // 7
  Q[i] = max(i32(U[i]), 0)
  R[i] = i64(V[i]) % 7
  S[i] = i8(bitand(W[i], 255)) // 3
  T[i] = u8(W[i] * 6) % 3
}
"""


def check(text: str, shapes: dict[str, int], arrays: dict[str, NDArray[Any]]) -> None:
    """The default kernel's outputs are the reference's to the last bit."""
    workload = workload_from_notation(text, shapes)
    right = evaluate(workload.expression, arrays)
    program = default_program(workload)
    library = build(schedule(program, "kernel").mod, host_target())
    outputs = [
        tvm.runtime.tensor(np.zeros(tensor.shape, numpy_dtype(tensor.dtype)))
        for tensor in program.outputs
    ]
    library["kernel"](*(tvm.runtime.tensor(array) for array in arrays.values()), *outputs)
    for name, output in zip(workload.expression.outputs, outputs, strict=True):
        got = output.numpy()
        np.testing.assert_array_equal(got, right[name].astype(got.dtype), err_msg=name)


CONVERSIONS = """
kernel k(X: f32[N], E: f64[N], H: f16[N]) -> (
    P: f32[N], Q: f32[N], R: f32[N], S: bf16[N], T: f32[N]) {
  P[i] = X[i] - bf16(X[i])
  Q[i] = X[i] - f16(X[i])
  R[i] = f32(bf16(E[i])) * bf16(i)
  S[i] = bf16(X[i])
  T[i] = max(bf16(H[i]), f16(X[i])) + S[i]
}
"""


@pytest.mark.parametrize("short", ["u64", "u32", "u16", "i16"])
def test_kernels_wrap_and_divide_as_the_reference_does(short: str) -> None:
    dtype = np.dtype({"u": "uint", "i": "int"}[short[0]] + short[1:])
    limits, rng = np.iinfo(dtype), np.random.default_rng(1)
    a = rng.integers(limits.min, limits.max, (M, N), dtype=dtype, endpoint=True)
    b = rng.integers(limits.min, limits.max, N, dtype=dtype, endpoint=True)
    b[:9] = 3
    if a.itemsize == 2:  # computed in int32, which must not overflow
        a, b = a // 512, b // 512
    x = rng.uniform(0, float(limits.max) * 0.99, N)
    arrays: dict[str, NDArray[Any]] = {"A": a, "B": b, "X": x}
    check(WRAPPING.replace("D", short), {"M": M, "N": N}, arrays)


def test_kernels_wrap_what_they_convert() -> None:
    rng = np.random.default_rng(2)
    arrays: dict[str, NDArray[Any]] = {
        "A": np.arange(0, 256, 4, dtype=np.uint8),
        "U": rng.integers(0, 2**32, 64, dtype=np.uint32),
        "V": rng.integers(0, 2**64, 64, dtype=np.uint64),
        "W": rng.integers(-1000, 1000, 64, dtype=np.int32),
    }
    check(NARROWED, {"N": 64}, arrays)


def test_kernels_take_the_bits_of_numbers() -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, NDArray[Any]] = {
        "H": rng.standard_normal(N).astype(np.float16),
        "C": rng.standard_normal(N).astype(np.float32),
        "E": rng.standard_normal(N),
        # without NaN in the upper or the lower half
        "I": (rng.integers(0, 2**30, N) & 0x3FFF3FFF).astype(np.int32),
        "W": rng.standard_normal(N).astype(ml_dtypes.bfloat16),
    }
    check(BITS, {"N": N}, arrays)


def test_conversions_to_narrow_floats_round_wherever_they_stand() -> None:
    rng = np.random.default_rng(0)
    arrays: dict[str, NDArray[Any]] = {
        "X": rng.standard_normal(N).astype(np.float32),
        "E": rng.standard_normal(N),
        "H": rng.standard_normal(N).astype(np.float16),
    }
    check(CONVERSIONS, {"N": N}, arrays)
    workload = workload_from_notation(CONVERSIONS, {"N": N})
    x, right = arrays["X"], evaluate(workload.expression, arrays)
    rounded = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    np.testing.assert_array_equal(right["P"].astype(np.float32), x - rounded)
    assert np.count_nonzero(right["P"]) > N // 2


@pytest.mark.parametrize("name", ["e4m3", "e5m2"])
def test_kernels_take_each_byte_for_its_float(name: str) -> None:
    text = f"kernel k(X: u8[N]) -> (Y: f32[N]) {{ Y[i] = bitcast({name}, X[i]) }}"
    check(text, {"N": 256}, {"X": np.arange(256, dtype=np.uint8)})
