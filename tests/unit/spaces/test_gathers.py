"""What is read at places that other tensors name, and outside of the tensor is a number instead."""

from __future__ import annotations

import pytest

from tests.support.checked_kernels import check_kernels
from tuner.workload.spec import workload_from_notation

PADDED = [
    "kernel rows(W: f32[100, 8], I: i32[5]) -> (Z: f32[5, 8]) { Z[n, d] = W[I[n], d] else 0 }",
    "kernel lanes(W: f32[38], I: i32[64]) -> (Y: f32[64]) { Y[n] = (W[I[n]] else 0) * 2 }",
    "kernel sums(W: f32[38, 3], I: i32[4]) -> (Y: f32[4]) { Y[n] += W[I[n], d] else 0 }",
    "kernel most(W: f32[38, 3], I: i64[9]) -> (Y: f32[9]) { Y[n] max= W[I[n], d] else 0 - 5 }",
]


@pytest.mark.parametrize("text", PADDED)
def test_indices_outside_read_the_padding(text: str) -> None:
    """Large inputs have indices far outside."""
    check_kernels(workload_from_notation(text, {}), configs=3, kind="large")
