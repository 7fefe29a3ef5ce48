"""Accesses that divide by one number in several places read what they say."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from tests.support.checked_kernels import output_of
from tuner.lowering.indices import mistakable
from tuner.spaces.default_schedule import default_program
from tuner.workload.expression import reads
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import workload_from_notation
from tuner.workload.workload import Workload

APART = [
    ("(i + 2) // 3", "(i + 1) // 3"),
    ("i // 2", "(i + 1) // 2"),
    ("(i + 1) % 3", "(i + 2) % 3"),
    ("(i + 3) // 4", "(i + 1) % 4"),
    ("(i + j + 1) // 2", "(i + j) // 2"),
    ("(i + 1) // 2 + i // 2", "j"),
    ("((i + 1) // 3) // 2", "(i // 3) // 2"),
    ("(12 - i) // 2", "j"),
    ("(11 - i) // 3 + j", "0"),
    ("i + 1", "(2 * j - i + 12) // 3"),
    ("(11 - i) % 5", "j"),
]
TOGETHER = [
    ("i // 3", "i % 3"),  # the parts of one index: a fused loop's
    ("(i + 1) // 3", "(1 + i) % 3"),
    ("(i + 2) // 3", "(j + 1) // 3"),
    ("(i + 2) // 3", "(i + 1) // 2"),
]


def workload(indices: tuple[str, str]) -> Workload:
    text = (
        f"kernel pick(X: f32[A, B]) -> (Y: f32[N, M]) {{ Y[i, j] = X[{', '.join(indices)}] "
        f"for j in 0:M }}"
    )
    return workload_from_notation(text, {"A": 14, "B": 9, "N": 12, "M": 5})


@pytest.mark.parametrize("indices", [*APART, *TOGETHER])
def test_what_is_read_is_what_is_said(indices: tuple[str, str]) -> None:
    problem = workload(indices)
    inputs = make_inputs(problem.expression, seed=3)
    got = output_of(default_program(problem), problem.expression, inputs)
    np.testing.assert_array_equal(got, evaluate(problem.expression, inputs)["Y"])


def test_only_what_may_be_confused_is_kept_apart() -> None:
    for indices, apart in (*product(APART, [True]), *product(TOGETHER, [False])):
        (read,) = reads(workload(indices).expression.stages[0].body)
        assert mistakable(read.indices) == apart, indices
