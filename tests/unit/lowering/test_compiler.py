"""What the compiler stumbles over is compiled all the same."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.checked_kernels import check_kernels, output_of
from tuner.spaces.default_schedule import default_program
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import workload_from_notation

# LLVM's highest level makes of the loads of X on AVX2 a module that its verifier refuses.
SHORT_CHAINS = """kernel up(X: f32[15], W: f32[4, 8], B: f32[8, 9]) -> (Y: f32[8, 9]) {
  T[o, h] += where((5*h + r) % 2 == 0 and r < 3, X[(5*h + r)//2] else 0, 0) * W[r, o] for h in 0:9, r in 0:4
  Y[o, h] = T[o, h] + B[o, h]
}"""  # noqa: E501


def test_what_the_highest_level_spoils_is_compiled_at_a_lower_one() -> None:
    expression = workload_from_notation(SHORT_CHAINS, {}).expression
    inputs = make_inputs(expression, seed=3)
    got = output_of(default_program(workload_from_notation(SHORT_CHAINS, {})), expression, inputs)
    np.testing.assert_allclose(got, evaluate(expression, inputs)["Y"], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", ["i8", "u8"])
def test_floats_wrap_in_narrow_integers(dtype: str) -> None:
    text = f"kernel narrow(A: f32[65]) -> (C: {dtype}[65]) {{ C[i] = {dtype}(A[i] * 1000) }}"
    check_kernels(workload_from_notation(text, {}), configs=3)
