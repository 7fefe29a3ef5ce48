"""Slices of an expression compute its outputs part by part; budgets count a slice."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.rows import Rows
from tuner.errors import WorkloadError
from tuner.workload import reference
from tuner.workload.budgets import BUDGETS, check_budgets, needed_bytes, stated_bytes
from tuner.workload.inputs import make_inputs
from tuner.workload.slices import sliced
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

NORM = """kernel norm(X: f32[M, N], W: f32[N, K], B: f32[K]) -> (Y: f32[M, K], T: f32[K]) {
  T[k] = exp(B[k])
  S[i] += X[i, n] * X[i, n]
  Z[i, n] = where(n <= i, X[i, n] / sqrt(S[i] + 1), 0)
  Y[i, k] += Z[i, n] * (W[n, k] + T[k])
}"""


def norm() -> Workload:
    return workload_from_notation(NORM, {"M": 23, "N": 17, "K": 5})


CASES = (
    parse_spec("attention:B=2,H=3,S=19,D=8,causal=true"),
    Rows(mask="j > i - 4 and j <= i + 1", sharing=3, ending="epilogue", cap=True).workload,
    norm(),
)


@pytest.mark.parametrize("workload", CASES, ids=str)
@pytest.mark.parametrize("most", [1, 700])
def test_parts_are_what_the_whole_is(
    workload: Workload, most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    expression = workload.expression
    inputs = make_inputs(expression, seed=2)
    whole = reference.evaluate_with_magnitude(expression, inputs)
    largest = reference.largest_value(expression, inputs)
    monkeypatch.setattr(reference, "MOST_ELEMENTS", most)
    monkeypatch.setattr(reference, "PART_ELEMENTS", most)
    for expected, part in zip(
        whole, reference.evaluate_with_magnitude(expression, inputs), strict=True
    ):
        for name in expression.outputs:
            np.testing.assert_allclose(part[name], expected[name], rtol=1e-12)
    assert reference.largest_value(expression, inputs) == pytest.approx(largest)
    assert reference.errors_are_linear(expression, inputs)


def test_rows_of_attention_are_slices() -> None:
    slices = sliced(parse_spec("attention:B=1,H=2,S=64,D=16").expression)
    assert slices is not None and slices.extent == 64
    assert slices.dimension("O") == 2
    assert slices.part(3, 5).tensor("O").shape == (1, 2, 5, 16)


def test_what_needs_all_rows_has_no_slices() -> None:
    text = """kernel two(A: f32[M, M]) -> (C: f32[M, M]) {
      B[i, j] += A[i, k] * A[k, j]
      C[i, j] += B[k, i] * B[k, j]
    }"""
    slices = sliced(workload_from_notation(text, {"M": 8}).expression)
    assert slices is None


def test_long_rows_are_accepted_where_a_row_at_a_time_is_enough() -> None:
    attention = parse_spec("attention:B=1,H=12,S=8192,D=64").expression
    assert stated_bytes(attention) > BUDGETS.nbytes > 16 * needed_bytes(attention)
    check_budgets(attention)
    with pytest.raises(WorkloadError, match="GiB, the limit is 8 GiB"):
        parse_spec("matmul:M=65536,N=65536,K=8")
