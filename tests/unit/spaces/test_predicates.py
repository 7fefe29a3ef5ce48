"""What a reduction leaves out changes nothing, and is not counted."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.support.checked_kernels import check_kernels
from tests.support.programs import check
from tests.support.targets import ZEN5
from tuner.cost_model.features import featurizer
from tuner.spaces.by_target import cpu_space
from tuner.spaces.rewrite.liveness import live_flops
from tuner.spaces.rewrite.predicates import live_fraction, split_predicates, term_operations
from tuner.spaces.rewrite.stages import inlined
from tuner.workload.expression import Binary, Const, Select, Stage, Var
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

# The condition of a sum over j of A[i, k] * B[k, j] and the share of its terms that
# count, of extents 6 (i) and 9 (k).
CONDITIONS: list[tuple[str, Callable[[int, int], bool]]] = [
    ("k <= i", lambda i, k: k <= i),
    ("k >= 3", lambda i, k: k >= 3),
    ("i % 2 == 1 and k > i", lambda i, k: i % 2 == 1 and k > i),
    ("i + k == 7 or k < 2", lambda i, k: i + k == 7 or k < 2),
    ("(i + k) // 3 != 1", lambda i, k: (i + k) // 3 != 1),
]
KERNELS = [
    "conv2d_transpose:N=1,H=6,W=5,CI=5,CO=16,KH=3,KW=3,stride=2,pad=1",
    "conv2d_transpose:N=1,H=5,W=9,CI=4,CO=5,KH=5,KW=3,stride=2,pad=2,layout=NCHW,bias=true,act=relu",
    "conv2d_transpose:N=1,H=5,W=4,CI=4,CO=16,KH=4,KW=5,stride=3,pad=1,dtype=bfloat16",
    "conv2d_transpose:N=1,H=5,W=4,CI=4,CO=16,KH=3,KW=5,stride=2,pad=1,dtype=int8",
]


def product(condition: str) -> Workload:
    text = (
        f"kernel part(A: f32[M, K], B: f32[K, N]) -> (Y: f32[M, N]) {{ Y[i, j] += "
        f"where({condition}, A[i, k] * B[k, j], 0) }}"
    )
    return workload_from_notation(text, {"M": 6, "K": 9, "N": 20})


def stage_of(workload: Workload) -> Stage:
    (stage,) = inlined(workload.expression).stages
    return stage


@pytest.mark.parametrize(("condition", "counts"), CONDITIONS)
def test_terms_that_count_are_counted(condition: str, counts: Callable[[int, int], bool]) -> None:
    workload = product(condition)
    stage = stage_of(workload)
    counted = sum(counts(i, k) for i in range(6) for k in range(9))
    assert live_fraction(stage) == pytest.approx(counted / 54) and 0 < counted < 54
    assert term_operations(stage) == 2
    assert live_flops(inlined(workload.expression)) == counted * 20 * 2
    check(workload, configs=3)


def test_where_nothing_counts_estimates_are_numbers() -> None:
    space = cpu_space(product("k > 100"), ZEN5, threads=1)
    points = space.space.sample(np.random.default_rng(1), 20)
    assert np.isfinite(featurizer(space)(points)).all()


def test_of_many_points_some_are_drawn() -> None:
    text = (
        "kernel part(A: f32[M, K], B: f32[K, N]) -> (Y: f32[M, N]) { Y[i, j] += where(k <= "
        "i, A[i, k] * B[k, j], 0) }"
    )
    stage = stage_of(workload_from_notation(text, {"M": 5000, "K": 5000, "N": 20}))
    assert live_fraction(stage) == pytest.approx(0.5, abs=0.002)
    assert live_fraction(stage) == live_fraction(stage)


def test_what_differs_from_lane_to_lane_and_what_is_read_stay_in_the_term() -> None:
    def below(name: str) -> Binary:
        return Binary("lt", Var(name), Const(3, "int64"))

    zero, term = Const(0.0, "float32"), Binary("mul", Var("x"), Var("y"))
    body = Select(Binary("and", below("i"), below("l")), Select(below("k"), term, zero), zero)
    assert split_predicates(body, "sum", "float32") == ((below("i"), below("l"), below("k")), term)
    assert split_predicates(body, "sum", "float32", {"l"}) == (
        (below("i"), below("k")),
        Select(below("l"), term, zero),
    )
    assert split_predicates(body, "max", "float32") == ((), body)
    read = stage_of(product("A[i, k] > 0"))
    assert split_predicates(read.body, "sum", "float32") == ((), read.body)


@pytest.mark.parametrize(
    "workload",
    [*map(parse_spec, KERNELS), product("k <= i"), product("i % 2 == 1 and j + k > 5")],
)
@pytest.mark.parametrize("configs", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_kernels_that_leave_terms_out_are_right(workload: Workload, configs: int) -> None:
    check_kernels(workload, configs)
