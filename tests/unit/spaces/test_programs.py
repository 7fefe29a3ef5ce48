"""Programs of sampled configs, interpreted block by block without TVM, compute what the
reference computes."""

from __future__ import annotations

import pytest

from tests.support.programs import NARROW, check
from tuner.spaces.by_target import space_of
from tuner.spaces.rewrite.groups import FusedGroup, RowGroup, TileGroup
from tuner.spaces.rewrite.stream_group import StreamGroup
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

SPECS = (
    "matmul:M=5,N=7,K=6", "matmul:M=3,N=4,K=64", "matmul:M=4,N=9,K=8,transpose_b=true",
    "dense:M=2,N=5,K=9,bias=true,act=gelu",
    "conv2d:N=1,H=5,W=4,CI=2,CO=5,KH=3,KW=3,pad=1,act=relu",
    "max_pool2d:N=1,H=5,W=5,C=5,KH=3,KW=3,stride=2,pad=1",
    "softmax:M=3,N=7", "layer_norm:M=3,N=10", "reduce_sum:M=5,N=13,axis=1",
    "reduce_max:M=5,N=13,axis=0", "transpose:M=5,N=9",
    "attention:B=1,H=1,S=5,D=4",
)  # fmt: skip


@pytest.mark.parametrize("spec", SPECS)
def test_sampled_programs_compute_the_expression(spec: str) -> None:
    check(parse_spec(spec), configs=6)


def test_names_that_look_like_a_sketchs_own_do_no_harm() -> None:
    text = """kernel c(A: f32[M, N], B: f32[N, M]) -> (C_acc: f32[M, M]) {
      C[i, i_2] += A[i, i_1] * B[i_1, i_2]
      C_acc[i, i_l] = C[i, i_l] + 1
    }"""
    check(workload_from_notation(text, {"M": 6, "N": 5}), configs=8)


def groups(workload: Workload) -> list[tuple[type, tuple[str, ...]]]:
    partition = []
    for group in space_of(workload, NARROW, threads=1).algorithm.groups:
        assert not isinstance(group, StreamGroup | FusedGroup)
        stages = (
            group.stages
            if isinstance(group, RowGroup)
            else tuple(filter(None, (group.anchor, group.epilogue)))
        )
        partition.append((type(group), tuple(stage.name for stage in stages)))
    return partition


def test_a_softmax_of_any_name_is_one_row_group() -> None:
    text = """kernel s(X: f32[M, N]) -> (Out: f32[M, N]) {
      Top[r] max= X[r, c]
      Pow[r, c] = exp(X[r, c] - Top[r])
      All[r] += Pow[r, c]
      Out[r, c] = Pow[r, c] / All[r]
    }"""
    assert groups(workload_from_notation(text, {"M": 4, "N": 9})) == [
        (RowGroup, ("Top", "Pow", "All", "Out"))
    ]


def test_a_product_takes_its_epilogue_along() -> None:
    text = """kernel m(A: f32[M, K], B: f32[K, N], b: f32[N]) -> (C: f32[M, N]) {
      T[i, j] += A[i, k] * B[k, j]
      U[i, j] = T[i, j] + b[j]
      C[i, j] = max(U[i, j], 0)
    }"""
    assert groups(workload_from_notation(text, {"M": 4, "N": 9, "K": 3})) == [
        (TileGroup, ("T", "C"))
    ]


def test_a_stage_read_twice_or_given_out_is_kept() -> None:
    text = """kernel t(X: f32[M, N]) -> (S: f32[M], Y: f32[M, N]) {
      S[i] += X[i, j]
      Y[i, j] = X[i, j] * S[i]
    }"""
    assert [names for _, names in groups(workload_from_notation(text, {"M": 4, "N": 9}))] == [
        ("S",),
        ("Y",),
    ]
