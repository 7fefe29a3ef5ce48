"""Reference, magnitudes, bounds and inputs on programs whose answers are known."""

from __future__ import annotations

import time
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from numpy.typing import NDArray

from tuner.errors import UsageError
from tuner.workload.inputs import make_inputs
from tuner.workload.notation import parse
from tuner.workload.reference import (
    error_bound,
    evaluate,
    evaluate_with_magnitude,
    largest_value,
    magnitude,
    max_rel_error,
)
from tuner.workload.spec import parse_spec

SPECS = (
    "matmul:M=33,N=31,K=65",
    "dense:M=9,N=17,K=33,bias=true,act=gelu",
    "conv2d:N=1,H=9,W=9,CI=8,CO=8,KH=3,KW=3,pad=1,bias=true,act=silu",
    "softmax:M=9,N=65",
    "layer_norm:M=9,N=65",
    "attention:B=1,H=2,S=17,D=8,causal=true",
    "reduce_sum:M=9,N=257",
    "log_softmax:M=9,N=65",
    "avg_pool2d:N=1,H=9,W=9,C=3,KH=3,KW=3,pad=1,count_include_pad=false",
    "batch_norm:N=1,H=5,W=5,C=7",
    "rms_norm:M=9,N=65",
)


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("kind", ["normal", "large", "zeros"])
@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_float32_evaluation_is_within_the_bound(spec: str, kind: str, dtype: str) -> None:
    """An honest kernel that computes in float32 passes, one that is off by a thousandth
    does not."""
    expression = parse_spec(f"{spec},dtype={dtype}").expression
    inputs = make_inputs(expression, 5, kind)  # type: ignore[arg-type]  # a value of the literal
    want, size = evaluate_with_magnitude(expression, inputs)
    got = {
        name: array.astype(inputs[expression.inputs[0].name].dtype)
        for name, array in _in_float32(expression.name, inputs, want).items()
    }
    assert max_rel_error(expression, got, want, size) <= error_bound(expression)
    if kind == "normal" and dtype == "float32":
        wrong = {name: array * np.float32(1.001) for name, array in got.items()}
        assert max_rel_error(expression, wrong, want, size) > error_bound(expression)


def _in_float32(
    name: str, inputs: dict[str, NDArray[Any]], want: dict[str, NDArray[Any]]
) -> dict[str, NDArray[Any]]:
    single = {key: array.astype(np.float32) for key, array in inputs.items()}
    with np.errstate(all="ignore"):
        match name:
            case "matmul":
                terms = (
                    single["A"][:, k : k + 1] * single["B"][k : k + 1]
                    for k in range(single["A"].shape[1])
                )
                return {"C": reduce(np.add, terms)}
            case "softmax":
                e = np.exp(single["X"] - single["X"].max(1, keepdims=True))
                return {"Y": e / e.sum(1, keepdims=True)}
            case "layer_norm":
                x = single["X"]
                centred = x - x.mean(1, keepdims=True)
                return {
                    "Y": centred
                    / np.sqrt((centred**2).mean(1, keepdims=True) + np.float32(1e-5))
                    * single["gamma"]
                    + single["beta"]
                }
    return {key: array.astype(np.float32) for key, array in want.items()}


def test_integers_must_be_exact() -> None:
    expression = parse_spec("matmul:M=5,N=4,K=300,dtype=int8").expression
    inputs = make_inputs(expression, 1, "large")
    want, size = evaluate_with_magnitude(expression, inputs)
    assert (
        want["C"].dtype == np.int64
        and (want["C"] == inputs["A"].astype(int) @ inputs["B"].astype(int)).all()
    )
    off = {"C": want["C"] + np.eye(5, 4, dtype=np.int64)}
    assert (
        error_bound(expression)
        == 0.0
        == max_rel_error(expression, want, want, size)
        < max_rel_error(expression, off, want, size)
    )


def test_integers_wrap_into_the_stored_dtype() -> None:
    expression = parse(
        "kernel k(A: i32[2]) -> (C: i32[2], D: i8[2]) { C[i] = A[i] * 3 D[i] = A[i] }", {}
    )
    outputs = evaluate(expression, {"A": np.array([2**30, -129], np.int32)})
    assert outputs["C"].tolist() == [3 * 2**30 - 2**32, -387] and outputs["D"].tolist() == [0, 127]


