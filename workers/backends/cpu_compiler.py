"""Compiles the candidates of a CPU. Loads TVM."""

from __future__ import annotations

from dataclasses import asdict

from tuner.lowering.compiler import Compiled, compile_program
from tuner.runtime.link import Function, link, toolchain_for
from tuner.runtime.object_file import machine_code_bytes
from tuner.spaces.by_target import cpu_space
from tuner.spaces.core.space import Config
from tuner.spaces.cpu.default import default_cpu_program
from tuner.spaces.program.in_place import overwritable
from tuner.spaces.program.program import Program
from tuner.workers.backends.backend import CompiledCandidate
from tuner.workers.backends.symbol import LIBRARY, symbol_of
from tuner.workers.fleet.messages import Problem


class CpuCandidateCompiler:
    """Candidates as object code linked against the C runtime."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.space = cpu_space(problem.workload, problem.target, problem.threads)

    def program(self, config: Config | None) -> Program:
        return default_cpu_program(self.space) if config is None else self.space.program(config)

    def compile(self, config: Config | None) -> CompiledCandidate:
        compiled = compile_program(
            self.program(config), self.problem.target, symbol_of(self.problem)
        )
        return CompiledCandidate(
            library=link(
                LIBRARY,
                [function(self.problem, compiled)],
                toolchain=toolchain_for(self.problem.target),
            ),
            code=compiled.object_code,
            code_bytes=machine_code_bytes(compiled.object_code),
            symbol=compiled.symbol,
            schedule=lambda: {
                **asdict(compiled.schedule),
                "sources": compiled.sources,
                "overwritable": list(overwritable(compiled.program)),
            },
        )


def function(problem: Problem, compiled: Compiled) -> Function:
    """The compiled kernel as the linker wants it."""
    return Function.of(
        problem.workload.expression,
        compiled.symbol,
        compiled.object_code,
        isa=problem.target.isa,
        threads=problem.threads,
        prepack=compiled.prepack,
    )
