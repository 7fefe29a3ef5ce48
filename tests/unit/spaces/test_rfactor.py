"""Reductions in parts: the same values, offered where threads would wait for one
another's points and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.support.checked_kernels import check_programs
from tests.support.random_expressions import expressions
from tests.support.spaces import shared_space
from tests.support.targets import ZEN5
from tuner.spaces.by_target import space_of
from tuner.spaces.rewrite.parallel_units import ParallelUnits, cpu_threads
from tuner.spaces.rewrite.rfactor import SUFFIX, PartLimits, rfactored
from tuner.spaces.rewrite.stages import plainly_named
from tuner.workload.expression import Binary, Expression, Stage
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec

FEW = (
    "reduce_sum:M=1,N=65536",
    "reduce_max:M=5,N=40000,dtype=float64",
    "reduce_sum:M=1,N=100003",
    "reduce_max:M=3,N=30011",
    "rms_norm:M=2,N=40009,dtype=float16",
    "matmul:M=8,N=9,K=1999",
    "reduce_mean:M=30000,N=24,axis=0",
    "reduce_sum:M=2,N=65536,dtype=int8",
    "reduce_sum:M=3,N=32768,dtype=float16",
    "softmax:M=2,N=32768,dtype=bfloat16",
    "layer_norm:M=3,N=20000",
    "log_softmax:M=1,N=50000",
    "matmul:M=1,N=1,K=48000",
    "matmul:M=8,N=9,K=2000",
    "matmul:M=7,N=8,K=1600,dtype=int8",
    "matmul:M=7,N=8,K=1600,dtype=bfloat16",
    "global_avg_pool2d:N=1,H=60,W=60,C=24",
    "conv2d:N=1,H=3,W=3,CI=160,CO=24,KH=3,KW=3,pad=1",
)
MANY = (
    "reduce_sum:M=16,N=65536",  # rows enough
    "matmul:M=64,N=64,K=65536",  # tiles enough
    "reduce_sum:M=1,N=4096",  # too short
    "matmul:M=16,N=16,K=512",  # parts would be
    "elementwise:M=1,N=100000,act=relu",
)


def sketches(spec: str, threads: int) -> list[str]:
    return [
        sketch.name
        for sketch in shared_space(spec, ZEN5, threads).space.combinations
        if SUFFIX in sketch.name
    ]


@pytest.mark.parametrize("spec", FEW)
@pytest.mark.parametrize("configs", [1, pytest.param(4, marks=pytest.mark.slow)])
def test_kernels_in_parts_compute_the_same(spec: str, configs: int) -> None:
    workload = parse_spec(spec)
    space = space_of(workload, ZEN5, threads=2)
    points = space.space.sample(np.random.default_rng(3), 400)
    names = np.array([SUFFIX in str(space.space.config(point)["sketch"]) for point in points])
    assert names.any()
    chosen = [space.space.config(point) for point in points[names][:configs]]
    check_programs(workload, map(space.program, chosen))


@pytest.mark.parametrize("spec", MANY)
def test_they_are_not_offered_where_threads_have_points_enough_or_parts_are_short(
    spec: str,
) -> None:
    assert sketches(spec, 2) == []


def test_one_thread_shares_nothing_and_more_share_more_rows() -> None:
    rows = "reduce_sum:M=16,N=65536"
    assert sketches(FEW[0], 1) == [] and "Yprf:rows+Yrf:rows" in sketches(FEW[0], 2)
    assert sketches(rows, 2) == [] and sketches(rows, 8) != []


def test_parts_are_a_few_for_each_thread_and_of_one_length() -> None:
    parts, combined = _in_parts(parse_spec("reduce_sum:M=1,N=90000").expression, 3)
    (part,) = combined.reduce_axes
    assert part.extent == 24 and parts.extents == {"p": 24, "i": 1, "j": 3750}


def test_what_parts_of_one_length_leave_is_reduced_by_itself() -> None:
    parts, combined, left, both = _in_parts(parse_spec("reduce_max:M=1,N=90001").expression, 3)
    assert (parts.extents, combined.extents) == ({"p": 24, "i": 1, "j": 3750}, {"i": 1, "p": 24})
    assert (
        left.extents == {"i": 1, "j": 1}
        and both.reducer is None
        and isinstance(both.body, Binary)
        and both.body.op == "max"
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_parts_are_kept_in_the_accumulator_s_dtype(dtype: str) -> None:
    parts, combined = _in_parts(parse_spec(f"reduce_sum:M=1,N=65536,dtype={dtype}").expression, 2)
    assert (parts.dtype, combined.dtype, combined.accumulator) == ("float32", dtype, "float32")


@settings(max_examples=100, deadline=None)
@given(expressions(), st.integers(2, 3), st.sampled_from([1, 4]))
def test_any_expression_in_parts_is_itself(expression: Expression, threads: int, most: int) -> None:
    plain = plainly_named(expression)
    units = ParallelUnits(
        count=threads, tasks_per_unit=64, points_per_tile=64, min_terms_per_unit=0
    )
    limits = PartLimits(min_parts=2, max_parts_factor=most, min_terms_per_part=1)
    in_parts = rfactored(plain, units, limits)
    assume(in_parts is not None)
    assert in_parts is not None
    inputs = make_inputs(plain, seed=2)
    with np.errstate(all="ignore"):
        want, magnitude = evaluate_with_magnitude(plain, inputs)
        got = evaluate_with_magnitude(in_parts, inputs)[0]
    results = {
        name: got[other] for name, other in zip(plain.outputs, in_parts.outputs, strict=True)
    }
    expected = {name: want[name] for name in plain.outputs}
    assert max_rel_error(plain, results, expected, magnitude) <= error_bound(plain)


def _in_parts(expression: Expression, threads: int) -> tuple[Stage, ...]:
    in_parts = rfactored(plainly_named(expression), cpu_threads(threads))
    assert in_parts is not None
    return in_parts.stages