def test_bound_follows_length_and_dtype() -> None:
    short, long = (
        error_bound(parse_spec(f"reduce_sum:M=2,N={n}").expression) for n in (64, 64 * 256)
    )
    assert 8 < long / short <= 16
    assert error_bound(parse_spec("reduce_sum:M=2,N=64,dtype=float64").expression) < 1e-14
    assert 2**-9 < error_bound(parse_spec("reduce_sum:M=2,N=64,dtype=bfloat16").expression) < 2**-7
    assert error_bound(parse_spec("reduce_sum:M=2,N=64").expression, "fast") == 1e-4


@pytest.mark.parametrize(
    "spec",
    [
        "max_pool2d:N=1,H=7,W=7,C=3,KH=3,KW=3,pad=1",
        "attention:B=1,H=1,S=5,D=4,causal=true",
        "reduce_max:M=5,N=5",
    ],
)
def test_infinite_padding_hides_no_error(spec: str) -> None:
    """Each single element off by a hundredth of itself is found, those next to padding
    or masks too."""
    expression = parse_spec(spec).expression
    want, size = evaluate_with_magnitude(expression, make_inputs(expression, 0))
    (name,) = expression.outputs
    assert np.isfinite(size[name]).all()
    for index in np.ndindex(*want[name].shape):
        wrong = want[name].copy()
        wrong[index] += 0.01 * max(1.0, abs(float(wrong[index])))
        assert max_rel_error(expression, {name: wrong}, want, size) > error_bound(expression), index


def test_magnitude_takes_padding_by_its_size() -> None:
    text = (
        "kernel k(A: f32[2], B: f32[2]) -> (C: f32[1]) { C[z] += (A[i] else -2) * B[i // 2] "
        "for i in 0:4 }"
    )
    inputs = {"A": np.array([1.0, -1.0]), "B": np.array([3.0, -3.0])}
    assert magnitude(parse(text, {}), inputs)["C"].tolist() == [3 + 3 + 6 + 6]


def test_magnitude_of_cancellation() -> None:
    expression = parse("kernel k(A: f32[2]) -> (C: f32[1]) { C[z] += A[i] }", {})
    assert magnitude(expression, {"A": np.array([3.0, -3.0])})["C"].tolist() == [6.0]


@pytest.mark.parametrize(
    ("got", "want", "right"),
    [
        (np.inf, np.inf, True),
        (np.nan, np.nan, True),
        (np.inf, 1.0, False),
        (np.nan, 1.0, False),
        (1.0, np.nan, False),
        (0.0, 1e-42, True),
        (np.inf, 1e39, True),
        (-np.inf, 1e39, False),
        (1e-3, 0.0, False),
    ],
)
def test_special_values(got: float, want: float, right: bool) -> None:
    expression = parse("kernel k(A: f32[1]) -> (C: f32[1]) { C[i] = A[i] }", {})
    error = max_rel_error(
        expression, {"C": np.array([got])}, {"C": np.array([want])}, {"C": np.abs(np.array([want]))}
    )
    assert (error <= error_bound(expression)) == right


def test_select_never_shows_what_it_did_not_choose() -> None:
    expression = parse("kernel k(A: f32[2]) -> (C: f32[2]) { C[i] = A[i] > 0 ? log(A[i]) : 0 }", {})
    assert evaluate(expression, {"A": np.array([1.0, -1.0])})["C"].tolist() == [0.0, 0.0]


def test_gather_clamps_and_pads() -> None:
    text = (
        "kernel k(X: f32[3], I: i32[4]) -> (C: f32[4], D: f32[4]) { C[i] = X[clamp(I[i], 0, "
        "2)] D[i] = X[I[i]] else 9 }"
    )
    outputs = evaluate(
        parse(text, {}), {"X": np.array([10.0, 20.0, 30.0]), "I": np.array([-5, 0, 2, 7])}
    )
    assert outputs["C"].tolist() == [10, 10, 30, 30] and outputs["D"].tolist() == [9, 10, 30, 9]


