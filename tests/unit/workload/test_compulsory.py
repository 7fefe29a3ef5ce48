"""What cannot be left out of an expression: never more than a clever kernel needs, and all of it where the form is plain."""

from __future__ import annotations

import pytest

from tuner.workload.compulsory import least_bytes, least_flops
from tuner.workload.spec import parse_spec, workload_from_notation

MATMUL = "kernel k(A: f32[M, K], B: f32[K, N]) -> (C: f32[M, N]) { C[i, j] += A[i, r] * B[r, j] }"
# Text, extents, operations, bytes.
CASES = (
    (MATMUL, {"M": 3, "N": 4, "K": 5}, 2 * 3 * 4 * 5, 4 * (15 + 20 + 12)),
    # Equal along i, and summed three times over: only what moves by itself counts, and only inputs that are read whole.
    ("kernel k(X: f32[M, K]) -> (Y: f32[N, M]) { Y[i, j] += exp(X[j, r]) }", {"M": 3, "N": 4, "K": 5}, 2 * 15, 4 * (12 + 15)),
    ("kernel k(X: f32[M]) -> (Y: f32[N]) { Y[i] += X[(i + r) // 3] for i in 0:N, r in 0:2 }", {"M": 9, "N": 6}, 1, 4 * 6),
    # What is selected away need not be computed or read.
    ("kernel k(X: f32[M], Z: f32[M]) -> (Y: f32[M]) { Y[i] = X[i] > 0 ? Z[i] * 2 : 0 }", {"M": 8}, 0, 4 * 16),
    # A window over a padded row: two of 3 * 6 reads are outside.
    ("kernel k(X: f32[M]) -> (Y: f32[M]) { Y[i] += (X[i + r - 1] else 0) for i in 0:6, r in 0:3 }", {"M": 6}, 16, 4 * 6),
    # T is read at one place only, so that neither it nor what it reads is needed whole.
    (
        "kernel k(X: f32[M]) -> (Y: f32[N]) { T[i] = exp(X[i])\n Y[j] = T[0] * 2 for j in 0:N }",
        {"M": 100, "N": 2},
        1,
        4 * 2,
    ),
)


@pytest.mark.parametrize(("text", "extents", "flops", "nbytes"), CASES)
def test_what_is_needed_at_least(text: str, extents: dict[str, int], flops: int, nbytes: int) -> None:
    workload = workload_from_notation(text, extents)
    assert (least_flops(workload), least_bytes(workload)) == (flops, nbytes)


@pytest.mark.parametrize("spec", ["matmul:M=5,N=7,K=6", "conv2d:N=1,H=5,W=5,CI=3,CO=4,KH=3,KW=3,pad=1", "softmax:M=3,N=9"])
def test_the_catalogue_needs_all_of_its_own_count(spec: str) -> None:
    workload = parse_spec(spec)
    assert (least_flops(workload), least_bytes(workload)) == (workload.expression.flops, workload.expression.nbytes)
