"""Compiles the candidates of an NVIDIA GPU, by nvcc or NVRTC. Loads TVM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tuner.export.kernel import arguments_of
from tuner.lowering.compiler import shortened
from tuner.lowering.cuda.codegen import cuda_built, cuda_kernels
from tuner.lowering.cuda.nvcc import CudaCompiler
from tuner.lowering.cuda.nvrtc import any_compiler
from tuner.lowering.schedule import schedule, stored
from tuner.runtime.cuda_link import link_cuda
from tuner.spaces.by_target import gpu_space
from tuner.spaces.core.space import Config
from tuner.spaces.cuda.default import default_cuda_program
from tuner.spaces.program.program import Program
from tuner.target.target import Target
from tuner.workers.backends.backend import CompiledCandidate
from tuner.workers.backends.symbol import LIBRARY, symbol_of
from tuner.workers.fleet.messages import Problem


class CudaCandidateCompiler:
    """Candidates as modules of cubins with their launches."""

    def __init__(self, problem: Problem, cache: Path) -> None:
        self.problem = problem
        self.space = gpu_space(problem.workload, problem.target)
        self._cache = cache

    @cached_property
    def compiler(self) -> CudaCompiler:
        """Raises UsageError where neither nvcc nor NVRTC is installed."""
        return any_compiler(self._cache)

    def program(self, config: Config | None) -> Program:
        return default_cuda_program(self.space) if config is None else self.space.program(config)

    def compile(self, config: Config | None) -> CompiledCandidate:
        program, target, symbol = self.program(config), self.problem.target, symbol_of(self.problem)
        built = cuda_built(program, target, symbol, self.compiler)
        # A program calls its tensors as is good for it; callers are told of the workload's.
        module = built.module.named(
            [argument.name for argument in arguments_of(self.problem.workload.expression)]
        )

        def stored_schedule() -> Mapping[str, Any]:
            scheduled = schedule(program, symbol)
            sources = {
                "tvmscript": str(scheduled.mod.script()),
                "cuda": cuda_kernels(program, target, symbol).text,
            }
            texts = {name: shortened(text) for name, text in sources.items()}
            return {**asdict(stored(program, symbol, scheduled)), "sources": texts}

        return CompiledCandidate(
            library=link_cuda(LIBRARY, [module]),
            code=module.pack(),
            symbol=symbol,
            schedule=stored_schedule,
            resources=built.resources,
        )


def cubin_of(source: str, target: Target) -> bytes:
    """The machine code of CUDA C++ that is compiled once, so nothing is kept.

    Raises BuildError, and UsageError where neither nvcc nor NVRTC is installed.
    """
    with TemporaryDirectory(prefix="tuner-cubins-") as folder:
        return any_compiler(Path(folder)).compile(source, target).code
