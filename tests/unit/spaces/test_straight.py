"""Small programs as straight code: offered of small programs alone, and right."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.checked_kernels import output_of
from tests.support.program_interpreter import run
from tests.support.targets import ZEN5
from tuner.spaces.by_target import space_of
from tuner.spaces.cpu.fully_unrolled import FULLY_UNROLLED
from tuner.spaces.program.loops import LoopId
from tuner.spaces.program.marks import Unroll
from tuner.spaces.program.program import Program
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

SMALL = [
    "kernel sums(X: f64[31]) -> (Y: f64[3]) { Y[i] += tanh(X[4*r + i - 2] else 1) for i in 0:3, "
    "r in 0:13 }",
    "kernel least(X: f16[64]) -> (Y: f16[3, 1]) { Y[i, j] min= where((X[2*r + i - 2] else 1) > "
    "0, X[r + 2*s], -2) * 0.25"
    " for i in 0:3, j in 0:1, r in 0:8, s in 0:3 }",
    "kernel chain(X: f32[9, 7], W: f32[7]) -> (Y: f32[9]) { S[i] += X[i, k] * W[k]\n T[i] = "
    "exp(S[i])\n"
    " Y[i] = T[i] + (T[(i + 1) // 2 - 1] else 0.5) for i in 0:9 }",
    "kernel long(X: f32[300]) -> (Y: f32[2]) { Y[i] += abs(X[r + i - 1] else 2) for i in 0:2, r "
    "in 0:300 }",
    "kernel padded(X: bf16[3]) -> (Y: bf16[40]) { Y[i] = tanh((X[i - 20] else -2) * 0.5) for i "
    "in 0:40 }",
    "kernel rows(X: bf16[4, 9]) -> (Y: bf16[4]) { M[i] max= X[i, k]\n Y[i] += exp(X[i, k] "
    "- M[i]) }",
    "kernel ints(X: i8[3, 8], W: i8[5, 8]) -> (Y: i32[3, 5]) { Y[i, j] += i32(X[i, k]) * "
    "i32(W[j, k]) }",
]


def straight(workload: Workload) -> Program:
    space = space_of(workload, ZEN5, threads=1)
    return space.program(space.space.config(space.space.point({"sketch": FULLY_UNROLLED})))


@pytest.mark.parametrize("text", SMALL)
def test_every_loop_is_unrolled(text: str) -> None:
    program = straight(workload_from_notation(text, {}))
    loops = {
        LoopId.of(block.name, axis)
        for block in program.blocks
        for axis in (*block.axes, *block.reduce_axes)
        if axis.extent > 1
    }
    assert {step.loop for step in program.steps if isinstance(step, Unroll)} == loops


@pytest.mark.parametrize(("count", "steps"), [(30, None), (200, 25), (198, 99), (97, 97)])
def test_terms_are_a_tree_or_a_few_at_a_time(count: int, steps: int | None) -> None:
    text = (
        "kernel sums(X: f32[400]) -> (Y: f32[2]) { Y[i] += X[2*r + i] for i in 0:2, r in 0:COUNT }"
    )
    (block,) = straight(workload_from_notation(text, {"COUNT": count})).blocks
    assert [axis.extent for axis in block.reduce_axes] == ([] if steps is None else [steps])


@pytest.mark.parametrize("text", SMALL)
def test_it_computes_the_expression(text: str) -> None:
    workload = workload_from_notation(text, {})
    inputs = make_inputs(workload.expression, seed=5)
    want, magnitude = evaluate_with_magnitude(workload.expression, inputs)
    program = straight(workload)
    got = {"Y": output_of(program, workload.expression, inputs)}
    assert max_rel_error(workload.expression, got, want, magnitude) <= error_bound(
        workload.expression
    )
    if workload.expression.tensor("Y").dtype == "float64":
        np.testing.assert_allclose(next(iter(run(program, inputs))), want["Y"], rtol=1e-9)


@pytest.mark.parametrize(
    "workload",
    [
        parse_spec("matmul:M=16,N=16,K=16"),
        workload_from_notation(
            "kernel look(X: f32[9], I: i32[4]) -> (Y: f32[4]) { Y[i] = X[clamp(I[i], 0, 8)] }", {}
        ),
        workload_from_notation(
            "kernel dear(X: f32[200]) -> (Y: f32[200]) { Y[i] = erf(X[i]) }", {}
        ),
    ],
)
def test_of_others_it_is_not_offered(workload: Workload) -> None:
    assert FULLY_UNROLLED not in space_of(workload, ZEN5, threads=1).sketches
