"""What all candidates of one problem come from: its space, made once, and how its
target's code is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol

from tuner.export.kernel import arguments_of
from tuner.lowering.compiler import Compiled, compile_program, shortened
from tuner.lowering.cuda.codegen import cuda_built, cuda_kernels
from tuner.lowering.cuda.nvcc import CudaCompiler
from tuner.lowering.cuda.nvrtc import any_compiler
from tuner.lowering.schedule import schedule, stored
from tuner.measure.gpu.resources import Resources
from tuner.runtime.cuda_link import link_cuda
from tuner.runtime.link import Function, link
from tuner.spaces.by_target import space_of
from tuner.spaces.core.space import Config
from tuner.spaces.cuda.default import default_cuda_program
from tuner.spaces.default_schedule import default_program
from tuner.spaces.program.program import Program
from tuner.workers.fleet.messages import Problem

LIBRARY = "kernel"  # name of each candidate's library


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A candidate's code."""

    library: bytes  # what is measured
    code: bytes  # what it was linked from: an object, or a packed module with its cubins
    symbol: str
    described: Callable[
        [], Mapping[str, Any]
    ]  # its stored schedule with the sources; made for a winner only
    resources: Resources | None = None  # what it takes of a GPU


class Origin(Protocol):
    @property
    def problem(self) -> Problem: ...

    def made(self, config: Config | None) -> Made:
        """The code of a config, of the default schedule where there is none. Raises
        IllegalSchedule and what compilers raise."""
        ...


def origin_of(problem: Problem, storage: Path) -> Origin:
    """`storage`: directory where a compiler may keep what it made."""
    if problem.target.kind == "cuda":
        return CudaOrigin(problem, storage / "cubins")
    return CpuOrigin(problem)


def symbol_of(problem: Problem) -> str:
    """A C name of the kernel that does not depend on the config, so that equal code
    gives equal libraries."""
    stem = "".join(
        handoff if handoff.isalnum() else "_"
        for handoff in problem.workload.op or problem.workload.expression.name
    )
    return f"tuned_{stem}_{problem.workload.key[:8]}"


class CpuOrigin:
    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.space = space_of(problem.workload, problem.target, problem.threads)

    def program(self, config: Config | None) -> Program:
        return (
            default_program(self.problem.workload) if config is None else self.space.program(config)
        )

    def made(self, config: Config | None) -> Made:
        compiled = compile_program(
            self.program(config), self.problem.target, symbol_of(self.problem)
        )
        return Made(
            library=link(LIBRARY, [function(self.problem, compiled)]),
            code=compiled.object_code,
            symbol=compiled.symbol,
            described=lambda: {**asdict(compiled.schedule), "sources": compiled.sources},
        )


def function(problem: Problem, compiled: Compiled) -> Function:
    """The compiled kernel as the linker wants it."""
    expression = problem.workload.expression
    return Function(
        symbol=compiled.symbol,
        inputs=expression.inputs,
        outputs=tuple(expression.tensor(name) for name in expression.outputs),
        object_code=compiled.object_code,
        isa=problem.target.isa,
        threads=problem.threads,
        tvm_symbol=f"__tvm_ffi_{compiled.symbol}",
        prepack=compiled.prepack,
    )


class CudaOrigin:
    def __init__(self, problem: Problem, cache: Path) -> None:
        self.problem = problem
        self.space = space_of(problem.workload, problem.target, 1)
        self._cache = cache

    @cached_property
    def compiler(self) -> CudaCompiler:
        """Raises UsageError where neither nvcc nor NVRTC is installed."""
        return any_compiler(self._cache)

    def program(self, config: Config | None) -> Program:
        return default_cuda_program(self.space) if config is None else self.space.program(config)

    def made(self, config: Config | None) -> Made:
        program, target, symbol = self.program(config), self.problem.target, symbol_of(self.problem)
        built = cuda_built(program, target, symbol, self.compiler)
        # A program calls its tensors as is good for it; callers are told of the workload's.
        module = built.module.named(
            [argument.name for argument in arguments_of(self.problem.workload.expression)]
        )

        def described() -> Mapping[str, Any]:
            scheduled = schedule(program, symbol)
            sources = {
                "tvmscript": str(scheduled.mod.script()),
                "cuda": cuda_kernels(program, target, symbol).text,
            }
            texts = {name: shortened(text) for name, text in sources.items()}
            return {**asdict(stored(program, symbol, scheduled)), "sources": texts}

        return Made(
            library=link_cuda(LIBRARY, [module]),
            code=module.pack(),
            symbol=symbol,
            described=described,
            resources=built.resources,
        )
