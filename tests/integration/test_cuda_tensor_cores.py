"""The tensor-core sketch: who has it, that its loops compute the expression, and that
its instructions get into the source.

The loops are run with each instruction replaced by its description; what the
instructions themselves do only a GPU shows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from tests.device.machine import needs_compiler
from tests.support.cuda_emulated import check
from tests.support.cuda_points import configs
from tests.support.cuda_serial import run_serially
from tests.support.gpu_machine import needs_nvcc
from tests.support.spaces import shared_space
from tests.support.targets import SM_80, SM_90
from tuner.errors import IllegalSchedule
from tuner.lowering.cuda.codegen import cuda_kernels
from tuner.lowering.cuda.nvcc import cuda_compiler
from tuner.lowering.schedule import schedule, stored
from tuner.measure.gpu.runner import GpuRunner
from tuner.spaces.by_target import space_of
from tuner.spaces.cuda.mma_knobs import CudaMmaSketch
from tuner.spaces.program.instructions import TensorInstruction
from tuner.spaces.program.program import Pipeline, Program, Tensorize
from tuner.target.cuda import cuda_targets
from tuner.target.detect import parse_target
from tuner.workers.backends.cuda_compiler import CudaCandidateCompiler
from tuner.workers.fleet.messages import Problem
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate_with_magnitude, max_rel_error
from tuner.workload.spec import parse_spec

pytestmark = pytest.mark.slow

WITH = (
    "matmul:M=64,N=64,K=64,dtype=float16", "matmul:M=61,N=67,K=71,dtype=bfloat16",
    "matmul:M=64,N=80,K=96,dtype=int8",
    "matmul:M=48,N=64,K=40,dtype=float16,transpose_b=true",
    "batch_matmul:B=3,M=48,N=40,K=36,dtype=bfloat16",
    "dense:M=64,N=128,K=64,bias=true,act=gelu,dtype=float16", "dense:M=30,N=96,K=80,dtype=int8",
    "conv2d:N=1,H=5,W=32,CI=24,CO=32,KH=3,KW=3,pad=1,act=relu,dtype=float16",
)  # fmt: skip
WITHOUT = (
    "matmul:M=64,N=64,K=64", "matmul:M=64,N=64,K=64,dtype=float64",
    "matmul:M=8,N=64,K=64,dtype=float16",
    "matmul:M=64,N=64,K=64,dtype=float16,transpose_a=true", "softmax:M=64,N=64,dtype=float16",
    "conv2d:N=1,H=32,W=64,CI=16,CO=16,KH=3,KW=3,stride=2,dtype=float16",
    "depthwise_conv2d:N=1,H=32,W=32,C=32,KH=3,KW=3,dtype=float16",
)  # fmt: skip


def steps(program: Program) -> tuple[list[TensorInstruction], list[Pipeline]]:
    """Instructions, and loops whose copies run ahead."""
    instructions = [step.instruction for step in program.steps if isinstance(step, Tensorize)]
    return instructions, [step for step in program.steps if isinstance(step, Pipeline)]


@pytest.mark.parametrize("spec", WITHOUT)
def test_what_tensor_cores_do_not_take_has_no_such_sketch(spec: str) -> None:
    assert not any(
        ":mma" in combination.name for combination in shared_space(spec, SM_90).space.combinations
    )


@pytest.mark.parametrize("spec", WITH)
def test_loops_compute_the_expression(spec: str) -> None:
    workload = parse_spec(spec)
    expression = workload.expression
    arrays = make_inputs(expression, seed=4, kind="normal")
    want, scale = evaluate_with_magnitude(expression, arrays)
    space = space_of(workload, SM_80, 1)
    for config in configs(space, 3, spec):
        off = max_rel_error(
            expression, run_serially(workload, space.program(config), arrays), want, scale
        )
        assert off <= error_bound(expression), f"{config} is {off:.3g} off"


@pytest.mark.long
@pytest.mark.parametrize("spec", WITH)
def test_instructions_and_copies_are_in_the_source(spec: str) -> None:
    target = SM_80
    space = shared_space(spec, target)
    seen = set()
    for config in configs(space, 6, spec):
        how = str(next(value for name, value in config.items() if name.endswith("mma.pipeline")))
        if how in seen:
            continue
        seen.add(how)
        program = space.program(config)
        instructions, pipelines = steps(program)
        assert len(instructions) == 5 and len(pipelines) == (how != "none")
        text = cuda_kernels(program, target, "k").text
        for name in ("load_matrix_sync", "mma_sync", "fill_fragment", "store_matrix_sync"):
            assert name in text, config
        assert ("cp.async.commit_group" in text) == how.startswith("async")


@needs_compiler
@pytest.mark.usefixtures("gpu_double")
@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=48,N=64,K=96,dtype=int8",
        "conv2d:N=1,H=5,W=32,CI=24,CO=32,KH=3,KW=3,pad=1,act=relu,dtype=bfloat16",
    ],
)
def test_every_way_to_copy_is_right_thread_by_thread(spec: str, tmp_path: Path) -> None:
    workload = parse_spec(spec)
    candidates = CudaCandidateCompiler(
        Problem(workload=workload, target=SM_90, threads=1),
        tmp_path / "cubins",
    )
    (ways,) = [
        knob.values for knob in candidates.space.space.knobs if knob.name.endswith("mma.pipeline")
    ]
    with GpuRunner() as runner:
        runner.prepare(workload)
        for way, config in zip(ways, configs(candidates.space, len(ways), spec), strict=True):
            copying = {
                name: way if name.endswith("mma.pipeline") else value
                for name, value in config.items()
            }
            check(runner, candidates, copying, tmp_path)


def test_no_tile_takes_more_shared_memory_than_is_expected_of_it() -> None:
    target = SM_80
    space = shared_space("matmul:M=256,N=256,K=256,dtype=float16", target)
    sketch = next(
        sketch for (sketch,) in space.sketches.values() if isinstance(sketch, CudaMmaSketch)
    )
    for config in configs(space, 12, "shared"):
        tile, stages = sketch.block.of(config), sketch.pipelining.of(config).stages
        try:
            used = cuda_kernels(space.program(config), target, "k").launches[0].shared_bytes
        except IllegalSchedule:
            continue
        assert used <= sketch.footprint(tile, stages).shared_bytes, config


@pytest.mark.parametrize("sketch", ["mma", "warpgroup"])
def test_a_stored_schedule_is_applied_again_by_a_process_that_knows_no_instructions_yet(
    sketch: str, tmp_path: Path
) -> None:
    space = shared_space("matmul:M=128,N=128,K=256,dtype=float16", SM_90)
    (config,) = configs(space, 1, "stored", sketch)
    program = space.program(config)
    scheduled = schedule(program, "k")
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(asdict(stored(program, "k", scheduled))))
    code = (
        "import json, sys\n"
        "from tuner.lowering.schedule import StoredSchedule, replay\n"
        "print(replay(StoredSchedule(**json.load(open(sys.argv[1])))).script())\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.strip() == scheduled.mod.script().strip(), (
        done.stderr
    )


def test_an_older_gpu_copies_through_registers() -> None:
    ampere = SM_80
    older = shared_space(WITH[0], replace(ampere, tvm={**ampere.tvm, "arch": "sm_75"}))
    (ways,) = [knob.values for knob in older.space.knobs if knob.name.endswith("mma.pipeline")]
    assert ways == ("none", "registers")


@needs_nvcc
@pytest.mark.parametrize("arch", cuda_targets())
@pytest.mark.parametrize(
    "spec",
    [
        "matmul:M=512,N=512,K=512,dtype=float16",
        pytest.param("matmul:M=256,N=512,K=512,dtype=bfloat16", marks=pytest.mark.long),
        pytest.param("matmul:M=256,N=256,K=512,dtype=int8", marks=pytest.mark.long),
        pytest.param(
            "conv2d:N=4,H=56,W=56,CI=64,CO=64,KH=3,KW=3,pad=1,dtype=float16", marks=pytest.mark.long
        ),
        pytest.param(
            "dense:M=128,N=256,K=256,bias=true,act=gelu,dtype=float16", marks=pytest.mark.long
        ),
    ],
)
def test_cubins_do_not_spill(spec: str, arch: str, tmp_path: Path) -> None:
    target = parse_target(f"cuda:{arch}")
    space, compiler = shared_space(spec, target), cuda_compiler(tmp_path)
    for config in configs(space, 3, spec):
        try:
            program = space.program(config)
        except IllegalSchedule:
            continue
        (kernel,) = compiler.compile(cuda_kernels(program, target, "k").text, target).kernels
        assert not kernel.spills and kernel.shared_bytes == 0, (
            config,
            kernel,
        )  # all of it is asked for at the launch
