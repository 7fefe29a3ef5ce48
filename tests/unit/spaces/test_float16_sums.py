"""Parts of reductions summed in float16: where they are offered, how long they are, and that
they are within the numerics that admits them."""

from __future__ import annotations

from math import prod

import numpy as np
import pytest

from tests.support.checked_kernels import output_of
from tests.support.targets import GOLDEN_COVE, host_target
from tuner.spaces.by_target import cpu_space
from tuner.spaces.cpu.float16_sums import MOST_TERMS
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.target.architectures.table import isa_of
from tuner.target.detect import parse_target
from tuner.target.target import Target
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

PRODUCT = "matmul:M=32,N=64,K=256,dtype=float16,numerics=tensor"
CORE = parse_target("cpu:neoverse-n1")
STORED_WIDE = (
    "kernel p(A: f16[32, 256], B: f16[256, 64]) -> (C: f32[32, 64]) "
    "{ C[i, j] += f32(A[i, k]) * f32(B[k, j]) }"
)


def offered(made: Workload, target: Target = CORE) -> list[TileSketch]:
    every = (sketch for parts in cpu_space(made, target, 1).sketches.values() for sketch in parts)
    return [
        sketch
        for sketch in every
        if isinstance(sketch, TileSketch) and sketch.name.startswith("float16_")
    ]


@pytest.mark.parametrize(
    ("spec", "target"),
    [
        (PRODUCT, CORE),
        (PRODUCT, GOLDEN_COVE),
        ("conv2d:N=1,H=8,W=8,CI=32,CO=64,KH=3,KW=3,dtype=float16,numerics=tensor", CORE),
    ],
)
def test_they_are_offered_where_numerics_and_core_have_them(spec: str, target: Target) -> None:
    assert offered(parse_spec(spec), target)


@pytest.mark.parametrize(
    ("spec", "target"),
    [
        (PRODUCT.replace("tensor", "strict"), CORE),
        (PRODUCT.replace("tensor", "fast"), CORE),
        (PRODUCT.replace("float16", "float32"), CORE),
        (PRODUCT, parse_target("cpu:cortex-a72")),  # which has no arithmetic of float16
        (PRODUCT.replace("K=256", "K=16"), CORE),  # one part is no sum of parts
        (PRODUCT.replace("M=32,N=64", "M=6,N=6"), CORE),  # no whole vector
        ("conv2d:N=1,H=9,W=9,CI=8,CO=64,KH=5,KW=5,dtype=float16,numerics=tensor", CORE),
    ],
)
def test_they_are_not_offered_elsewhere(spec: str, target: Target) -> None:
    assert not offered(parse_spec(spec), target)


def test_what_is_stored_in_float32_may_be_beyond_the_range_of_float16() -> None:
    assert not offered(workload_from_notation(STORED_WIDE, {}, numerics="tensor"))


@pytest.mark.parametrize(
    ("spec", "terms"),
    [
        (PRODUCT, 16),
        (PRODUCT.replace("K=256", "K=60"), 15),  # a divisor
        (PRODUCT.replace("K=256", "K=37"), 16),  # zeros beyond the end
        ("conv2d:N=1,H=8,W=8,CI=32,CO=64,KH=3,KW=3,dtype=float16,numerics=tensor", 9),
    ],
)
def test_a_part_has_few_terms(spec: str, terms: int) -> None:
    (sketch,) = offered(parse_spec(spec))
    stage = sketch.stage
    reduction = stage.group.anchor.reduce_axes
    within = [axis.extent for axis in reduction if axis.name != stage.instruction.groups]
    assert prod(within) == terms <= MOST_TERMS
    assert stage.lanes == 8


def test_they_are_within_their_numerics_here() -> None:
    target = host_target()
    if not isa_of(target).native_float16:
        pytest.skip("this machine has no arithmetic of float16")
    made = parse_spec("matmul:M=9,N=64,K=96,dtype=float16,numerics=tensor")
    space = cpu_space(made, target, 1)
    inputs = make_inputs(made.expression, seed=4)
    want, magnitude = evaluate_with_magnitude(made.expression, inputs)
    points = space.space.sample(np.random.default_rng(3), 40)
    configs = [space.space.config(point) for point in points]
    chosen = [config for config in configs if ":float16_" in str(config["sketch"])][:2]
    assert chosen
    for config in chosen:
        got = {"C": output_of(space.program(config), made.expression, inputs)}
        error = max_rel_error(made.expression, got, want, magnitude)
        assert error <= error_bound(made.expression, "tensor")
