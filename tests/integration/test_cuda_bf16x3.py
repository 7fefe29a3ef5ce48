"""Products of float32 as three of bfloat16 on a GPU's tensor cores: who has them, that
they are the sum, and that they compile.

As of the other sketches, schedules run serially on the CPU, kernels thread by thread on
the double of a GPU, and cubins are made for each architecture; how fast they are only a
GPU shows.
"""

from __future__ import annotations

import zlib
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.machine import needs_compiler
from tests.support.cuda_bf16x3 import SPECS
from tests.support.cuda_emulated import check
from tests.support.cuda_serial import run_serially
from tests.support.gpu_machine import needs_nvcc
from tests.support.program_interpreter import run
from tests.support.serial_modules import without_instructions
from tests.support.spaces import shared_space
from tests.support.targets import SM_80, SM_90
from tuner.errors import IllegalSchedule
from tuner.export.kernel import arguments_of
from tuner.lowering.cuda.codegen import cuda_kernels
from tuner.lowering.cuda.nvcc import cuda_compiler
from tuner.measure.gpu.runner import GpuRunner
from tuner.runtime.cuda_module import unpacked
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.rewrite.bf16x3 import SUFFIX
from tuner.target.cuda import cuda_targets
from tuner.target.detect import parse_target
from tuner.workers.backends.cuda_compiler import CudaCandidateCompiler
from tuner.workers.fleet.messages import Problem
from tuner.workers.jobs.search import searcher_for
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import evaluate, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec

pytestmark = pytest.mark.slow

LOST = (
    2.0**-15 + 2.0**-24 * 40
)  # of the size of each term, and what float32's own rounding of sums loses
WITHOUT = (
    "matmul:M=64,N=64,K=64", "matmul:M=64,N=64,K=64,dtype=float64,numerics=fast",
    "matmul:M=8,N=64,K=64,numerics=fast",
    "matmul:M=64,N=64,K=64,dtype=float16,numerics=fast", "matmul:M=64,N=1,K=64,numerics=fast",
    "depthwise_conv2d:N=1,H=32,W=32,C=32,KH=3,KW=3,numerics=fast",
    "softmax:M=64,N=64,numerics=fast",
)  # fmt: skip


def fast(spec: str) -> str:
    return f"{spec},numerics=fast"


def split_sketches(space: TargetSpace[Any]) -> dict[str, int]:
    """Places of the sketches with three products, by the name of the one that sums them."""
    return {
        combination.name.rsplit(":", 1)[1]: index
        for index, combination in enumerate(space.space.combinations)
        if f"{SUFFIX}:" in combination.name
    }


def configs(space: TargetSpace[Any], count: int, seed: str) -> list[Config]:
    """`count` points of each of these sketches, of those that fit."""
    points = space.space.sample(np.random.default_rng(zlib.crc32(seed.encode())), 4000)
    chosen: list[Config] = []
    for row in split_sketches(space).values():
        own = (space.space.config(point) for point in points[points[:, 0] == row])
        chosen += islice((config for config in own if fits(space, config)), count)
    assert len(chosen) == count * len(split_sketches(space))
    return chosen


def fits(space: TargetSpace[Any], config: Config) -> bool:
    """Whether a block can have so many copies of its operands, of all three products at once."""
    try:
        space.program(config)
    except IllegalSchedule:
        return False
    return True


@pytest.mark.parametrize("spec", WITHOUT)
def test_what_tensor_cores_do_not_take_is_not_rewritten(spec: str) -> None:
    assert not split_sketches(shared_space(spec, SM_90))


@pytest.mark.parametrize("spec", SPECS)
def test_it_comes_after_the_sum_itself_and_is_summed_on_tensor_cores_alone(spec: str) -> None:
    space, strict = (
        shared_space(fast(spec), SM_90),
        shared_space(spec, SM_90),
    )
    assert space.space.combinations[: len(strict.space.combinations)] == strict.space.combinations
    sketches = split_sketches(space)
    assert sketches and sketches.keys() <= {"mma", "warpgroup"}
    older = split_sketches(shared_space(fast(spec), SM_80))
    assert older.keys() == sketches.keys() - {"warpgroup"}


