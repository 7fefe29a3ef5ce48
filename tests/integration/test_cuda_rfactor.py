"""Reductions in parts on a GPU: offered where hardly a multiprocessor would have
anything to do, and right.

As of the other sketches, schedules run serially on the CPU, and kernels thread by
thread on the double of a GPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.device.machine import needs_compiler
from tests.support.cuda_emulated import check
from tests.support.cuda_serial import run_serially
from tests.support.spaces import shared_space
from tests.support.targets import SM_90
from tuner.cost_model.cuda.estimate import CudaEstimate, other_algorithms
from tuner.measure.gpu.runner import GpuRunner
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.spaces.core.target_space import TargetSpace
from tuner.spaces.rewrite.rfactor import SUFFIX
from tuner.workers.backends.cuda_compiler import CudaCandidateCompiler
from tuner.workers.fleet.messages import Problem
from tuner.workload.inputs import make_inputs
from tuner.workload.reference import error_bound, evaluate, magnitude, max_rel_error
from tuner.workload.spec import parse_spec

TARGET = SM_90
FEW = (
    "reduce_sum:M=1,N=600011",
    "reduce_max:M=3,N=200000,dtype=float16",
    "reduce_mean:M=70000,N=24,axis=0",
    "layer_norm:M=2,N=300007",
    "softmax:M=2,N=300000",
    "matmul:M=7,N=8,K=10000",
    "matmul:M=16,N=32,K=2048,dtype=bfloat16",
)
MANY = (
    "reduce_sum:M=64,N=65536",
    "layer_norm:M=4096,N=1024",
    "matmul:M=512,N=512,K=512",
    "matmul:M=128,N=256,K=512",
    "reduce_sum:M=1,N=65536",
)


def in_parts(space: TargetSpace[Any], count: int) -> Sequence[Config]:
    drawn = map(space.space.config, space.space.sample(np.random.default_rng(5), 40))
    return [config for config in drawn if SUFFIX in str(config["sketch"])][:count]


@pytest.mark.parametrize("spec", MANY)
def test_they_are_offered_where_multiprocessors_lack_work(spec: str) -> None:
    assert in_parts(shared_space(spec, TARGET), 1) == []


def test_a_search_tries_some_first_and_an_estimate_orders_them() -> None:
    space = shared_space(FEW[0], TARGET)
    first = other_algorithms(space, 4, seed=0)
    assert len(first) and all(SUFFIX in str(space.space.config(point)["sketch"]) for point in first)
    estimates = CudaEstimate(space)(space.space.sample(np.random.default_rng(0), 64))
    assert np.isfinite(estimates).all() and len(np.unique(estimates)) > 1


@pytest.mark.slow
@pytest.mark.parametrize("spec", FEW)
def test_loops_compute_the_expression(spec: str) -> None:
    workload = parse_spec(spec)
    expression, space = workload.expression, space_of(workload, TARGET, 1)
    arrays = make_inputs(expression, seed=7, kind="normal")
    want, scale = evaluate(expression, arrays), magnitude(expression, arrays)
    configs = in_parts(space, 2)
    assert len(configs) == 2
    for config in configs:
        off = max_rel_error(
            expression, run_serially(workload, space.program(config), arrays), want, scale
        )
        assert off <= error_bound(expression), f"{config} is {off:.3g} off"


@pytest.mark.slow
@needs_compiler
@pytest.mark.usefixtures("gpu_double")
@pytest.mark.parametrize(
    "spec", ["reduce_sum:M=1,N=600011", "layer_norm:M=2,N=300007", "matmul:M=7,N=8,K=10000"]
)
def test_kernels_are_right_thread_by_thread(spec: str, tmp_path: Path) -> None:
    workload = parse_spec(spec)
    compiler = CudaCandidateCompiler(
        Problem(workload=workload, target=TARGET, threads=1), tmp_path / "cubins"
    )
    with GpuRunner() as runner:
        runner.prepare(workload)
        for config in in_parts(compiler.space, 1):
            check(runner, compiler, config, tmp_path)
