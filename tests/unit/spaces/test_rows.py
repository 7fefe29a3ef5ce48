"""Row sketches: divisions by one number a row are products with its reciprocal, inputs
of rows to come are fetched ahead."""

from __future__ import annotations

import numpy as np
import pytest
import tvm

from tests.support.checked_kernels import check_kernels
from tests.support.spaces import shared_space
from tests.support.targets import ZEN5, host_target
from tuner.lowering.compiler import build
from tuner.lowering.schedule import schedule
from tuner.spaces.by_target import space_of
from tuner.spaces.rewrite.groups import RowGroup
from tuner.workload.spec import workload_from_notation

ROWS, COLUMNS = 9, 53
BY_LARGEST = f"""
kernel k(X: f32[{ROWS}, {COLUMNS}]) -> (Y: f32[{ROWS}, {COLUMNS}]) {{
  S[i] max= X[i, j]
  Y[i, j] = X[i, j] / S[i]
}}"""


def test_divisors_of_rows_may_be_any_number() -> None:
    space = space_of(workload_from_notation(BY_LARGEST, {}), host_target(), 1)
    points = np.unique(space.space.sample(np.random.default_rng(0), 40), axis=0)[:6]
    x = np.random.default_rng(1).uniform(0.1, 1.0, (ROWS, COLUMNS)).astype(np.float32)
    x *= np.array([2.0**exponent for exponent in (-140, -127, -100, -64, 0, 64, 100, 127)] + [0.0])[
        :, None
    ].astype(np.float32)
    x[7, 5] = np.inf
    with np.errstate(invalid="ignore"):
        want = x / x.max(axis=1, keepdims=True)
    for point in points:
        program = space.program(space.space.config(point))
        assert any(block.name.endswith("_scale") for block in program.blocks)
        out = tvm.runtime.tensor(np.full(x.shape, np.nan, np.float32))
        build(schedule(program, "k").mod, host_target())["k"](tvm.runtime.tensor(x), out)
        np.testing.assert_allclose(out.numpy(), want, rtol=2.0**-22)


@pytest.mark.parametrize(
    ("spec", "chosen"), [("softmax:M=8,N=64", True), ("layer_norm:M=8,N=64", False)]
)
def test_polynomials_are_a_choice_where_a_function_has_one(spec: str, chosen: bool) -> None:
    """A square root has an instruction: two configs would compile to the same code."""
    (sketch,) = shared_space(spec, ZEN5).space.combinations
    assert any(knob.name.endswith("mathematics") for knob in sketch.knobs) == chosen


def test_a_divisor_that_varies_in_a_row_stays_one() -> None:
    text = BY_LARGEST.replace("/ S[i]", "/ (j < 20 ? S[i] : 2)")
    space = space_of(workload_from_notation(text, {}), host_target(), 1)
    x = np.random.default_rng(1).uniform(0.1, 1.0, (ROWS, COLUMNS)).astype(np.float32)
    want = x / np.where(np.arange(COLUMNS) < 20, x.max(axis=1, keepdims=True), np.float32(2))
    for point in np.unique(space.space.sample(np.random.default_rng(0), 40), axis=0)[:4]:
        program = space.program(space.space.config(point))
        assert not any("_divisor" in block.name for block in program.blocks)
        out = tvm.runtime.tensor(np.full(x.shape, np.nan, np.float32))
        build(schedule(program, "k").mod, host_target())["k"](tvm.runtime.tensor(x), out)
        np.testing.assert_allclose(out.numpy(), want, rtol=2.0**-22)


@pytest.mark.parametrize(
    ("spec", "fetched"),
    [
        ("softmax:M=9,N=53", {"X"}),
        ("layer_norm:M=9,N=53", {"X"}),  # gamma and beta are the same for all rows
        ("softmax:M=1,N=53", set()),  # no rows to come
        ("reduce_sum:M=37,N=61,axis=1", set()),  # one pass, for which memory never idles
        ("softmax:M=9,N=53,dtype=bfloat16", set()),
    ],
)
def test_what_rows_to_come_read_is_fetched_where_a_later_pass_has_the_time(
    spec: str, fetched: set[str]
) -> None:
    space = shared_space(spec, ZEN5)
    tensors: set[str] = set()
    for point in np.unique(space.space.sample(np.random.default_rng(0), 200), axis=0):
        config = space.space.config(point)
        ahead = [value for name, value in config.items() if name.endswith(".ahead")]
        program = space.program(config)
        reads = {line.read.tensor for block in program.blocks for line in block.prefetches}
        assert bool(reads) == any(ahead)
        if reads and not tensors:
            assert "llvm.prefetch" in str(schedule(program, "k").mod.script())
        tensors |= reads
    assert tensors == fetched


def test_a_stage_is_of_one_group_alone() -> None:
    """With as many values as keys the last stage is both rows of the sums and what
    follows the product."""
    text = """kernel attend(P: f32[16, 16], V: f32[16, 16]) -> (Y: f32[16, 16]) {
      X[i, j] = exp(P[i, j])
      Z[i] += X[i, j]
      U[i, e] += X[i, j] * V[j, e]
      Y[i, e] = U[i, e] / Z[i]
    }"""
    workload = workload_from_notation(text, {})
    assert len(space_of(workload, ZEN5, 1).algorithm.groups) > 1
    check_kernels(workload, configs=4)


BESIDE = """kernel norm(G: f32[9, 53], X: f32[9, 53], M: f32[9]) -> (Y: f32[9, 53]) {
  S[i] += G[i, j]
  T[i] += G[i, j] * (X[i, j] - M[i])
  Y[i, j] = G[i, j] - S[i] * 0.5 - (X[i, j] - M[i]) * T[i]
}"""


def stages_of_groups(text: str) -> list[list[str]]:
    groups = space_of(workload_from_notation(text, {}), ZEN5, 1).algorithm.groups
    return [
        [stage.name for stage in group.stages] if isinstance(group, RowGroup) else [group.name]
        for group in groups
    ]


def test_sums_of_a_row_that_one_stage_reads_are_one_group() -> None:
    assert stages_of_groups(BESIDE) == [["S", "T", "Y"]]
    check_kernels(workload_from_notation(BESIDE, {}), configs=4)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("* T[i]\n}", "* (T[i] + S[j % 9])\n}"),  # of other rows too
        ("G[i, j] * (X[i, j] - M[i])\n", "G[i, j] * X[j % 9, j]\n"),  # along other rows
        ("G[i, j] * (X[i, j] - M[i])\n", "X[i, j] for j in 0:52\n"),  # along fewer columns
    ],
)
def test_other_sums_are_groups_of_their_own(old: str, new: str) -> None:
    text = BESIDE.replace(old, new)
    assert text != BESIDE and len(stages_of_groups(text)) > 1
    check_kernels(workload_from_notation(text, {}), configs=2)


def test_a_sum_that_is_a_result_is_a_group_of_its_own() -> None:
    text = BESIDE.replace("-> (", "-> (T: f32[9], ")
    assert stages_of_groups(text) == [["T"], ["S", "Y"]]
