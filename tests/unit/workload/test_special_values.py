"""Special values in inputs and in the reference: which are drawn, and what they decide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from tuner.workload.dtypes import INTEGER_RANGES
from tuner.workload.inputs import make_inputs
from tuner.workload.notation import parse
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec
from tuner.workload.special_values import are_defined, only_orders, undecided

ROWS, COLUMNS = 5, 7
ANYTHING = arrays.arrays(
    np.float32, (ROWS, COLUMNS), elements=st.floats(width=32, allow_nan=True, allow_infinity=True)
)


def of_matrix(shape: str, body: str, dtype: str = "f32", of: str = "f32") -> str:
    return f"kernel k(X: {of}[{ROWS}, {COLUMNS}]) -> (Y: {dtype}{shape}) {{ {body} }}"


@given(ANYTHING)
def test_the_reference_has_numpy_s_extremes(
    x: np.ndarray[tuple[int, int], np.dtype[np.float32]],
) -> None:
    for reducer, ufunc in (("max", np.maximum), ("min", np.minimum)):
        along = parse(of_matrix(f"[{ROWS}]", f"Y[i] {reducer}= X[i, j]"), {})
        np.testing.assert_array_equal(evaluate(along, {"X": x})["Y"], ufunc.reduce(x, axis=1))
    clamped = parse(of_matrix(f"[{ROWS}, {COLUMNS}]", "Y[i, j] = clamp(X[i, j], -1, 1)"), {})
    np.testing.assert_array_equal(evaluate(clamped, {"X": x})["Y"], np.clip(x, -1, 1))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_floats_have_special_ones_among_them(dtype: str) -> None:
    ordering = parse_spec(f"reduce_max:M=40,N=64,dtype={dtype}").expression
    x = make_inputs(ordering, 3, "special")["X"].astype(np.float64)
    tiny = {"float64": 2.0**-1022, "float16": 2.0**-14}.get(dtype, 2.0**-126)
    assert np.isnan(x).any() and (x == np.inf).any() and (x == -np.inf).any()
    assert ((x == 0) & np.signbit(x)).any() and ((x == 0) & ~np.signbit(x)).any()
    assert ((np.abs(x) < tiny) & (x != 0)).any() and (np.abs(x[np.isfinite(x)]) > 6e4).any()
    assert np.isfinite(x).mean() > 0.9
    np.testing.assert_array_equal(x, make_inputs(ordering, 3, "special")["X"].astype(np.float64))
    assert (x != make_inputs(ordering, 4, "special")["X"].astype(np.float64)).any()
    summing = parse_spec(f"reduce_sum:M=40,N=64,dtype={dtype}").expression
    finite = make_inputs(summing, 3, "special")["X"].astype(np.float64)
    finite = finite[np.isfinite(finite)]
    assert np.abs(finite).max() < 100 and np.abs(finite[finite != 0]).min() > tiny


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "int64"])
def test_large_integers_are_their_dtype_s_ends_too(dtype: str) -> None:
    short = {"int8": "i8", "uint8": "u8", "int16": "i16", "int32": "i32", "int64": "i64"}[dtype]
    moved = parse(
        of_matrix(f"[{ROWS}, {COLUMNS}]", "Y[i, j] = max(X[i, j], X[i, 0])", short, short), {}
    )
    x = make_inputs(moved, 0, "large")["X"]
    assert (int(x.min()), int(x.max())) == INTEGER_RANGES[dtype]


def test_factors_of_eight_bits_are_too() -> None:
    product = parse_spec("matmul:M=16,N=16,K=300,dtype=int8").expression
    for array in make_inputs(product, 0, "large").values():
        assert (int(array.min()), int(array.max())) == (-128, 127)
    wide = parse_spec("matmul:M=16,N=16,K=300,dtype=int32").expression
    assert all(np.abs(array).max() < 2**31 for array in make_inputs(wide, 0, "large").values())


@pytest.mark.parametrize(
    ("body", "defined", "orders"),
    [
        ("Y[i, j] = max(X[i, j], 0)", True, True),
        ("Y[i, j] = X[i, j] < 0 ? -X[i, j] : X[j, i % 5] else -inf", True, True),
        ("Y[i, j] = X[i, j] + 1", True, False),
        ("Y[i, j] = f32(i32(X[i, j]))", False, False),
    ],
)
def test_what_is_defined_and_what_only_orders(body: str, defined: bool, orders: bool) -> None:
    expression = parse(of_matrix(f"[{ROWS}, {COLUMNS}]", body), {})
    assert are_defined(expression) == defined
    assert only_orders(expression) == orders


def test_integers_have_no_special_values() -> None:
    assert not are_defined(parse_spec("matmul:M=4,N=4,K=4,dtype=int8").expression)


REFERENCE = np.array([np.nan, np.inf, -np.inf, 1.0])


@pytest.mark.parametrize(
    ("spec", "free"),
    [
        ("matmul:M=4,N=4,K=4", [False, False, False, False]),
        ("reduce_max:M=4,N=4", [False, False, False, False]),
        ("softmax:M=4,N=4", [False, True, True, False]),
        ("conv2d:N=1,H=4,W=4,CI=4,CO=4,KH=3,KW=3,pad=1", [True, True, True, False]),
        ("attention:B=1,H=1,S=4,D=4,causal=true", [True, True, True, False]),
    ],
)
def test_only_what_kernels_may_leave_out_is_free(spec: str, free: list[bool]) -> None:
    assert undecided(parse_spec(spec).expression, REFERENCE).tolist() == free