@pytest.mark.parametrize("spec", SPECS)
def test_loops_compute_the_expression(spec: str) -> None:
    check_serially(spec, 1)


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("spec", SPECS)
def test_many_points_compute_the_expression(spec: str) -> None:
    check_serially(spec, 12)


def check_serially(spec: str, points: int) -> None:
    workload = parse_spec(fast(spec))
    arrays = make_inputs(workload.expression, seed=4, kind="normal")
    want, scale = evaluate_with_magnitude(workload.expression, arrays)
    space = space_of(workload, SM_90, 1)
    for config in configs(space, points, spec):
        off = max_rel_error(
            workload.expression,
            run_serially(workload, without_instructions(space.program(config)), arrays),
            want,
            scale,
        )
        assert off <= LOST, f"{config} is {off:.3g} off"


@pytest.mark.parametrize("spec", ["matmul:M=64,N=64,K=24", "matmul:M=17,N=19,K=21"])
def test_programs_read_and_write_inside_their_buffers(spec: str) -> None:
    workload = parse_spec(fast(spec))
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    want = evaluate(workload.expression, inputs)[workload.expression.outputs[0]]
    size = evaluate(workload.expression, {name: np.abs(array) for name, array in inputs.items()})[
        workload.expression.outputs[0]
    ]
    space = space_of(workload, SM_90, 1)
    for config in configs(space, 1, spec):
        (got,) = run(space.program(config), dict(inputs))
        assert (np.abs(got - want) <= LOST * size).all(), config


@needs_compiler
@pytest.mark.usefixtures("gpu_double")
@pytest.mark.parametrize(
    ("spec", "points"),
    [
        ("matmul:M=64,N=72,K=40", 1),
        *(pytest.param(spec, 2, marks=pytest.mark.long) for spec in SPECS),
    ],
)
def test_kernels_are_right_thread_by_thread(spec: str, points: int, tmp_path: Path) -> None:
    """On inputs of all kinds."""
    workload = parse_spec(fast(spec))
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=SM_90, threads=1), tmp_path / "cubins"
    )
    arguments = [argument.name for argument in arguments_of(workload.expression)]
    with GpuRunner() as runner:
        runner.prepare(workload)
        for config in configs(candidates.space, points, f"threads {spec}"):
            module = unpacked(candidates.compile(config).code)
            assert [argument.name for argument in (*module.inputs, *module.outputs)] == arguments, (
                "as callers know them"
            )
            check(runner, candidates, config, tmp_path)


@needs_nvcc
@pytest.mark.parametrize("arch", cuda_targets())
@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=1024,N=1024,K=1024",
        *(
            pytest.param(spec, marks=pytest.mark.long)
            for spec in ("attention:B=2,H=4,S=256,D=64", SPECS[4], SPECS[5])
        ),
    ],
)
def test_cubins_read_halves_from_memory_as_they_lie_there_and_do_not_spill(
    spec: str, arch: str, tmp_path: Path
) -> None:
    target = parse_target(f"cuda:{arch}")
    space = shared_space(fast(spec), target)
    compiler = cuda_compiler(tmp_path)
    for config in configs(space, 2, spec):
        source = cuda_kernels(space.program(config), target, "k")
        assert (
            "nv_bfloat16* __restrict__" in source.text and "ushort* __restrict__" not in source.text
        )
        if "async" in str(config) or "warpgroup" in str(config["sketch"]):
            assert "cp_async" in source.text, "numbers that are copied as they are"
        assert not any(kernel.spills for kernel in compiler.compile(source.text, target).kernels), (
            config
        )


def test_a_search_tries_it_early() -> None:
    space = shared_space("matmul:M=2048,N=2048,K=2048,numerics=fast", SM_90)
    asked = space.algorithms, searcher_for(space, strategy="annealing", seed=0).ask(8)
    names = [space.space.combinations[point[0]].name for point in asked[1]]
    assert any(f"{SUFFIX}:" in name for name in names) and any(
        f"{SUFFIX}:" not in name for name in names
    )
