"""Rows that stream by with both products in matrix registers: where offered, and right."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.support.checked_kernels import output_of
from tests.support.targets import GOLDEN_COVE, host_target
from tuner.spaces.by_target import space_of
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.program.program import Program
from tuner.target.target import Target
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec

SPECS = (
    "attention:B=1,H=2,S=64,D=64,dtype=bfloat16",
    "attention:B=2,H=4,HKV=2,S=130,D=32,dtype=bfloat16",  # a block that begins earlier
    "attention:B=1,H=2,S=70,D=64,dtype=bfloat16,causal=true",
    "attention:B=1,H=2,S=100,D=96,window=20,softcap=20,dtype=bfloat16,causal=true",
)


@cache
def space(spec: str, threads: int = 1) -> TargetSpace[object]:
    return space_of(parse_spec(spec), GOLDEN_COVE, threads)


def kinds(spec: str) -> list[str]:
    return [name for name in space(spec).sketches if name.endswith(":stream_amx")]


def program(spec: str, seed: int, threads: int = 1) -> Program:
    """Of a random config."""
    made = space(spec, threads)
    (name,) = kinds(spec)
    number = list(made.sketches).index(name)
    point = np.zeros((1, len(made.space.knobs)), np.int32)
    point[:, 0] = number
    rng = np.random.default_rng(seed)
    for column in made.space.columns[number]:
        point[:, column] = rng.integers(made.space.cardinalities[column])
    return made.program(made.space.config(made.space.canonical(point)[0]))


def without_matrices(target: Target) -> Target:
    """The target as one that has no matrix registers; loops then stay loops."""
    return replace(target, isa=tuple(name for name in target.isa if not name.startswith("amx")))


@pytest.mark.parametrize("spec", SPECS)
def test_attention_of_bfloat16_is_offered_in_matrix_registers(spec: str) -> None:
    assert len(kinds(spec)) == 1


@pytest.mark.parametrize(
    "spec",
    [
        "attention:B=1,H=2,S=64,D=64",  # of float32
        "attention:B=1,H=2,S=64,D=48,dtype=bfloat16",  # half of what an instruction adds
        "attention:B=1,H=2,S=63,D=64,dtype=bfloat16",  # no pairs of points
        "attention:B=1,H=2,S=16,D=64,dtype=bfloat16",
        "attention:B=1,H=2,S=1,SK=64,D=64,dtype=bfloat16",  # no rows for a register's lanes
    ],
)
def test_what_does_not_fill_matrix_registers_is_left_to_vectors(spec: str) -> None:
    assert not kinds(spec)


def check(spec: str, target: Target, *, seed: int, threads: int = 1) -> None:
    workload = parse_spec(spec)
    inputs = make_inputs(workload.expression, seed=3)
    want, magnitude = evaluate_with_magnitude(workload.expression, inputs)
    (name,) = workload.expression.outputs
    got = {name: output_of(program(spec, seed, threads), workload.expression, inputs, target)}
    bound = error_bound(workload.expression)
    assert max_rel_error(workload.expression, got, want, magnitude) <= bound


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS[1:3])
def test_the_loops_that_instructions_replace_compute_the_program(spec: str) -> None:
    check(spec, without_matrices(host_target()), seed=1)


def needs_matrices() -> None:
    if "amx-bf16" not in host_target().isa:
        pytest.skip("this CPU has no matrix registers for bfloat16")


@pytest.mark.parametrize("spec", SPECS[2:3])
def test_instructions_compute_the_program(spec: str) -> None:
    needs_matrices()
    check(spec, host_target(), seed=2)


@pytest.mark.long
@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("threads", [1, 2])
def test_instructions_of_every_kind_compute_the_program(spec: str, threads: int) -> None:
    needs_matrices()
    for seed in range(3):
        check(spec, host_target(), seed=seed, threads=threads)


@pytest.mark.slow
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_special_values_spoil_only_the_columns_that_have_them(value: float) -> None:
    """An infinity times what is left of an exponential, which may be zero, is no number."""
    needs_matrices()
    spec = SPECS[0]
    workload = parse_spec(spec)
    inputs = make_inputs(workload.expression, seed=1)
    inputs["V"][0, 1, 37, 5] = value
    with np.errstate(all="ignore"):
        want, _ = evaluate_with_magnitude(workload.expression, inputs)
    (name,) = workload.expression.outputs
    got = output_of(program(spec, 0), workload.expression, inputs, host_target())
    np.testing.assert_allclose(got.astype(np.float64), want[name], rtol=2e-2, atol=2e-2)
