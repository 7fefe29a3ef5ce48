"""Each scalar operator has a row, and the rules of a row agree with its evaluation."""

from __future__ import annotations

from itertools import product
from typing import get_args

import numpy as np
import pytest

from tuner.workload.arrays import numpy_dtype
from tuner.workload.dtypes import DType
from tuner.workload.expression import BinaryOp, Reducer, UnaryOp
from tuner.workload.intervals import ANY, Interval
from tuner.workload.scalar_operators import (
    BINARY_OPERATORS,
    REDUCTIONS,
    UNARY_OPERATORS,
    identity,
)

SPANS = [Interval(low, high) for low, high in product(range(-4, 5), repeat=2) if low <= high]


def members(span: Interval) -> range:
    return range(span.low, span.high + 1)


def test_every_operator_and_reduction_has_a_row() -> None:
    assert set(UNARY_OPERATORS) == set(get_args(UnaryOp))
    assert set(BINARY_OPERATORS) == set(get_args(BinaryOp))
    assert set(REDUCTIONS) == set(get_args(Reducer))


@pytest.mark.parametrize("op", [op for op, row in BINARY_OPERATORS.items() if row.is_integral])
def test_the_interval_of_a_binary_operator_holds_its_values(op: BinaryOp) -> None:
    row = BINARY_OPERATORS[op]
    for first, second in product(SPANS, repeat=2):
        if op in ("floordiv", "floormod") and 0 in members(second):
            assert row.values(first, second) == ANY
            continue
        a, b = np.meshgrid(np.array(members(first)), np.array(members(second)))
        values = row.evaluate(a, b).astype(np.int64)
        assert Interval(int(values.min()), int(values.max())).is_within(row.values(first, second))


@pytest.mark.parametrize("op", ["neg", "abs"])
def test_the_interval_of_a_unary_operator_is_exact(op: UnaryOp) -> None:
    row = UNARY_OPERATORS[op]
    for span in SPANS:
        values = row.evaluate(np.array(members(span)))
        assert row.values(span) == Interval(int(values.min()), int(values.max()))


@pytest.mark.parametrize("op", [op for op, row in UNARY_OPERATORS.items() if row.of_constant])
def test_constants_are_evaluated_as_arrays_are(op: UnaryOp) -> None:
    row = UNARY_OPERATORS[op]
    assert row.of_constant is not None
    with np.errstate(all="ignore"):
        values = {x: float(row.evaluate(np.array(x))) for x in (0.25, 0.75, 1.5, 2.5)}
    defined = {x: value for x, value in values.items() if np.isfinite(value)}
    assert len(defined) >= 2
    for x, value in defined.items():
        assert row.of_constant(x) == pytest.approx(value, rel=1e-15)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int8", "uint8", "int32", "int64"])
@pytest.mark.parametrize("reducer", get_args(Reducer))
def test_an_identity_changes_nothing(reducer: Reducer, dtype: DType) -> None:
    start = np.array(identity(reducer, dtype).value, numpy_dtype(dtype))
    for x in np.array([0, 1, 3, 127], numpy_dtype(dtype)):
        assert REDUCTIONS[reducer].ufunc(start, x) == x


@pytest.mark.parametrize("reducer", get_args(Reducer))
def test_a_reduction_is_its_operator_repeated(reducer: Reducer) -> None:
    row = REDUCTIONS[reducer]
    terms = np.array([3.0, 3.0, 3.0])
    combined = BINARY_OPERATORS[row.combine].evaluate(terms[0], terms[1])
    assert row.ufunc.reduce(terms) == BINARY_OPERATORS[row.combine].evaluate(combined, terms[2])
    assert row.is_idempotent == (row.ufunc.reduce(terms) == 3.0)
