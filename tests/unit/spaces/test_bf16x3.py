"""Products of float32 as three of bfloat16: the sum but for 2^-15 of its terms' sizes,
offered where that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tvm.runtime import tensor

from tests.support.amx import NEEDS_AMX, TARGET
from tests.support.program_interpreter import run
from tests.support.spaces import shared_space
from tuner.cost_model.features import featurizer
from tuner.lowering.compiler import build, compile_kernel
from tuner.lowering.passes.amx import use_amx_tiles
from tuner.lowering.schedule import replay, schedule
from tuner.spaces.by_target import cpu_space
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.rewrite.algorithm import fewest_flops
from tuner.spaces.rewrite.bf16x3 import SUFFIX, bf16x3
from tuner.spaces.rewrite.stages import plainly_named
from tuner.target.architectures.table import isa_of
from tuner.workload.expression import Expression
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

LOST = 2.0**-15  # of the size of each term
SUMS = 2.0**-24 * 40  # the same by float32's own rounding of sums of up to a few hundred terms
PRODUCT = "matmul:M=18,N=20,K=37"
LINEAR = (
    PRODUCT,
    "matmul:M=17,N=5,K=40,transpose_a=true,transpose_b=true",
    "batch_matmul:B=2,M=6,N=7,K=34",
    "conv2d:N=1,H=5,W=6,CI=3,CO=17,KH=3,KW=3,stride=2,pad=1",
    "conv2d:N=1,H=5,W=6,CI=4,CO=6,KH=3,KW=2,layout=NCHW,pad=1",
)
GRAM = "kernel gram(A: f32[9, 33]) -> (G: f32[9, 9]) { G[i, j] += A[i, k] * A[j, k] }"

Array = NDArray[np.float64]


def size(expression: Expression, inputs: dict[str, NDArray[np.generic]]) -> Array:
    """The sum of the sizes of the terms of each element of a linear expression's output."""
    evaluated = evaluate(expression, {name: np.abs(array) for name, array in inputs.items()})
    return evaluated[expression.outputs[0]].astype(np.float64)


@pytest.mark.parametrize(
    "workload", [*map(parse_spec, LINEAR), workload_from_notation(GRAM, {})], ids=[*LINEAR, "gram"]
)
def test_the_rewritten_stages_lose_what_is_left_out_and_no_more(workload: Workload) -> None:
    expression = plainly_named(workload.expression)
    rewritten = bf16x3(expression)
    assert rewritten is not None
    inputs = make_inputs(expression, seed=1, kind="normal")
    want, got = (evaluate(each, inputs)[each.outputs[0]] for each in (expression, rewritten))
    error = np.abs(got - want) / size(expression, inputs)
    assert 0 < error.max() <= LOST


@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=9,N=8,K=7,dtype=float16",
        "matmul:M=9,N=8,K=7,dtype=float64",
        "matmul:M=1,N=8,K=7",
        "conv2d:N=1,H=5,W=6,CI=4,CO=6,KH=3,KW=2,groups=2",
        "depthwise_conv2d:N=1,H=9,W=9,C=5,KH=3,KW=3,pad=1",
        "reduce_sum:M=9,N=8,axis=1",
        "softmax:M=9,N=8",
    ],
)
def test_other_stages_are_left_as_they_are(spec: str) -> None:
    assert bf16x3(parse_spec(spec).expression) is None


def test_padding_with_anything_but_zero_is_left_as_it_is() -> None:
    text = (
        "kernel k(A: f32[8, 9], B: f32[9, 7]) -> (C: f32[8, 7]) { C[i, j] += (A[i - 1, k] "
        "else 1) * B[k, j] for k in 0:9 }"
    )
    assert bf16x3(workload_from_notation(text, {}).expression) is None


