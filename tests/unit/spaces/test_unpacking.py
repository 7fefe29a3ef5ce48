"""Sums of products with fields of bytes: each field a term, groups' scales outside of sums."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.avx2 import AVX2, runs_avx2
from tests.support.checked_kernels import output_of
from tests.support.depth import thinned
from tests.support.targets import GOLDEN_COVE, NEOVERSE, host_target
from tuner.lowering.compiler import compile_program
from tuner.spaces.by_target import space_of
from tuner.spaces.rewrite.algorithm import fewest_flops
from tuner.spaces.rewrite.unpacking import unpacked_sum
from tuner.target.target import Target
from tuner.workload.expression import Binary, Cast, Read, Stage
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import workload_from_notation
from tuner.workload.special_values import undecided
from tuner.workload.workload import Workload

# Fields that a term of the sum reads, with what their bytes are.
BLOCKS = (
    "kernel q(X: f32[M, 32*B], W: u8[N, B, 16], D: f16[N, B]) -> (Y: f32[M, N]) { "
    "Y[m, n] += X[m, 32*b + 16*h + j] * f32(D[n, b]) * "
    "(f32(where(h == 0, W[n, b, j] % 16, W[n, b, j] // 16)) - 8) "
    "for b in 0:B, h in 0:2, j in 0:16 }"
)
ZERO_POINTS = (
    "kernel z(X: f32[M, 32*B], W: u8[N, B, 16], D: f32[N, B], Z: u8[N, B]) -> (Y: f32[M, N]) { "
    "Y[m, n] += X[m, 32*b + 16*h + j] * D[n, b] * "
    "(f32(bitand(shr(W[n, b, j], i32(4*h)), 15)) - f32(Z[n, b])) "
    "for b in 0:B, h in 0:2, j in 0:16 }"
)
LEAST = (
    "kernel l(X: f32[M, 40*B], W: u8[N, B, 20], D: f16[N, B], S: f16[N, B]) -> (Y: f32[M, N]) { "
    "Y[m, n] += X[m, 40*b + 20*h + j] * (f32(D[n, b]) * "
    "f32(bitand(shr(W[n, b, j], i32(4*h)), 15)) + f32(S[n, b])) for b in 0:B, h in 0:2, j in 0:20 }"
)
QUARTERS = (
    "kernel t(X: f32[M, 64*B], W: u8[N, B, 16], D: f32[N, B]) -> (Y: f32[M, N]) { "
    "Y[m, n] += X[m, 64*b + 4*j + h] * D[n, b] * "
    "f32(bitand(shr(W[n, b, j], i32(2*h)), 3) - 1) for b in 0:B, h in 0:4, j in 0:16 }"
)
WHOLE_BYTES = (
    "kernel w(X: f32[M, 32*B], W: i8[N, B, 32], D: f16[N, B]) -> (Y: f32[M, N]) { "
    "Y[m, n] += X[m, 32*b + j] * f32(D[n, b]) * f32(W[n, b, j]) for b in 0:B, j in 0:32 }"
)
UNSCALED = (
    "kernel u(X: f32[M, 32*B], W: u8[N, 16*B]) -> (Y: f32[M, N]) { "
    "Y[m, n] += X[m, 16*B*h + j] * (f32(where(h == 1, W[n, j] // 16, W[n, j] % 16)) - 8) "
    "for h in 0:2, j in 0:16*B }"
)
PROGRAMS = (BLOCKS, ZERO_POINTS, QUARTERS, LEAST, WHOLE_BYTES, UNSCALED)
IDS = ("blocks", "zero points", "quarters", "least", "whole bytes", "unscaled")


def workload_of(text: str, rows: int = 1, units: int = 13, groups: int = 8) -> Workload:
    return workload_from_notation(text, {"M": rows, "N": units, "B": groups})


def taken_apart(text: str, rows: int = 2) -> Stage | None:
    expression = workload_of(text, rows).expression
    dtypes = {tensor.name: tensor.dtype for tensor in expression.inputs}
    (stage,) = expression.stages
    apart = unpacked_sum(stage, expression.shapes, dtypes)
    return None if apart is None else apart.stage


IN_DIVISIONS = (
    "kernel d(X: f32[M, 32*B], W: u8[N, B, 16], D: f16[N, B]) -> (Y: f32[M, N]) { "
    "Y[m, n] += X[m, k] * f32(D[n, k // 32]) * "
    "(f32(bitand(shr(W[n, k // 32, k % 16], i32(4*(k % 32 // 16))), 15)) - 8) }"
)
IN_GROUPS = (
    "kernel g(X: f32[M, 32*B], W: i8[N, 32*B], D: f32[N, B]) -> (Y: f32[M, N]) { "
    "Y[m, n] += X[m, k] * D[n, k // 32] * f32(W[n, k]) }"
)
PAIRS = (
    "kernel p(X: f32[M, 32*B], W: u8[N, 16*B], D: f32[N, B]) -> (Y: f32[M, N]) { "
    "Y[m, n] += X[m, k] * D[n, k // 32] * f32(bitand(shr(W[n, k // 2], i32(4*(k % 2))), 15)) }"
)
DIVIDED = (IN_DIVISIONS, IN_GROUPS, PAIRS)


@pytest.mark.parametrize("text", DIVIDED)
def test_divisions_name_fields_and_groups_where_a_byte_is_met_once(text: str) -> None:
    stage = taken_apart(text, rows=1)
    assert stage is not None
    assert {axis.extent for axis in stage.reduce_axes} == {8, 32 if text == IN_GROUPS else 16}
    assert taken_apart(text, rows=2) is None


def sketch_of(workload: Workload, target: Target) -> Any:
    return space_of(workload, target, threads=1), {"sketch": "Y:unpacked"}


@pytest.mark.parametrize("text", PROGRAMS, ids=IDS)
def test_fields_are_terms_and_scales_outside(text: str) -> None:
    stage = taken_apart(text)
    assert stage is not None
    assert "h" not in {axis.name for axis in stage.reduce_axes}
    if text == BLOCKS:
        match stage.body:
            case Binary(op="mul", lhs=Cast(arg=Read(tensor="D")), rhs=Binary(op="add")):
                return
        pytest.fail(str(stage.body))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("u8[N, B, 16]", "i16[N, B, 16]", "no bytes"),
        ("Y[m, n] +=", "Y[m, n] max=", "no sum"),
    ],
)
def test_other_sums_stay(old: str, new: str, why: str) -> None:
    assert old in BLOCKS
    assert taken_apart(BLOCKS.replace(old, new)) is None, why


def test_a_scale_of_a_row_alone_is_none_of_groups() -> None:
    assert taken_apart(WHOLE_BYTES.replace("D[n, b])", "D[n, 0])")) is None


def check(workload: Workload, target: Target, *, special: bool = False) -> None:
    """`special`: whether a row has a scale of infinity."""
    expression = workload.expression
    inputs = make_inputs(expression, seed=4)
    if special:
        inputs["D"][3, 2] = np.inf
    stored = inputs["W"].dtype
    drawn = np.random.default_rng(5).integers(0, 256, inputs["W"].shape)
    inputs["W"] = drawn.astype(np.uint8).view(stored)
    with np.errstate(all="ignore"):
        want, magnitude = evaluate_with_magnitude(expression, inputs)
    space, config = sketch_of(workload, target)
    got = {"Y": output_of(space.program(config), expression, inputs, target)}
    free = undecided(expression, want["Y"])
    for values in (got, want, magnitude):
        values["Y"] = np.where(free, 0, values["Y"])
    assert not free.all() and free.any() == special
    assert max_rel_error(expression, got, want, magnitude) <= error_bound(expression)


@pytest.mark.parametrize("text", thinned((*PROGRAMS, *DIVIDED), 4, pytest.mark.slow))
def test_sums_of_fields_are_right(text: str) -> None:
    check(workload_of(text), host_target())


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("groups", [1, 7, 12, 32])
@pytest.mark.parametrize("text", PROGRAMS, ids=IDS)
def test_sums_of_any_shape_are_right(text: str, groups: int, rows: int) -> None:
    check(workload_of(text, rows, 3 + groups, groups), host_target())


def test_what_special_values_leave_finite_is_right() -> None:
    """A scale of infinity makes one of a group's sum that its terms would not have made."""
    check(workload_of(BLOCKS), host_target(), special=True)


@runs_avx2
@pytest.mark.slow
@pytest.mark.parametrize("text", PROGRAMS, ids=IDS)
def test_sums_in_shorter_vectors_are_right(text: str) -> None:
    check(workload_of(text), AVX2)


@pytest.mark.parametrize(
    ("target", "expected"),
    [(GOLDEN_COVE, ("vpmovzxbd", "vcvtdq2ps", "vfmadd")), (NEOVERSE, ("ushll", "ucvtf", "fmla"))],
    ids=["x86-64", "aarch64"],
)
def test_bytes_are_widened_in_vectors(target: Target, expected: tuple[str, ...]) -> None:
    space, config = sketch_of(workload_of(BLOCKS, units=64, groups=32), target)
    assembly = compile_program(space.program(config), target, "kernel").sources["asm"]
    assert all(instruction in assembly for instruction in expected)


def test_operations_are_counted_as_needed() -> None:
    """A time is judged by them: two for each product, however it is stated."""
    workload = workload_of(ZERO_POINTS)
    assert fewest_flops(workload, GOLDEN_COVE) == 2 * 13 * 8 * 32 < workload.expression.flops
