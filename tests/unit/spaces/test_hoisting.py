"""A reduction is done once for all points of axes that its body does not move with."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.programs import NARROW, check
from tuner.spaces.by_target import space_of
from tuner.spaces.rewrite.stages import hoisted, materialized
from tuner.target.cuda import cuda_target
from tuner.workload.expression import Select, reads
from tuner.workload.spec import parse_spec, workload_from_notation

# Text, extents, and the extents of what is reduced: of all axes, of none, of two
# outputs of one stage.
CASES = (
    ("kernel k(X: f32[M]) -> (Y: f32[N]) { Y[i] += X[r] }", {"M": 5, "N": 3}, [(1,)]),
    (
        "kernel k(X: f32[M, K]) -> (Y: f32[N, M, L]) { Y[i, j, l] max= X[j, r] }",
        {"M": 5, "N": 3, "K": 7, "L": 4},
        [(5,)],
    ),
    ("kernel k(X: f32[M, K]) -> (Y: f32[M]) { Y[i] += exp(X[i, r]) }", {"M": 5, "K": 7}, [(5,)]),
    (
        "kernel k(X: f32[M, K]) -> (Y: f32[N, M]) { T[i, j] += X[j, r] for i in 0:7\n Y[i, j] = "
        "T[i, j] * X[j, i] }",
        {"M": 5, "K": 7, "N": 7},
        [(5,)],
    ),
)


@pytest.mark.parametrize(("text", "extents", "reduced"), CASES)
def test_what_does_not_move_is_done_once(
    text: str, extents: dict[str, int], reduced: list[tuple[int, ...]]
) -> None:
    workload = workload_from_notation(text, extents)
    made = hoisted(workload.expression)
    assert [stage.tensor.shape for stage in made.stages if stage.reducer is not None] == reduced
    assert [made.tensor(name) for name in made.outputs] == [
        workload.expression.tensor(name) for name in workload.expression.outputs
    ]
    check(workload, configs=6)


def test_what_a_sum_of_all_reads_of_a_padded_vector_is_copied_first() -> None:
    workload = workload_from_notation(
        "kernel k(X: f32[M]) -> (Y: f32[N]) { Y[i] += exp((X[r - 1] else 2)) for r in 0:9 }",
        {"M": 5, "N": 3},
    )
    made = materialized(hoisted(workload.expression))
    assert [(stage.tensor.shape, stage.reducer) for stage in made.stages] == [
        ((9,), None),
        ((1,), "sum"),
        ((3,), None),
    ]
    assert any("rows" in name for name in space_of(workload, NARROW, threads=1).sketches), (
        "sums of vectors are offered"
    )
    check(workload, configs=6)


@pytest.mark.parametrize(
    "text",
    [
        "kernel k(X: f32[40]) -> (Y: f32[1]) { Y[i] += X[3*r + 1] for i in 0:1, r in 0:13 }",
        "kernel k(X: f16[40]) -> (Y: f16[1]) { Y[i] max= X[r // 2] for i in 0:1, r in 0:21 }",
        "kernel k(X: f32[9, 5], Z: f32[4, 9]) -> (Y: f32[1]) { Y[i] += X[r, 2] * Z[s, r] for i "
        "in 0:1, s in 0:4 }",
        "kernel k(X: f32[40]) -> (Y: f32[1]) { Y[i] += X[20 - r] for i in 0:1, r in 0:17 }",
    ],
)
def test_a_sum_of_all_is_of_vectors_of_elements_wherever_they_lie(text: str) -> None:
    workload = workload_from_notation(text, {})
    assert any("rows" in name for name in space_of(workload, NARROW, threads=1).sketches)
    check(workload, configs=6)


def test_what_moves_stays_as_it_is() -> None:
    expression = parse_spec("matmul:M=5,N=7,K=6").expression
    assert materialized(hoisted(expression)) == expression


GUARDED = (
    "kernel k(X: f32[M, K], Z: f32[R, N]) -> (Y: f32[N, L]) { T[i, j] += X[j, r] for i in 0:9\n"
    " Y[i, j] += (T[i + r, j - r] else 0) * Z[r, i] for j in 0:32 }"
)


@pytest.mark.parametrize("kind", ["cpu", "cuda"])
def test_copies_of_what_is_read_under_a_condition_stay_within_it(kind: str) -> None:
    """T loses its first axis, whose border is a condition then; a copy reaches before
    the first column."""
    workload = workload_from_notation(GUARDED, {"M": 40, "K": 16, "R": 8, "N": 24, "L": 32})
    target = cuda_target("sm_80", lambda fingerprint: "declared")
    space = (
        space_of(workload, NARROW, threads=1) if kind == "cpu" else space_of(workload, target, 1)
    )
    copied = 0
    for point in space.space.canonical(space.space.sample(np.random.default_rng(0), 60)):
        for block in space.program(space.space.config(point)).blocks:
            if ("_pack" in block.name or "_fetch" in block.name) and any(
                read.tensor == "Tx0" for read in reads(block.body)
            ):
                copied += 1
                assert isinstance(block.body, Select), block.name
    assert copied > 5
    if kind == "cpu":
        check(workload, configs=12)
