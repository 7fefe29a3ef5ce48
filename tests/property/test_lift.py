"""Lifting what we lowered ourselves gives the program back: the same key where the text
allows it, always the same values."""

from __future__ import annotations

import numpy as np
from hypothesis import HealthCheck, given, settings

from tests.support.random_expressions import expressions
from tuner.lowering.importers.lift import lift
from tuner.lowering.module import module
from tuner.spaces.default_schedule import default_program
from tuner.spaces.rewrite.stages import inlined
from tuner.workload.expression import Expression
from tuner.workload.inputs import make_inputs
from tuner.workload.keys import workload_key
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import workload_from_expression, workload_from_notation

COMMON = settings(
    deadline=None,
    max_examples=40,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)


def lowered_and_lifted(expression: Expression) -> Expression:
    program = default_program(workload_from_expression(expression))
    return lift(module(program, "kernel")["kernel"], expression.name)


def check(expression: Expression) -> None:
    lifted = lowered_and_lifted(expression)
    assert [(tensor.shape, tensor.dtype) for tensor in lifted.inputs] == [
        (t.shape, t.dtype) for t in expression.inputs
    ]
    arrays = make_inputs(expression, seed=2)
    names = dict(
        zip(
            (tensor.name for tensor in expression.inputs),
            (tensor.name for tensor in lifted.inputs),
            strict=True,
        )
    )
    want, magnitude = evaluate_with_magnitude(expression, arrays)
    got, _ = evaluate_with_magnitude(lifted, {names[name]: array for name, array in arrays.items()})
    assert max_rel_error(expression, got, want, magnitude) <= error_bound(expression)
    assert lowered_and_lifted(lifted) == lifted, "lifting is stable"


@COMMON
@given(expressions())
def test_floating_programs_survive(expression: Expression) -> None:
    check(expression)


@COMMON
@given(expressions(dtypes=("i32", "i8", "i64")))
def test_integer_programs_survive_exactly(expression: Expression) -> None:
    check(expression)


def test_plain_programs_keep_their_key() -> None:
    for text in (
        "kernel mm(A: f32[5, 7], B: f32[7, 6]) -> (C: f32[5, 6]) { C[i, j] += A[i, k] * B[k, j] }",
        "kernel half(A: f16[5, 7], B: f16[7, 6]) -> (C: f16[5, 6]) { C[i, j] += A[i, k] * "
        "B[k, j] }",
        "kernel conv(X: f32[9, 4], W: f32[3, 4, 6]) -> (Y: f32[9, 6]) { Y[x, f] += (X[x + k - "
        "1, c] else 0) * W[k, c, f] }",
        "kernel rows(X: f32[4, 9]) -> (Y: f32[4]) { Y[i] max= X[i, k] }",
        "kernel apart(X: f32[5, 5]) -> (Y: f32[9]) { Y[i] = X[(i + 2) // 3, (i + 1) // 3] }",
        "kernel table(T: f32[11, 3], I: i32[6]) -> (Y: f32[6, 3]) { Y[i, j] = T[clamp(I[i], 0, "
        "10), j] }",
    ):
        workload = workload_from_notation(text, {})
        assert workload_key(lowered_and_lifted(workload.expression)) == workload_key(
            inlined(workload.expression)
        ), text
        assert np.isfinite(error_bound(workload.expression))
