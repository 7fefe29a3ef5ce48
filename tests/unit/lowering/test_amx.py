"""Sums in AMX's tile registers: offered where the target has them, taken by their
instructions, right on odd extents."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from tvm.runtime import tensor

from tests.support.amx import HERE, NEEDS_AMX, TARGET
from tests.support.program_interpreter import run
from tests.support.spaces import shared_space
from tuner.cost_model.cpu.cycles import TERM_NAMES
from tuner.cost_model.features import ESTIMATE, WIDTH, featurizer
from tuner.lowering.compiler import Compiled, build, compile_kernel, compile_program, compile_stored
from tuner.lowering.schedule import replay
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cpu.amx import TILES, MatrixArithmetic
from tuner.spaces.cpu.tile_sketch import TileSketch
from tuner.workload.arrays import numpy_dtype
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

SPECS = (
    "matmul:M=3,N=11,K=6,dtype=int8",
    "matmul:M=35,N=18,K=67,dtype=int8",
    "matmul:M=35,N=18,K=37,dtype=bfloat16",
    "matmul:M=17,N=20,K=40,transpose_b=true,dtype=bfloat16",
    "matmul:M=17,N=20,K=40,transpose_a=true,dtype=int8",
    "dense:M=5,N=33,K=70,bias=true,act=relu,dtype=bfloat16",
    "batch_matmul:B=3,M=18,N=7,K=34,transpose_b=true,dtype=bfloat16",
    "conv2d:N=1,H=5,W=9,CI=6,CO=17,KH=3,KW=3,stride=2,pad=1,layout=NHWC,dtype=bfloat16",
    "conv2d:N=1,H=5,W=9,CI=3,CO=17,KH=2,KW=3,pad=1,layout=NCHW,dtype=int8",
)


def sampled(
    spec: str, count: int, threads: int = 1, constants: str = ""
) -> tuple[TargetSpace[Any], list[Config]]:
    """Configs of AMX's sketches."""
    space = shared_space(spec + constants, TARGET, threads)
    points = space.space.sample(np.random.default_rng(3), 400)
    configs: list[Config] = [space.space.config(point) for point in points]
    return space, [config for config in configs if ":amx_" in str(config["sketch"])][:count]


def compiled(spec: str, config: Config, threads: int = 1) -> Compiled:
    return compile_kernel(
        workload=parse_spec(spec), target=TARGET, threads=threads, config=config, symbol="kernel"
    )


def called(built: Compiled, inputs: Mapping[str, Any], spec: str) -> list[np.ndarray[Any, Any]]:
    return ran(built, inputs, parse_spec(spec))


def ran(
    built: Compiled, inputs: Mapping[str, Any], workload: Workload
) -> list[np.ndarray[Any, Any]]:
    expression = workload.expression
    outputs = [expression.tensor(name) for name in expression.outputs]
    given = [tensor(array) for array in inputs.values()]
    made = [tensor(np.zeros(each.shape, numpy_dtype(each.dtype))) for each in outputs]
    built.generated["kernel"](*given, *made)
    return [each.numpy() for each in made]


def agrees(got: np.ndarray[Any, Any], want: np.ndarray[Any, Any]) -> bool:
    """Integers to the bit; bfloat16 within one rounding of its eight bits and what
    float32 sums differ by."""
    if got.dtype.kind in "iu":
        return bool(np.array_equal(got, want))
    return bool(
        np.allclose(got.astype(np.float64), want.astype(np.float64), rtol=2**-7, atol=2**-7)
    )


@pytest.mark.slow
@pytest.mark.parametrize("spec", SPECS)
def test_programs_compute_what_the_reference_computes(spec: str) -> None:
    workload = parse_spec(spec)
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    want = evaluate(workload.expression, inputs)
    space, configs = sampled(spec, 2)
    assert configs
    for config in configs:
        for name, got in zip(
            workload.expression.outputs, run(space.program(config), dict(inputs)), strict=True
        ):
            assert agrees(got, want[name]), config


@NEEDS_AMX
@pytest.mark.parametrize("spec", SPECS)
def test_kernels_compute_what_the_reference_computes(spec: str) -> None:
    workload = parse_spec(spec)
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    want = evaluate(workload.expression, inputs)
    for config in sampled(spec, 6)[1]:
        for name, got in zip(
            workload.expression.outputs, called(compiled(spec, config), inputs, spec), strict=True
        ):
            assert agrees(got, want[name]), config


def test_a_sum_in_no_loop_has_its_registers_until_it_ends() -> None:
    spec = "matmul:M=8,N=32,K=64,dtype=int8"
    for config in sampled(spec, 20)[1]:
        text = compiled(spec, config).sources["asm"]
        last = [
            text.rindex(instruction) for instruction in ("tdpbssd", "tilestored", "tilerelease")
        ]
        assert last == sorted(last) and text.count("tilerelease") == 1, config


