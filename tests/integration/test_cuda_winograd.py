"""Winograd's convolution on a GPU: who has it, that its kernels compute the expression
in every layout, and that they compile.

As of the other sketches, schedules run serially on the CPU, kernels thread by thread on
the double of a GPU, and cubins are made for each architecture; how fast they are only a
GPU shows.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.machine import needs_compiler
from tests.support.cuda_emulated import check
from tests.support.cuda_serial import run_serially
from tests.support.cuda_winograd import SPECS
from tests.support.gpu_machine import needs_nvcc
from tests.support.program_interpreter import run
from tests.support.spaces import shared_space
from tests.support.targets import SM_80, SM_90
from tuner.cost_model.cuda.estimate import CudaEstimate
from tuner.lowering.cuda.codegen import cuda_kernels
from tuner.lowering.cuda.nvcc import cuda_compiler
from tuner.measure.gpu.runner import GpuRunner
from tuner.spaces.by_target import gpu_space
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.patch_knobs import CudaPatchSketch
from tuner.spaces.cuda.tile_knobs import CudaTileSketch
from tuner.spaces.rewrite.groups import TileGroup
from tuner.spaces.rewrite.winograd_tile import SUFFIX
from tuner.target.cuda import cuda_targets
from tuner.target.detect import parse_target
from tuner.target.target import Target
from tuner.workers.backends.cuda_compiler import CudaCandidateCompiler
from tuner.workers.fleet.messages import Problem
from tuner.workers.jobs.search import searcher_for
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec, workload_from_notation
from tuner.workload.workload import Workload

pytestmark = pytest.mark.slow

WITHOUT = (
    "conv2d:N=1,H=14,W=14,CI=16,CO=32,KH=3,KW=3,pad=1",
    "conv2d:N=1,H=14,W=14,CI=16,CO=32,KH=3,KW=3,pad=1,dtype=float16,numerics=fast",
    "conv2d:N=1,H=14,W=14,CI=16,CO=32,KH=3,KW=3,pad=1,dtype=bfloat16,numerics=fast",
    "conv2d:N=1,H=14,W=14,CI=16,CO=32,KH=3,KW=3,pad=1,dtype=int8,numerics=fast",
    "conv2d:N=1,H=14,W=14,CI=16,CO=32,KH=3,KW=3,stride=2,numerics=fast",
    "matmul:M=16,N=16,K=16,numerics=fast",
)  # fmt: skip
LONG = 200  # points of all specs


def fast(spec: str) -> str:
    return f"{spec},numerics=fast"


def configs(space: TargetSpace[Any], count: int, seed: str) -> list[Config]:
    """Points of the rewritten convolution alone."""
    row = next(
        number
        for number, combination in enumerate(space.space.combinations)
        if SUFFIX in combination.name
    )
    rng = np.random.default_rng(zlib.crc32(seed.encode()))
    chosen: list[Config] = []
    while len(chosen) < count:
        chosen += [
            space.space.config(point)
            for point in space.space.sample(rng, 2 * count + 2)
            if point[0] == row
        ]
    return chosen[:count]


@pytest.mark.parametrize("spec", WITHOUT)
def test_it_is_offered_under_fast_numerics_and_of_float32_alone(spec: str) -> None:
    space = shared_space(spec, SM_90)
    assert not any(SUFFIX in sketch.name for sketch in space.space.combinations)


@pytest.mark.parametrize("spec", SPECS)
def test_it_comes_after_the_sum_itself_and_its_transformations_are_of_whole_squares(
    spec: str,
) -> None:
    space = shared_space(fast(spec), SM_90)
    *others, last = space.space.combinations
    assert others == list(shared_space(spec, SM_90).space.combinations)
    maps = [
        sketch.group for sketch in space.sketches[last.name] if isinstance(sketch, CudaPatchSketch)
    ]
    assert maps == [
        group
        for group in space.algorithms[last.name].groups
        if isinstance(group, TileGroup) and not group.anchor.reducer
    ]
    products = next(
        sketch
        for sketch in space.sketches[last.name]
        if isinstance(sketch, CudaTileSketch) and sketch.group.anchor.reducer
    )
    assert len(products.major) == 2 or "CO=1," in spec, (
        "nothing is reused between places of a square"
    )
    assert len(maps) == (3 if "CO=1," not in spec else 2), (
        "weights, inputs, outputs; inputs of one filter as they are summed"
    )


def check_serially(workload: Workload, points: int, seed: str) -> None:
    arrays = make_inputs(workload.expression, seed=4, kind="normal")
    want, scale = evaluate_with_magnitude(workload.expression, arrays)
    space = gpu_space(workload, SM_80)
    for config in configs(space, points, seed):
        off = max_rel_error(
            workload.expression, run_serially(workload, space.program(config), arrays), want, scale
        )
        assert off <= error_bound(workload.expression, "fast"), f"{config} is {off:.3g} off"


@pytest.mark.parametrize("spec", SPECS)
def test_loops_compute_the_expression(spec: str) -> None:
    check_serially(parse_spec(fast(spec)), 1, spec)


def test_a_convolution_among_other_stages_is_rewritten_alone() -> None:
    """Of two convolutions the first, with what follows it point by point; a mean after
    them stays one."""
    text = """kernel t(X: f32[N, H, W, C], A: f32[3, 3, C, K], B: f32[3, 3, K, K], R: f32[N, H, W, K]) -> (Y: f32[N, K]) {
      T[n, h, w, k] += (X[n, h + r - 1, w + s - 1, c] else 0) * A[r, s, c, k] for n in 0:N, h in 0:H, w in 0:W, k in 0:K
      U[n, h, w, k] = max(T[n, h, w, k] + R[n, h, w, k], 0)
      V[n, h, w, k] += (U[n, h + r - 1, w + s - 1, c] else 0) * B[r, s, c, k] for n in 0:N, h in 0:H, w in 0:W, k in 0:K
      Y[n, k] += V[n, h, w, k]
    }"""  # noqa: E501
    workload = replace(
        workload_from_notation(text, {"N": 2, "H": 7, "W": 6, "C": 5, "K": 8}), numerics="fast"
    )
    space = gpu_space(workload, SM_90)
    name = space.space.combinations[-1].name
    kinds = [sketch.name for sketch in space.sketches[name]]
    assert kinds == ["square", "square", "tile", "square", "tile", "tile"]
    assert np.isfinite(CudaEstimate(space)(space.space.sample(np.random.default_rng(0), 32))).all()
    check_serially(workload, 1, "stages")


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("spec", SPECS)
def test_two_hundred_points_compute_the_expression(spec: str) -> None:
    check_serially(parse_spec(fast(spec)), -(-LONG // len(SPECS)), f"long {spec}")


@pytest.mark.parametrize(
    "spec",
    [
        "conv2d:N=1,H=5,W=4,CI=2,CO=3,KH=3,KW=3,pad=1,act=relu",
        "conv2d:N=1,H=4,W=7,CI=1,CO=2,KH=3,KW=3,pad=2,layout=NCHW",
    ],
)
def test_programs_read_and_write_inside_their_buffers_and_leave_nothing_out(spec: str) -> None:
    workload = parse_spec(fast(spec))
    inputs = make_inputs(workload.expression, seed=5, kind="normal")
    want = evaluate(workload.expression, inputs)[workload.expression.outputs[0]]
    space = gpu_space(workload, SM_90)
    for config in configs(space, 3, spec):
        (got,) = run(space.program(config), dict(inputs))
        np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9, err_msg=str(config))


@needs_compiler
@pytest.mark.usefixtures("gpu_double")
@pytest.mark.parametrize(
    ("spec", "points"),
    [
        ("conv2d:N=1,H=8,W=10,CI=8,CO=16,KH=3,KW=3,pad=1,act=relu", 1),
        ("conv2d:N=1,H=7,W=9,CI=3,CO=5,KH=3,KW=3,layout=NCHW,bias=true,act=gelu", 1),
        *(pytest.param(spec, 3, marks=pytest.mark.long) for spec in SPECS),
    ],
)
def test_kernels_are_right_thread_by_thread(spec: str, points: int, tmp_path: Path) -> None:
    """On inputs of all kinds: what is large in a square must not spoil its neighbours."""
    workload = parse_spec(fast(spec))
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=SM_90, threads=1),
        tmp_path / "cubins",
    )
    with GpuRunner() as runner:
        runner.prepare(workload)
        for config in configs(candidates.space, points, f"threads {spec}"):
            check(runner, candidates, config, tmp_path)


@needs_nvcc
@pytest.mark.parametrize("arch", cuda_targets())
@pytest.mark.parametrize(
    "spec",
    [
        "conv2d:N=8,H=28,W=28,CI=64,CO=64,KH=3,KW=3,pad=1,act=relu",
        *(
            pytest.param(spec, marks=pytest.mark.long)
            for spec in (
                "conv2d:N=4,H=56,W=56,CI=64,CO=64,KH=3,KW=3,pad=1,bias=true,act=gelu",
                "conv2d:N=2,H=7,W=7,CI=512,CO=512,KH=3,KW=3,pad=1,layout=NCHW",
                "conv2d:N=1,H=31,W=45,CI=24,CO=40,KH=3,KW=3,pad=1",
            )
        ),
    ],
)
def test_cubins_take_no_more_than_expected_and_do_not_spill(
    spec: str, arch: str, tmp_path: Path
) -> None:
    target = parse_target(f"cuda:{arch}")
    space = shared_space(fast(spec), target)
    check_cubins(space, target, configs(space, 2, spec), tmp_path)


@needs_nvcc
@pytest.mark.long
@pytest.mark.parametrize("arch", cuda_targets())
@pytest.mark.parametrize(
    "spec",
    [
        "conv2d:N=32,H=14,W=14,CI=256,CO=256,KH=3,KW=3,pad=1",
        "conv2d:N=16,H=28,W=28,CI=128,CO=128,KH=3,KW=3,pad=1,layout=NCHW",
    ],
)
def test_what_a_search_tries_first_does_not_spill(spec: str, arch: str, tmp_path: Path) -> None:
    target = parse_target(f"cuda:{arch}")
    space = shared_space(fast(spec), target)
    asked = [
        space.space.config(point)
        for point in searcher_for(space, strategy="annealing", seed=0).ask(4)
    ]
    assert any(SUFFIX in str(config["sketch"]) for config in asked)
    check_cubins(space, target, asked, tmp_path)


def check_cubins(
    space: TargetSpace[Any], target: Target, chosen: Sequence[Config], folder: Path
) -> None:
    compiler = cuda_compiler(folder)
    for config in chosen:
        source = cuda_kernels(space.program(config), target, "k")
        kernels = {kernel.name: kernel for kernel in compiler.compile(source.text, target).kernels}
        for launch, sketch in zip(
            source.launches, space.sketches[str(config["sketch"])], strict=True
        ):
            kernel = kernels[launch.kernel]
            assert not kernel.spills and kernel.stack_bytes == 0, (config, kernel)
            if isinstance(sketch, CudaPatchSketch):
                shape = sketch.block.of(config)
                assert kernel.registers <= sketch.footprint(shape).registers, (shape, kernel)
                assert math.prod(launch.block) == math.prod(shape.threads) and launch.grid[0] >= 1
