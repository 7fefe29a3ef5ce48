"""Single rows that stream by in parts: where they are offered, and that they are right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.checked_kernels import output_of
from tests.support.program_interpreter import run
from tests.support.programs import NARROW
from tests.support.rows import MASKS, Rows, random_rows
from tests.support.targets import host_target
from tuner.spaces.by_target import space_of
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.program.loop_tree import Loop, LoopKind
from tuner.spaces.program.program import Program
from tuner.target.target import Target
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import (
    error_bound,
    evaluate,
    evaluate_with_magnitude,
    max_rel_error,
)
from tuner.workload.spec import parse_spec
from tuner.workload.workload import Workload


def split(workload: Workload, target: Target, threads: int = 1) -> TargetSpace[object]:
    """The space, in which one combination splits rows."""
    space = space_of(workload, target, threads)
    assert sum(name.endswith(":split") for name in space.sketches) == 1
    return space


def drawn(space: TargetSpace[object], count: int, seed: int) -> list[Program]:
    """Programs of random points of the combination that splits rows."""
    number = next(n for n, name in enumerate(space.sketches) if name.endswith(":split"))
    rng = np.random.default_rng(seed)
    points = np.zeros((count, len(space.space.knobs)), np.int32)
    points[:, 0] = number
    for column in space.space.columns[number]:
        points[:, column] = rng.integers(space.space.cardinalities[column], size=count)
    return [space.program(space.space.config(point)) for point in points]


def check_interpreted(workload: Workload, seed: int, threads: int = 1) -> None:
    """Step by step against the reference."""
    inputs = make_inputs(workload.expression, seed=seed)
    with np.errstate(all="ignore"):
        want = evaluate(workload.expression, inputs)["O"]
    ordered = {tensor.name: inputs[tensor.name] for tensor in workload.expression.inputs}
    (program,) = drawn(split(workload, NARROW, threads), 1, seed)
    (got,) = run(program, ordered)
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-12, err_msg=workload.notation or "")


def check_compiled(workload: Workload, threads: int, configs: int) -> None:
    """Kernels of this machine against the reference; what is no number must be none in both."""
    inputs = make_inputs(workload.expression, seed=3)
    with np.errstate(all="ignore"):
        want, magnitude = evaluate_with_magnitude(workload.expression, inputs)
    (name,) = workload.expression.outputs
    numbers = ~np.isnan(want[name])
    for program in drawn(split(workload, host_target(), threads), configs, seed=7):
        got = output_of(program, workload.expression, inputs)
        np.testing.assert_array_equal(~np.isnan(got.astype(np.float64)), numbers)
        actual, expected, size = (
            {name: np.where(numbers, values, 0)} for values in (got, want[name], magnitude[name])
        )
        assert max_rel_error(workload.expression, actual, expected, size) <= error_bound(
            workload.expression
        )


@pytest.mark.parametrize("spec", ["H=12", "H=12,HKV=4", "H=1,HKV=1"])
def test_one_query_before_a_cache_is_split_over_threads(spec: str) -> None:
    workload = parse_spec(f"attention:B=1,{spec},S=1,SK=4096,D=64")
    space = split(workload, host_target(), threads=4)
    tasks = set()
    for program in drawn(space, 24, seed=1):
        (tree,) = program.trees
        parallel = [
            loop for loop in tree.body if isinstance(loop, Loop) and loop.kind is LoopKind.PARALLEL
        ]
        tasks |= {loop.extent for loop in parallel}
    rows = int(spec.partition(",")[0].removeprefix("H="))
    assert max(tasks) >= max(rows, 4) and all(count % rows == 0 for count in tasks)


def test_many_rows_of_the_same_columns_are_not_split() -> None:
    space = space_of(parse_spec("attention:B=1,H=2,S=64,D=16"), host_target(), 2)
    assert not any(name.endswith(":split") for name in space.sketches)


def single_rows(seed: int) -> Rows:
    rng = np.random.default_rng(seed)
    rows = random_rows(rng)
    return replace(
        rows,
        rows=int(rng.integers(1, 4)),
        width=int(rng.choice([rows.width, 4, 8, 12])),
        columns=int(rng.choice([rows.columns, 8, 12])),
        points=rows.points,
    )


@pytest.mark.parametrize("seed", range(8))
def test_random_programs_agree_step_by_step(seed: int) -> None:
    check_interpreted(single_rows(seed).workload, seed)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 100, 20))
def test_a_hundred_random_programs_agree_step_by_step(first: int) -> None:
    for seed in range(first + 8, first + 28):
        check_interpreted(single_rows(seed).workload, seed)


@pytest.mark.parametrize("mask", ["", "j <= i + 100", "j > i + 70"])
def test_parts_of_rows_agree_step_by_step(mask: str) -> None:
    """Blocks of 64 and what is left, which parts share unequally."""
    rows = Rows(rows=1, points=3 * 64 + 5, width=4, columns=4, heads=1, mask=mask)
    for seed in range(3):
        check_interpreted(rows.workload, seed, threads=3)


CASES = (
    Rows(rows=1, points=1100, width=64, columns=64),
    Rows(rows=1, points=700, width=32, columns=48, sharing=3, cap=True, bias=True),
    Rows(rows=1, points=333, width=20, columns=24, mask="mask[i, j] > 0", ending="epilogue"),
    Rows(rows=2, points=300, width=16, columns=16, mask="j <= i + 290", ending="division"),
    Rows(rows=1, points=300, product=False, ending="logarithm", columns=16),
    Rows(rows=1, points=300, width=32, columns=32, dtype="bf16"),
    Rows(rows=1, points=300, width=32, columns=32, dtype="f16", ending="unnormalised"),
)


@pytest.mark.parametrize("rows", CASES[:1], ids=str)
def test_kernels_compute_the_program(rows: Rows) -> None:
    check_compiled(rows.workload, threads=2, configs=1)


@pytest.mark.slow
@pytest.mark.parametrize("rows", CASES, ids=str)
@pytest.mark.parametrize("threads", [1, 2])
def test_kernels_of_every_kind_compute_the_program(rows: Rows, threads: int) -> None:
    check_compiled(rows.workload, threads, configs=3)


@pytest.mark.slow
@pytest.mark.parametrize("mask", MASKS)
def test_kernels_with_masks_compute_the_program(mask: str) -> None:
    rows = Rows(rows=1, points=300, width=16, columns=16, mask=mask, sharing=2)
    check_compiled(rows.workload, threads=2, configs=2)


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_come_out_as_the_reference_has_them(value: float) -> None:
    workload = Rows(rows=2, points=200, product=False, columns=16).workload
    inputs = make_inputs(workload.expression, seed=1)
    inputs["S"][0, 1, 170] = value  # after blocks of finite ones
    inputs["S"][1, 0, :] = value
    with np.errstate(all="ignore"):
        want = evaluate(workload.expression, inputs)["O"]
    for program in drawn(split(workload, host_target(), 2), 2, seed=2):
        got = output_of(program, workload.expression, inputs)
        np.testing.assert_allclose(got, want, rtol=2e-4, atol=1e-5)
