"""The multistage sketch of sm_80: who has it, that its blocks compute the expression, that its
kernels do, and what they take.

The kernels run thread by thread on the double of a GPU of that architecture, where what is
copied asynchronously comes when it is waited for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.device.machine import needs_compiler
from tests.support.cuda_emulated import check
from tests.support.cuda_points import configs as points_of
from tests.support.cuda_serial import run_serially
from tests.support.gpu_machine import needs_nvcc
from tests.support.spaces import shared_space
from tests.support.targets import SM_80, SM_90
from tuner.lowering.cuda.codegen import cuda_kernels
from tuner.lowering.cuda.nvcc import cuda_compiler
from tuner.measure.gpu.runner import GpuRunner
from tuner.spaces.core.space import Config, Value
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.multistage_knobs import CudaMultistageSketch
from tuner.workers.backends.cuda_compiler import CudaCandidateCompiler
from tuner.workers.fleet.messages import Problem
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec

pytestmark = pytest.mark.slow

# Extents that nothing divides, batches, either order of the right operand, each dtype.
WITH = (
    "matmul:M=128,N=128,K=320,dtype=float16", "matmul:M=216,N=168,K=136,dtype=bfloat16",
    "matmul:M=128,N=192,K=136,dtype=float16,transpose_b=true",
    "batch_matmul:B=2,M=120,N=64,K=72,dtype=float16",
    "dense:M=250,N=120,K=64,bias=true,act=relu,dtype=bfloat16",
    "dense:M=250,N=124,K=272,bias=true,act=relu,dtype=int8",
    "dense:M=250,N=124,K=100,bias=true,act=gelu,numerics=tensor",
)  # fmt: skip
WITHOUT = (
    "dense:M=128,N=128,K=128", "matmul:M=32,N=128,K=128,dtype=float16",
    "matmul:M=128,N=132,K=128,dtype=float16",
    "conv2d:N=2,H=16,W=8,CI=72,CO=64,KH=3,KW=3,pad=1,dtype=float16",
)  # fmt: skip
TILES = ((1, 2, 2, 0, 3), (2, 1, 1, 0, 4), (1, 1, 2, 0, 2))


def sketch_of(space: TargetSpace[Any]) -> CudaMultistageSketch | None:
    every = (sketch for sketches in space.sketches.values() for sketch in sketches)
    return next((sketch for sketch in every if isinstance(sketch, CudaMultistageSketch)), None)


def configs(space: TargetSpace[Any], spec: str) -> list[Config]:
    """A random point, and the tiles above that the space has."""
    sketch = sketch_of(space)
    assert sketch is not None
    (config,) = points_of(space, 1, spec, "multistage")
    tiled: list[dict[str, Value]] = [
        {**config, sketch.block.name: tile} for tile in TILES if tile in sketch.block.stored
    ]
    return [config, *tiled]


@pytest.mark.parametrize("spec", WITHOUT)
def test_others_have_no_such_sketch(spec: str) -> None:
    assert sketch_of(shared_space(spec, SM_80)) is None


def test_where_warpgroups_multiply_there_is_no_such_sketch() -> None:
    assert sketch_of(shared_space(WITH[0], SM_90)) is None


@pytest.mark.parametrize("spec", WITH)
def test_blocks_compute_the_expression(spec: str) -> None:
    workload = parse_spec(spec)
    expression = workload.expression
    arrays = make_inputs(expression, seed=4, kind="normal")
    want, scale = evaluate_with_magnitude(expression, arrays)
    space = shared_space(spec, SM_80)
    config = configs(space, spec)[0]
    off = max_rel_error(
        expression, run_serially(workload, space.program(config), arrays), want, scale
    )
    assert off <= error_bound(expression), f"{config} is {off:.3g} off"


@needs_compiler
@pytest.mark.parametrize("spec", WITH)
def test_kernels_are_right_thread_by_thread(spec: str, sm_80_double: None, tmp_path: Path) -> None:
    workload = parse_spec(spec)
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=SM_80, threads=1), tmp_path / "cubins"
    )
    with GpuRunner() as runner:
        runner.prepare(workload)
        for config in configs(candidates.space, spec):
            check(runner, candidates, config, tmp_path)


@needs_nvcc
@pytest.mark.parametrize("spec", [WITH[0], WITH[2], *WITH[5:]])
def test_cubins_do_not_spill(spec: str, tmp_path: Path) -> None:
    space, compiler = shared_space(spec, SM_80), cuda_compiler(tmp_path)
    for config in configs(space, spec)[:3]:
        text = cuda_kernels(space.program(config), SM_80, "k").text
        (kernel,) = compiler.compile(text, SM_80).kernels
        assert not kernel.spills and kernel.stack_bytes == 0, (config, kernel)