TWO_SUMS = """kernel two(A: i8[8, 64], B: i8[64, 32], C: i8[8, 128], D: i8[128, 16]) -> (Y: i32[8, 32], Z: i32[8, 16]) {
  Y[i, j] += A[i, k] * B[k, j] for i in 0:8, j in 0:32, k in 0:64
  Z[i, j] += C[i, k] * D[k, j] for i in 0:8, j in 0:16, k in 0:128
}"""  # noqa: E501


@pytest.mark.parametrize("threads", [1, 2])
def test_two_sums_one_after_the_other_have_registers_of_their_own_shapes(threads: int) -> None:
    workload = workload_from_notation(TWO_SUMS, {})
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    want = evaluate(workload.expression, inputs)
    space = space_of(workload, TARGET, threads)
    every = [
        space.space.config(point) for point in space.space.sample(np.random.default_rng(3), 2000)
    ]
    configs = [config for config in every if str(config["sketch"]).count("amx") == 2][:4]
    assert configs
    for config in configs:
        built = compile_program(space.program(config), TARGET, "kernel")
        asm = built.sources["asm"]
        assert len(re.findall(r"^\s+tilerelease", asm, re.MULTILINE)) == 2
        if "amx-int8" in HERE.isa:
            for name, got in zip(
                workload.expression.outputs, ran(built, inputs, workload), strict=True
            ):
                assert np.array_equal(got, want[name]), config


@NEEDS_AMX
def test_blocks_of_the_reduction_and_threads_add_up() -> None:
    spec = "matmul:M=70,N=45,K=2100,dtype=bfloat16"
    workload = parse_spec(spec)
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    want = evaluate(workload.expression, inputs)["C"].astype(np.float64)
    space = space_of(workload, TARGET, 2)
    depths = next(
        knob
        for sketch in space.space.combinations
        for knob in sketch.knobs
        if knob.name.endswith("amx_j.depth")
    )
    assert len(depths.values) > 1
    for config in sampled(spec, 5, threads=2)[1]:
        (got,) = called(
            compiled(spec, {**config, depths.name: depths.values[0]}, threads=2), inputs, spec
        )
        assert np.abs(got.astype(np.float64) - want).max() < 2**-7 * np.abs(want).max(), config


@pytest.mark.parametrize(
    ("spec", "instruction"),
    [
        ("matmul:M=40,N=37,K=12,dtype=int8", "tdpbssd"),
        ("matmul:M=40,N=37,K=12,dtype=bfloat16", "tdpbf16ps"),
        ("matmul:M=1024,N=64,K=4096,dtype=bfloat16", "tdpbf16ps"),
    ],
)
def test_the_sum_is_taken_by_one_instruction_and_registers_are_set_up_outside_of_loops(
    spec: str, instruction: str
) -> None:
    for config in sampled(spec, 2)[1]:
        assembly = compiled(spec, config).sources["asm"]
        assert instruction in assembly
        assert (
            len(re.findall(r"^\s+ldtilecfg", assembly, re.MULTILINE)) <= 2
        )  # inlined, and the function itself
        assert len(re.findall(r"^\s+tilerelease", assembly, re.MULTILINE)) == 1


def test_a_stored_schedule_gives_the_same_code() -> None:
    spec = SPECS[2]
    config = sampled(spec, 1)[1][0]
    built = compiled(spec, config)
    assert compile_stored(built.schedule, TARGET) == built.object_code


@pytest.mark.parametrize(
    ("spec", "sketch"),
    [
        ("matmul:M=35,N=18,K=37,dtype=bfloat16", ":amx_"),
        ("matmul:M=35,N=18,K=37,dtype=bfloat16", ":pairs_"),
        ("matmul:M=17,N=40,K=33,dtype=int8", ":amx_"),
        ("matmul:M=17,N=40,K=33,dtype=int8", ":fours_"),
    ],
)
@pytest.mark.slow
def test_a_stored_schedule_runs_on_a_cpu_without_the_instruction(spec: str, sketch: str) -> None:
    poorer = replace(TARGET, tvm={"kind": "llvm", "mcpu": "x86-64"}, isa=("sse2",))
    workload = parse_spec(spec)
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    space = space_of(workload, TARGET, 1)
    configs = (
        space.space.config(point) for point in space.space.sample(np.random.default_rng(3), 100)
    )
    config = next(config for config in configs if sketch in str(config["sketch"]))
    built = replace(
        compiled(spec, config), generated=build(replay(compiled(spec, config).schedule), poorer)
    )
    (name,) = workload.expression.outputs
    assert agrees(called(built, inputs, spec)[0], evaluate(workload.expression, inputs)[name])