def test_what_is_summed_lies_together_in_the_factor_that_neighbours_share() -> None:
    """The other one may lie either way."""
    for transposed in ("transpose_a=true", "transpose_a=true,transpose_b=true", "transpose_b=true"):
        rewritten = bf16x3(parse_spec(f"matmul:M=5,N=6,K=7,{transposed}").expression)
        assert rewritten is not None
        shapes = [stage.tensor.shape for stage in rewritten.stages]
        assert shapes == [
            (3, 5, 7),
            (3, 6, 7) if "transpose_b" in transposed else (3, 7, 6),
            (5, 6),
        ]


def test_it_is_a_sketch_under_fast_numerics_where_the_target_has_the_unit() -> None:
    strict, fast = (
        shared_space(spec, TARGET).space for spec in (PRODUCT, f"{PRODUCT},numerics=fast")
    )
    assert not any(SUFFIX in sketch.name for sketch in strict.combinations)
    assert [sketch.name for sketch in fast.combinations if SUFFIX not in sketch.name] == [
        sketch.name for sketch in strict.combinations
    ]
    assert [sketch.name for sketch in fast.combinations if SUFFIX in sketch.name] == [
        "CAsplit:tile_p1+CBsplit:tile_p1+Csplit:amx_j",
    ]
    assert len({knob.name for knob in fast.knobs}) == len(fast.knobs)
    without = shared_space(
        f"{PRODUCT},numerics=fast", replace(TARGET, isa=("avx512f", "avx512bf16"))
    )
    assert without.space == strict


def test_every_product_of_a_workload_is_offered() -> None:
    space = shared_space("attention:B=1,H=2,S=64,D=32,numerics=fast", TARGET).space
    (name,) = (sketch.name for sketch in space.combinations if SUFFIX in sketch.name)
    assert name.count(":amx_") == 2


def test_a_sum_that_the_unit_cannot_take_is_not_rewritten_in_vain() -> None:
    """A gathered factor is read one by one."""
    text = """kernel k(A: f32[64, 64], I: i32[64], B: f32[64, 64]) -> (C: f32[64, 64]) {
      C[i, j] += A[i, clamp(I[k], 0, 63)] * B[k, j]
    }"""
    space = cpu_space(workload_from_notation(text, {}, numerics="fast"), TARGET, 1).space
    assert space.combinations and not any(SUFFIX in sketch.name for sketch in space.combinations)


def test_a_time_is_judged_by_the_unit_that_needs_least() -> None:
    strict, fast = parse_spec(PRODUCT), parse_spec(f"{PRODUCT},numerics=fast")
    assert fewest_flops(strict, TARGET) == fewest_flops(fast) == strict.expression.flops
    assert fewest_flops(fast, TARGET) == strict.expression.flops * 3 // 16


def rewritten_configs(workload: Workload, count: int) -> tuple[TargetSpace[Any], list[Config]]:
    space = cpu_space(workload, TARGET, 1)
    rewritten = [SUFFIX in sketch.name for sketch in space.space.combinations]
    points = [
        point for point in space.space.sample(np.random.default_rng(3), 400) if rewritten[point[0]]
    ]
    assert np.isfinite(featurizer(space)(np.stack(points))).all()
    return space, [space.space.config(point) for point in points[:count]]


@pytest.mark.parametrize("spec", [LINEAR[3], pytest.param(PRODUCT, marks=pytest.mark.slow)])
def test_programs_compute_what_the_reference_computes(spec: str) -> None:
    workload = parse_spec(f"{spec},numerics=fast")
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    want = evaluate(workload.expression, inputs)[workload.expression.outputs[0]]
    space, configs = rewritten_configs(workload, 2)
    for config in configs:
        (got,) = run(space.program(config), dict(inputs))
        assert (np.abs(got - want) <= LOST * size(workload.expression, inputs)).all(), config


