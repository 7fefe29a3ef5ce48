"""Texts of expressions: read back they give the same tree."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.operator_samples import combinations
from tuner.errors import WorkloadError
from tuner.workload.catalogue import CATALOGUE
from tuner.workload.expression import Axis, Const, Expression, Read, Stage, Tensor, Unary, Var
from tuner.workload.inputs import make_inputs
from tuner.workload.notation import parse
from tuner.workload.operator import Operator
from tuner.workload.printing import notation_text
from tuner.workload.reference import evaluate
from tuner.workload.spec import workload_from_params

PROGRAMS = {
    "types": """kernel k(A: bf16[4], B: f64[4], I: i8[4], J: u32[4]) -> (Y: f64[4], N: i64[4]) {
        Y[i] = A[i] * B[i] + f64(I[i]) - f64(f16(A[i]))
        N[i] = I[i] + J[i] * i64(shl(I[i], 2))
    }""",
    "bits": """kernel k(A: f16[4], B: f32[4]) -> (Y: u16[4], Z: u32[4]) {
        Y[i] = bitcast(u16, A[i])
        Z[i] = bitxor(bitcast(u32, B[i] * 2), u32(7))
    }""",
    "conditions": """kernel k(A: f32[4], I: i32[4]) -> (Y: f32[4], Z: f32[4]) {
        Y[i] = not (A[i] > 0 and (i < 2 or isnan(A[i]))) ? -1 : where(I[i] == 3, -A[i], 0.5)
        Z[i] = A[clamp(where(I[i] < 0, I[i] + 4, I[i]), 0, 3)] - (A[i] - (A[i] - 1)) / (2 * A[i])
    }""",
    "truths": """kernel k(B: bool[4], A: f32[4]) -> (Y: bool[4], Z: f32[4], C: f32[4]) {
        Y[i] = B[i] or A[i] != 0
        Z[i] = where(B[i], 1, -inf)
        C[i] = 0.5
    }""",
    "ranges": """kernel k(A: f32[9], W: f32[3]) -> (Y: f32[3], Z: f32[2]) {
        Y[i] += (A[3*i + r - 1] else 0) * W[r]
        Z[i] max= A[i] + A[i + s] for i in 0:2, s in 1:4
    }""",
}


@pytest.mark.parametrize("operator", CATALOGUE, ids=lambda operator: operator.name)
def test_operators_survive(operator: Operator) -> None:
    for params in list(combinations(operator))[::4]:
        expression = workload_from_params(operator.name, params).expression
        assert parse(notation_text(expression), {}) == expression, params


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_survive(name: str) -> None:
    expression = parse(PROGRAMS[name], {})
    assert parse(notation_text(expression), {}) == expression


def summed(name: str, axis: str, body: Read, extent: int) -> Expression:
    stage = Stage(
        name=name,
        axes=(Axis(name=axis, extent=3),),
        reduce_axes=(Axis(name="k", extent=extent),),
        reducer="sum",
        body=body,
        dtype="float32",
    )
    tensor = Tensor(name="A 1", shape=(3,), dtype="float32")
    return Expression(name="a sum", inputs=(tensor,), stages=(stage,), outputs=(name,))


def test_names_are_replaced_and_idle_iterators_kept() -> None:
    expression = summed("A_1", "i outer", Read("A 1", (Var("i outer"),)), 4)
    again = parse(notation_text(expression), {})
    values = make_inputs(expression, 0)["A 1"]
    (given,) = (tensor.name for tensor in again.inputs)
    assert evaluate(again, {given: values})["A_1"].tolist() == (4.0 * values).tolist()


def test_what_has_no_notation_is_refused() -> None:
    expression = summed("Y", "i", Read("A 1", (Var("i"),)), 1)
    (stage,) = expression.stages
    rounded = replace(stage, body=Unary("bfloat16", stage.body))
    with pytest.raises(WorkloadError, match="stage Y rounds an intermediate to bfloat16"):
        notation_text(replace(expression, stages=(rounded,)))


@pytest.mark.parametrize(("value", "text"), [(1e-05, "1e-05"), (-2.0, "-2"), (3e20, "3e+20")])
def test_numbers(value: float, text: str) -> None:
    stage = Stage(
        name="Y", axes=(Axis(name="i", extent=1),), body=Const(value, "float32"), dtype="float32"
    )
    expression = Expression(
        name="k",
        inputs=(Tensor(name="A", shape=(1,), dtype="float32"),),
        stages=(stage,),
        outputs=("Y",),
    )
    assert f"Y[i] = {text}" in notation_text(expression)
