"""Kernels of models for a GPU without a search: default schedules, and random ones."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from tuner.errors import IllegalSchedule
from tuner.export.kernel import ExportKernel, TargetName, arguments_of
from tuner.lowering.cuda.codegen import cuda_built
from tuner.lowering.cuda.nvcc import CudaCompiler
from tuner.models.graph import Graph
from tuner.models.workloads import workloads_of
from tuner.spaces.by_target import gpu_space
from tuner.spaces.cuda.default import default_cuda_program
from tuner.spaces.program.program import Program
from tuner.target.target import Target
from tuner.workload.workload import Workload


def cuda_kernels_of(
    graph: Graph, target: Target, compiler: CudaCompiler, seed: int | None = None
) -> Mapping[str, ExportKernel]:
    """The kernels of a model, by the workload's key; of default schedules without a seed."""
    return {
        part.workload.key: cuda_kernel_of(part.workload, target, compiler, seed)
        for part in workloads_of(graph)
    }


def cuda_kernel_of(
    workload: Workload, target: Target, compiler: CudaCompiler, seed: int | None
) -> ExportKernel:
    """A kernel whose numbers are made up."""
    symbol = f"kernel_{workload.key[:16]}"
    module = cuda_built(_program(workload, target, seed), target, symbol, compiler).module
    arguments = arguments_of(workload.expression)
    return ExportKernel(
        workload_key=workload.key,
        arguments=arguments,
        target=TargetName.of(target),
        isa=target.isa,
        threads=1,
        object_code=module.named([argument.name for argument in arguments]).pack(),
        tvm_symbol=f"__tvm_ffi_{symbol}",
        median_s=1e-5,
        ci95_s=(1e-5, 1e-5),
        verified=True,
        max_rel_error=0.0,
    )


def _program(workload: Workload, target: Target, seed: int | None) -> Program:
    space = gpu_space(workload, target)
    if seed is None:
        return default_cuda_program(space)
    generator = np.random.default_rng(seed)
    for _ in range(100):
        try:
            return space.program(space.space.config(space.space.sample(generator, 1)[0]))
        except IllegalSchedule:
            continue
    return default_cuda_program(space)