def called(
    workload: Workload, config: Config, inputs: Mapping[str, NDArray[np.generic]], *, poorer: bool
) -> Array:
    """What the kernel computes: with the unit's instructions, or with plain loops where
    a CPU has none."""
    built = compile_kernel(
        workload=workload, target=TARGET, threads=1, config=config, symbol="kernel"
    )
    assert "tdpbf16ps" in built.sources["asm"]
    if poorer:
        plain = replace(TARGET, tvm={"kind": "llvm", "mcpu": "x86-64"}, isa=("sse2",))
        built = replace(built, generated=build(replay(built.schedule), plain))
    (name,) = workload.expression.outputs
    made = tensor(np.zeros(workload.expression.tensor(name).shape, np.float32))
    built.generated["kernel"](*(tensor(array) for array in inputs.values()), made)
    return np.asarray(made.numpy(), np.float64)


def test_what_two_products_share_is_loaded_once() -> None:
    """Of two by two registers each product changes one factor: eight loads of registers
    for three products, not twelve."""
    workload = parse_spec("matmul:M=64,N=64,K=64,numerics=fast")
    space, configs = rewritten_configs(workload, 400)
    for config in configs:
        if (
            config["Csplit.amx_j.register"] == (32, 32)
            and config["Csplit.amx_j.copy1_CBsplit"] == "pack_root"
        ):
            text = str(
                use_amx_tiles(
                    schedule(space.program(config), "kernel").mod, isa_of(TARGET)
                ).script()
            )
            assert text.count("tdpbf16ps") == 12 and text.count("tileloadd64") == 8
            return
    raise AssertionError("no such config among those drawn")


def test_a_packed_factor_has_each_of_its_two_parts_once() -> None:
    """Though it is read by three products."""
    space, configs = rewritten_configs(parse_spec("matmul:M=64,N=64,K=64,numerics=fast"), 400)
    copies = [f"Csplit.amx_j.copy{number}" for number in ("0_CAsplit", "1_CBsplit")]
    packs = (c for c in configs if all(str(c[name]).startswith("pack") for name in copies))
    buffers = space.program(next(packs)).buffers
    sizes = [prod(buffer.shape) for buffer in buffers if "_pack" in buffer.name]
    assert len(sizes) == 2 and all(size <= 2 * 64 * 64 for size in sizes)


@pytest.mark.slow
@pytest.mark.parametrize("spec", LINEAR)
@pytest.mark.parametrize("poorer", [pytest.param(False, marks=NEEDS_AMX), True])
def test_kernels_compute_what_the_reference_computes(spec: str, poorer: bool) -> None:
    workload = parse_spec(f"{spec},numerics=fast")
    expression = workload.expression
    inputs = make_inputs(expression, seed=5, kind="normal")
    want = evaluate(expression, inputs)[expression.outputs[0]]
    for config in rewritten_configs(workload, 3)[1]:
        got = called(workload, config, inputs, poorer=poorer)
        assert (np.abs(got - want) <= (LOST + SUMS) * size(expression, inputs)).all(), config


@pytest.mark.parametrize("poorer", [pytest.param(False, marks=NEEDS_AMX), True])
def test_the_worst_numbers_lose_as_much_as_is_said(poorer: bool) -> None:
    """The rest of 1 + 509 * 2^-17 is nearly 2^-8 and halfway between two bfloat16, of
    which the smaller is even."""
    workload = parse_spec(f"{PRODUCT},numerics=fast")
    inputs = {
        tensor.name: np.full(tensor.shape, 1 + 509 * 2.0**-17, np.float32)
        for tensor in workload.expression.inputs
    }
    want = evaluate(workload.expression, inputs)["C"]
    got = called(workload, rewritten_configs(workload, 1)[1][0], inputs, poorer=poorer)
    error = np.abs(got - want) / want
    assert error.min() > 0.9 * LOST and error.max() <= LOST + SUMS


def test_parts_of_constants_are_made_ahead_of_any_call() -> None:
    workload = parse_spec(f"{PRODUCT},const=B,numerics=fast")
    config = rewritten_configs(workload, 1)[1][0]
    built = compile_kernel(
        workload=workload, target=TARGET, threads=1, config=config, symbol="kernel"
    )
    assert built.prepack is not None and all(
        tensor.shape[0] == 3 or "pack" in tensor.name for tensor in built.prepack.packed
    )
