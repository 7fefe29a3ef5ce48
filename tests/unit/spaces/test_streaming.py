"""Softmax and the product behind it, read part by part: found by algebra, right on all rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.checked_kernels import output_of
from tests.support.program_interpreter import run
from tests.support.programs import NARROW
from tests.support.rows import ENDINGS, MASKS, Rows, random_rows
from tests.support.targets import host_target
from tuner.errors import WorkloadError
from tuner.spaces.by_target import cpu_space, space_of
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.catalogue import CPU_SKETCHES
from tuner.spaces.cpu.default import default_cpu_program
from tuner.spaces.program.program import Program
from tuner.spaces.rewrite.stages import plainly_named
from tuner.spaces.rewrite.stream_group import StreamGroup
from tuner.spaces.rewrite.streaming import refusal, stream_group, streamed_away
from tuner.target.target import Target
from tuner.workload.expression import Axis, Binary, Expression, Read, Unary, Var
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import (
    error_bound,
    evaluate,
    evaluate_with_magnitude,
    max_rel_error,
)
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload


def prepared(workload: Workload) -> Expression:
    return CPU_SKETCHES.simplify(plainly_named(workload.expression))


def group_of(workload: Workload) -> StreamGroup:
    group = stream_group(prepared(workload))
    assert group is not None
    return group


def streamed(workload: Workload, target: Target, threads: int = 1) -> TargetSpace[object]:
    """The space, in which one combination streams."""
    space = space_of(workload, target, threads)
    assert sum(name.endswith(":stream") for name in space.sketches) == 1
    return space


def drawn(space: TargetSpace[object], count: int, seed: int) -> list[Program]:
    """Programs of random points of the combination that streams."""
    number = next(n for n, name in enumerate(space.sketches) if name.endswith(":stream"))
    points = space.space.sample(np.random.default_rng(seed), count)
    points[:, 0] = number
    rng = np.random.default_rng(seed)
    for column in space.space.columns[number]:
        points[:, column] = rng.integers(space.space.cardinalities[column], size=count)
    return [space.program(space.space.config(p)) for p in space.space.canonical(points)]


def check_drawn(workload: Workload, threads: int, configs: int) -> None:
    """Kernels of this machine against the reference; what is no number must be none in both."""
    inputs = make_inputs(workload.expression, seed=3)
    with np.errstate(all="ignore"):
        want, magnitude = evaluate_with_magnitude(workload.expression, inputs)
    (name,) = workload.expression.outputs
    numbers = ~np.isnan(want[name])
    space = streamed(workload, host_target(), threads)
    for program in drawn(space, configs, seed=7):
        got = output_of(program, workload.expression, inputs)
        np.testing.assert_array_equal(~np.isnan(got.astype(np.float64)), numbers)
        actual, expected, size = (
            {name: np.where(numbers, values, 0)} for values in (got, want[name], magnitude[name])
        )
        assert max_rel_error(workload.expression, actual, expected, size) <= error_bound(
            workload.expression
        )


# --- what is found


def test_attention_is_a_product_its_exponentials_and_two_sums() -> None:
    group = group_of(parse_spec("attention:B=2,H=2,S=64,D=16,causal=true"))
    assert group.product is not None and group.product.name == "G"
    assert [running.name for running in group.sums] == ["Z", "O"]
    assert group.sums[0].factor is None and isinstance(group.sums[1].factor, Read)
    assert group.live_conditions == (Binary("le", Var("j"), Var("i")),)
    assert group.output.body == Binary("div", *map(group.total, reversed(group.sums)))


@pytest.mark.parametrize("ending", ENDINGS)
@pytest.mark.parametrize("mask", MASKS)
def test_programs_of_the_form_are_found_whatever_their_stages(ending: str, mask: str) -> None:
    rows = Rows(ending=ending, mask=mask, bias=True, cap=True, sharing=3)
    expression = prepared(rows.workload)
    group = group_of(rows.workload)
    assert refusal(group, expression) is None
    assert group.product is not None and group.columns[-1].extent == rows.columns
    assert not streamed_away(expression, group) & group.sources


def test_axes_of_one_element_are_read_at_0_or_by_an_iterator() -> None:
    text = """kernel one(Q: f32[1, M, D], K: f32[1, M, D], V: f32[1, M, C]) -> (O: f32[1, M, C]) {
      S[b, i, j] += Q[0, i, d] * K[b, j, d]
      m[b, i] max= S[0, i, j] for b in 0:1
      e[b, i, j] = exp(S[b, i, j] - m[0, i])
      s[b, i] += e[b, i, j]
      w[b, i, j] = e[0, i, j] / s[0, i] for b in 0:1
      O[b, i, c] += w[b, i, j] * V[0, j, c]
    }"""
    workload = workload_from_notation(text, {"M": 9, "D": 4, "C": 6})
    assert refusal(group_of(workload), prepared(workload)) is None
    check_interpreted(workload, seed=1)


def test_given_scores_stream_too() -> None:
    group = group_of(Rows(product=False, bias=True).workload)
    assert group.product is None
    assert group.sources == {"S", "V", "bias"}


@pytest.mark.parametrize(
    ("stages", "outputs"),
    [
        # the exponential is of something else than the maximum
        ("e[i, j] = exp(2 * S[i, j] - m[i]) \n O[i, c] += e[i, j] * V[j, c]", "O"),
        # the maximum is of other rows
        ("e[i, j] = exp(S[i, j] - m[j]) \n O[i, c] += e[i, j] * V[j, c]", "O"),
        # a square of the exponential
        ("e[i, j] = exp(S[i, j] - m[i]) \n O[i, c] += e[i, j] * e[i, j] * V[j, c]", "O"),
        # the divisor moves along the row
        ("e[i, j] = exp(S[i, j] - m[i]) \n O[i, c] += e[i, j] / V[j, c]", "O"),
        # the weights are a result
        ("e[i, j] = exp(S[i, j] - m[i]) \n O[i, c] += e[i, j] * V[j, c]", "both"),
    ],
)
def test_what_has_another_form_is_left_alone(stages: str, outputs: str) -> None:
    out = {"O": "(O: f32[M, C])", "both": "(m: f32[M], O: f32[M, C])"}
    text = f"""kernel other(Q: f32[M, D], K: f32[M, D], V: f32[M, C]) -> {out[outputs]} {{
      S[i, j] += Q[i, d] * K[j, d]
      m[i] max= S[i, j]
      {stages}
    }}"""
    assert stream_group(prepared(workload_from_notation(text, {"M": 8, "D": 4, "C": 6}))) is None


@pytest.mark.parametrize("spec", ["softmax:M=9,N=53", "matmul:M=9,N=8,K=7", "layer_norm:M=9,N=53"])
def test_what_has_no_product_behind_a_softmax_is_left_alone(spec: str) -> None:
    assert stream_group(prepared(parse_spec(spec))) is None


# --- what is refused


def wrong_groups(group: StreamGroup) -> dict[str, StreamGroup]:
    total, last = group.sums
    product = group.product
    assert product is not None
    squared = Binary("mul", Var(group.stream.name), Var(group.stream.name))
    return {
        "value": replace(group, value=Unary("neg", group.value)),
        "product": replace(group, product=replace(product, reducer="max")),
        "no product": replace(group, product=None),
        "factor": replace(group, sums=(total, replace(last, factor=squared))),
        "forgotten sum": replace(group, sums=(last,)),
        "order": replace(group, sums=(last, total)),
        "rows": replace(group, rows=group.rows[::-1]),
        "stream": replace(group, stream=Axis(name=group.stream.name, extent=3)),
        "maximum of something else": replace(group, peak=total.name),
        "unknown member": replace(group, peak="nothing"),
        "undivided": replace(group, output=replace(group.output, body=group.total(group.sums[-1]))),
        "lost terms": replace(group, live_conditions=(Binary("lt", Var("j"), Var("i")),)),
    }


@pytest.mark.parametrize("which", wrong_groups(group_of(parse_spec("attention:B=1,H=2,S=8,D=4"))))
def test_a_wrong_fusion_is_refused(which: str) -> None:
    workload = parse_spec("attention:B=1,H=2,S=8,D=4")
    assert refusal(wrong_groups(group_of(workload))[which], prepared(workload)) is not None


@pytest.mark.parametrize("member", ["G", "R", "Z"])
def test_a_member_that_is_read_elsewhere_is_refused(member: str) -> None:
    workload = parse_spec("attention:B=1,H=2,S=8,D=4")
    expression = prepared(workload)
    group = group_of(workload)
    exposed = replace(expression, outputs=(*expression.outputs, member))
    assert str(refusal(group, exposed)).endswith("is read elsewhere")


def test_stages_in_another_order_are_refused() -> None:
    workload = parse_spec("attention:B=1,H=2,S=8,D=4")
    expression = prepared(workload)
    names = [stage.name for stage in expression.stages]
    maximum, total = names.index("R"), names.index("Z")
    stages = list(expression.stages)
    stages[maximum], stages[total] = stages[total], stages[maximum]
    reordered = replace(expression, stages=tuple(stages))
    assert refusal(group_of(workload), reordered) == "a member reads a later one"


# --- what is computed


def test_one_row_of_queries_has_no_vectors_of_rows() -> None:
    space = space_of(parse_spec("attention:B=1,H=1,S=1,D=16"), host_target(), 1)
    assert not any(name.endswith(":stream") for name in space.sketches)


def test_no_buffer_grows_with_the_row() -> None:
    def elements_of(points: int) -> list[int]:
        workload = parse_spec(f"attention:B=1,H=2,S={points},D=16")
        space = streamed(workload, host_target())
        return [
            sum(int(np.prod(buffer.shape)) for buffer in program.buffers)
            for program in drawn(space, 4, seed=1)
        ]

    assert elements_of(4096) == elements_of(1024)
    assert max(elements_of(4096)) < 1 << 17


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_agree_step_by_step(seed: int) -> None:
    check_random(seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 192, 24))
def test_two_hundred_random_programs_agree_step_by_step(first: int) -> None:
    for seed in range(first + 8, first + 32):
        check_random(seed)


def check_random(seed: int) -> None:
    check_interpreted(random_rows(np.random.default_rng(seed)).workload, seed)


def check_interpreted(workload: Workload, seed: int) -> None:
    inputs = make_inputs(workload.expression, seed=seed)
    with np.errstate(all="ignore"):
        want = evaluate(workload.expression, inputs)["O"]
    ordered = {tensor.name: inputs[tensor.name] for tensor in workload.expression.inputs}
    (program,) = drawn(streamed(workload, NARROW), 1, seed)
    (got,) = run(program, ordered)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=workload.notation or "")


CASES = (
    Rows(rows=37, points=53, width=20, columns=24),
    Rows(rows=37, points=53, width=20, columns=35, mask="j <= i", sharing=2),
    Rows(rows=70, points=64, width=16, columns=16, mask="j > i - 4 and j <= i + 1", cap=True),
    Rows(rows=33, points=40, mask="mask[i, j] > 0", ending="epilogue", bias=True),
    Rows(rows=33, points=40, mask="j < i", ending="unnormalised"),
    Rows(rows=20, points=90, product=False, ending="logarithm"),
    Rows(rows=34, points=21, dtype="bf16", mask="j <= i"),
    Rows(rows=34, points=21, dtype="f16", ending="division"),
)


@pytest.mark.parametrize("rows", CASES[1:4], ids=str)
def test_kernels_compute_the_program(rows: Rows) -> None:
    check_drawn(rows.workload, threads=1, configs=1)


@pytest.mark.slow
@pytest.mark.parametrize("rows", CASES, ids=str)
def test_kernels_of_every_kind_compute_the_program(rows: Rows) -> None:
    check_drawn(rows.workload, threads=1, configs=3)


@pytest.mark.slow
@pytest.mark.parametrize("rows", CASES[:3], ids=str)
def test_kernels_on_two_threads_compute_the_program(rows: Rows) -> None:
    check_drawn(rows.workload, threads=2, configs=1)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(40))
def test_kernels_of_random_programs_compute_them(seed: int) -> None:
    check_drawn(random_rows(np.random.default_rng(1000 + seed)).workload, threads=1, configs=1)


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_come_out_as_the_reference_has_them(value: float) -> None:
    workload = Rows(rows=20, points=40, product=False, columns=16).workload
    inputs = make_inputs(workload.expression, seed=1)
    inputs["S"][0, 3, 37] = value  # after many blocks of finite ones
    inputs["S"][1, 4, 0] = value
    inputs["S"][1, 5, :] = value
    with np.errstate(all="ignore"):
        want = evaluate(workload.expression, inputs)["O"]
    (program,) = drawn(streamed(workload, host_target()), 1, seed=2)
    got = output_of(program, workload.expression, inputs)
    np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)


def test_masks_of_long_rows_are_followed() -> None:
    causal = group_of(parse_spec("attention:B=1,H=2,S=8192,D=16,causal=true"))
    assert causal.live_conditions == (Binary("le", Var("j"), Var("i")),)


def test_what_does_not_fit_is_left_to_the_algorithm_that_does() -> None:
    space = space_of(parse_spec("attention:B=1,H=32,S=8192,D=64"), host_target(), 2)
    assert [name.rpartition(":")[2] for name in space.sketches] == ["stream"]
    chain = """kernel chain(A: f32[M, K], B: f32[K, N], C: f32[N, K]) -> (D: f32[M, K]) {
      H[i, j] += A[i, k] * B[k, j]
      D[i, k] += tanh(H[i, j]) * H[j, i] * C[j, k]
    }"""
    with pytest.raises(WorkloadError, match="the limit is 8 GiB"):
        workload_from_notation(chain, {"M": 1 << 16, "N": 1 << 16, "K": 8})


def test_the_default_of_long_rows_streams() -> None:
    short, long = (
        default_cpu_program(
            cpu_space(parse_spec(f"attention:B=1,H=12,S={s},D=64"), host_target(), 1)
        )
        for s in (128, 8192)
    )
    assert not short.trees and len(long.trees) == 1


@pytest.mark.parametrize(
    ("mask", "buffers"), [("keep", {"k0", "n0"}), ("add", {"k0"}), ("none", set())]
)
def test_masks_by_tensor_are_turned_block_by_block(mask: str, buffers: set[str]) -> None:
    workload = parse_spec(f"attention:B=1,H=2,S=40,SK=96,D=8,mask={mask}")
    (program,) = drawn(streamed(workload, host_target()), 1, seed=2)
    names = {buffer.name.rpartition("_")[2] for buffer in program.buffers}
    assert names & {"k0", "n0"} == buffers


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("mask", ["keep", "add"])
def test_kernels_with_masks_by_tensor_compute_the_program(mask: str, dtype: str) -> None:
    spec = f"attention:B=2,H=4,HKV=2,S=70,SK=88,D=8,DV=20,mask={mask},causal=true,dtype={dtype}"
    check_drawn(parse_spec(spec), threads=1, configs=3)
