"""A reduction is done once for all points of axes that its body does not move with."""

from __future__ import annotations

import pytest

from tests.unit.spaces.test_programs import NARROW, check
from tuner.spaces.cpu import CpuSpace
from tuner.spaces.stages import hoisted, materialized
from tuner.workload.spec import parse_spec, workload_from_notation

# Text, extents, and the extents of what is reduced: of all axes, of none, of two outputs of one stage.
CASES = (
    ("kernel k(X: f32[M]) -> (Y: f32[N]) { Y[i] += X[r] }", {"M": 5, "N": 3}, [(1,)]),
    ("kernel k(X: f32[M, K]) -> (Y: f32[N, M, L]) { Y[i, j, l] max= X[j, r] }", {"M": 5, "N": 3, "K": 7, "L": 4}, [(5,)]),
    ("kernel k(X: f32[M, K]) -> (Y: f32[M]) { Y[i] += exp(X[i, r]) }", {"M": 5, "K": 7}, [(5,)]),
    (
        "kernel k(X: f32[M, K]) -> (Y: f32[N, M]) { T[i, j] += X[j, r] for i in 0:7\n Y[i, j] = T[i, j] * X[j, i] }",
        {"M": 5, "K": 7, "N": 7},
        [(5,)],
    ),
)


@pytest.mark.parametrize(("text", "extents", "reduced"), CASES)
def test_what_does_not_move_is_done_once(text: str, extents: dict[str, int], reduced: list[tuple[int, ...]]) -> None:
    workload = workload_from_notation(text, extents)
    made = hoisted(workload.expression)
    assert [stage.tensor.shape for stage in made.stages if stage.reducer is not None] == reduced
    assert [made.tensor(name) for name in made.outputs] == [
        workload.expression.tensor(name) for name in workload.expression.outputs
    ]
    check(workload, configs=6)


def test_what_a_sum_of_all_reads_of_a_padded_vector_is_copied_first() -> None:
    workload = workload_from_notation(
        "kernel k(X: f32[M]) -> (Y: f32[N]) { Y[i] += exp((X[r - 1] else 2)) for r in 0:9 }", {"M": 5, "N": 3}
    )
    made = materialized(hoisted(workload.expression))
    assert [(stage.tensor.shape, stage.reducer) for stage in made.stages] == [((9,), None), ((1,), "sum"), ((3,), None)]
    assert any("rows" in name for name in CpuSpace(workload, NARROW, threads=1).combinations), "sums of vectors are offered"
    check(workload, configs=6)


def test_what_moves_stays_as_it_is() -> None:
    expression = parse_spec("matmul:M=5,N=7,K=6").expression
    assert materialized(hoisted(expression)) == expression
