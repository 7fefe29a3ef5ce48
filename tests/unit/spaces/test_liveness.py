"""What a mask leaves to be done is told from the expression, and nothing else is left out."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.checked_kernels import check_kernels
from tests.support.program_interpreter import function_of
from tests.support.programs import check
from tuner.spaces.program.tiles import add, constant, times
from tuner.spaces.rewrite.algorithm import fewest_flops
from tuner.spaces.rewrite.liveness import live_conditions, tile_condition
from tuner.spaces.rewrite.stages import inlined
from tuner.workload.expression import Axis, Binary, BinaryOp, Scalar, Var
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

EXTENTS = {"M": 21, "N": 21, "D": 8}


def attention(
    mask: str, *, weight: str = "e[i, j] / s[i]", top: str = "P[i, j]", dtype: str = "f32"
) -> Workload:
    text = f"""kernel attend(Q: {dtype}[M, D], K: {dtype}[N, D], V: {dtype}[N, D]) -> (O: {dtype}[M, D]) {{
      S[i, j] += Q[i, d] * K[j, d]
      P[i, j] = where({mask}, S[i, j] * 0.125, -inf)
      m[i] max= {top}
      e[i, j] = exp(P[i, j] - m[i])
      s[i] += e[i, j]
      O[i, d] += {weight} * V[j, d]
    }}"""  # noqa: E501
    return workload_from_notation(text, EXTENTS)


def stages(workload: Workload) -> set[str]:
    return set(live_conditions(inlined(workload.expression)))


def test_causal_attention_needs_half_of_its_products() -> None:
    causal = parse_spec("attention:B=1,H=2,S=64,D=16,causal=true")
    matters = live_conditions(inlined(causal.expression))
    assert set(matters) == {"G", "R", "E", "Z", "P", "O"}
    assert matters["G"] == matters["O"] == (Binary("le", Var("j"), Var("i")),)
    assert 0.5 < fewest_flops(causal) / causal.expression.flops < 0.55
    assert not live_conditions(inlined(parse_spec("attention:B=1,H=2,S=64,D=16").expression))


@pytest.mark.parametrize("mask", ["j <= i", "j >= i", "j < i + 3 and j > i - 4", "2 * j <= i + 20"])
def test_any_mask_by_comparisons_is_followed(mask: str) -> None:
    assert stages(attention(mask)) >= {"S", "e", "O"}
    assert stages(attention(mask, dtype="bf16")) >= {"S", "e", "O"}


def test_what_is_not_certain_is_not_left_out() -> None:
    nothing_counts = attention("j < i")  # in the first row
    assert "S" in stages(nothing_counts) and not stages(nothing_counts) & {"e", "O"}
    other_divisor = attention(
        "j <= i", weight="e[i, j] / (s[i] + Q[i, 0])"
    )  # zero over zero is no zero
    assert "O" not in stages(other_divisor)
    other_top = attention("j <= i", top="S[i, j]")
    assert not stages(other_top) & {"S", "e", "O"}  # all scores are read
    by_data = attention("Q[i, 0] > 0")
    assert not stages(by_data)
    no_comparison = attention("j % 2 == 0")
    assert not stages(no_comparison)


def test_an_output_is_needed_whole() -> None:
    text = """kernel both(A: f32[M, D], B: f32[D, N]) -> (S: f32[M, N], Y: f32[M]) {
      S[i, j] += A[i, k] * B[k, j]
      Y[i] max= where(j <= i, S[i, j], -inf)
    }"""
    assert stages(workload_from_notation(text, EXTENTS)) == {"Y"}


@given(st.data())
def test_a_comparison_is_asked_of_the_right_corner(data: st.DataObject) -> None:
    def side() -> Scalar:
        steps = data.draw(st.lists(st.integers(-3, 3), min_size=2, max_size=2))
        index: Scalar = constant(data.draw(st.integers(-6, 6)))
        for name, step in zip("ij", steps, strict=True):
            index = add(index, times(Var(name), step)) if step else index
        return index

    op: BinaryOp = data.draw(st.sampled_from(("lt", "le", "gt", "ge")))
    condition = Binary(op, side(), side())
    tile = [Axis(name=f"{name}_0", extent=data.draw(st.integers(1, 5))) for name in "ij"]
    outer = {f"{name}_1": data.draw(st.integers(0, 5)) for name in "ij"}
    indices = {name: add(Var(f"{name}_1"), Var(f"{name}_0")) for name in "ij"}
    ranges = [
        range(outer[f"{name}_1"], outer[f"{name}_1"] + axis.extent)
        for name, axis in zip("ij", tile, strict=True)
    ]
    holds = function_of(condition, "ij")
    of_tile = function_of(tile_condition(condition, indices, tile), tuple(outer))
    assert bool(of_tile(*outer.values())) == any(holds(i, j) for i, j in product(*ranges))


def test_where_a_mask_in_a_mask_leaves_nothing_of_a_row_it_is_computed() -> None:
    text = """kernel spread(P: f32[M, N]) -> (X: f32[M, N]) {
      S[i, j] = where(j <= i, where(j > i - 3 and i != 5, P[i, j], -inf), -inf)
      m[i] max= S[i, j]
      X[i, j] = exp(S[i, j] - m[i])
    }"""
    check_kernels(workload_from_notation(text, {"M": 16, "N": 32}), configs=5)


MASKED = [
    parse_spec("attention:B=1,H=2,S=19,D=8,causal=true"),
    attention("j <= i"),
    attention("j < i + 3 and j > i - 4"),
    attention("j >= i", dtype="f16"),
    attention("j < i"),
]


# The last one's first row is no number.
@pytest.mark.parametrize("workload", MASKED[:-1])
def test_masked_programs_agree(workload: Workload) -> None:
    check(workload, configs=3)


@pytest.mark.parametrize("workload", MASKED)
@pytest.mark.parametrize("configs", [1, pytest.param(8, marks=pytest.mark.slow)])
def test_masked_kernels_are_right(workload: Workload, configs: int) -> None:
    check_kernels(workload, configs, libm=workload is MASKED[-1])
