"""What overlapping tiles write is not put in the place of what they read."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.checked_kernels import output_of
from tests.support.targets import ZEN5
from tuner.spaces.by_target import space_of
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import workload_from_notation

# Exponentials of five columns in vectors of four: three columns are written twice, from
# sums that nobody reads afterwards.
SOFTMAX_OF_PRODUCT = """kernel weigh(Q: f32[M, D], K: f32[N, D], V: f32[N, D]) -> (O: f32[M, D]) {
  S[i, j] += Q[i, d] * K[j, d]
  m[i] max= S[i, j]
  e[i, j] = exp(S[i, j] - m[i])
  s[i] += e[i, j]
  O[i, d] += e[i, j] / s[i] * V[j, d]
}"""


@pytest.mark.parametrize("rows", [1, 5])
def test_sums_are_there_when_they_are_read_again(rows: int) -> None:
    workload = workload_from_notation(SOFTMAX_OF_PRODUCT, {"M": 5, "N": 5, "D": 8})
    space = space_of(workload, ZEN5, threads=1)
    sketch = next(
        combination for combination in space.space.combinations if "+e:rows+" in combination.name
    )
    config = {"sketch": sketch.name} | {knob.name: knob.values[0] for knob in sketch.knobs}
    program = space.program(config | {"e.rows.register": (rows, 4), "e.rows.ahead": 0})
    inputs = make_inputs(workload.expression, seed=2)
    got = output_of(program, workload.expression, inputs)
    np.testing.assert_allclose(
        got, evaluate(workload.expression, inputs)["O"], rtol=1e-5, atol=1e-6
    )
