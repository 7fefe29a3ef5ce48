"""The warpgroup sketch: who has it, that its loops compute the expression, that its
kernels do, and what they take.

The loops are run with each instruction replaced by its description; the kernels thread
by thread on the double of a GPU, whose instruction reads permuted rows by their address
as PTX describes it.
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
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.cuda.warpgroup_knobs import CudaWarpgroupSketch
from tuner.workers.backends.cuda_compiler import CudaCandidateCompiler
from tuner.workers.fleet.messages import Problem
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec, workload_from_notation

pytestmark = pytest.mark.slow

# Depths that end within a block of the reduction, rows and columns that blocks do not
# divide, windows, steps, batches, epilogues.
WITH = (
    "matmul:M=128,N=128,K=192,dtype=float16", "matmul:M=216,N=168,K=136,dtype=bfloat16",
    "matmul:M=128,N=192,K=136,dtype=float16,transpose_b=true",
    "batch_matmul:B=2,M=64,N=64,K=128,dtype=float16",
    "dense:M=64,N=128,K=136,bias=true,act=gelu,dtype=float16",
    "conv2d:N=2,H=16,W=8,CI=72,CO=64,KH=3,KW=3,pad=1,act=relu,dtype=float16",
    "conv2d:N=8,H=14,W=14,CI=64,CO=64,KH=3,KW=3,pad=1,stride=2,dtype=bfloat16",
)  # fmt: skip
WITHOUT = (
    "matmul:M=128,N=128,K=128", "matmul:M=128,N=128,K=128,dtype=int8",
    "matmul:M=32,N=128,K=128,dtype=float16",
    "matmul:M=129,N=128,K=128,dtype=float16", "matmul:M=128,N=128,K=132,dtype=float16",
    "matmul:M=128,N=32,K=128,dtype=float16",
    "matmul:M=128,N=128,K=128,dtype=float16,transpose_a=true", "softmax:M=64,N=64,dtype=float16",
    "depthwise_conv2d:N=1,H=32,W=32,C=64,KH=3,KW=3,dtype=float16",
)  # fmt: skip


def sketch_of(space: TargetSpace[Any]) -> CudaWarpgroupSketch | None:
    every = (sketch for sketches in space.sketches.values() for sketch in sketches)
    return next((sketch for sketch in every if isinstance(sketch, CudaWarpgroupSketch)), None)


def rest_long(*quicker: str) -> list[Any]:
    """Each case once: what is no `quicker` one is a long test."""
    rest = (spec for spec in WITH if spec not in quicker)
    return [*quicker, *(pytest.param(spec, marks=pytest.mark.long) for spec in rest)]


def configs(space: TargetSpace[Any], count: int, seed: str) -> list[Config]:
    return points_of(space, count, seed, "warpgroup")


@pytest.mark.parametrize("spec", WITHOUT)
def test_what_warpgroups_do_not_take_has_no_such_sketch(spec: str) -> None:
    assert sketch_of(shared_space(spec, SM_90)) is None


@pytest.mark.parametrize(("outside", "offered"), [("0", True), ("1", False)])
def test_only_what_is_padded_with_zeros_is_copied_so(outside: str, offered: bool) -> None:
    text = f"""kernel k(X: f16[M, K], W: f16[K, N]) -> (Y: f16[M, N]) {{
      Y[i, j] += (X[i - 1, r] else {outside}) * W[r, j] for i in 0:128
    }}"""
    workload = workload_from_notation(text, {"M": 128, "N": 128, "K": 192})
    assert (sketch_of(space_of(workload, SM_90, 1)) is not None) == offered


def test_another_architecture_has_no_such_sketch() -> None:
    assert sketch_of(shared_space(WITH[0], SM_80)) is None


@pytest.mark.parametrize("spec", rest_long(WITH[1], WITH[5]))
def test_loops_compute_the_expression(spec: str) -> None:
    workload = parse_spec(spec)
    expression = workload.expression
    arrays = make_inputs(expression, seed=4, kind="normal")
    want, scale = evaluate_with_magnitude(expression, arrays)
    space = space_of(workload, SM_90, 1)
    for config in configs(space, 2, spec):
        off = max_rel_error(
            expression, run_serially(workload, space.program(config), arrays), want, scale
        )
        assert off <= error_bound(expression), f"{config} is {off:.3g} off"


@needs_compiler
@pytest.mark.parametrize("spec", rest_long(WITH[2], WITH[6]))
def test_kernels_are_right_thread_by_thread(spec: str, gpu_double: None, tmp_path: Path) -> None:
    workload = parse_spec(spec)
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=SM_90, threads=1), tmp_path / "cubins"
    )
    with GpuRunner() as runner:
        runner.prepare(workload)
        for config in configs(candidates.space, 3, spec):
            check(runner, candidates, config, tmp_path)


@pytest.mark.parametrize("spec", [WITH[0], WITH[5]])
def test_no_tile_takes_more_shared_memory_than_is_expected_of_it(spec: str) -> None:
    space = shared_space(spec, SM_90)
    sketch = sketch_of(space)
    assert sketch is not None
    (config,) = configs(space, 1, spec)
    for tile in sketch.block.values:
        tiled = {**config, sketch.block.name: tile.stored}
        made = cuda_kernels(space.program(tiled), SM_90, "k")
        assert made.launches[0].shared_bytes <= sketch.footprint(tile).shared_bytes, tile


def test_operands_begin_where_the_permutation_does() -> None:
    """Every operand, in every copy of it, begins at a multiple of 1024 bytes of memory
    that itself does."""
    space = shared_space("matmul:M=512,N=512,K=512,dtype=float16", SM_90)
    sketch = sketch_of(space)
    assert sketch is not None
    (config,) = configs(space, 1, "aligned")
    text = cuda_kernels(
        space.program({**config, f"{sketch.prefix}.tile": (2, 1, 1, 3, 3)}), SM_90, "k"
    ).text
    assert "extern __shared__ __align__(1024)" in text
    calls = [
        line
        for line in text.splitlines()
        if "tuner_warpgroup_multiply" in line and "buf_dyn" in line
    ]
    assert len(calls) == 3  # a turn of the loop, and the last two
    for call in calls:
        for operand in call.split("buf_dyn_shmem_ptr)[")[1:]:
            place = (
                operand.partition("])")[0]
                .replace("((int)threadIdx.y)", "1")
                .replace("k_2_fused", "1")
            )
            assert eval(place, {"__builtins__": {}}) * 2 % 1024 == 0, (
                place
            )  # digits and operators alone


@needs_nvcc
@pytest.mark.parametrize("spec", rest_long(WITH[0]))
def test_cubins_do_not_spill(spec: str, tmp_path: Path) -> None:
    space, compiler = shared_space(spec, SM_90), cuda_compiler(tmp_path)
    for config in configs(space, 3, spec):
        (kernel,) = compiler.compile(
            cuda_kernels(space.program(config), SM_90, "k").text, SM_90
        ).kernels
        assert not kernel.spills and kernel.stack_bytes == 0 and kernel.shared_bytes == 0, (
            config,
            kernel,
        )
