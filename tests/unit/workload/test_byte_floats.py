"""Floats of 8 bits: their numbers, their texts, products of them, and inputs that are such."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from tuner.errors import WorkloadError
from tuner.workload.inputs import Kind, make_inputs
from tuner.workload.notation import parse
from tuner.workload.printing import notation_text
from tuner.workload.reference import error_bound, evaluate, evaluate_with_magnitude
from tuner.workload.spec import from_document, to_document, workload_from_notation

FORMATS = {"e4m3": ml_dtypes.float8_e4m3fn, "e5m2": ml_dtypes.float8_e5m2}
BYTES = np.arange(256, dtype=np.uint8)
PRODUCT = """kernel p(X: u8[M, K], W: u8[N, K], S: f32[1]) -> (Y: f32[M, N]) {
  T[i, j] += bitcast(e4m3, X[i, k]) * bitcast(e5m2, W[j, k])
  Y[i, j] = T[i, j] * S[0]
}"""
EXTENTS = {"M": 5, "N": 7, "K": 33}


@pytest.mark.parametrize("name", FORMATS)
def test_each_byte_stands_for_its_number(name: str) -> None:
    text = f"kernel k(X: u8[N]) -> (Y: f32[N]) {{ Y[i] = bitcast({name}, X[i]) }}"
    (values,) = evaluate(parse(text, {"N": 256}), {"X": BYTES}).values()
    assert np.array_equal(values, BYTES.view(FORMATS[name]).astype(np.float64), equal_nan=True)


def test_texts_and_documents_are_read_back() -> None:
    workload = workload_from_notation(PRODUCT, EXTENTS, numerics="tensor")
    assert parse(notation_text(workload.expression), {}) == workload.expression
    assert from_document(to_document(workload)) == workload


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("bitcast(e4m3, X[i])", "bitcast to e4m3 takes a byte, not int32"),
        ("bitcast(e5m2, 1)", "bitcast to e5m2 takes a byte, not integer literal"),
        ("e4m3(X[i])", "unknown function 'e4m3'"),
    ],
)
def test_other_operands_are_refused(written: str, said: str) -> None:
    with pytest.raises(WorkloadError, match="line 1, column") as raised:
        parse(f"kernel k(X: i32[N]) -> (Y: f32[N]) {{ Y[i] = {written} }}", {"N": 4})
    assert said in str(raised.value)


def test_no_tensor_has_them() -> None:
    with pytest.raises(WorkloadError, match="e4m3"):
        parse("kernel k(X: e4m3[N]) -> (Y: f32[N]) { Y[i] = X[i] }", {"N": 4})


def test_a_product_of_them_is_that_of_their_numbers() -> None:
    expression = parse(PRODUCT, EXTENTS)
    arrays = make_inputs(expression, 3)
    left = arrays["X"].view(FORMATS["e4m3"]).astype(np.float64)
    right = arrays["W"].view(FORMATS["e5m2"]).astype(np.float64)
    scale = arrays["S"].astype(np.float64)
    values, sizes = evaluate_with_magnitude(expression, arrays)
    assert np.allclose(values["Y"], left @ right.T * scale, rtol=1e-12)
    assert np.allclose(sizes["Y"], np.abs(left) @ np.abs(right).T * np.abs(scale), rtol=1e-12)


@pytest.mark.parametrize("kind", ["normal", "large", "positive", "special", "zeros"])
def test_inputs_are_such_floats(kind: Kind) -> None:
    arrays = make_inputs(parse(PRODUCT, {"M": 64, "N": 64, "K": 64}), 3, kind)
    for name, dtype in (("X", FORMATS["e4m3"]), ("W", FORMATS["e5m2"])):
        values = arrays[name].view(dtype).astype(np.float64)
        assert arrays[name].dtype == np.uint8 and np.isfinite(values).all()
        if kind == "zeros":
            assert not values.any()
        elif kind == "positive":
            assert (values > 0).all()
        else:
            assert -0.2 < np.sign(values).mean() < 0.2 and values.std() > 0.5


def test_bytes_that_are_numbers_elsewhere_are_drawn_as_before() -> None:
    text = """kernel k(X: u8[N]) -> (Y: f32[N]) {
      Y[i] = bitcast(e4m3, X[i]) + f32(X[i])
    }"""
    arrays = make_inputs(parse(text, {"N": 4096}), 3)
    assert arrays["X"].max() <= 127


def test_numerics_allow_more_one_after_another() -> None:
    expression = parse(PRODUCT, EXTENTS)
    strict, fast, tensor = (error_bound(expression, each) for each in ("strict", "fast", "tensor"))
    assert strict < fast == 1e-4 < tensor == 2e-3
