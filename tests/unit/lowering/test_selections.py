"""Selections that differ from lane to lane are blended where both sides may be
computed, and branch where they may not."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.checked_kernels import output_of
from tests.support.targets import ZEN5
from tuner.lowering.module import module
from tuner.spaces.by_target import space_of
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import workload_from_notation
from tuner.workload.workload import Workload

BLENDED = [
    "where(j <= i, X[i, j] * 2, -inf)",
    "where(X[i, j] > 0, X[i, j], X[i, j] * 0.01)",
    "where(X[i, j] > 0, Z[i, j] / X[i, j], 0)",
    "where(X[i, j] > 0, where(j % 3 == 1, X[i, j], Z[i, j] / 3), 1)",
]
BRANCHES = [
    "(X[i - 1, j] else 5)",  # leaves the tensor where it is not to be read
    "where(j <= i, X[clamp(I[i, j], 0, 3), j], 0)",  # who knows where that is
    "where(i <= 2, X[i, j], Z[i, j] * 2)",  # the same for a whole vector
]


def workload(value: str) -> Workload:
    inputs = (
        "X: f32[M, N]"
        + (", Z: f32[M, N]" if "Z[" in value else "")
        + (", I: i32[M, N]" if "I[" in value else "")
    )
    text = f"kernel select({inputs}) -> (Y: f32[M, N]) {{ Y[i, j] = {value} }}"
    return workload_from_notation(text, {"M": 5, "N": 40})


def check(problem: Workload, branches: bool) -> None:
    space = space_of(problem, ZEN5, threads=1)
    sketch = space.space.combinations[0]
    program = space.program(
        {"sketch": sketch.name} | {knob.name: knob.values[0] for knob in sketch.knobs}
    )
    script = module(program, "kernel").script()
    assert ("if_then_else" in script) == branches and ("Select(" in script) != branches
    inputs = make_inputs(problem.expression, seed=3)
    got = output_of(program, problem.expression, inputs)
    np.testing.assert_allclose(got, evaluate(problem.expression, inputs)["Y"], rtol=1e-6)


@pytest.mark.parametrize("value", BLENDED)
def test_lanes_that_differ_are_blended(value: str) -> None:
    check(workload(value), branches=False)


@pytest.mark.parametrize("value", BRANCHES)
def test_what_must_not_be_computed_is_not(value: str) -> None:
    check(workload(value), branches=True)
