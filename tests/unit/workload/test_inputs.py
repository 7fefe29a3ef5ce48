"""Inputs of one sign: every term of a sum counts, and nothing overflows."""

from __future__ import annotations

import numpy as np
import pytest

from tuner.workload.inputs import make_inputs
from tuner.workload.reference import errors_are_linear, evaluate, largest_value
from tuner.workload.spec import parse_spec


@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=4,N=4,K=65536,dtype=float16",
        "matmul:M=4,N=4,K=64,dtype=bfloat16",
        "matmul:M=4,N=4,K=64",
        "dense:M=4,N=8,K=8",
    ],
)
def test_positive_inputs_are_positive_and_their_outputs_finite(spec: str) -> None:
    expression = parse_spec(spec).expression
    inputs = make_inputs(expression, 3, "positive")
    assert all((array > 0).all() for array in inputs.values())
    assert errors_are_linear(expression, inputs) and largest_value(expression, inputs) <= 0.25
    outputs = evaluate(expression, inputs)
    assert all(np.isfinite(array.astype(np.float64)).all() for array in outputs.values())
    again = make_inputs(expression, 3, "positive")
    assert all(np.array_equal(inputs[name], again[name]) for name in inputs)


def test_indices_among_positive_inputs_are_in_their_range() -> None:
    expression = parse_spec("embedding:N=8,V=10,D=4").expression
    inputs = make_inputs(expression, 3, "positive")
    (indices,) = (array for array in inputs.values() if array.dtype.kind == "i")
    assert indices.min() >= 0 and indices.max() < 10