def test_constants_packed_ahead_cost_a_call_nothing() -> None:
    spec = "matmul:M=64,N=256,K=256,dtype=bfloat16"
    space, configs = sampled(spec, 100)
    ahead = [config for config in configs if config.get("C.amx_j.copy1_B") == "pack_root"]
    points = np.stack([space.space.point(config) for config in ahead])
    free = shared_space(spec + ",const=B", TARGET)
    terms = [
        featurizer(described_space)(points)[:, WIDTH + TERM_NAMES.index("packed_at_root")]
        for described_space in (space, free)
    ]
    assert (terms[1] < terms[0]).all()


def test_packed_constants_are_given_to_the_kernel() -> None:
    spec, constants = "matmul:M=35,N=18,K=64,dtype=bfloat16", ",const=B"
    for config in sampled(spec, 40, constants=constants)[1]:
        if any(value == "pack_root" for name, value in config.items() if name.endswith("_B")):
            built = compiled(spec + constants, config)
            assert built.prepack is not None and "tdpbf16ps" in built.sources["asm"]
            return
    raise AssertionError("no config packs B first")


@pytest.mark.parametrize(
    ("spec", "isa"),
    [
        ("matmul:M=40,N=37,K=12", TARGET.isa),  # float32
        ("matmul:M=40,N=37,K=12,dtype=float16", TARGET.isa),  # which needs AMX-FP16
        ("matmul:M=40,N=37,K=12,dtype=bfloat16", ("amx-int8", "amx-tile", "avx512f")),
        ("matmul:M=1,N=37,K=12,dtype=bfloat16", TARGET.isa),  # nothing for rows
        (
            "depthwise_conv2d:N=1,H=9,W=8,C=32,KH=3,KW=3,pad=1,dtype=int8",
            TARGET.isa,
        ),  # nothing that only one factor moves with
        ("reduce_sum:M=64,N=64,axis=1,dtype=int8", TARGET.isa),
    ],
)
def test_where_it_does_not_apply_there_is_no_such_sketch(spec: str, isa: tuple[str, ...]) -> None:
    target = replace(TARGET, isa=isa)
    assert not any("amx" in sketch.name for sketch in shared_space(spec, target).space.combinations)


def amx_sketches(space: TargetSpace[Any]) -> list[tuple[TileSketch, MatrixArithmetic]]:
    """The sketches of a space whose sums are in matrix registers."""
    return [
        (sketch, sketch.arithmetic)
        for combination in space.sketches.values()
        for sketch in combination
        if isinstance(sketch, TileSketch) and isinstance(sketch.arithmetic, MatrixArithmetic)
    ]


def test_registers_suffice_for_every_tile() -> None:
    assert {(1, 1), (2, 2), (1, 6), (6, 1)} <= set(TILES)
    spec = "matmul:M=200,N=200,K=64,dtype=int8"
    space, configs = sampled(spec, 12)
    sketches = amx_sketches(space)
    assert sketches
    for sketch, arithmetic in sketches:
        assert arithmetic.rows(sketch.stage) == 16
        tiles = {(rows * 16, columns * 16) for rows, columns in TILES}
        assert set(sketch.choices.register_tile.values) == tiles
    for config in configs:
        used = {
            int(number) for number in re.findall(r"%tmm(\d)", compiled(spec, config).sources["asm"])
        }
        assert used <= set(range(8))


def test_rows_are_shared_evenly_among_registers() -> None:
    for extent, rows in ((28, 14), (16, 16), (17, 9), (5, 5), (100, 15)):
        space, _ = sampled(f"matmul:M={extent},N=40,K=64,dtype=bfloat16", 1)
        sketch, arithmetic = amx_sketches(space)[0]
        assert arithmetic.rows(sketch.stage) == rows


def test_registers_that_are_not_full_compute_less_in_the_same_time() -> None:
    def rate(spec: str) -> float:
        space, _ = sampled(spec, 1)
        return amx_sketches(space)[0][0].facts.rate

    full = rate("matmul:M=64,N=40,K=64,dtype=bfloat16")
    assert rate("matmul:M=64,N=40,K=8,dtype=bfloat16") == full / 4  # four words of two
    assert rate("matmul:M=4,N=40,K=64,dtype=bfloat16") == full / 4  # four rows
    assert rate("matmul:M=4,N=40,K=8,dtype=bfloat16") == full / 4


def test_the_cost_model_expects_it_to_be_faster() -> None:
    space, _ = sampled("matmul:M=256,N=256,K=256,dtype=bfloat16", 1)
    points = space.space.sample(np.random.default_rng(0), 300)
    features = featurizer(space)(points)
    assert np.isfinite(features).all()
    amx = np.array([":amx_" in str(space.space.config(point)["sketch"]) for point in points])
    assert features[amx, ESTIMATE].min() < features[~amx, ESTIMATE].min() - 1
