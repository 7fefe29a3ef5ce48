"""What cannot be left out of an expression: never more than a clever kernel needs, and
all of it where the form is plain."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.workload.compulsory import least_bytes, least_flops
from tuner.workload.spec import parse_spec, workload_from_notation

MATMUL = "kernel k(A: f32[M, K], B: f32[K, N]) -> (C: f32[M, N]) { C[i, j] += A[i, r] * B[r, j] }"
# Text, extents, operations, bytes.
CASES = (
    (MATMUL, {"M": 3, "N": 4, "K": 5}, 2 * 3 * 4 * 5, 4 * (15 + 20 + 12)),
    # Equal along i, and summed three times over: only what moves by itself counts; a
    # quotient meets one place at least.
    (
        "kernel k(X: f32[M, K]) -> (Y: f32[N, M]) { Y[i, j] += exp(X[j, r]) }",
        {"M": 3, "N": 4, "K": 5},
        2 * 15,
        4 * (12 + 15),
    ),
    (
        "kernel k(X: f32[M]) -> (Y: f32[N]) { Y[i] += X[(i + r) // 3] for i in 0:N, r in 0:2 }",
        {"M": 9, "N": 6},
        1,
        4 * (1 + 6),
    ),
    # What is selected away need not be computed or read.
    (
        "kernel k(X: f32[M], Z: f32[M]) -> (Y: f32[M]) { Y[i] = X[i] > 0 ? Z[i] * 2 : 0 }",
        {"M": 8},
        0,
        4 * 16,
    ),
    # Weights of four bits in the halves of bytes, as GGUF's Q4_0 has them: which half is
    # chosen, but all are multiplied; both choices read the same bytes.
    (
        "kernel k(A: f32[M, K], W: u8[N, H], S: f32[N, B]) -> (C: f32[M, N]) { C[m, n] += A[m, k] "
        "* (f32(where(k % 32 < 16, bitand(W[n, k // 32 * 16 + k % 16], 15), "
        "shr(W[n, k // 32 * 16 + k % 16], 4))) - 8) * S[n, k // 32] }",
        {"M": 3, "N": 4, "K": 64, "H": 32, "B": 2},
        3 * (3 * 4 * 64) + 4,
        4 * 3 * 64 + 4 + 4 * 4 + 4 * 12,
    ),
    # A choice of a constant may spare the product.
    (
        "kernel k(A: f32[M], B: f32[M], I: i32[M]) -> (C: f32[M]) "
        "{ C[m] = A[m] * where(I[m] > 0, B[m], 0) }",
        {"M": 8},
        0,
        4 * 24,
    ),
    # A diagonal of a table, and every third row of one.
    (
        "kernel k(X: f32[M, M]) -> (Y: f32[N]) { Y[i] = X[i, i + 2] for i in 0:N }",
        {"M": 9, "N": 6},
        0,
        4 * (6 + 6),
    ),
    (
        "kernel k(X: f32[M, K]) -> (Y: f32[N, K]) { Y[i, k] = X[3 * i + 1, k] for i in 0:N }",
        {"M": 9, "N": 3, "K": 5},
        0,
        4 * 30,
    ),
    # A window over a padded row: two of 3 * 6 reads are outside.
    (
        "kernel k(X: f32[M]) -> (Y: f32[M]) { Y[i] += (X[i + r - 1] else 0) for i in 0:6, "
        "r in 0:3 }",
        {"M": 6},
        16,
        4 * (6 + 6),
    ),
    # T is read at one place only, so that neither it nor what it reads is needed whole.
    (
        "kernel k(X: f32[M]) -> (Y: f32[N]) { T[i] = exp(X[i])\n Y[j] = T[0] * 2 for j in 0:N }",
        {"M": 100, "N": 2},
        1,
        4 * 2,
    ),
)


@pytest.mark.parametrize(("text", "extents", "flops", "nbytes"), CASES)
def test_what_is_needed_at_least(
    text: str, extents: dict[str, int], flops: int, nbytes: int
) -> None:
    workload = workload_from_notation(text, extents)
    assert (least_flops(workload), least_bytes(workload)) == (flops, nbytes)


@pytest.mark.parametrize(
    "spec",
    ["matmul:M=5,N=7,K=6", "conv2d:N=1,H=5,W=5,CI=3,CO=4,KH=3,KW=3,pad=1", "softmax:M=3,N=9"],
)
def test_the_catalogue_needs_all_of_its_own_count(spec: str) -> None:
    workload = parse_spec(spec)
    assert (least_flops(workload), least_bytes(workload)) == (
        workload.expression.flops,
        workload.expression.nbytes,
    )


@pytest.mark.parametrize(
    ("spec", "elements"),
    [
        # a pixel of sixteen; windows that overlap, with the last column left over; taps
        # that are two apart
        ("max_pool2d:N=1,H=64,W=64,C=8,KH=1,KW=1,stride=4", 16 * 16 * 8),
        ("avg_pool2d:N=1,H=8,W=8,C=8,KH=3,KW=3,stride=2", 7 * 7 * 8),
        ("conv1d:N=1,W=9,CI=2,CO=1,KW=2,dilation=2,pad=0", 9 * 2 + 2 * 2),
        # all of it: what is selected, and what quotients meet
        ("conv2d_transpose:N=1,H=5,W=5,CI=4,CO=3,KH=2,KW=2,stride=2", 5 * 5 * 4 + 2 * 2 * 4 * 3),
        ("conv2d:N=1,H=5,W=5,CI=4,CO=6,KH=3,KW=3,pad=1,groups=2", 5 * 5 * 4 + 3 * 3 * 2 * 6),
        # each of few rows, and of many as many as are named by some of the indices
        ("embedding:N=4096,V=16,D=8", 4096 + 16 * 8),
        ("embedding:N=8,V=1000000,D=768", 8 + 8 * 768),
        ("embedding:N=64,V=1,D=8", 64 + 8),
    ],
)
def test_the_catalogue_reads_what_its_strides_and_indices_meet(spec: str, elements: int) -> None:
    workload = parse_spec(spec)
    written = sum(workload.expression.tensor(name).nbytes for name in workload.expression.outputs)
    assert least_bytes(workload) == pytest.approx(4 * elements + written, rel=1e-4)


def test_no_more_is_counted_than_indices_that_are_drawn_evenly_name() -> None:
    workload, drawn = parse_spec("embedding:N=500,V=600,D=32"), np.random.default_rng(0)
    named = np.mean([len(np.unique(drawn.integers(0, 600, 500))) for _ in range(200)])
    assert least_bytes(workload) == pytest.approx(4 * (500 + named * 32 + 500 * 32), rel=0.01)
