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


def test_a_choice_within_an_index_wraps_negative_positions() -> None:
    """The sum on one side would wrap around for what the condition keeps away from it."""
    rng = np.random.default_rng(0)
    table, indices = rng.standard_normal((1000, 64)), rng.integers(-1000, 1000, 128)
    expression = parse(
        "kernel w(I: i64[R], W: f32[K, 64]) -> (Y: f32[64*R]) { Y[x] = "
        "W[clamp(where(I[x // 64] < 0, I[x // 64] + K, I[x // 64]), 0, K - 1), x % 64] }",
        {"R": 128, "K": 1000},
    )
    got = evaluate(expression, {"I": indices, "W": table})["Y"]
    assert np.array_equal(got, table[indices].reshape(-1))


def test_a_permutation_may_be_written_by_division() -> None:
    x = np.arange(519168.0) - 260000
    expression = parse(
        "kernel r(X: f32[519168]) -> (Y: f32[519168]) { "
        "Y[i] = max(X[i // 169 % 192 + 192*(i % 169) + 32448*(i // 32448)], 0) }",
        {},
    )
    want = np.maximum(x.reshape(16, 169, 192).transpose(0, 2, 1).reshape(-1), 0)
    assert np.array_equal(evaluate(expression, {"X": x})["Y"], want)


@pytest.mark.parametrize(
    ("index", "want"),
    [
        ("where(i < 4, 7 - i, i - 4)", np.r_[X[7:3:-1], X[:4]]),
        ("where(i > 0 and i < 7, where(i % 2 == 0, i + 1, i - 1), i)", X[[0, 0, 3, 2, 5, 4, 7, 7]]),
        ("clamp(where(S[i] == 3, i + 100, i), 0, 7)", X[[0, 7, 2, 3, 7, 5, 6, 7]]),
    ],
)
def test_an_index_may_choose(index: str, want: np.ndarray) -> None:
    expression = parse(
        f"kernel k(X: f32[8], S: i32[8]) -> (Y: f32[8]) {{ Y[i] = X[{index}] + 0 * f32(S[i]) }}", {}
    )
    given = {"X": X, "S": np.array([0, 3, 1, 2, 3, 0, 1, 2])}
    assert np.array_equal(evaluate(expression, given)["Y"], want)
    check_bounds(expression)


@pytest.mark.parametrize(
    ("index", "text"),
    [
        ("where(i < 4, i - 1, i)", "runs from -1 to 7"),
        ("where(X[i] > 0, i, 0)", "compares integers"),
        ("where(I[i] > 0, I[i] + 9223372036854775807, 0)", "computed from numbers of"),
    ],
)
def test_a_choice_that_leaves_the_tensor_or_the_integers_is_refused(index: str, text: str) -> None:
    with pytest.raises(WorkloadError, match=text):
        parse(
            "kernel k(X: f32[8], I: i64[8]) -> (Y: f32[8]) {"
            f" Y[i] = X[clamp({index}, -1, 7)] + f32(I[i]) }}",
            {},
        )