def test_inputs() -> None:
    expression = parse_spec("embedding:N=500,V=11,D=3,dtype=bfloat16").expression
    normal, large, zeros = (
        make_inputs(expression, 0, kind) for kind in ("normal", "large", "zeros")
    )
    assert normal["W"].dtype == ml_dtypes.bfloat16 and normal["X"].dtype == np.int32
    assert normal["X"].min() == 0 and normal["X"].max() == 10
    assert large["X"].min() < 0 and large["X"].max() > 10
    assert not zeros["X"].any() and not zeros["W"].any()
    assert (make_inputs(expression, 0)["X"] == normal["X"]).all() and (
        make_inputs(expression, 1)["X"] != normal["X"]
    ).any()
    with pytest.raises(UsageError, match="unknown kind of inputs"):
        make_inputs(expression, 0, "odd")  # type: ignore[arg-type]  # what is tested


@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=8,N=8,K=512,dtype=float16",
        "matmul:M=8,N=8,K=512,dtype=int32",
        "elementwise:M=8,N=8,act=exp",
    ],
)
def test_large_inputs_do_not_overflow(spec: str) -> None:
    expression = parse_spec(spec).expression
    for kind in ("normal", "large"):
        inputs = make_inputs(expression, 0, kind)
        assert largest_value(expression, inputs) <= 0.25
        assert all(array.any() for array in inputs.values())


@pytest.mark.parametrize("function", ["C[i,j] / (1 + exp(-C[i,j]))", "tanh(C[i,j])", "exp(C[i,j])",
                                      "C[i,j] * (1 + erf(C[i,j]))", "sin(C[i,j])"])  # fmt: skip
def test_errors_of_sums_stay_within_bounds_behind_functions(function: str) -> None:
    """A sum that is off by as much as is allowed, before a function that bends."""
    product = parse(
        "kernel k(A: f32[M, K], B: f32[K, N]) -> (C: f32[M, N]) {\n"
        "  C[i, j] += A[i, k] * B[k, j]\n}",
        {"M": 64, "N": 64, "K": 288},
    )
    expression = parse(
        "kernel k(A: f32[M, K], B: f32[K, N]) -> (S: f32[M, N]) {\n"
        f"  C[i, j] += A[i, k] * B[k, j]\n  S[i, j] = {function}\n}}",
        {"M": 64, "N": 64, "K": 288},
    )
    behind = parse(
        f"kernel k(C: f32[M, N]) -> (S: f32[M, N]) {{\n  S[i, j] = {function}\n}}",
        {"M": 64, "N": 64},
    )
    inputs = make_inputs(expression, 1, "large")
    sums, sizes = evaluate_with_magnitude(product, inputs)
    want, size = evaluate_with_magnitude(expression, inputs)
    assert np.abs(sums["C"]).max() > 20  # the functions are saturated
    for share in (-1, 1):
        got = evaluate(behind, {"C": sums["C"] + share * error_bound(product) * sizes["C"]})
        # A quarter of a unit from the tangent, exp is 14 % above it.
        assert max_rel_error(expression, got, want, size) <= 1.15 * error_bound(expression)


def test_wrong_inputs() -> None:
    expression = parse_spec("matmul:M=2,N=2,K=2").expression
    good = np.zeros((2, 2))
    for inputs, message in [
        ({"A": good}, "'B' is missing"),
        ({"A": good, "B": good, "Q": good}, "unknown input 'Q'"),
        ({"A": good, "B": good[:1]}, "shape"),
    ]:
        with pytest.raises(UsageError, match=message):
            evaluate(expression, inputs)


@pytest.mark.parametrize(
    "spec",
    [
        "conv2d:N=1,H=56,W=56,CI=64,CO=64,KH=3,KW=3,pad=1",
        "matmul:M=1024,N=1024,K=1024",
        "conv2d:N=1,H=224,W=224,CI=3,CO=64,KH=7,KW=7,stride=2,pad=3",
        "conv2d:N=1,H=56,W=56,CI=64,CO=64,KH=3,KW=3,pad=1,groups=4",
    ],
)
def test_reference_is_quick_enough_to_check_every_trial(spec: str) -> None:
    expression = parse_spec(spec).expression
    inputs = make_inputs(expression, 0)
    start = time.process_time()
    evaluate(expression, inputs)
    assert time.process_time() - start < 5.0  # about 0.1 s; the margin is for busy machines
