"""Maps that mostly see padding: compiled, they hold the constant and what is inside."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.checked_kernels import output_of
from tests.support.spaces import drawn_once
from tests.support.targets import ZEN5
from tuner.spaces.by_target import space_of
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import workload_from_notation

MAPS = [
    "kernel corner(X: f32[3, 5]) -> (Y: f32[96, 64]) {"
    " Y[i, j] = exp(X[(i + j) // 2 - 9, (j + 1) // 2] else 0.5) * 3 for i in 0:96, j in 0:64 }",
    "kernel row(X: f64[3, 64]) -> (Y: f64[96, 64]) { Y[i, j] = (X[i - 20, j] else 0.5) + 1 for "
    "i in 0:96 }",
    "kernel column(X: i32[40, 7]) -> (Y: i32[40, 61]) { Y[i, j] = (X[i, j - 50] else -3) * 2 "
    "for j in 0:61 }",
    "kernel row(X: bf16[3, 64]) -> (Y: bf16[96, 64]) { Y[i, j] = (X[i - 20, j] else 0.5) * 2 "
    "for i in 0:96 }",
]


@pytest.mark.parametrize("text", MAPS)
def test_inside_and_outside(text: str) -> None:
    workload = workload_from_notation(text, {})
    space = space_of(workload, ZEN5, threads=1)
    inputs = make_inputs(workload.expression, seed=3)
    want = evaluate(workload.expression, inputs)["Y"]
    for point in drawn_once(space.space, np.random.default_rng(0), 5):
        got = output_of(space.program(space.space.config(point)), workload.expression, inputs)
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol=1e-5)
