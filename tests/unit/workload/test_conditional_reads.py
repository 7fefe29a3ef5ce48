"""Reads that only a condition keeps inside their tensor are accepted, and padded."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.errors import WorkloadError
from tuner.workload.bounds import check_bounds
from tuner.workload.expression import reads
from tuner.workload.notation import parse
from tuner.workload.reference import evaluate

X = np.arange(1.0, 9.0)
W = np.arange(40.0).reshape(10, 4)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("Y[i] = where(i > 0, X[i - 1], 0)", np.r_[0, X[:-1]]),
        ("Y[i] = i == 0 ? 5 : X[i - 1]", np.r_[5, X[:-1]]),
        ("Y[i] = where(i < 7, X[i + 1], X[i])", np.r_[X[1:], 8]),
        ("Y[i] = where(not (i < 2 or i > 5), X[i - 2] + X[i + 2], 1)",
         np.r_[1, 1, X[:4] + X[4:], 1, 1]),
        ("Y[i] = where(i < 3, X[i + 5], X[i - 3])", np.r_[X[5:], X[:5]]),
        ("Y[i] += where(i >= j, X[i - j], 0) for j in 0:3",
         X + np.r_[0, X[:-1]] + np.r_[0, 0, X[:-2]]),
    ],
)  # fmt: skip
def test_what_a_condition_keeps_inside_is_read(text: str, want: np.ndarray) -> None:
    expression = parse(f"kernel k(X: f32[8]) -> (Y: f32[8]) {{ {text} }}", {})
    assert np.array_equal(evaluate(expression, {"X": X})["Y"], want)
    assert any(read.pad is not None for read in reads(expression.stages[0].body))
    check_bounds(expression)


@pytest.mark.parametrize("dtype", ["i64", "i32", "i8"])
def test_a_gather_may_be_guarded_by_a_condition(dtype: str) -> None:
    indices = np.array([3, -1, 9, 10, 0])
    expression = parse(
        f"kernel g(W: f32[10, 4], I: {dtype}[5]) -> (Y: f32[5, 4]) {{"
        " Y[n, d] = where(0 <= I[n] and I[n] < 10, W[I[n], d], -1) }",
        {},
    )
    inside = (indices >= 0) & (indices < 10)
    want = np.where(inside[:, None], W[np.clip(indices, 0, 9)], -1)
    assert np.array_equal(evaluate(expression, {"W": W, "I": indices})["Y"], want)


@pytest.mark.parametrize(
    "text",
    [
        "Y[i] = where(i >= 0, X[i - 1], 0)",  # says nothing about i = 0
        "Y[i] = where(i > 0, X[i - 1], 0) + X[i - 1]",  # the second read has no condition
        "Y[i] = where(i > 0, 0, X[i - 1])",  # the wrong branch
        "Y[i] = where(i > 0 or i < 5, X[i - 1], 0)",  # one of two may fail
        "Y[i] = where(X[i] > 0, X[i - 1], 0)",  # compares no index
        "Y[i] = where(f32(i) > 0.5, X[i - 1], 0)",  # compares no integers
    ],
)
def test_a_condition_that_does_not_keep_a_read_inside_is_refused(text: str) -> None:
    with pytest.raises(WorkloadError, match=r"runs from -1 to .*, its extent is 8"):
        parse(f"kernel k(X: f32[8]) -> (Y: f32[8]) {{ {text} }}", {})


def test_a_read_that_never_leaves_its_tensor_stays_as_it_is() -> None:
    expression = parse("kernel k(X: f32[8]) -> (Y: f32[8]) { Y[i] = where(i > 0, X[i], 0) }", {})
    assert all(read.pad is None for read in reads(expression.stages[0].body))
